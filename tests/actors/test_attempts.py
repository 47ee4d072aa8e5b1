from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import get_args

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.actors import errors
from proctor.actors.error_kinds import is_retryable
from proctor.actors.outcomes import ENDINGS, OUTCOMES, Answer, Outcome
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, acp_plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import ask
from proctor.actors.serving.retry import RETRY, attempted, judge
from proctor.actors.transport.transport import Start, Transport
from proctor.runtime.processes import process_errors
from tests.actors.spoken import spoken_plan
from tests.tables import each_row

MENDED_FIRST = [
    errors.BadOption("x"),
    errors.NotInstalled("claude", ["PATH"], "npm"),
    errors.NotExecutable("claude", "/x", "mode"),
    errors.StartRefused("a", "not logged in"),
    errors.BudgetExceeded("a", "spent"),
    errors.MaybeExecuted("a", "crashed", "gone"),
    errors.AskTimeout("a", 3.0),
    errors.PoolClosed("claude"),
    process_errors.NotFound("no such program", stage="spawn", argv0="x"),
    process_errors.CwdMissing("no such directory", stage="spawn", argv0="x"),
    ValueError("somebody's own"),
]
PASSING_ERRORS = [
    errors.NotExecuted("a", "queue"),
    errors.GreetingTimeout("a", 60.0, ""),
    errors.StartKilled("a", "SIGKILL", ""),
    errors.Unresponsive("a", "no sign of life"),
    errors.ServerLost("s", "gone"),
    errors.SessionOwned("a", "s", 1, "b"),
    errors.PoolFull("claude", 1000),
    errors.PoolTimeout("claude", 5.0, ahead=3, elapsed=5.0),
    errors.SessionBusy("session 'a'", "it is in use"),
    process_errors.SpawnFailed("did not start: EAGAIN", stage="spawn", argv0="x"),
]


@pytest.mark.covers("R111", "R120")
@each_row("error", MENDED_FIRST, ids=lambda error: type(error).__name__)
def test_what_somebody_has_to_mend_first_is_not_repeated(error: Exception) -> None:
    assert (is_retryable(error), judge(error)) == (False, None)


@pytest.mark.covers("R111")
@each_row("error", PASSING_ERRORS, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_repeated(error: Exception) -> None:
    again = judge(error)
    assert again is not None
    assert (again.cause, again.wait) == (f"{type(error).__name__}: {error}", None)


def test_an_answer_is_repeated_by_its_label_or_by_the_clis_word() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    repeated = {
        ending for ending in ENDINGS if judge(Answer(agent="a", outcome=ENDINGS[ending], ending=ending))
    }
    assert repeated == {"overloaded", "api_error"}
    labels = {label for label in OUTCOMES if judge(Answer(agent="a", outcome=label))}
    assert labels == {"stalled", "killed_by_system", "crashed", "no_answer"}


@pytest.mark.covers("R080")
def test_output_that_could_not_be_read_is_not_read_again_Q06() -> None:
    assert judge(Answer(agent="a", outcome="garbled")) is None


def test_a_usage_limit_is_waited_out_and_one_without_a_time_is_not() -> None:
    again = judge(Answer(agent="a", outcome="limited", resets_at=time.time() + 100))
    assert again is not None
    assert again.wait == pytest.approx(101, abs=1)
    assert judge(Answer(agent="a", outcome="limited")) is None


@pytest.mark.covers("R117")
async def test_a_run_that_crashed_runs_again(
    autojump_clock: MockClock,
) -> None:
    starts: list[float] = []

    async def third_time_lucky(*, timeout: float | None) -> Answer:
        starts.append(trio.current_time())
        return await ask(plan, "crash" if len(starts) < 3 else "hi", timeout=timeout)

    plan = spoken_plan()
    answer = await attempted(third_time_lucky, RETRY, chance=Random(1))
    assert (answer.text, len(starts)) == ("1: hi", 3)
    first, second = starts[1] - starts[0], starts[2] - starts[1]
    assert 0.4 <= first <= 0.5 + 0.1
    assert 0.8 <= second <= 1.0 + 0.1


COMMAND_LINES: Mapping[str, Callable[[AgentOptions], Plan]] = {
    "claude": lambda options: claude_plan("agent", options),
    "codex": lambda options: codex_plan("agent", options),
    "opencode": lambda options: opencode_plan("agent", options),
    "acp": lambda options: acp_plan("agent", ["any"], options),
}


@pytest.mark.covers("R119", "R080")
@pytest.mark.parametrize("plan_of", COMMAND_LINES.values(), ids=COMMAND_LINES)
async def test_one_policy_repeats_the_starts_of_every_command_line(
    plan_of: Callable[[AgentOptions], Plan], autojump_clock: MockClock
) -> None:
    starts: list[float] = []

    def refuse(start: Start) -> Transport:
        starts.append(trio.current_time())
        raise process_errors.SpawnFailed("no memory", stage="spawn", argv0="x")

    plan = attrs.evolve(plan_of({"home": "private", "executable": sys.executable}), reach=refuse)
    with pytest.raises(process_errors.SpawnFailed):
        await attempted(partial(ask, plan, "hi"), chance=Random(1))
    first, second = (b - a for a, b in pairwise(starts))
    assert 0.4 <= first <= 0.5
    assert 0.8 <= second <= 1.0


@pytest.mark.covers("R120")
async def test_a_missing_executable_is_one_attempt(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = claude_plan("agent", {"executable": tmp_path / "nothing", "home": "private"})
    with pytest.raises(errors.NotInstalled):
        await attempted(partial(ask, plan, "hi"))
    assert caplog.records == []


async def test_the_deadline_of_a_run_is_for_all_its_attempts(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    with pytest.raises(errors.AskInterrupted):
        await attempted(partial(ask, spoken_plan(), "hang"), timeout=7.0)
    assert trio.current_time() - began < 12.0
