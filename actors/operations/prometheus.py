"""The metrics of a tree in the Prometheus text format, by `prometheus_client`.

`FAMILIES` and `OTHER_HELP` are the complete, stable list of names. Each tree has its own registry, so two trees in one program
do not mix. Labels are the path and the kind of an agent and a few fixed words, never a session or content.

This module is imported only when metrics are enabled. A scrape updates the status of every agent, then renders in a thread.
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
from proctor.actors.operations.metrics import DURATION_BUCKETS, AgentTotals, Clock, Metrics
from proctor.actors.serving.pool import PoolStatistics
from proctor.actors.serving.toolset import Counts

Sample = tuple[tuple[str, ...], float]
Tools = Mapping[str, Counts]
Pooled = tuple[PoolStatistics, ...]
Accounts = Mapping[str, Expense]


@attrs.frozen
class Family:
    """A metric of every agent: its `kind` and `help` in Prometheus, its labels besides agent and kind, and its samples."""

    name: str
    kind: type[CounterMetricFamily | GaugeMetricFamily]
    help: str
    samples: Callable[[AgentTotals], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def _single(count: Callable[[AgentTotals], float]) -> Callable[[AgentTotals], Iterator[Sample]]:
    def samples(totals: AgentTotals) -> Iterator[Sample]:
        yield (), count(totals)

    return samples


def _by_label(
    counts: Callable[[AgentTotals], Mapping[str, float]], words: tuple[str, ...] = ()
) -> Callable[[AgentTotals], Iterator[Sample]]:
    """A sample for each of `words`, and for every other word that was counted."""

    def samples(totals: AgentTotals) -> Iterator[Sample]:
        values = dict(counts(totals))
        yield from (((word,), values.get(word, 0)) for word in dict.fromkeys((*words, *sorted(values))))

    return samples


def _lines(totals: AgentTotals) -> Mapping[str, float]:
    bad = {word: totals.events[word] for word in ("garbled", "unrecognized", "misplaced")}
    return {"read": max(0, totals.lines - sum(bad.values())), **bad}


def _running(totals: AgentTotals) -> float:
    return totals.status is not None and totals.status.state in ("working", "blocked", "stalled")


def _queued(totals: AgentTotals) -> float:
    return 0 if totals.status is None else totals.status.queued


def _state(totals: AgentTotals) -> Mapping[str, float]:
    return {} if totals.status is None else {totals.status.state: 1}


def _resident(totals: AgentTotals) -> Iterator[Sample]:
    if totals.memory is not None:
        yield (), totals.memory.resident


FAMILIES: tuple[Family, ...] = (
    Family(
        "proctor_lines_total",
        CounterMetricFamily,
        "Lines that an agent's command line wrote, by decoding result.",
        _by_label(_lines),
        ("result",),
    ),
    Family(
        "proctor_validation_failures_total",
        CounterMetricFamily,
        "Answers that did not match their schema.",
        _single(lambda totals: totals.events["unmet"]),
    ),
    Family(
        "proctor_timeouts_total",
        CounterMetricFamily,
        "Timeouts, by kind.",
        _by_label(
            lambda totals: {str(clock): count for clock, count in totals.timeouts.items()},
            get_args(Clock),
        ),
        ("clock",),
    ),
    Family(
        "proctor_turns_total",
        CounterMetricFamily,
        "Ended turns, by outcome.",
        _by_label(lambda totals: totals.turns, ("ok",)),
        ("outcome",),
    ),
    Family(
        "proctor_turns_running",
        GaugeMetricFamily,
        "Running turns.",
        _single(_running),
    ),
    Family(
        "proctor_requests_queued",
        GaugeMetricFamily,
        "Requests that wait behind the current one.",
        _single(_queued),
    ),
    Family(
        "proctor_agent_state",
        GaugeMetricFamily,
        "1 for the current state of an agent.",
        _by_label(_state),
        ("state",),
    ),
    Family(
        "proctor_agent_unresponsive",
        GaugeMetricFamily,
        "1 while an agent's command line does not respond.",
        _single(lambda totals: totals.status is not None and totals.status.unresponsive != ""),
    ),
    Family(
        "proctor_agent_restarts_total",
        CounterMetricFamily,
        "Restarts of an agent by its supervisor.",
        _single(lambda totals: totals.restarts),
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
        "Tool calls of an agent.",
        _single(lambda totals: totals.events["tool_calls"]),
    ),
    Family(
        "proctor_api_retries_total",
        CounterMetricFamily,
        "Retries of model API requests that a command line reported.",
        _single(lambda totals: totals.events["retries"]),
    ),
    Family(
        "proctor_tokens_total",
        CounterMetricFamily,
        "Tokens that a command line reported, by kind.",
        _by_label(lambda totals: totals.tokens, ("input", "output", "cache_read", "cache_write")),
        ("tokens",),
    ),
    Family(
        "proctor_cost_usd_total",
        CounterMetricFamily,
        "Cost in US dollars that a command line reported.",
        _single(lambda totals: totals.cost_usd),
    ),
)
"""The metrics of every agent; their labels are agent, kind, and those named here."""

OTHER_HELP: Mapping[str, str] = {
    "proctor_turn_duration_seconds": "Duration of turns, from the prompt to the end.",
    "proctor_supervisor_restarts_total": "Restarts of children that are not agents.",
    "proctor_metric_samples_dropped_total": "Samples that were dropped because they came too fast, by source.",
    "proctor_account_turns_total": "Turns in the account book, by agent, in the tree and in sessions.",
    "proctor_account_unpriced_turns_total": "Turns in the account book without a known cost.",
    "proctor_account_cost_usd_total": "Cost in US dollars in the account book.",
    "proctor_account_tokens_total": "Tokens in the account book, by kind.",
    "proctor_pool_slots": "Slots of a pool: the largest number of processes at a time.",
    "proctor_pool_slots_used": "Used slots of a pool, warm processes included.",
    "proctor_pool_requests_waiting": "Requests that wait for a slot of a pool.",
    "proctor_mcp_calls_total": "Ended calls of served tools, by result.",
    "proctor_mcp_calls_running": "Running calls of served tools.",
    "proctor_mcp_call_seconds_total": "Total duration of the ended calls of served tools.",
}
"""The HELP texts of the metrics with other labels."""


class PrometheusExporter(Collector):
    """A collector for the metrics of one tree, of the `tools` that it serves by name, of `pools` (such as `Pools.statistics`),
    and of the `accounts` of an account book. The last three functions are called at each scrape."""

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
        self._limiter = trio.CapacityLimiter(1)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def render(self) -> bytes:
        """Render the text of a scrape."""
        return await trio.to_thread.run_sync(self.render_sync, limiter=self._limiter)

    def render_sync(self) -> bytes:
        """The same, to be called in a thread of Trio (`trio.to_thread.run_sync`)."""
        trio.from_thread.run(self._update)
        self._metrics.update_memory()
        return generate_latest(self._registry)

    async def _update(self) -> None:
        await self._metrics.update_status()
        self._pooled = self._pools()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """The current metric families, as `prometheus_client` collects them."""
        agents = list(self._metrics.agents.items())
        for family in FAMILIES:
            metric = family.kind(family.name, family.help, labels=("agent", "kind", *family.labels))
            for path, totals in agents:
                for labels, value in family.samples(totals):
                    metric.add_metric((path, totals.kind, *labels), value)
            yield metric
        yield _duration_family(agents)
        yield _counter_family("proctor_supervisor_restarts_total", ("child",), self._metrics.restarts)
        dropped = {word: self._metrics.dropped[word] for word in ("log", "tree", "status")}
        yield _counter_family("proctor_metric_samples_dropped_total", ("source",), dropped)
        yield from _account_families(self._accounts())
        yield from _pool_families(self._pooled)
        yield from _call_families(self._tools())


def _duration_family(agents: Iterable[tuple[str, AgentTotals]]) -> HistogramMetricFamily:
    name = "proctor_turn_duration_seconds"
    metric = HistogramMetricFamily(name, OTHER_HELP[name], labels=("agent", "kind"))
    bounds = (*map(str, DURATION_BUCKETS), "+Inf")
    for path, totals in agents:
        counts = accumulate(totals.durations.buckets)
        metric.add_metric((path, totals.kind), [*zip(bounds, counts, strict=True)], totals.durations.sum)
    return metric


def _counter_family(name: str, labels: tuple[str, ...], counts: Mapping[str, float]) -> CounterMetricFamily:
    metric = CounterMetricFamily(name, OTHER_HELP[name], labels=labels)
    for word, count in list(counts.items()):
        metric.add_metric((word,), count)
    return metric


def _account_families(accounts: Accounts) -> Iterator[CounterMetricFamily]:
    books = list(accounts.items())
    for name, number in (
        ("proctor_account_turns_total", attrgetter("turns")),
        ("proctor_account_unpriced_turns_total", attrgetter("unpriced")),
        ("proctor_account_cost_usd_total", attrgetter("cost_usd")),
    ):
        yield _counter_family(name, ("account",), {agent: number(expense) or 0.0 for agent, expense in books})
    name = "proctor_account_tokens_total"
    metric = CounterMetricFamily(name, OTHER_HELP[name], labels=("account", "tokens"))
    for agent, expense in books:
        for word in ("input", "output", "cache_read", "cache_write"):
            metric.add_metric((agent, word), getattr(expense.usage, f"{word}_tokens", None) or 0)
    yield metric


def _pool_families(pools: Pooled) -> Iterator[GaugeMetricFamily]:
    for name, number in (
        ("proctor_pool_slots", attrgetter("limit")),
        ("proctor_pool_slots_used", attrgetter("used")),
        ("proctor_pool_requests_waiting", attrgetter("waiting")),
    ):
        metric = GaugeMetricFamily(name, OTHER_HELP[name], labels=("pool",))
        for pool in pools:
            metric.add_metric((pool.name,), number(pool))
        yield metric


def _call_families(tools: Tools) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    calls, running, seconds = (name for name in OTHER_HELP if name.startswith("proctor_mcp_"))
    ended = CounterMetricFamily(calls, OTHER_HELP[calls], labels=("tool", "result"))
    live = GaugeMetricFamily(running, OTHER_HELP[running], labels=("tool",))
    took = CounterMetricFamily(seconds, OTHER_HELP[seconds], labels=("tool",))
    for name, count in tools.items():
        ok = count.calls - count.running - count.errors - count.cancelled
        for result, number in (("ok", ok), ("error", count.errors), ("cancelled", count.cancelled)):
            ended.add_metric((name, result), number)
        live.add_metric((name,), count.running)
        took.add_metric((name,), count.seconds)
    yield from (ended, live, took)
