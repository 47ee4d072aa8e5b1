"""Statistics of results: scores with an interval, costs, tokens and times for each agent, and paired differences.

The intervals hold with 95 % confidence. That of a share (each score 0 or 1) is Wilson's; that of a mean is a percentile bootstrap with a fixed seed, so the same results
give the same text. Attempts count as independent; a comparison pairs the means of each task, because tasks differ more than agents do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean

import msgspec

from proctor.actors.batch.results import BatchResult
from proctor.actors.expense import add_usage
from proctor.protocols.vocabulary import Usage

RESAMPLES = 2000
_Z = 1.959963984540054
"""The quantile of the normal distribution for 95 % in the middle."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean, and the interval in which it lies with 95 % confidence; no interval for fewer than two values of a mean."""

    mean: float
    low: float | None = None
    high: float | None = None


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one agent. `failures` counts attempts by their cause; `cost_usd` is the sum of what is known, and `unknown_costs` counts tries
    without one. Times in seconds: `working` of all attempts, and the median and the 95th percentile of one; None where none is known."""

    agent: str
    attempts: int
    score: Estimate
    failures: dict[str, int]
    tries: int
    resumed: int
    cost_usd: float | None
    unknown_costs: int
    usage: Usage | None
    working: float | None
    working_p50: float | None
    working_p95: float | None
    waiting: float


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What `other` has more than `base`, by pairs of tasks that both have: of the score, and of the working time in seconds and the cost of an attempt, where
    both are known. `better` and `worse` count the tasks by their score."""

    base: str
    other: str
    tasks: int
    better: int
    worse: int
    score: Estimate
    working: Estimate | None = None
    cost_usd: Estimate | None = None


def share_of(successes: int, number: int) -> Estimate:
    """A share with Wilson's interval. `number` is at least 1."""
    share, square = successes / number, _Z * _Z / number
    middle = (share + square / 2) / (1 + square)
    spread = _Z * math.sqrt(share * (1 - share) / number + square / (4 * number)) / (1 + square)
    return Estimate(share, max(0.0, middle - spread), min(1.0, middle + spread))


def mean_of(values: Sequence[float]) -> Estimate:
    """A mean with a bootstrap interval. At least one value."""
    if len(values) < 2:
        return Estimate(fmean(values))
    chance = Random(0)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Estimate(
        fmean(values), means[round(0.025 * (RESAMPLES - 1))], means[round(0.975 * (RESAMPLES - 1))]
    )


def score_of_all(scores: Sequence[float]) -> Estimate:
    """The mean of scores, with the interval that fits them."""
    if all(score in (0.0, 1.0) for score in scores):
        return share_of(round(math.fsum(scores)), len(scores))
    return mean_of(scores)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that is not below this share of them; None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def summaries_of(results: Iterable[BatchResult]) -> list[AgentSummary]:
    """A summary of each agent, in the order of their names."""
    return [_summary(agent, found) for agent, found in sorted(_by_agent(results).items())]


def _by_agent(results: Iterable[BatchResult]) -> Mapping[str, list[BatchResult]]:
    found: dict[str, list[BatchResult]] = {}
    for result in results:
        found.setdefault(result.agent, []).append(result)
    return found


def _summary(agent: str, results: Sequence[BatchResult]) -> AgentSummary:
    tries = [one for result in results for one in result.tries]
    costs = [one.cost_usd for one in tries]
    known = [cost for cost in costs if cost is not None]
    working = [one.times.working for one in results if one.times.working is not None and one.tries]
    usage: Usage | None = None
    for one in tries:
        usage = add_usage(usage, one.usage)
    return AgentSummary(
        agent=agent,
        attempts=len(results),
        score=score_of_all([result.score for result in results]),
        failures=dict(
            sorted(Counter(result.cause for result in results if result.cause is not None).items())
        ),
        tries=len(tries),
        resumed=sum(result.resumed for result in results),
        cost_usd=round(math.fsum(known), 9) if known else None,
        unknown_costs=len(costs) - len(known),
        usage=usage,
        working=round(math.fsum(working), 3) if working else None,
        working_p50=percentile(working, 0.5),
        working_p95=percentile(working, 0.95),
        waiting=round(math.fsum(result.times.waiting for result in results), 3),
    )


def difference_of(
    base: Sequence[BatchResult], other: Sequence[BatchResult], names: tuple[str, str]
) -> Difference | None:
    """The difference of two sets of results by the tasks that both have; None where they have none in common."""
    one, two = _by_task(base), _by_task(other)
    common = sorted(one.keys() & two.keys())
    if not common:
        return None
    scores = [_score(two[task]) - _score(one[task]) for task in common]
    times = [(_working(one[task]), _working(two[task])) for task in common]
    costs = [(_cost(one[task]), _cost(two[task])) for task in common]
    return Difference(
        base=names[0],
        other=names[1],
        tasks=len(common),
        better=sum(score > 0 for score in scores),
        worse=sum(score < 0 for score in scores),
        score=mean_of(scores),
        working=_paired(times),
        cost_usd=_paired(costs),
    )


def differences_of(
    base: Sequence[BatchResult], other: Sequence[BatchResult], names: tuple[str, str]
) -> list[Difference]:
    """Two files of results, compared agent by agent; where no agent is in both, and each has one, those two."""
    one, two = _by_agent(base), _by_agent(other)
    common = sorted(one.keys() & two.keys())
    pairs = [(agent, agent) for agent in common]
    if not common and len(one) == len(two) == 1:
        pairs = [(next(iter(one)), next(iter(two)))]
    found = [difference_of(one[a], two[b], (f"{names[0]} {a}", f"{names[1]} {b}")) for a, b in pairs]
    return [difference for difference in found if difference is not None]


def differences_within(results: Sequence[BatchResult]) -> list[Difference]:
    """The agents of one file, each compared with the first."""
    first, *rest = sorted(_by_agent(results).items())
    found = [difference_of(first[1], other, (first[0], agent)) for agent, other in rest]
    return [difference for difference in found if difference is not None]


def _by_task(results: Sequence[BatchResult]) -> Mapping[str, list[BatchResult]]:
    found: dict[str, list[BatchResult]] = {}
    for result in results:
        found.setdefault(result.task, []).append(result)
    return found


def _score(results: Sequence[BatchResult]) -> float:
    return fmean(result.score for result in results)


def _working(results: Sequence[BatchResult]) -> float | None:
    known = [one.times.working for one in results if one.times.working is not None]
    return fmean(known) if known else None


def _cost(results: Sequence[BatchResult]) -> float | None:
    known = [one.cost_usd for one in results if one.cost_usd is not None]
    return fmean(known) if known else None


def _paired(pairs: Sequence[tuple[float | None, float | None]]) -> Estimate | None:
    known = [two - one for one, two in pairs if one is not None and two is not None]
    return mean_of(known) if known else None
