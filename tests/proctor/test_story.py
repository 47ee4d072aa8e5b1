from __future__ import annotations

import time
from pathlib import Path
from typing import cast, get_args

import attrs
import pytest

from proctor.actors.agent.states import Status
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.outcomes import Answer, Outcome
from proctor.cli.ui.fleet_log import AgentSummary, FleetNarrator, Line, describe_exit
from proctor.cli.ui.fleet_table import format_line, result, state_of, summary
from proctor.cli.ui.verdict import PHRASES, phrase_of, reason, verdict
from proctor.protocols import vocabulary as v
from proctor.runtime import events as e
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash, ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.messaging.refs import Ref
from proctor.runtime.messaging.supervisor_handle import ChildState, TreeNode
from tests.tables import each_row

REF = cast(Ref, None)
KILLED = ExitStatus(signal=9)


@attrs.define
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "team.toml"
    path.write_text("""
intensity = 2
period = "10s"
agents = [{ kind = "claude", name = "a" }]
[[supervisors]]
name = "g"
agents = [{ kind = "claude", name = "b" }]
""")
    return load_fleet(path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def story(fleet: Fleet, clock: Clock) -> FleetNarrator:
    return FleetNarrator.of_fleet(fleet, clock, lambda: 1000.0)


def restarting(path: str = "team/a", why: ExitReason = KILLED) -> e.ChildRestarting:
    return e.ChildRestarting(path=path, attempt=1, delay=0.0, reason=why)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (e.ChildStarted(path="team/a", ref=REF, incarnation=1), Line("a", "started")),
        (e.ChildStarted(path="team/a", ref=REF, incarnation=2), Line("a", "started, incarnation 2")),
        (e.ChildStarted(path="team/g/b", ref=REF, incarnation=1), Line("g/b", "started")),
        (e.ChildExited(path="team/a", ref=REF, reason=Shutdown()), Line("a", "stopped", "faint")),
        (e.ChildExited(path="team/a", ref=REF, reason=KILLED), None),
        (e.ChildTerminated(path="team/a", ref=REF, reason=KILLED), None),
        (restarting(), Line("a", "restarting (1 of 2 in 10 s): killed by SIGKILL")),
        (restarting("team/g/b"), Line("g/b", "restarting (1 of 1 in 5 s): killed by SIGKILL")),
        (e.StartFailed(path="team/a", reason=Crash(ValueError("no\nway"))), Line("a", "could not start: no way", "bad")),
        (e.StartFailed(path="team/a", reason=Killed()), Line("a", "start aborted", "faint")),
        (e.ShutdownFailed(path="team/a", ref=REF, reason=Killed()), Line("a", "did not stop as asked: killed", "bad")),
        (e.ChildOverdue(path="team/a", ref=REF, grace=5), Line("a", "did not stop within 5 s; killing it", "bad")),
        (e.ChildUnresponsive(path="team/a", ref=REF), Line("a", "was killed but has not ended; waiting for it", "bad")),
        (
            e.MaxRestarts(path="team/g", id="b", reason=KILLED),
            Line("g", "gives up because of b: more than 1 restarts in 5 s; last cause: killed by SIGKILL", "bad"),
        ),
        (e.SupervisorStarted(path="team"), None),
        (e.DeadLetter(path="team/a", target=REF, msg=1, why="gone"), None),
    ],
)  # fmt: skip
def test_a_supervisors_event_is_one_line_or_none(
    story: FleetNarrator, event: e.SupervisorEvent, line: Line | None
) -> None:
    assert story.of_tree(event) == line


def test_restarts_are_counted_inside_the_period(story: FleetNarrator, clock: Clock) -> None:
    texts: list[str] = []
    for clock.now in (0.0, 4.0, 11.0, 30.0):
        line = story.of_tree(restarting())
        texts.append("" if line is None else line.text)
    assert [text.partition(")")[0][-15:] for text in texts] == [
        "(1 of 2 in 10 s",
        "(2 of 2 in 10 s",
        "(2 of 2 in 10 s",
        "(1 of 2 in 10 s",
    ]
    assert story.agents["team/a"].restarts == 4


def test_only_the_root_that_gives_up_is_remembered(story: FleetNarrator) -> None:
    story.of_tree(e.MaxRestarts(path="team/g", id="b", reason=KILLED))
    assert story.gave_up is None
    story.of_tree(e.MaxRestarts(path="team", id="g", reason=KILLED))
    assert story.gave_up == "g"


BEGUN = v.TurnStarted(0, "t1")


def sent(text: str) -> v.Notice:
    return v.Notice(-1, None, "sent", text)


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([v.Started(0, "t1", "s1"), v.Started(9, "t2", "s1")], ["session s1"]),
        ([v.Started(0, "t1", "s1"), v.Started(9, "t2", "s2")], ["session s1", "session s2"]),
        ([v.Text(0, "t1", "first\nsecond")], ["says: first second"]),
        ([v.Text(0, "t1", " \n")], []),
        ([v.Text(0, "t1", "aside", "p1")], []),
        ([v.TextDelta(0, "t1", "x"), v.Thinking(0, "t1", "x")], []),
        ([v.ToolCall(0, "t1", "i", "Bash", {"command": "ls"})], ["Bash: ls"]),
        ([sent("asked")], []),
        ([sent("the incarnation is gone")], ["continues: the incarnation is gone"]),
        ([v.Notice(-1, None, "resumed", "session s1")], ["resumed session s1"]),
        ([v.TurnEnded(0, "t1", "completed")], []),
        ([v.TurnEnded(0, "t1", "completed", solicited=False)], ["ended a turn without a prompt"]),
        ([v.Exited(-1, None, "stopped")], []),
        ([v.Exited(-1, None, "ok", 0)], []),
        ([BEGUN, v.Exited(-1, None, "killed_by_system", None, "SIGKILL")], ["killed by SIGKILL in mid-turn"]),
        ([v.Exited(-1, None, "crashed", 3, None, "x\nno memory\n")], ["ended with exit status 3: no memory"]),
        ([BEGUN, v.Exited(-1, None, "stopped")], ["was stopped in mid-turn"]),
        ([BEGUN, v.TurnEnded(0, "t1", "completed"), v.Exited(-1, None, "killed", None, "SIGKILL")], ["killed by SIGKILL"]),
    ],
)  # fmt: skip
def test_an_agents_events_are_told(story: FleetNarrator, events: list[v.AnyEvent], texts: list[str]) -> None:
    assert [line.text for line in story.of_agent("team/a", events)] == texts


def test_a_limit_is_told_with_its_end_and_the_waking(story: FleetNarrator) -> None:
    parked = v.Notice(
        -1, None, "parked", "usage limit; until 00:17:42", {"until": 1062.0, "why": "usage limit"}
    )
    first, second = story.of_agent("team/a", [parked, sent("the usage limit has reset")])
    assert first.text.startswith("parked: usage limit, until ")
    assert first.text.endswith("(in 1 min 2 s)")
    assert second.text == "woke: the usage limit has reset"
    held = v.Notice(-1, None, "parked", "by the operator", {"until": None, "why": "by the operator"})
    assert [line.text for line in story.of_agent("team/a", [held])] == ["parked: by the operator"]


def test_an_agents_sum_is_kept_through_its_incarnations(story: FleetNarrator) -> None:
    ended = v.TurnEnded(0, "t1", "completed", cost_usd=0.25)
    story.of_agent("team/a", [BEGUN, ended, v.Text(0, "t2", "one\ntwo\n\n"), BEGUN, ended])
    watched = story.agents["team/a"]
    assert (watched.turns, watched.cost_usd, watched.words) == (2, 0.5, "two")


def test_an_answer_is_told_with_what_it_took(story: FleetNarrator) -> None:
    answer = Answer(agent="a", outcome="ok", text="x\nthe end", duration=3.2, cost_usd=0.1234)
    assert story.answered("team/a", answer) == Line("a", "answered (3.2 s, $0.1234)", "good")
    assert story.agents["team/a"].words == "the end"


def test_a_failure_is_told_with_its_reason(story: FleetNarrator) -> None:
    answer = Answer(agent="a", outcome="failed", ending="api_error", error="API Error: 500")
    assert story.answered("team/a", answer) == Line("a", "failed: API Error: 500", "bad")
    assert story.unanswered("team/a", ValueError("gone")) == Line("a", "no answer: gone", "bad")


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (KILLED, "killed by SIGKILL"),
        (Crash(ValueError("no\nway")), "no way"),
        (Crash(KeyError()), "KeyError"),
        (Crash(StartError("b", Crash(StartError("c", ExitStatus(code=3))))), "b: c: exit status 3"),
        (Normal(), "normal"),
    ],
)
def test_an_exit_reason_is_told_by_its_innermost_cause(why: ExitReason, text: str) -> None:
    assert describe_exit(why) == text


@each_row(
    ("answer", "line"),
    [
        (Answer(agent="a", outcome="limited", resets_at=1062.0), "a is parked on a usage limit until "),
        (Answer(agent="a", outcome="crashed", exit=ExitStatus(code=3), stderr="x\nboom\n", error="boom"), "a crashed: exit status 3; boom"),
        (Answer(agent="a", outcome="killed_by_system", exit=KILLED), "a was killed by the system: killed by SIGKILL"),
        (Answer(agent="a", outcome="authentication", ending="authentication", error="log in"), "a is not logged in: log in"),
        (Answer(agent="a", outcome="deadline", ending="interrupted", error="ede"), "a did not finish in time"),
        (Answer(agent="a", outcome="exhausted", ending="max_turns", detail="error_max_turns"), "a used up its turns or its budget: error_max_turns"),
    ],
)  # fmt: skip
def test_an_end_is_one_line_with_who_what_and_why(answer: Answer, line: str) -> None:
    assert verdict(answer, 1000.0).startswith(line)


def test_every_outcome_has_words() -> None:
    assert set(PHRASES) == set(get_args(Outcome))
    assert phrase_of("a label of tomorrow") == "a label of tomorrow"
    assert reason(Answer(agent="a", outcome="ok")) == ""


def test_the_closing_table_has_a_row_for_each_agent() -> None:
    good = AgentSummary(
        incarnation=2, turns=3, cost_usd=0.5, words="the end", answer=Answer(agent="a", outcome="ok")
    )
    lost = AgentSummary(incarnation=1, failure="gone")
    rows = summary({"team/a": good, "team/g/b": lost, "team/c": AgentSummary()}, "team")
    assert [row.split() for row in rows] == [
        ["agent", "result", "starts", "turns", "cost", "last", "words"],
        ["a", "answered", "2", "3", "$0.5000", "the", "end"],
        ["g/b", "no", "answer", "1", "0"],
        ["c", "-", "0", "0"],
    ]
    assert result(AgentSummary()) == "-"


def test_a_line_has_its_time_and_its_name_in_columns() -> None:
    at = time.mktime((2026, 11, 23, 14, 5, 9, 0, 0, -1))
    assert format_line(at, Line("a", "started"), 5) == "14:05:09  a      started"


def node(state: ChildState, exit: ExitReason | None = None) -> TreeNode:
    return TreeNode(path="team/a", id="a", type="worker", state=state, exit=exit)


def test_a_state_is_the_agents_own_word_while_it_runs_and_its_supervisors_else() -> None:
    status = Status(name="a", state="parked", evidence="usage limit")
    assert state_of(node("running"), status) == ("parked", "usage limit")
    assert state_of(node("restarting", KILLED), status) == ("backoff", "killed by SIGKILL")
    assert state_of(node("down"), status) == ("stopped", "")
    assert state_of(node("starting"), None) == ("starting", "")
