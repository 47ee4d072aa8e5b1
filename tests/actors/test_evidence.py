"""Why a request failed is told by how its process ended; stderr is evidence beside it, and the first cause comes first."""

from __future__ import annotations

import errno
import os
import signal
import traceback
from pathlib import Path

import pytest

import proctor
from proctor.actors.errors import StartKilled, StartRefused
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan, acp_plan
from proctor.actors.runs import ask, stream
from proctor.actors.specs import agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import SIGNAL_NAMES
from tests.actors.far_end import Step, agent_of, plan_of
from tests.runtime.programs import installed

WARNING = "scripted: eeee"
SCRIPT: list[Step] = [{"fault": "stderr:100"}, {"say": "begun"}, {"sleep": 60}, {"reply": "never"}]
ENDING_BY_THEMSELVES = {"SIGINT", "SIGTERM", "SIGPIPE", "SIGHUP"}
"""Signals that the scripted agent handles: it leaves with a status."""
KILLING = [signal.Signals[name] for name in SIGNAL_NAMES.values() if name not in ENDING_BY_THEMSELVES]


@pytest.mark.parametrize("number", KILLING, ids=lambda number: str(number.name))
async def test_a_process_that_a_signal_killed_is_explained_by_the_signal_and_not_by_its_stderr(
    number: signal.Signals, tmp_path: Path
) -> None:
    outcome = "killed_by_system" if number == signal.SIGKILL else "crashed"
    async with stream(plan_of(tmp_path, SCRIPT), "x") as live:
        async for event in live:
            if isinstance(event, v.Text):
                os.kill(live.delivery.pid or 0, number)
    answer = live.answer
    assert answer.outcome == outcome
    assert (answer.error or "").startswith(
        f"no answer before its process ended (killed by {number.name}; stderr ends '{WARNING}"
    )
    assert answer.delivery is not None
    assert (answer.delivery.signal, answer.delivery.stderr[: len(WARNING)]) == (number.name, WARNING)
    async with (
        proctor.open_supervisor([agent_of(tmp_path, SCRIPT)]) as sup,
        sup.agent("a").stream("x") as turn,
    ):
        while not isinstance(await anext(turn), v.Text):
            pass
        os.kill(turn.delivery.pid or 0, number)
        with pytest.raises(proctor.MaybeExecuted) as raised:
            await turn.finish()
    assert raised.value.outcome == outcome
    assert f"({outcome}): it was killed by {number.name}; stderr ends '{WARNING}" in str(raised.value)


@pytest.mark.parametrize(
    ("end", "error", "why"),
    [
        (
            "exit 3",
            StartRefused,
            "its process ended before it was ready (exit status 3; stderr ends 'warning: ",
        ),
        (
            "kill -SEGV $$",
            StartRefused,
            "its process ended before it was ready (killed by SIGSEGV; stderr ends 'warning: ",
        ),
        ("kill -KILL $$", StartKilled, "a was killed by SIGKILL before it was ready; stderr ends 'warning: "),
        ("exit 0", StartRefused, "its process ended before it was ready (normal; stderr ends 'warning: "),
    ],
)
async def test_a_process_that_never_got_ready_is_explained_by_its_end(
    end: str, error: type[Exception], why: str, tmp_path: Path
) -> None:
    program = installed(tmp_path / "agent", f"echo warning: no bubblewrap >&2; {end}")
    with pytest.raises(error) as raised:
        await ask(acp_plan("a", [str(program)], {"home": "private"}), "hi")
    assert why in str(raised.value)


async def test_a_status_is_told_before_what_the_process_wrote(tmp_path: Path) -> None:
    script: list[Step] = [{"fault": "stderr:100"}, {"say": "begun"}, {"fault": "exit:7"}]
    answer = await ask(plan_of(tmp_path, script), "x")
    assert (answer.error or "").startswith(
        f"no answer before its process ended (exit status 7; stderr ends '{WARNING}"
    )


@pytest.mark.parametrize("restart", ["temporary", "permanent"])
@pytest.mark.parametrize("held", [False, True])
async def test_a_full_disk_is_the_reason_of_all_that_follows_from_it(
    held: bool, restart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written, room = os.write, 0, 0

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        if str(tmp_path / "kept") in os.readlink(f"/proc/self/fd/{fd}"):
            written += 1
            if written > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    for room in (0, 2, 4, 6, 8, 10, 12):
        written = 0
        plan = plan_of(
            tmp_path, [{"say": "x"}, {"reply": "done"}], record=tmp_path / "kept", on_recording_failure="fail"
        )
        try:
            answer = await _held(plan_spec(plan, restart)) if held else await ask(plan, "x")
        except Exception as error:  # noqa: BLE001  # a supervisor may give up over it: a group
            told = "".join(traceback.format_exception(error))
        else:
            told = str(answer)
            if answer.ok:
                break
        assert os.strerror(errno.ENOSPC) in told, room
        assert os.strerror(errno.EBADF) not in told, room
    assert room


def plan_spec(plan: Plan, restart: str) -> proctor.ChildSpec:
    return agent_spec("agent", plan, {"restart": restart})


async def _held(spec: proctor.ChildSpec) -> Answer:
    async with proctor.open_supervisor([spec]) as sup:
        return await sup.agent("agent").ask("x")
