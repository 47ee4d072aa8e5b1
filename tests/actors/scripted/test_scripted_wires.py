from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.actors.scripted import PROGRAM
from proctor.actors.scripted.frames import as_frame, as_list
from proctor.actors.scripted.program import NAMES
from tests.actors.scripted.host import Frame
from tests.actors.scripted.wires import ARGUMENTS, WIRES, tell
from tests.tables import each_row

RECORDED = Path(__file__).parents[2] / "transcripts"
STORY: list[Frame] = [
    {"think": "hm", "deltas": 2},
    {"tool": "Bash", "input": {"command": "ls"}, "ask": True, "result": "a b"},
    {"tool": "Bash", "input": {"command": "pwd"}, "result": "here"},
    {"retry": 1, "delay": 0.001},
    {"reply": "You said {prompt}.", "deltas": 2},
]
FAILED: list[Frame] = [{"end": "authentication"}]
REAL = {
    "codex": ("codex/app_*",),
    "codex-exec": ("codex/exec_*",),
    "opencode": ("acp/opencode_*",),
    "gemini": ("acp/gemini_*",),
    "opencode-run": ("opencode/run_*",),
}

GIVEN = ("input", "rawInput", "arguments")
"""What a tool is given is its own affair."""

BEYOND = {"gemini": ("agent_thought_chunk", "tool_call_update/content/", "tool_call_update/rawOutput")}
"""What the protocol allows and a CLI was not recorded with: Gemini's thoughts, and what its tools put out."""


def shapes(value: object, path: str = "") -> Iterator[str]:
    """The places of a frame that have a name, what differs by kind told apart by it."""
    frame = as_frame(value) or {}
    kind = str(frame.get("method") or frame.get("sessionUpdate") or frame.get("type") or "")
    for name, inner in frame.items():
        yield f"{path}/{kind}/{name}"
        if name not in GIVEN:
            yield from shapes(inner, f"{path}/{kind}/{name}")
    for inner in as_list(value):
        yield from shapes(inner, path)


def recorded(voice: str) -> set[str]:
    lines = [
        line
        for pattern in REAL[voice]
        for path in RECORDED.glob(f"{pattern}.stdout.ndjson")
        for line in path.read_text().splitlines()
    ]
    whole = [
        line for line in lines if line.startswith("{") and line.endswith("}")
    ]  # one was recorded cut off
    return {shape for line in whole for shape in shapes(json.loads(line))}


@pytest.mark.parametrize("voice", REAL)
@pytest.mark.parametrize("script", [STORY, FAILED], ids=["story", "failed"])
def test_a_voice_says_nothing_that_the_real_cli_was_never_heard_to_say(
    tmp_path: Path, voice: str, script: list[Frame]
) -> None:
    told = tell(voice, tmp_path, script)
    said = {shape for frame in told.frames for shape in shapes(frame)}
    beyond = {shape for shape in said for known in BEYOND.get(voice, ()) if known in shape}
    assert sorted(said - recorded(voice) - beyond) == []
    assert told.odd == []


@pytest.mark.parametrize("voice", WIRES)
def test_every_voice_tells_the_answer_and_leaves_with_0(tmp_path: Path, voice: str) -> None:
    told = tell(voice, tmp_path, STORY, prompt="so")
    assert "You " in json.dumps(told.frames)
    assert told.status == 0


@pytest.mark.parametrize("voice", WIRES)
@pytest.mark.parametrize(
    ("fault", "status"), [("crash", -9), ("cut", -9), ("exit:7", 7), ("exit_after_success:3", 3)]
)
def test_a_fault_ends_the_process_in_every_voice(tmp_path: Path, voice: str, fault: str, status: int) -> None:
    script: list[Frame] = [{"say": "a"}, {"say": "b"}, {"reply": "c"}]
    told = tell(voice, tmp_path, script, fault)
    assert told.status in (status, 128 - status)
    assert len(told.odd) == (fault == "cut")


@pytest.mark.parametrize("voice", WIRES)
def test_noise_comes_between_the_frames_of_every_voice(tmp_path: Path, voice: str) -> None:
    told = tell(
        voice, tmp_path, [{"say": "a"}, {"reply": "b"}], "garbage:2", "flood:50", "stderr:1KB", "retry:2"
    )
    assert len(told.odd) == 2
    assert len(told.frames) > 50
    assert told.stderr.count(b"scripted: ") >= 10
    assert told.status == 0


@pytest.mark.parametrize("voice", WIRES)
@pytest.mark.parametrize("fault", ["limit:600", "auth:1"])
def test_a_turn_that_fails_says_so_in_every_voice(tmp_path: Path, voice: str, fault: str) -> None:
    told = tell(voice, tmp_path, [{"reply": "never"}], fault)
    assert "never" not in json.dumps(told.frames)
    assert "error" in json.dumps(told.frames)
    assert told.status == (0 if WIRES[voice] else 1)


@pytest.mark.parametrize("voice", WIRES)
def test_a_lost_prompt_gets_no_answer_in_any_voice(tmp_path: Path, voice: str) -> None:
    told = tell(voice, tmp_path, [{"reply": "never"}], "lost_prompt")
    assert "never" not in json.dumps(told.frames)
    assert told.status == 0


@each_row("voice", NAMES)
def test_every_voice_starts_without_the_package_or_its_libraries(voice: str) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-X",
        "importtime",
        str(PROGRAM),
        f"--dialect={voice}",
        "--version",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"proctor", "proctor.actors", "trio", "attr", "msgspec", "typing", "subprocess"})
    assert done.stdout.strip()


def test_every_voice_but_claudes_has_a_host_here() -> None:
    assert {"claude", *WIRES} == set(NAMES)
    assert ARGUMENTS.keys() <= set(NAMES)


def test_an_unknown_dialect_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(PROGRAM), "--dialect=latin", "--script=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown dialect 'latin'; there are claude, codex" in done.stderr
