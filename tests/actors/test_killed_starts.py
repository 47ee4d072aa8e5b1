"""A process that somebody kills before it is ready has refused nothing: a restart may heal it, its session stays."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

import proctor
from proctor.actors.error_kinds import is_retryable
from proctor.actors.errors import StartKilled, StartRefused
from proctor.actors.plan.plan import acp_plan
from proctor.actors.runs import ask
from proctor.actors.scripted.launch import PROGRAM
from tests.actors.far_end import codes, log_of, write_script
from tests.runtime.programs import installed


@pytest.mark.parametrize("name", ["KILL", "TERM", "INT", "HUP"])
async def test_a_run_whose_process_is_killed_in_its_start_says_so_and_may_be_repeated(
    tmp_path: Path, name: str
) -> None:
    program = installed(tmp_path / "agent", f"echo no memory >&2; kill -{name} $$; sleep 9")
    with pytest.raises(StartKilled, match=f"a was killed by SIG{name} .* stderr ends 'no memory") as caught:
        await ask(acp_plan("a", [str(program)], {"home": "private"}), "hi")
    assert is_retryable(caught.value)


@pytest.mark.parametrize("end", ["kill -SEGV $$", "exit 3", "exec >&-; sleep 2; kill -KILL $$"])
async def test_one_that_dies_by_its_own_doing_or_says_no_more_has_refused(tmp_path: Path, end: str) -> None:
    program = installed(tmp_path / "agent", end)
    with pytest.raises(StartRefused):
        await ask(acp_plan("a", [str(program)], {"home": "private"}), "hi")


def dying(folder: Path, *numbers: int) -> Path:
    """Claude Code, played, whose processes of these numbers are killed before they say a word."""
    (folder / "started").touch()
    script = write_script(folder, ({"reply": "turn {turn} of {session}"},))
    killed = " || ".join(f"[ $number = {number} ]" for number in numbers)
    return installed(
        folder / "claude",
        f"echo x >> {folder}/started; number=$(wc -l < {folder}/started); {{ {killed}; }} && kill -9 $$\n"
        f'exec {sys.executable} -I -S {PROGRAM} --script={script} "$@"',
    )


def agent_that(folder: Path, *numbers: int) -> proctor.ChildSpec:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "state")}
    return proctor.claude("a", executable=dying(folder, *numbers), env=env, shutdown=3)


async def test_an_agent_comes_back_with_its_session_after_restarts_that_were_killed(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_that(tmp_path, 2, 3)], intensity=5) as sup:
        agent = sup.agent("a")
        first = await agent.ask("one")
        os.kill((await agent.status()).pid or 0, signal.SIGKILL)
        with trio.fail_after(30):
            while (tmp_path / "started").read_text().count("x") < 4:  # noqa: ASYNC110  nobody tells
                await trio.sleep(0.01)
        second = await agent.ask("two")
        seen = codes(await log_of(agent))
    assert (first.outcome, second.outcome) == ("ok", "ok")
    assert first.session_id is not None
    assert (second.session_id, second.text) == (first.session_id, f"turn 2 of {first.session_id}")
    assert "resume_refused" not in seen


async def test_a_request_whose_process_was_killed_in_its_start_is_answered_by_the_next(
    tmp_path: Path,
) -> None:
    async with proctor.open_supervisor([agent_that(tmp_path, 2)], intensity=2) as sup:
        agent = sup.agent("a")
        first = await agent.ask("one")
        program = tmp_path / "claude"
        away = program.rename(tmp_path / "away")
        os.kill((await agent.status()).pid or 0, signal.SIGKILL)
        with trio.fail_after(30):
            while (await agent.status()).state != "failed":  # noqa: ASYNC110  nobody tells
                await trio.sleep(0.01)
        away.rename(program)
        second = await agent.ask("two")
        assert (second.outcome, second.session_id, second.attempts) == ("ok", first.session_id, 1)
        assert (tmp_path / "started").read_text().count("x") == 3


async def test_an_owner_who_starts_an_agent_is_told_that_it_was_killed(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_that(tmp_path, 2)], intensity=0) as sup:
        agent = sup.agent("a")
        assert (await agent.ask("one")).ok
        await sup.terminate_child("a")
        with pytest.raises(proctor.StartError, match="killed by SIGKILL before it was ready"):
            await sup.restart_child("a")
        await sup.restart_child("a")
        assert (await agent.ask("two")).ok
