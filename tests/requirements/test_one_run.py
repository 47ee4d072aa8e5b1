from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

import proctor
from proctor.actors.errors import StartRefused
from proctor.actors.plan.plan import scripted_plan
from proctor.actors.runs import Run, ask, stream
from proctor.actors.specs import agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import Normal
from tests.actors.far_end import HELLO, Step, plan_of, write_script
from tests.runtime.belongings import belongings, children, tasks

KEY = "sk-never-to-be-written"
PROMPT = "a prompt that is nobody else's business"

EVERYTHING: list[Step] = [
    {"fault": "stderr:20"},
    {"think": "hm"},
    {"say": "so far", "deltas": 2},
    {"tool": "Bash", "input": {"command": "ls"}, "result": "README.md"},
    {"end": "completed", "text": "done", "cost": 0.25, "structured": {"files": 1}},
]


def folder_of(root: Path) -> Path:
    [folder] = root.glob("*/1")
    return folder


@pytest.mark.covers("R011", "R012", "R083")
async def test_an_answer_has_all_that_was_told_and_the_recording_every_line(
    tmp_path: Path,
) -> None:
    plan = plan_of(tmp_path, EVERYTHING, mode="oneshot", record=tmp_path / "runs")
    async with stream(plan, "go", timeout=30) as live:
        events = [event async for event in live]
        printed = (live.directory / "1" / "stdout.ndjson").read_bytes().splitlines()
        answer = live.answer
    assert (answer.outcome, answer.ending, answer.text, answer.exit) == (
        "ok",
        "completed",
        '{"files":1}',
        Normal(),
    )
    assert (answer.structured_output, answer.cost_usd) == ({"files": 1}, 0.25)
    assert answer.usage is not None
    assert answer.duration is not None
    assert (answer.duration >= 0, bool(answer.model_turns), bool(answer.session_id)) == (True, True, True)
    assert answer.stderr.startswith("scripted: e")
    assert live.incarnation.conversation.frames == len(printed)
    assert all(isinstance(json.loads(line), dict) for line in printed)
    frames = [event.frame for event in events if event.frame >= 0]
    assert frames == sorted(frames)
    assert {type(event) for event in events} >= {v.Thinking, v.TextDelta, v.Text, v.ToolCall, v.ToolResult}


@pytest.mark.covers("R010")
async def test_two_runs_are_two_processes_and_share_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"reply": "{prompt} of {incarnation}"}], mode="oneshot")
    untouched = attrs.evolve(plan)
    pids, texts = set[int | None](), list[str]()
    for prompt in ("one", "two"):
        async with stream(plan, prompt, timeout=30) as live:
            await anext(live)
            pids.add(live.incarnation.pid)
            texts.append((await live.finish()).text)
    assert (len(pids), texts) == (2, ["one of 1", "two of 1"])
    assert plan == untouched


@pytest.mark.covers("R063")
async def test_after_its_last_event_nothing_of_a_run_is_left(tmp_path: Path) -> None:
    before = belongings()
    async with stream(plan_of(tmp_path), "hi", timeout=30) as live:
        events = [event async for event in live]
        assert live.incarnation.pid not in children()
        assert tasks() <= before.tasks + 1  # the caller's own nursery lives
    assert isinstance(events[-1], v.Exited)
    assert children() == before.children


@pytest.mark.covers("R061")
async def test_a_reader_who_goes_away_stops_the_run_and_that_is_no_failure(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"say": "begun"}, {"sleep": 60}, {"reply": "never"}], shutdown=3.0)
    async with stream(plan, "hi", timeout=30) as live:
        async for event in live:
            if isinstance(event, v.Text):
                break
    assert live.incarnation.stopper == "owner"
    assert (live.answer.outcome, live.answer.ok) == ("interrupted", False)
    assert live.incarnation.exit is not None


@pytest.mark.covers("R075")
async def test_a_reader_may_refuse_an_event_which_stops_the_run_before_the_next(tmp_path: Path) -> None:
    class NoTools(Exception):
        pass

    async def judged(live: Run) -> None:
        async for event in live:
            if isinstance(event, v.ToolCall):
                raise NoTools(event.name)

    script: list[Step] = [{"tool": "Bash", "input": {}, "seconds": 60, "result": "x"}, {"reply": "never"}]
    runs = list[Run]()
    with pytest.raises(NoTools, match="Bash"):  # noqa: PT012
        async with stream(plan_of(tmp_path, script, shutdown=3.0), "hi", timeout=30) as live:
            runs.append(live)
            await judged(live)
    assert runs[0].incarnation.exit is not None
    await ask(plan_of(tmp_path), "and one that nobody refuses", timeout=30)


@pytest.mark.covers("R185", "R186")
async def test_a_key_goes_by_environment_and_is_written_nowhere(tmp_path: Path) -> None:
    script: list[Step] = [
        {"tool": "Bash", "input": {}, "run": 'case "$ANTHROPIC_API_KEY" in sk-never*) echo has it;; esac'},
        {"end": "authentication", "text": "no"},
    ]
    root = tmp_path / "runs"
    plan = plan_of(tmp_path, script, record=root, env={"ANTHROPIC_API_KEY": KEY}, permission="allow")
    async with stream(plan, "hi", timeout=30) as live:
        events = [event async for event in live]
    assert "has it" in "".join(event.text for event in events if isinstance(event, v.ToolResult))
    places = [path for path in root.rglob("*") if path.is_file()]
    assert places
    assert [path for path in places if KEY.encode() in path.read_bytes()] == []
    meta = json.loads((folder_of(root) / "meta.json").read_bytes())
    assert "ANTHROPIC_API_KEY" in meta["environment"]
    assert KEY not in repr((plan, live.answer, meta["argv"]))


@pytest.mark.covers("R186")
async def test_the_text_of_a_failed_start_has_no_key_in_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HELLO, "exit:3@turn=0@line=0", env={"ANTHROPIC_API_KEY": KEY})
    with pytest.raises(StartRefused) as caught:
        await ask(plan, PROMPT, timeout=30)
    assert KEY not in str(caught.value) + repr(caught.value)
    assert PROMPT not in str(caught.value)


@pytest.mark.covers("R103")
async def test_a_run_and_a_held_agent_start_with_the_same_arguments(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "sonnet", "allowed_tools": ("Read",), "add_dirs": (str(tmp_path),)}
    plan = plan_of(tmp_path, HELLO, record=tmp_path / "run", **options)
    await ask(plan, "hi", timeout=30)
    held = attrs.evolve(plan, workplace=attrs.evolve(plan.workplace, record=tmp_path / "held"))
    async with proctor.open_supervisor([agent_spec("agent", held, {"shutdown": 3})]) as sup:
        await sup.agent("agent").ask("hi", timeout=30)
    one, other = (json.loads((folder_of(tmp_path / f) / "meta.json").read_bytes()) for f in ("run", "held"))
    assert [word for word in one["argv"] if word != "--no-session-persistence"] == other["argv"]  # L08
    assert "--model=sonnet" in one["argv"]


@pytest.mark.covers("L09")
async def test_the_temporary_directory_is_there_until_the_stream_is_left(tmp_path: Path) -> None:
    script: list[Step] = [
        {"tool": "Bash", "input": {}, "run": 'touch "$TMPDIR/kept"; echo "$TMPDIR"'},
        {"reply": "done"},
    ]
    async with stream(plan_of(tmp_path, script, permission="allow"), "hi", timeout=30) as live:
        events = [event async for event in live]
        [told] = [event.text for event in events if isinstance(event, v.ToolResult)]
        assert isinstance(events[-1], v.Exited)
        assert os.listdir(told.strip()) == ["kept"]
    with pytest.raises(FileNotFoundError):
        os.listdir(told.strip())


@pytest.mark.covers("R091")
async def test_a_failure_before_the_first_message_has_no_turns_and_says_why(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HELLO, "crash@line=0", mode="oneshot")
    async with stream(plan, "hi", timeout=30) as live:
        answer = await live.finish()
    assert (answer.outcome, answer.ok, live.incarnation.conversation.memo.turns) == (
        "killed_by_system",
        False,
        0,
    )
    assert answer.error


@pytest.mark.covers("C06")
@pytest.mark.parametrize(
    "voice", ["claude", "claude-oneshot", "codex", "codex-exec", "opencode", "opencode-run"]
)
async def test_a_prompt_of_a_megabyte_reaches_every_command_line(voice: str, tmp_path: Path) -> None:
    prompt = "0123456789" * 100_000 + " the end"
    script = write_script(
        tmp_path, [{"turn": "whole", "when": f"^{prompt[:10]}.* the end$"}, {"reply": "whole"}]
    )
    plan = scripted_plan("agent", script, {"home": "private"}, dialect=voice, shutdown=5.0)
    answer = await ask(plan, prompt, timeout=60)
    assert (answer.outcome, answer.text) == ("ok", "whole")


@pytest.mark.covers("R044")
def test_a_run_has_five_minutes_unless_it_is_told() -> None:
    for function in (proctor.ask, stream, proctor.stream):
        assert inspect.signature(function).parameters["timeout"].default == 300.0
