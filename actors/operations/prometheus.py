"""A tree's numbers in the Prometheus text format, under names that stay: `docs/reference/metrics.md` says what each means.

`FAMILIES` is the whole list. Each tree has a registry of its own, so that two trees in one program know nothing of each
other. Labels are an agent's path and kind and a few fixed words, never a session or anything that was said.

A scrape looks at every agent first, then renders in a thread: the tree goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import get_args

import attrs
import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from proctor.actors.expense import Expense
from proctor.actors.operations.metrics import BOUNDS, Clock, Metrics, Numbers
from proctor.actors.serving.pool import PoolStatistics
from proctor.actors.serving.toolset import Counts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[tuple[str, ...], float]
Tools = Mapping[str, Counts]
Pooled = tuple[PoolStatistics, ...]
Accounts = Mapping[str, Expense]


@attrs.frozen
class Family:
    """One name: `kind` and `help` as Prometheus shows them, the labels besides agent and kind, and its samples."""

    name: str
    kind: type[CounterMetricFamily | GaugeMetricFamily]
    help: str
    samples: Callable[[Numbers], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def _plain(count: Callable[[Numbers], float]) -> Callable[[Numbers], Iterator[Sample]]:
    def samples(numbers: Numbers) -> Iterator[Sample]:
        yield (), count(numbers)

    return samples


def _by_word(
    counts: Callable[[Numbers], Mapping[str, float]], words: tuple[str, ...] = ()
) -> Callable[[Numbers], Iterator[Sample]]:
    """A sample for each of `words`, and for each other that was counted."""

    def samples(numbers: Numbers) -> Iterator[Sample]:
        found = dict(counts(numbers))
        yield from (((word,), found.get(word, 0)) for word in dict.fromkeys((*words, *sorted(found))))

    return samples


def _lines(numbers: Numbers) -> Mapping[str, float]:
    bad = {word: numbers.counts[word] for word in ("garbled", "unrecognized", "misplaced")}
    return {"read": max(0, numbers.lines - sum(bad.values())), **bad}


def _running(numbers: Numbers) -> float:
    return numbers.status is not None and numbers.status.state in ("working", "blocked", "stalled")


def _queued(numbers: Numbers) -> float:
    return 0 if numbers.status is None else numbers.status.queued


def _state(numbers: Numbers) -> Mapping[str, float]:
    return {} if numbers.status is None else {numbers.status.state: 1}


def _resident(numbers: Numbers) -> Iterator[Sample]:
    if numbers.memory is not None:
        yield (), numbers.memory.resident


FAMILIES: tuple[Family, ...] = (
    Family(
        "proctor_lines_total",
        CounterMetricFamily,
        "Lines that an agent's command line wrote, by what could be made of them.",
        _by_word(_lines),
        ("result",),
    ),
    Family(
        "proctor_validation_failures_total",
        CounterMetricFamily,
        "Answers that did not fit their schema.",
        _plain(lambda numbers: numbers.counts["unmet"]),
    ),
    Family(
        "proctor_timeouts_total",
        CounterMetricFamily,
        "Timeouts, by the clock that ran out.",
        _by_word(
            lambda numbers: {str(clock): count for clock, count in numbers.timeouts.items()},
            get_args(Clock),
        ),
        ("clock",),
    ),
    Family(
        "proctor_turns_total",
        CounterMetricFamily,
        "Turns that ended, by outcome.",
        _by_word(lambda numbers: numbers.turns, ("ok",)),
        ("outcome",),
    ),
    Family(
        "proctor_turns_running",
        GaugeMetricFamily,
        "Turns that run now.",
        _plain(_running),
    ),
    Family(
        "proctor_requests_queued",
        GaugeMetricFamily,
        "Requests that wait behind the one that is served.",
        _plain(_queued),
    ),
    Family(
        "proctor_agent_state",
        GaugeMetricFamily,
        "1 for the state that an agent is in.",
        _by_word(_state),
        ("state",),
    ),
    Family(
        "proctor_agent_unresponsive",
        GaugeMetricFamily,
        "1 while an agent's command line does not respond.",
        _plain(lambda numbers: numbers.status is not None and numbers.status.unresponsive != ""),
    ),
    Family(
        "proctor_agent_restarts_total",
        CounterMetricFamily,
        "Restarts of an agent that its supervisor decided on.",
        _plain(lambda numbers: numbers.restarts),
    ),
    Family(
        "proctor_agent_memory_bytes",
        GaugeMetricFamily,
        "Resident memory of an agent's processes.",
        _resident,
    ),
    Family(
        "proctor_tool_calls_total",
        CounterMetricFamily,
        "Tools that an agent has called.",
        _plain(lambda numbers: numbers.counts["tool_calls"]),
    ),
    Family(
        "proctor_api_retries_total",
        CounterMetricFamily,
        "Requests to a model's API that a command line said it repeats.",
        _plain(lambda numbers: numbers.counts["retries"]),
    ),
    Family(
        "proctor_tokens_total",
        CounterMetricFamily,
        "Tokens that a command line told of, by kind.",
        _by_word(lambda numbers: numbers.tokens, ("input", "output", "cache_read", "cache_write")),
        ("tokens",),
    ),
    Family(
        "proctor_cost_usd_total",
        CounterMetricFamily,
        "US dollars that a command line told of.",
        _plain(lambda numbers: numbers.cost_usd),
    ),
)
"""What there is of every agent; the labels are agent, kind, and those named here."""

OTHERS: Mapping[str, str] = {
    "proctor_turn_duration_seconds": "How long turns took, from the prompt to the end.",
    "proctor_supervisor_restarts_total": "Restarts of children that are no agents.",
    "proctor_metric_samples_dropped_total": "Samples that were left out because they came too fast, by where from.",
    "proctor_account_turns_total": "Turns in the account book, by the name of their agent, however they were made.",
    "proctor_account_unpriced_turns_total": "Those of them whose cost is not known.",
    "proctor_account_cost_usd_total": "US dollars in the account book.",
    "proctor_account_tokens_total": "Tokens in the account book, by kind.",
    "proctor_pool_slots": "Places of a pool: how many processes may run in it at a time.",
    "proctor_pool_slots_used": "Places of a pool that are taken, by processes kept ready too.",
    "proctor_pool_requests_waiting": "Requests that wait for a place of a pool.",
    "proctor_mcp_calls_total": "Calls of the tools that are served, by how they ended.",
    "proctor_mcp_calls_running": "Calls of the tools that are served, running now.",
    "proctor_mcp_call_seconds_total": "Seconds that the ended calls of the tools that are served took.",
}
"""What has other labels than that."""


class Exposition(Collector):
    """The numbers of one tree, of the `tools` it serves by name, of `pools` (such as `Pools.statistics`), and of the
    `accounts` of an account book, under their public names. The last three are asked at each scrape."""

    def __init__(
        self,
        metrics: Metrics,
        tools: Callable[[], Tools] = dict,
        pools: Callable[[], Pooled] = tuple,
        accounts: Callable[[], Accounts] = dict,
    ) -> None:
        self._metrics = metrics
        self._tools = tools
        self._pools = pools
        self._accounts = accounts
        self._pooled: Pooled = ()
        self._one = trio.CapacityLimiter(1)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def expose(self) -> bytes:
        """The text, as of now."""
        return await trio.to_thread.run_sync(self.scrape, limiter=self._one)

    def scrape(self) -> bytes:
        """The same, for a thread that Trio has started (`trio.to_thread.run_sync`)."""
        trio.from_thread.run(self._look)
        self._metrics.weigh()
        return generate_latest(self._registry)

    async def _look(self) -> None:
        await self._metrics.look()
        self._pooled = self._pools()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """What there is just now, family by family."""
        agents = list(self._metrics.numbers.items())
        for family in FAMILIES:
            made = family.kind(family.name, family.help, labels=("agent", "kind", *family.labels))
            for path, numbers in agents:
                for labels, value in family.samples(numbers):
                    made.add_metric((path, numbers.kind, *labels), value)
            yield made
        yield _durations(agents)
        yield _counted("proctor_supervisor_restarts_total", ("child",), self._metrics.restarts)
        dropped = {word: self._metrics.dropped[word] for word in ("log", "tree", "status")}
        yield _counted("proctor_metric_samples_dropped_total", ("source",), dropped)
        yield from _accounted(self._accounts())
        yield from _places(self._pooled)
        yield from _calls(self._tools())


def _durations(agents: Iterable[tuple[str, Numbers]]) -> HistogramMetricFamily:
    name = "proctor_turn_duration_seconds"
    made = HistogramMetricFamily(name, OTHERS[name], labels=("agent", "kind"))
    bounds = (*map(str, BOUNDS), "+Inf")
    for path, numbers in agents:
        counts = accumulate(numbers.durations.buckets)
        made.add_metric((path, numbers.kind), [*zip(bounds, counts, strict=True)], numbers.durations.sum)
    return made


def _counted(name: str, labels: tuple[str, ...], counts: Mapping[str, float]) -> CounterMetricFamily:
    made = CounterMetricFamily(name, OTHERS[name], labels=labels)
    for word, count in list(counts.items()):
        made.add_metric((word,), count)
    return made


def _accounted(accounts: Accounts) -> Iterator[CounterMetricFamily]:
    books = list(accounts.items())
    for name, number in (
        ("proctor_account_turns_total", attrgetter("turns")),
        ("proctor_account_unpriced_turns_total", attrgetter("unpriced")),
        ("proctor_account_cost_usd_total", attrgetter("cost_usd")),
    ):
        yield _counted(name, ("account",), {agent: number(expense) or 0.0 for agent, expense in books})
    name = "proctor_account_tokens_total"
    made = CounterMetricFamily(name, OTHERS[name], labels=("account", "tokens"))
    for agent, expense in books:
        for word in ("input", "output", "cache_read", "cache_write"):
            made.add_metric((agent, word), getattr(expense.usage, f"{word}_tokens", None) or 0)
    yield made


def _places(pools: Pooled) -> Iterator[GaugeMetricFamily]:
    for name, number in (
        ("proctor_pool_slots", attrgetter("limit")),
        ("proctor_pool_slots_used", attrgetter("used")),
        ("proctor_pool_requests_waiting", attrgetter("waiting")),
    ):
        made = GaugeMetricFamily(name, OTHERS[name], labels=("pool",))
        for pool in pools:
            made.add_metric((pool.name,), number(pool))
        yield made


def _calls(tools: Tools) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    calls, running, seconds = (name for name in OTHERS if name.startswith("proctor_mcp_"))
    ended = CounterMetricFamily(calls, OTHERS[calls], labels=("tool", "result"))
    live = GaugeMetricFamily(running, OTHERS[running], labels=("tool",))
    took = CounterMetricFamily(seconds, OTHERS[seconds], labels=("tool",))
    for name, count in tools.items():
        good = count.calls - count.running - count.errors - count.cancelled
        for result, number in (("ok", good), ("error", count.errors), ("cancelled", count.cancelled)):
            ended.add_metric((name, result), number)
        live.add_metric((name,), count.running)
        took.add_metric((name,), count.seconds)
    yield from (ended, live, took)
