from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.scripted import PROGRAM

REPLAY = (sys.executable, "-I", "-S", str(PROGRAM), "--dialect=jsonrpc")
TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
NAMES = (
    "acp/gemini_text",
    "acp/gemini_permission_allow",
    "codex/app_approval_accept",
    "codex/app_interrupt_approval",
    "codex/app_steer",
)
ASIDE = {"turn/interrupt"}

Frame = dict[str, Any]


def lines(name: str, stream: str) -> list[Frame]:
    text = (TRANSCRIPTS / f"{name}.{stream}.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines() if line]


def play(
    prefix: Path | str, said: Sequence[Frame], *options: str, end: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """What the player says to a host that says all of this at once and then lets go."""
    argv = [*REPLAY, f"--script={prefix}", *options]
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in said)
    return subprocess.run(argv, input=data, capture_output=True, timeout=30, check=False)


def frames(done: subprocess.CompletedProcess[bytes]) -> list[Frame]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def renumbered(frame: Frame) -> Frame:
    """The host's request as another host would send it."""
    return {**frame, "id": f"mine-{frame['id']}"} if "method" in frame and "id" in frame else frame


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_said_again_with_the_ids_of_this_host(name: str) -> None:
    host = lines(name, "stdin")
    wanted = [
        {**frame, "id": f"mine-{frame['id']}"} if "method" not in frame else frame
        for frame in lines(name, "stdout")
    ]
    aside = [f"mine-{frame['id']}" for frame in host if frame.get("method") in ASIDE]
    done = play(f"{TRANSCRIPTS / name}.", [renumbered(frame) for frame in host])
    said = frames(done)
    assert [f for f in said if f.get("id") not in aside] == [f for f in wanted if f.get("id") not in aside]
    assert sorted(map(str, said)) == sorted(map(str, wanted))
    assert done.returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_said_before_the_host_has_begun_it(name: str) -> None:
    host = [renumbered(frame) for frame in lines(name, "stdin")]
    prompt = next(n for n, f in enumerate(host) if f.get("method") in ("turn/start", "session/prompt"))
    said = frames(play(f"{TRANSCRIPTS / name}.", host[:prompt]))
    assert {f["id"] for f in said if "method" not in f} == {f["id"] for f in host[:prompt] if "id" in f}
    assert not [f for f in said if "turn/" in f.get("method", "") or ("id" in f and "method" in f)]
    assert not [f for f in said if "message_chunk" in str(f)]


def test_a_question_waits_for_its_answer() -> None:
    host = [renumbered(frame) for frame in lines("codex/app_approval_accept", "stdin")]
    said = frames(play(f"{TRANSCRIPTS}/codex/app_approval_accept.", host[:-1]))
    assert said[-1]["method"] == "item/commandExecution/requestApproval"


def test_a_host_that_interrupts_nothing_is_served_to_the_end() -> None:
    name = "codex/app_interrupt_approval"
    host = [renumbered(f) for f in lines(name, "stdin") if f.get("method") not in ASIDE]
    said = frames(play(f"{TRANSCRIPTS / name}.", host))
    assert said[-1]["method"] == lines(name, "stdout")[-1]["method"]


def test_a_request_that_was_not_recorded_is_refused() -> None:
    [said] = frames(
        play(f"{TRANSCRIPTS}/acp/gemini_text.", [{"id": 7, "method": "session/list", "params": {}}])
    )
    assert (said["id"], said["error"]["message"]) == (7, "session/list is not in the recording")


@pytest.mark.parametrize(
    ("fault", "code", "tail"),
    [
        ("crash@line=3", -9, 2),
        ("exit:7@line=3", 7, 2),
        ("cut@line=3", 1, 3),
        ("garbage:2@line=3", 0, None),
    ],
)
def test_a_fault_acts_at_its_line(fault: str, code: int, tail: int | None) -> None:
    name = "acp/gemini_text"
    done = play(f"{TRANSCRIPTS / name}.", lines(name, "stdin"), f"--fault={fault}")
    assert done.returncode == code
    if tail is not None:
        assert len(done.stdout.splitlines()) == tail
    else:
        assert done.stdout.splitlines()[2:4] == [b"{ this is not JSON"] * 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--fault=limit",), "--fault: 'limit' cannot act on this wire; there are crash, "),
        (("--fault=odd",), "--fault: unknown fault 'odd'"),
        (("--script=nowhere",), "nowherestdout.ndjson: no such recording"),
    ],
)
def test_what_cannot_be_played_is_one_line_and_status_2(options: tuple[str, ...], complaint: str) -> None:
    done = play(f"{TRANSCRIPTS}/acp/gemini_text.", [], *options)
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert line.startswith(complaint)


@pytest.mark.parametrize(("exit", "code"), [("exit status 3", 3), ("killed by SIGKILL", -9), ("normal", 0)])
def test_a_recorded_cli_that_left_by_itself_leaves_again(exit: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "stdout.ndjson").write_text('{"method": "turn/started"}\n')
    (tmp_path / "meta.json").write_text(json.dumps({"exit": exit, "stopper": "nobody"}))
    argv = [*REPLAY, f"--script={tmp_path}/"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b'{"method": "turn/started"}\n'
        assert process.wait(30) == code
