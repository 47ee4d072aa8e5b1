from __future__ import annotations

import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import scripted_plan
from proctor.actors.recording.atif import Metrics, Step, Trajectory
from proctor.actors.recording.readable import markdown_of
from proctor.actors.recording.sent_prompts import Sort
from proctor.actors.recording.trajectory import read_trajectory, trajectory_of
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.protocols import vocabulary as v
from tests.actors.far_end import plan_of, played, write_script
from tests.actors.recorded_runs import RecordedRun, recorded_runs
from tests.clis.not_run import not_run
from tests.docs.test_pages import blocks
from tests.harnesses.wheels import NoWheel, wheel
from tests.stories.agents import child

PAGE = Path(__file__).parents[2] / "docs/reference/trajectories.md"
FOLDERS = ("claude", "codex", "opencode", "opencode_serve", "acp")


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """The model of a trajectory of those who define the format; its package needs a newer Python, this part does not."""
    try:
        path = str(wheel("harbor"))
    except NoWheel as error:
        not_run(f"{error}; give pip an index that has it")
    sys.path.insert(0, path)
    try:
        yield importlib.import_module("harbor.models.trajectories").Trajectory
    finally:
        sys.path.remove(path)


def made(run: RecordedRun) -> Trajectory:
    return trajectory_of(run.events, run.source, kind=run.kind, id=run.name)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_trajectory_of_every_recorded_run_is_valid_and_has_all_of_it(folder: str, model: Any) -> None:
    runs = [*recorded_runs(folder)]
    assert len(runs) >= {"claude": 240, "codex": 160, "opencode": 60, "acp": 30}.get(folder, 2)
    for run in runs:
        trajectory = made(run)
        read = model.model_validate_json(trajectory.to_json())
        assert json.loads(trajectory.to_json()) == read.to_json_dict(), run.name
        assert_all_of_it(run, trajectory)


def assert_all_of_it(run: RecordedRun, trajectory: Trajectory) -> None:
    """Each tool call, each result and each finished text of the run is in its trajectory, once."""
    everything = [trajectory, *(trajectory.subagent_trajectories or ())]
    steps = [step for one in everything for step in one.steps]
    calls = Counter(call.tool_call_id for step in steps for call in step.tool_calls or ())
    assert calls == Counter(event.id for event in run.events if isinstance(event, v.ToolCall)), run.name
    results = [result for step in steps if step.observation for result in step.observation.results]
    texts = Counter(result.content for result in results if result.content is not None)
    assert texts == Counter(event.text for event in run.events if isinstance(event, v.ToolResult)), run.name
    ends = [event for event in run.events if isinstance(event, v.TurnEnded)]
    costs = [step.metrics.cost_usd for step in steps if step.metrics and step.metrics.cost_usd is not None]
    assert sum(costs) == pytest.approx(sum(end.cost_usd or 0 for end in ends)), run.name
    # an end without a text of its own leaves the last text to stand for it
    said = "\n".join(step.message for step in steps if step.source == "agent")
    for end in ends:
        assert end.ending != "completed" or (end.text or "").strip() in said, run.name


# -- what a trajectory makes of the events


class Sent:
    """A source that knows these texts, in order, and that a line comes each second."""

    def __init__(self, *texts: str) -> None:
        self.texts = [*texts]

    def text_of(self, incarnation: int, request: str, sort: Sort) -> str | None:
        return self.texts.pop(0) if self.texts else None

    def time_of(self, incarnation: int, frame: int) -> float | None:
        return 1000.0 * incarnation + frame if frame >= 0 else None


def steps(*events: v.AnyEvent, texts: tuple[str, ...] = ("go",)) -> list[Step]:
    return trajectory_of(events, Sent(*texts), kind="claude").steps


BEGIN = v.TurnStarted(1, "1.1", prompts=("p",))
END = v.TurnEnded(9, "1.1", "completed", text="done", prompts=("p",))


def test_an_answer_of_the_model_is_one_step_with_its_reasoning_its_text_its_calls_and_their_results() -> None:
    _, first, last = steps(
        BEGIN,
        v.Thinking(2, "1.1", "Hm.", partial=True),
        v.Thinking(3, "1.1", "Hm."),
        v.TextDelta(3, "1.1", "I lo"),
        v.Text(4, "1.1", "I look."),
        v.ToolCall(4, "1.1", "a", "Read", {"path": "x"}),
        v.ToolCall(4, "1.1", "b", "Read", {"path": "y"}),
        v.ToolResult(5, "1.1", "b", "two", duration=0.5),
        v.ToolResult(6, "1.1", "a", "one", is_error=True),
        v.Text(7, "1.1", "done"),
        END,
    )
    assert (first.message, first.reasoning_content) == ("I look.", "Hm.")
    assert [call.tool_call_id for call in first.tool_calls or ()] == ["a", "b"]
    assert first.observation is not None
    assert [
        (result.source_call_id, result.content, result.extra) for result in first.observation.results
    ] == [
        ("b", "two", {"duration_sec": 0.5}),
        ("a", "one", {"is_error": True}),
    ]
    assert last.message == "done"
    assert (first.timestamp, last.timestamp) == (
        "1970-01-01T00:16:43.000+00:00",
        "1970-01-01T00:16:47.000+00:00",
    )


def test_a_result_that_comes_late_stands_with_its_call() -> None:
    _, first, second = steps(
        BEGIN,
        v.ToolCall(2, "1.1", "a", "Bash"),
        v.Text(3, "1.1", "Meanwhile."),
        v.ToolResult(4, "1.1", "a", "late"),
        v.ToolResult(5, "1.1", "gone", "of no call"),
        END,
    )
    assert first.observation is not None
    assert [result.content for result in first.observation.results] == ["late"]
    assert second.observation is not None
    [lost] = second.observation.results
    assert (lost.source_call_id, lost.content, lost.extra) == (None, "of no call", {"tool_call_id": "gone"})


def test_what_was_void_is_left_out_and_what_was_cut_off_is_kept_as_a_part() -> None:
    void = v.Notice(5, "1.1", "attempt_void", data={"texts": 1, "parent": None})
    whole = steps(
        BEGIN, v.TextDelta(2, "1.1", "wro"), v.Text(3, "1.1", "wrong"), void, v.Text(6, "1.1", "done"), END
    )
    assert [step.message for step in whole] == ["go", "done"]
    *_, partial, end = steps(
        BEGIN,
        v.TextDelta(2, "1.1", "I be"),
        v.TextDelta(3, "1.1", "gin"),
        v.Exited(-1, "1.1", "killed", signal="KILL"),
    )
    assert (partial.message, partial.extra) == ("I begin", {"partial": True, "turn": "1.1"})
    assert (end.source, end.extra) == ("system", {"event": "exited", "outcome": "killed", "signal": "KILL"})


@pytest.mark.parametrize(("kind", "prompt"), [("claude", 16), ("codex", 10), ("opencode", 16)])
def test_the_tokens_of_a_prompt_have_the_cached_ones_in_them_once(kind: str, prompt: int) -> None:
    end = msgspec.structs.replace(END, usage=v.Usage(10, 3, 4, 2), cost_usd=0.5, model_turns=1, duration=2.0)
    trajectory = trajectory_of([BEGIN, v.Text(2, "1.1", "done"), end], Sent("go"), kind=kind)
    [_, step] = trajectory.steps
    assert step.metrics == Metrics(prompt, 3, 4, 0.5, {"cache_write_tokens": 2})
    assert step.llm_call_count == 1
    final = trajectory.final_metrics
    assert final is not None
    assert (final.total_prompt_tokens, final.total_cached_tokens, final.total_cost_usd) == (prompt, 4, 0.5)


def test_each_of_two_turns_that_overlap_has_its_own_numbers() -> None:
    def end(turn: str, cost: float) -> v.TurnEnded:
        return v.TurnEnded(9, turn, "completed", text="done", cost_usd=cost)

    _, first, _, second = steps(
        BEGIN,
        v.Text(2, "1.1", "one"),
        v.TurnStarted(3, "1.2", solicited=False),
        v.Text(4, "1.2", "two"),
        end("1.1", 0.5),
        end("1.2", 0.25),
    )
    assert [(step.message, step.metrics and step.metrics.cost_usd) for step in (first, second)] == [
        ("one", 0.5),
        ("two", 0.25),
    ]


def test_what_was_not_reported_is_no_number() -> None:
    trajectory = trajectory_of([BEGIN, v.Text(2, "1.1", "done"), END], Sent("go"), kind="gemini")
    assert trajectory.steps[-1].metrics is None
    assert trajectory.final_metrics is not None
    assert (trajectory.final_metrics.total_cost_usd, trajectory.final_metrics.total_prompt_tokens) == (
        None,
        None,
    )


def test_a_subagent_has_a_trajectory_to_which_the_result_of_its_call_refers() -> None:
    trajectory = trajectory_of(
        [
            BEGIN,
            v.ToolCall(2, "1.1", "t", "Task", {"prompt": "Count."}),
            v.Text(3, "1.1", "I count.", parent="t"),
            v.ToolCall(3, "1.1", "i", "Bash", {}, parent="t"),
            v.ToolResult(4, "1.1", "i", "7", parent="t"),
            v.ToolResult(5, "1.1", "t", "seven"),
            END,
        ],
        Sent("go"),
        kind="claude",
    )
    [call] = [step for step in trajectory.steps if step.tool_calls]
    assert call.observation is not None
    assert [
        ref.trajectory_id
        for result in call.observation.results
        for ref in result.subagent_trajectory_ref or ()
    ] == ["t"]
    [inner] = trajectory.subagent_trajectories or []
    assert [(step.source, step.message) for step in inner.steps] == [
        ("user", "Count."),
        ("agent", "I count."),
    ]


def test_a_decision_about_a_tool_stands_at_its_call() -> None:
    _, step = steps(
        BEGIN,
        v.ToolCall(2, "1.1", "a", "Bash"),
        v.ApprovalRequested(3, "1.1", "q", "Bash", tool_call="a"),
        v.Notice(-1, "1.1", "approval", data={"id": "q", "allow": False}),
        v.ToolResult(4, "1.1", "a", "denied", is_error=True),
        msgspec.structs.replace(END, text=None),
    )
    assert [call.extra for call in step.tool_calls or ()] == [{"allowed": False}]


def test_a_prompt_that_is_sent_again_after_a_crash_stands_twice_with_its_times() -> None:
    sent = v.Notice(-1, None, "sent", "asked", {"ticket": "t", "prompt": "p", "attempt": 1, "at": 2000.0})
    again = msgspec.structs.replace(sent, data={**sent.data, "prompt": "p2", "attempt": 2, "at": 3000.0})
    found = steps(
        sent,
        BEGIN,
        v.Exited(-1, "1.1", "crashed", code=1),
        again,
        v.TurnStarted(1, "2.1", prompts=("p2",)),
        v.Text(2, "2.1", "done"),
        v.TurnEnded(3, "2.1", "completed", text="done", prompts=("p2",)),
        texts=("go", "go on"),
    )
    assert [(step.source, step.message.partition("\n")[0]) for step in found] == [
        ("user", "go"),
        ("system", "The process of the command line ended: crashed."),
        ("user", "go on"),
        ("agent", "done"),
    ]
    assert [step.timestamp for step in found if step.source == "user"] == [
        "1970-01-01T00:33:20.000+00:00",
        "1970-01-01T00:50:00.000+00:00",
    ]
    assert (found[2].extra, found[3].timestamp) == ({"attempt": 2}, "1970-01-01T00:33:22.000+00:00")


def test_a_turn_that_failed_says_why(model: Any) -> None:
    end = v.TurnEnded(9, "1.1", "limit", error="come back at noon", status=429, prompts=("p",))
    trajectory = trajectory_of([BEGIN, end], Sent("go"), kind="claude")
    model.model_validate_json(trajectory.to_json())
    assert (trajectory.steps[-1].source, trajectory.steps[-1].message) == ("system", "come back at noon")
    assert trajectory.steps[-1].extra == {"event": "turn_ended", "ending": "limit", "status": 429}


def test_a_run_without_events_has_a_trajectory_that_says_so(model: Any) -> None:
    trajectory = trajectory_of([], Sent(), kind="")
    model.model_validate_json(trajectory.to_json())
    assert [step.message for step in trajectory.steps] == ["Nothing was recorded of this run."]


async def test_a_trajectory_is_read_from_the_folder_of_a_run_that_has_just_ended(
    tmp_path: Path, model: Any
) -> None:
    before = time.time()
    await played(plan_of(tmp_path, record=tmp_path / "runs"), "hi")
    [folder] = (tmp_path / "runs").iterdir()
    trajectory = read_trajectory(folder)
    model.model_validate_json(trajectory.to_json())
    assert [(step.source, step.message) for step in trajectory.steps] == [
        ("user", "hi"),
        ("agent", "Hello! You said: hi"),
    ]
    at = datetime.fromisoformat(trajectory.steps[1].timestamp or "").timestamp()
    assert before - 1 <= at <= time.time() + 1
    [code] = blocks(PAGE.read_text())
    names: dict[str, Any] = {"folder": folder}
    exec(code, names)  # noqa: S102  # the example of the page
    assert names["data"] == trajectory.to_json()
    assert (trajectory.agent.name, trajectory.trajectory_id) == ("scripted", folder.name)


@pytest.mark.parametrize("dialect", SCRIPTED_WIRES)
async def test_a_run_of_every_kind_has_its_prompt_its_tool_and_its_answer(
    dialect: str, tmp_path: Path, model: Any
) -> None:
    script = write_script(
        tmp_path, [{"tool": "Bash", "input": {"command": "ls"}, "result": "a.txt"}, {"reply": "One file."}]
    )
    options: AgentOptions = {
        "home": "private",
        "permission": "allow",
        "record": tmp_path / "runs",
        "final": 0.5,
    }
    answer, _ = await played(scripted_plan("a", script, options, dialect=dialect), "What is there?")
    assert answer.outcome == "ok"
    [folder] = (tmp_path / "runs").iterdir()
    trajectory = read_trajectory(folder)
    model.model_validate_json(trajectory.to_json())
    asked = [step for step in trajectory.steps if step.source == "user"]
    assert [step.message for step in asked] == ["What is there?"]
    assert all(step.timestamp for step in trajectory.steps if step.source == "agent")
    [call] = [call for step in trajectory.steps for call in step.tool_calls or ()]
    [result] = [one for step in trajectory.steps if step.observation for one in step.observation.results]
    assert (result.source_call_id, result.content) == (call.tool_call_id, "a.txt")
    assert trajectory.steps[-1].message == "One file."


async def test_prompts_of_a_session_stand_where_they_were_asked(tmp_path: Path) -> None:
    for dialect in ("claude", "codex", "opencode"):
        record = tmp_path / dialect
        [spec] = child(tmp_path, dialect, [{"reply": "Yes: {prompt}"}], record=record)
        async with proctor.open_supervisor([spec]) as sup:
            for prompt in ("one", "two"):
                await sup.agent("a").ask(prompt)
        [folder] = record.iterdir()
        found = [
            (step.source, step.message) for step in read_trajectory(folder).steps if step.source != "system"
        ]
        assert found == [("user", "one"), ("agent", "Yes: one"), ("user", "two"), ("agent", "Yes: two")]


# -- as Markdown


def test_the_markdown_of_a_run_has_its_prompt_its_answer_and_its_tools_folded() -> None:
    trajectory = trajectory_of(
        [
            BEGIN,
            v.ToolCall(2, "1.1", "a", "Bash", {"command": "ls <x>"}),
            v.ToolResult(3, "1.1", "a", "```\nno\n```", is_error=True),
            v.Text(4, "1.1", "# Done"),
            END,
        ],
        Sent("two\nlines"),
        kind="claude",
        agent="reviewer_1",
    )
    text = markdown_of(trajectory)
    assert text.startswith("# reviewer\\_1\n")
    assert "\n> two\n> lines\n" in text
    assert "<summary>Bash: ls &lt;x&gt; (failed)</summary>" in text
    assert "````\n```\nno\n```\n````" in text
    assert "\n\n# Done\n" in text


def test_long_results_are_cut_in_the_middle() -> None:
    result = v.ToolResult(3, "1.1", "a", "a" * 5000 + "z" * 5000)
    trajectory = trajectory_of([BEGIN, v.ToolCall(2, "1.1", "a", "Bash"), result, END], Sent(), kind="claude")
    text = markdown_of(trajectory)
    assert len(text) < 5000
    assert "aa\n… 6000 characters …\nzz" in text
