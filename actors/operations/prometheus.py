"""The metrics of a tree in the Prometheus text format, by `prometheus_client`.

`METRICS` is the complete, stable list of names. Each tree has its own registry, so two trees in one program do not mix. Labels
are the path and the kind of an agent and a few fixed words, never a session or content.

This module is imported only when metrics are enabled. A scrape updates the status of every agent, then renders in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, cast, get_args

import attrs
import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from proctor.actors.expense import Expense
from proctor.actors.operations.metrics import DURATION_BUCKETS, AgentTotals, Clock, Metrics, Source
from proctor.actors.serving.pool import PoolStatistics
from proctor.actors.serving.toolset import Counts

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Tools = Mapping[str, Counts]
Pooled = tuple[PoolStatistics, ...]
Accounts = Mapping[str, Expense]


@attrs.frozen
class Scrape:
    """The numbers of one scrape."""

    metrics: Metrics
    tools: Tools
    pools: Pooled
    accounts: Accounts


@attrs.frozen
class Subject:
    """The subject of a metric, such as an agent: its labels, and how the subjects of a scrape are listed."""

    labels: tuple[str, ...]
    listed: Callable[[Scrape], Iterable[tuple[tuple[str, ...], Any]]]


# copied to a list, because this runs in a thread while the loop may add an agent
AGENT = Subject(("agent", "kind"), lambda s: [((path, t.kind), t) for path, t in [*s.metrics.agents.items()]])
TREE = Subject((), lambda s: [((), s.metrics)])
ACCOUNT = Subject(("account",), lambda s: [((name,), expense) for name, expense in [*s.accounts.items()]])
POOL = Subject(("pool",), lambda s: [((pool.name,), pool) for pool in s.pools])
TOOL = Subject(("tool",), lambda s: [((name,), counts) for name, counts in s.tools.items()])


@attrs.frozen
class Metric:
    """A metric with its `help` in Prometheus: a counter if its name ends with `_total`, a histogram if it measures durations.

    `number` takes a subject and gives its number, its numbers by the value of `label`, or None for no sample.
    """

    name: str
    help: str
    subject: Subject
    number: Callable[[Any], Any]
    label: str | None = None

    def collect(self, scrape: Scrape) -> Family:
        """The samples of a scrape."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        labels = self.subject.labels if self.label is None else (*self.subject.labels, self.label)
        family = kind(self.name, self.help, labels=labels)
        for values, subject in self.subject.listed(scrape):
            number = self.number(subject)
            if isinstance(number, Mapping):
                for value, count in cast("Mapping[str, float]", number).items():
                    family.add_metric((*values, value), count)
            elif number is not None:
                family.add_metric(values, number)
        return family


@attrs.frozen
class Histogram(Metric):
    """The durations of an agent's turns."""

    def collect(self, scrape: Scrape) -> Family:
        """The samples of a scrape."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.subject.labels)
        bounds = (*map(str, DURATION_BUCKETS), "+Inf")
        for values, totals in self.subject.listed(scrape):
            counts = accumulate(totals.durations.buckets)
            family.add_metric(values, [*zip(bounds, counts, strict=True)], self.number(totals))
        return family


def _with_zeros(words: Iterable[str], counts: Mapping[str, float]) -> Mapping[str, float]:
    """A sample for each of `words`, and for every other word that was counted."""
    return {**dict.fromkeys(words, 0), **{word: counts[word] for word in sorted(counts)}}


def _lines(totals: AgentTotals) -> Mapping[str, float]:
    bad = {word: totals.events[word] for word in ("garbled", "unrecognized", "misplaced")}
    return {"read": max(0, totals.lines - sum(bad.values())), **bad}


def _running(totals: AgentTotals) -> bool:
    return totals.status is not None and totals.status.state in ("working", "blocked", "stalled")


def _calls(counts: Counts) -> Mapping[str, float]:
    ok = counts.calls - counts.running - counts.errors - counts.cancelled
    return {"ok": ok, "error": counts.errors, "cancelled": counts.cancelled}


def _tokens(expense: Expense) -> Mapping[str, float]:
    words = ("input", "output", "cache_read", "cache_write")
    return {word: getattr(expense.usage, f"{word}_tokens", None) or 0 for word in words}


METRICS = (
    Metric("proctor_lines_total", "Lines that an agent's command line wrote, by decoding result.", AGENT, _lines, "result"),
    Metric("proctor_validation_failures_total", "Answers that did not match their schema.", AGENT, lambda t: t.events["unmet"]),
    Metric("proctor_timeouts_total", "Timeouts, by kind.", AGENT, lambda t: _with_zeros(get_args(Clock), t.timeouts), "clock"),
    Metric("proctor_turns_total", "Ended turns, by outcome.", AGENT, lambda t: _with_zeros(("ok",), t.turns), "outcome"),
    Metric("proctor_turns_running", "Running turns.", AGENT, _running),
    Metric("proctor_requests_queued", "Requests that wait behind the current one.", AGENT, lambda t: t.status.queued if t.status else 0),
    Metric("proctor_agent_state", "1 for the current state of an agent.", AGENT,
           lambda t: {t.status.state: 1} if t.status else None, "state"),
    Metric("proctor_agent_unresponsive", "1 while an agent's command line does not respond.", AGENT,
           lambda t: t.status is not None and t.status.unresponsive != ""),
    Metric("proctor_agent_restarts_total", "Restarts of an agent by its supervisor.", AGENT, lambda t: t.restarts),
    Metric("proctor_agent_memory_bytes", "Resident memory of an agent's processes.", AGENT,
           lambda t: t.memory.resident if t.memory else None),
    Metric("proctor_tool_calls_total", "Tool calls of an agent.", AGENT, lambda t: t.events["tool_calls"]),
    Metric("proctor_api_retries_total", "Retries of model API requests that a command line reported.", AGENT, lambda t: t.events["retries"]),
    Metric("proctor_tokens_total", "Tokens that a command line reported, by kind.", AGENT, lambda t: _tokens(t.expense), "tokens"),
    Metric("proctor_cost_usd_total", "Cost in US dollars that a command line reported.", AGENT, lambda t: t.expense.cost_usd or 0.0),
    Histogram("proctor_turn_duration_seconds", "Duration of turns, from the prompt to the end.", AGENT, lambda t: t.durations.sum),
    Metric("proctor_supervisor_restarts_total", "Restarts of children that are not agents.", TREE, lambda m: dict(m.restarts), "child"),
    Metric("proctor_loop_held_seconds_total", "Duration of the passes of the event loop longer than 0.1 s.", TREE, lambda m: m.held),
    Metric("proctor_metric_samples_dropped_total", "Samples that were dropped because they came too fast, by source.", TREE,
           lambda m: {word: m.dropped[word] for word in get_args(Source)}, "source"),
    Metric("proctor_account_turns_total", "Turns in the account book, by agent, in the tree and in sessions.", ACCOUNT, lambda e: e.turns),
    Metric("proctor_account_unpriced_turns_total", "Turns in the account book without a known cost.", ACCOUNT, lambda e: e.unpriced),
    Metric("proctor_account_cost_usd_total", "Cost in US dollars in the account book.", ACCOUNT, lambda e: e.cost_usd or 0.0),
    Metric("proctor_account_tokens_total", "Tokens in the account book, by kind.", ACCOUNT, _tokens, "tokens"),
    Metric("proctor_pool_slots", "Slots of a pool: the largest number of processes at a time.", POOL, lambda p: p.limit),
    Metric("proctor_pool_slots_used", "Used slots of a pool, warm processes included.", POOL, lambda p: p.used),
    Metric("proctor_pool_requests_waiting", "Requests that wait for a slot of a pool.", POOL, lambda p: p.waiting),
    Metric("proctor_mcp_calls_total", "Ended calls of served tools, by result.", TOOL, _calls, "result"),
    Metric("proctor_mcp_calls_running", "Running calls of served tools.", TOOL, lambda c: c.running),
    Metric("proctor_mcp_call_seconds_total", "Total duration of the ended calls of served tools.", TOOL, lambda c: c.seconds),
)  # fmt: skip
"""All metrics."""


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
        # a limiter of one: scrapes that overlap would ask every agent twice
        return await trio.to_thread.run_sync(self.render_sync, limiter=self._limiter)

    def render_sync(self) -> bytes:
        """The same, to be called in a thread of Trio (`trio.to_thread.run_sync`)."""
        # agents are asked in the loop; /proc and the text are read and made here, outside of it
        trio.from_thread.run(self._update)
        self._metrics.update_memory()
        return generate_latest(self._registry)

    async def _update(self) -> None:
        await self._metrics.update_status()
        self._pooled = self._pools()

    def collect(self) -> Iterator[Family]:
        """The current metric families, as `prometheus_client` collects them."""
        scrape = Scrape(self._metrics, self._tools(), self._pooled, self._accounts())
        return (metric.collect(scrape) for metric in METRICS)
