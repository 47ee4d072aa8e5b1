from __future__ import annotations

import pytest

from proctor.actors.batch import statistics
from proctor.actors.batch.results import BatchResult, BatchTimes, BatchTry


def result(
    task: str = "t", agent: str = "a", score: float = 1.0, number: int = 1, **fields: float | None
) -> BatchResult:
    working, cost = fields.get("working", 10.0), fields.get("cost", 0.5)
    cause = None if score else "crashed"
    one = BatchTry(outcome="ok", cost_usd=cost, working=working)
    times = BatchTimes(working=working)
    return BatchResult(
        task=task,
        agent=agent,
        repetition=number,
        score=score,
        cause=cause,
        cost_usd=cost,
        times=times,
        tries=(one,),
    )


@pytest.mark.parametrize(
    ("successes", "number", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_the_interval_of_a_share_is_wilsons(successes: int, number: int, low: float, high: float) -> None:
    estimate = statistics.share_of(successes, number)
    assert estimate.mean == successes / number
    assert estimate.low == pytest.approx(low, abs=1e-4)
    assert estimate.high == pytest.approx(high, abs=1e-4)


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says() -> None:
    from random import Random

    random, covered = Random(7), 0
    for _ in range(100):
        found = statistics.mean_of([random.gauss(3.0, 1.0) for _ in range(40)])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 3.0 <= found.high
    assert 88 <= covered <= 99
    assert statistics.mean_of([2.0]) == statistics.Estimate(2.0)


def test_scores_between_0_and_1_have_the_interval_of_a_mean() -> None:
    assert statistics.score_of_all([1.0, 0.0]) == statistics.share_of(1, 2)
    assert statistics.score_of_all([0.5, 0.0]) == statistics.mean_of([0.5, 0.0])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5.0), (0.95, 10.0), (0.1, 1.0)])
def test_percentiles_are_values_that_were_there(share: float, expected: float) -> None:
    assert statistics.percentile([float(n) for n in range(10, 0, -1)], share) == expected
    assert statistics.percentile([], share) is None


def test_a_summary_counts_failures_and_unknown_costs() -> None:
    found = [
        result(number=1),
        result(number=2, score=0.0, cost=None),
        result(number=3, working=None),
        result(agent="b"),
    ]
    one, two = statistics.summaries_of(found)
    assert (one.agent, one.attempts, one.failures, one.tries) == ("a", 3, {"crashed": 1}, 3)
    assert (one.cost_usd, one.unknown_costs, one.working, one.working_p50) == (1.0, 1, 20.0, 10.0)
    assert (two.agent, two.score.mean) == ("b", 1.0)


def test_differences_are_paired_by_task() -> None:
    base = [result("t1", score=0.0), result("t2"), result("t3", working=20.0), result("alone")]
    other = [result("t1"), result("t2", cost=0.25), result("t3", working=10.0), result("other")]
    [found] = statistics.differences_of(base, other, ("A", "B"))
    assert (found.base, found.other, found.tasks, found.better, found.worse) == ("A a", "B a", 3, 1, 0)
    assert found.score.mean == pytest.approx(1 / 3)
    assert found.working is not None
    assert found.working.mean == pytest.approx(-10 / 3)
    assert found.cost_usd is not None
    assert found.cost_usd.mean == pytest.approx(-0.25 / 3)


def test_files_with_one_agent_each_are_compared_whatever_its_name() -> None:
    [found] = statistics.differences_of([result(agent="a")], [result(agent="b")], ("A", "B"))
    assert (found.base, found.other, found.tasks) == ("A a", "B b", 1)
    assert statistics.differences_of([result(task="x")], [result(task="y")], ("A", "B")) == []
    [within] = statistics.differences_within([result(agent="a"), result(agent="b", score=0.0)])
    assert (within.base, within.other, within.worse) == ("a", "b", 1)
