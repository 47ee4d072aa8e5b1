from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pytest

from proctor.actors.scripted import PROGRAM, ScriptError, check_script, cli, scripted_dialect
from proctor.actors.scripted.frames import ENDINGS
from proctor.actors.scripted.script import AGENT, FAULTS, HEADERS, STEPS
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.vocabulary import (
    AnyEvent,
    ApprovalRequested,
    Decision,
    Garbled,
    Interrupt,
    LimitReached,
    Misplaced,
    Prompt,
    Retrying,
    SetModel,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    Unrecognized,
)
from tests.actors.scripted.host import Frame, run_program, write_script
from tests.tables import each_row

EXAMPLES = Path(__file__).parents[3] / "examples"
NAME = "64a9f654-3bc5-44af-8708-23bfcb9a3eba"
SURPRISES = (Garbled, Unrecognized, Misplaced)

MISTAKES = {
    '{"reply": "a"': (1, "delimiter"),
    "[1]": (1, "expected an object, got '[1]'"),
    '{"reply": "a"}\n\n{"repyl": "b"}': (3, "expected one of"),
    '{"reply": "a", "say": "b"}': (1, "expected one of"),
    '{"reply": 3}': (1, "'reply' must be str, got 3"),
    '{"reply": "a", "delay": "b"}': (1, "'delay' must be int or float, got 'b'"),
    '{"reply": "a", "deltas": true}': (1, "'deltas' must be int, got True"),
    '{"sleep": -1}': (1, "'sleep' must not be negative"),
    '{"say": "a", "cost": 1}': (1, "'cost' does not belong here"),
    '{"end": "well"}': (1, "unknown ending 'well'"),
    '{"fault": "bang"}': (1, "unknown fault 'bang'"),
    '{"fault": "refuse_resume"}': (1, "acts before any turn"),
    '# no\n{"turn": "t", "when": "("}': (2, "unterminated subpattern"),
    '{"reply": "a"}\n{"agent": {}}': (2, "must be the first line"),
    '{"agent": {"colour": "red"}}': (1, "'colour' does not belong here"),
    "# nothing": (0, "no turn in it"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_script_is_told_with_file_and_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.ndjson"
    path.write_text(text)
    line, reason = MISTAKES[text]
    with pytest.raises(ScriptError) as caught:
        check_script(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert reason in caught.value.text
    done = run_program(path, "-p", "x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"{caught.value}\n"


def test_a_script_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        check_script(tmp_path / "nothing")
    with pytest.raises(ScriptError, match="no such recording"):
        check_script(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ScriptError, match="utf-8"):
        check_script(tmp_path / "binary")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("bang", "unknown fault 'bang'"),
        ("crash@never", "unknown fault 'crash@never'"),
        ("flood:many", "expected a number, got 'many'"),
        ("ignore_eof@turn=2", "lasts as long as the process"),
        ("limit:3@turn=0", "limit needs a turn"),
    ],
)
def test_a_mistake_in_a_fault_is_told(tmp_path: Path, fault: str, reason: str) -> None:
    path = write_script(tmp_path / "script.ndjson", [{"reply": "a"}])
    with pytest.raises(ScriptError, match="--fault") as caught:
        scripted_dialect(path, faults=(fault,))
    assert reason in caught.value.text
    done = run_program(path, f"--fault={fault}", "-p", "x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert reason in done.stderr.decode()


def test_the_dialect_is_claude_with_another_program_behind_it(tmp_path: Path) -> None:
    path = write_script(tmp_path / "script.ndjson", [{"reply": "a"}])
    dialect = scripted_dialect(path, faults=("crash@once", "slow:1"), speed=2)
    wanted = Launch(executable=("claude",), model="m", resume=NAME)
    command = dialect.launch(wanted)
    own = (str(PROGRAM), f"--script={path}", "--fault=crash@once", "--fault=slow:1", "--speed=2")
    assert command.argv == (sys.executable, "-I", "-S", *own, *CLAUDE.launch(wanted).argv[1:])
    assert dialect.name == "scripted"
    assert dialect.read is CLAUDE.read


@each_row("path", sorted(EXAMPLES.glob("*.ndjson")), ids=lambda path: path.stem)
def test_every_example_is_a_script(path: Path) -> None:
    check_script(path)


def test_the_page_tells_every_step_ending_and_fault() -> None:
    folder = EXAMPLES.parent / "docs" / "reference"
    page = (folder / "scripts.md").read_text() + (folder / "faults.md").read_text()
    fields = {name for _, others in {**HEADERS, **STEPS}.values() for name in others}
    wanted = {*STEPS, *HEADERS, *AGENT, *fields, *FAULTS, *ENDINGS}
    assert sorted(name for name in wanted if f"`{name}" not in page) == []


def test_the_program_starts_without_the_package_or_its_libraries() -> None:
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(PROGRAM), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "proctor.actors.scripted.agent" in loaded
    assert loaded.isdisjoint(
        {"proctor", "proctor.actors", "proctor.actors.scripted", "proctor.actors.agent.agent"}
    )
    assert loaded.isdisjoint({"trio", "attr", "msgspec", "typing", "subprocess", "argparse"})
    assert done.stdout == "2.1.330 (Claude Code)\n"


def test_the_program_can_be_imported_and_run_in_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capfd.readouterr().out == "2.1.330 (Claude Code)\n"


class Talk:
    """The program at one end, our own conversation at the other, over pipes."""

    def __init__(self, home: Path, script: list[Frame], *faults: str) -> None:
        path = write_script(home / "script.ndjson", script)
        dialect = scripted_dialect(path, faults=faults)
        command = dialect.launch(Launch(executable=("claude",)))
        environment = {"PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home), **command.env}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command.argv, stdin=pipe, stdout=pipe, env=environment)
        self.conversation = Conversation(dialect)
        self.events: list[AnyEvent] = []
        self.write(self.conversation.greet())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def until(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        assert self.process.stdout
        begun = len(self.events)
        while not any(isinstance(event, kind) for event in self.events[begun:]):
            line = self.process.stdout.readline()
            assert line, f"the stream ended before {kind.__name__}: {self.events[begun:]}"
            self.events += self.conversation.receive(line)
        return self.events[begun:]


def kinds(events: Iterable[AnyEvent], *wanted: type[AnyEvent]) -> list[AnyEvent]:
    return [event for event in events if isinstance(event, wanted)]


STORY: list[Frame] = [
    {"think": "hm"},
    {"say": "Let me see.", "deltas": 2},
    {"tool": "Bash", "input": {"command": "ls"}, "ask": True, "result": "a b"},
    {"retry": 1, "status": 529, "error": "overloaded", "delay": 0.001},
    {"notice": "mind the gap"},
    {"reply": "You said {prompt}.", "deltas": 3, "cost": 0.5},
]


def test_our_own_conversation_understands_every_frame(tmp_path: Path) -> None:
    with Talk(tmp_path, STORY) as talk:
        talk.write(talk.conversation.send(Prompt(id=NAME, text="hi")))
        asked = kinds(talk.until(ApprovalRequested), ApprovalRequested)[0]
        assert isinstance(asked, ApprovalRequested)
        talk.write(talk.conversation.send(Decision(id=asked.id, allow=True)))
        talk.until(TurnEnded)
        assert kinds(talk.events, *SURPRISES) == []
        told = kinds(talk.events, Text, Thinking, ToolCall, ToolResult, Retrying)
        assert [type(event) for event in told if not (isinstance(event, Thinking) and event.partial)] == [
            *(Thinking, Text, ToolCall, ToolResult, Retrying, Text)
        ]
        ended = talk.events[-1]
        assert isinstance(ended, TurnEnded)
        assert (ended.ending, ended.text, ended.prompts, ended.cost_usd) == (
            "completed",
            "You said hi.",
            (NAME,),
            0.5,
        )
        assert "".join(e.text for e in talk.events if isinstance(e, TextDelta)) == "Let me see.You said hi."


def test_our_own_conversation_understands_an_interrupt_and_a_new_model(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"tool": "Bash", "input": {}, "ask": True},
        {"end": "completed"},
        {"reply": "{model}"},
    ]
    with Talk(tmp_path, script) as talk:
        talk.write(talk.conversation.send(Prompt(id=NAME, text="hi")))
        talk.until(ApprovalRequested)
        talk.write(talk.conversation.send(Interrupt(id="i1")))
        ended = talk.until(TurnEnded)[-1]
        assert isinstance(ended, TurnEnded)
        assert ended.ending == "interrupted"
        talk.write(talk.conversation.send(SetModel(id="m1", model="haiku")))
        talk.write(talk.conversation.send(Prompt(id=NAME[:-1] + "b", text="which?")))
        ended = talk.until(TurnEnded)[-1]
        assert isinstance(ended, TurnEnded)
        assert ended.text == "haiku"
        assert kinds(talk.events, *SURPRISES) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_our_own_conversation_reads_every_ending_as_the_script_means_it(tmp_path: Path, ending: str) -> None:
    with Talk(tmp_path, [{"end": ending}]) as talk:
        talk.write(talk.conversation.send(Prompt(id=NAME, text="hi")))
        ended = talk.until(TurnEnded)[-1]
        assert isinstance(ended, TurnEnded)
        assert ended.ending == ending
        assert kinds(talk.events, *SURPRISES) == []


@pytest.mark.parametrize(
    ("fault", "surprises"),
    [
        *((name, 0) for name in ("limit:1", "auth:1", "retry:1", "daemon:0", "stderr:10KB", "flood:100")),
        ("garbage:1", 1),
        ("bad_utf8", 1),
    ],
)
def test_a_fault_surprises_our_own_conversation_only_where_it_means_to(
    tmp_path: Path, fault: str, surprises: int
) -> None:
    with Talk(tmp_path, [{"reply": "a"}], fault) as talk:
        talk.write(talk.conversation.send(Prompt(id=NAME, text="hi")))
        talk.until(TurnEnded)
        assert len(kinds(talk.events, *SURPRISES)) == surprises
        assert len(kinds(talk.events, LimitReached)) == fault.startswith("limit")


def test_the_demonstration_of_a_crash_resumes_and_goes_on(tmp_path: Path) -> None:
    told: list[str] = []
    words = ["-p", "--output-format", "stream-json", "--verbose"]
    done = run_program(EXAMPLES / "crash.ndjson", *words, stdin=b"work", home=tmp_path)
    assert done.returncode == -9
    session = json.loads(done.stdout.splitlines()[0])["session_id"]
    done = run_program(EXAMPLES / "crash.ndjson", *words, f"--resume={session}", stdin=b"work", home=tmp_path)
    told = [
        frame["result"] for frame in map(json.loads, done.stdout.splitlines()) if frame["type"] == "result"
    ]
    assert told == ["The work that was cut off is done now. You asked: work"]
