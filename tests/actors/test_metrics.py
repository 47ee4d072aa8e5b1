from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

import proctor
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.operations.metrics import (
    DURATION_BUCKETS,
    AgentLabels,
    AgentTotals,
    Durations,
    Metrics,
    agents_in,
)
from proctor.actors.operations.prometheus import AGENT, METRICS, PrometheusExporter
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.toolset import Counts
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.supervisor import supervisor_spec
from tests.actors.far_end import Step, write_script
from tests.actors.spoken import spoken_plan
from tests.tables import each_row

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def ended(ending: v.Ending = "completed", **fields: object) -> v.TurnEnded:
    return v.TurnEnded(9, "1", ending, **fields)  # type: ignore[arg-type]


def note(code: str, **data: str) -> v.Notice:
    return v.Notice(v.HOST, None, code, data=data)


def exited(outcome: str) -> v.Exited:
    return v.Exited(v.HOST, None, outcome)


def counted(*events: v.AnyEvent) -> AgentTotals:
    totals = AgentTotals("claude")
    for second, event in enumerate(events):
        totals.take([event], float(second))
    return totals


# what an event counts for


@each_row(
    ("events", "turns", "seconds"),
    [
        ((note("sent"), ended()), {"ok": 1}, [1.0]),
        ((note("sent"), v.TurnStarted(1, "1"), ended("limit")), {"limited": 1}, [2.0]),
        ((v.TurnStarted(1, "1", solicited=False), ended()), {"ok": 1}, [1.0]),
        ((note("sent"), exited("killed_by_system")), {"killed_by_system": 1}, [1.0]),
        ((note("sent"), note("unsettled"), ended("interrupted"), exited("stalled")), {"stalled": 1}, [3.0]),
        ((note("sent"), ended(), exited("stopped")), {"ok": 1}, [1.0]),
        ((ended(),), {"ok": 1}, []),
        ((note("sent"), exited("crashed"), note("sent"), ended()), {"crashed": 1, "ok": 1}, [1.0, 1.0]),
    ],
)
def test_a_turn_is_counted_once_by_how_it_ended(
    events: Sequence[v.AnyEvent], turns: dict[str, int], seconds: list[float]
) -> None:
    totals = counted(*events)
    assert (totals.turns, totals.durations.sum) == (turns, sum(seconds))
    assert sum(totals.durations.buckets) == len(seconds)


@each_row(
    ("events", "timeouts"),
    [
        ((note("sent"), note("stalled"), exited("stalled")), {"silence": 1}),
        ((note("stalled", clock="stopped"), exited("stalled")), {"stopped": 1}),
        ((exited("stalled"),), {"greeting": 1}),
        ((note("stalled"), exited("stalled"), exited("stalled")), {"silence": 1, "greeting": 1}),
        ((exited("deadline"),), {"deadline": 1}),
        ((exited("stopped"),), {}),
    ],
)
def test_a_clock_that_ran_out_is_counted_by_name(
    events: Sequence[v.AnyEvent], timeouts: dict[str, int]
) -> None:
    assert counted(*events).timeouts == timeouts


def test_lines_go_on_over_incarnations_in_whatever_batches_they_come() -> None:
    life: list[v.AnyEvent] = [
        v.Text(0, "1", "x"),
        v.Garbled(3, None, "not_json"),
        note("x"),
        exited("crashed"),
        v.Text(1, "1", "y"),
    ]
    for cut in range(len(life) + 1):
        totals = AgentTotals("claude")
        totals.take(life[:cut], 0)
        totals.take(life[cut:], 0)
        assert (totals.lines, totals.events["garbled"]) == (6, 1)


def test_tokens_and_cost_of_a_turn_whose_process_died_count() -> None:
    lost = v.Exited(v.HOST, "1", "crashed", usage=v.Usage(3, 5), cost_usd=0.25)
    totals = counted(ended(usage=v.Usage(1, 1), cost_usd=0.5), lost)
    assert (totals.expense.usage, totals.expense.cost_usd) == (v.Usage(4, 6), 0.75)


def test_tokens_and_cost_are_what_was_told() -> None:
    usage = v.Usage(input_tokens=3, cache_read_tokens=2)
    totals = counted(ended(usage=usage, cost_usd=0.5), ended(), ended(usage=usage))
    assert totals.expense.usage == v.Usage(input_tokens=6, cache_read_tokens=4)
    assert totals.expense.cost_usd == 0.5


def test_a_server_without_metrics_does_not_load_prometheus_client() -> None:
    program = "import sys, proctor.cli.commands.web; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_duration_is_in_the_first_bucket_that_holds_it() -> None:
    durations = Durations()
    for seconds in (0.0, 0.1, 0.11, 3600.0, 3601.0):
        durations.add(seconds)
    assert durations.buckets == [2, 1, *[0] * (len(DURATION_BUCKETS) - 3), 1, 1]


# samples may be dropped, events may not


@pytest.mark.covers("R060")
async def test_a_reader_that_falls_behind_leaves_out_what_is_gone_and_says_how_much(
    autojump_clock: MockClock,
) -> None:
    log, metrics = EventLog(window=200), Metrics({"root/a": AgentLabels("a", "claude")})
    writes = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics.read, "root/a", log)
        for _ in range(10):
            for _ in range(100):  # more than a window, and no task gets a turn meanwhile
                log.append([v.ToolCall(writes, "1", str(writes), "Bash")])
                writes += 1
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(1000):
                log.append([v.ToolCall(writes, "1", str(writes), "Bash")])
                writes += 1
            await trio.testing.wait_all_tasks_blocked()
        log.close()
    told = metrics.agents["root/a"].events["tool_calls"]
    assert metrics.dropped["log"] > 0
    assert told > 0
    assert told + metrics.dropped["log"] == writes
    assert len([event async for event in log.cursor(0)]) == writes


# a tree


def sample(found: Found, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def parsed(text: bytes) -> Found:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


LOAD: Sequence[Step] = (
    {"turn": "unfit", "when": "unfit"},
    {"end": "schema_unmet"},
    {"turn": "crash", "when": "crash"},
    {"fault": "crash"},
    {"turn": "silent", "when": "hang"},
    {"fault": "hang"},
    {"turn": "work"},
    {"line": "no JSON"},
    {"frame": {"type": "news_from_nowhere"}},
    {"retry": 1, "times": 2},
    {"tool": "Bash", "input": {"command": "ls"}, "result": "x"},
    {"reply": "done", "cost": 0.25},
)


def worker(name: str, folder: Path) -> ChildSpec:
    env = {"CLAUDE_CONFIG_DIR": str(folder / name)}
    return proctor.scripted(name, write_script(folder, LOAD), env=env, shutdown=2, silence=0.5)


@pytest.mark.covers("R180", "R181")
async def test_a_scripted_load_is_all_there_in_a_scrape_that_parses(tmp_path: Path) -> None:
    specs = [worker("worker", tmp_path), worker("idle", tmp_path)]
    metrics = Metrics(agents_in([supervisor_spec("inner", specs)], "root"))
    assert [*metrics.agents] == ["root/inner/worker", "root/inner/idle"]
    exporter = PrometheusExporter(metrics, lambda: {"ask": Counts(calls=4, running=1, errors=1, seconds=2.5)})
    async with trio.open_nursery() as nursery, proctor.open_supervisor([], intensity=9) as sup:
        await nursery.start(metrics.follow, sup)
        await sup.start_child(supervisor_spec("inner", specs, intensity=9))
        agent = sup.agent("worker")
        assert (await agent.ask("work")).ok
        assert not (await agent.ask("unfit")).ok
        for prompt in ("crash", "hang"):
            with pytest.raises(proctor.MaybeExecuted):
                await agent.ask(prompt)
        async with agent.events(since=0) as cursor:  # until it is back
            async for event in cursor:
                if isinstance(event, v.Started) and (await agent.status()).incarnation == 3:
                    break
        await trio.testing.wait_all_tasks_blocked()
        found = parsed(await exporter.render())
        pid = (await agent.status()).pid
    labels_of = {"agent": "root/inner/worker", "kind": "scripted"}
    for name, labels, value in (
        ("proctor_lines_total", {"result": "garbled"}, 1),
        ("proctor_lines_total", {"result": "unrecognized"}, 1),
        ("proctor_validation_failures_total", {}, 1),
        ("proctor_timeouts_total", {"clock": "silence"}, 1),
        ("proctor_timeouts_total", {"clock": "greeting"}, 0),
        ("proctor_turns_total", {"outcome": "ok"}, 1),
        ("proctor_turns_total", {"outcome": "failed"}, 1),
        ("proctor_turns_total", {"outcome": "killed_by_system"}, 1),
        ("proctor_turns_total", {"outcome": "stalled"}, 1),
        ("proctor_turns_running", {}, 0),
        ("proctor_requests_queued", {}, 0),
        ("proctor_agent_state", {"state": "idle"}, 1),
        ("proctor_agent_restarts_total", {}, 2),
        ("proctor_tool_calls_total", {}, 1),
        ("proctor_api_retries_total", {}, 2),
        ("proctor_turn_duration_seconds_count", {}, 4),
        ("proctor_turn_duration_seconds_bucket", {"le": "+Inf"}, 4),
    ):
        assert sample(found, name, **labels_of, **labels) == value, (name, labels)
    assert sample(found, "proctor_lines_total", **labels_of, result="read") > 10
    assert sample(found, "proctor_tokens_total", **labels_of, tokens="output") > 0
    assert 0.25 <= sample(found, "proctor_cost_usd_total", **labels_of) < 0.26
    assert pid is not None
    assert sample(found, "proctor_agent_memory_bytes", **labels_of) > 1e6
    assert sample(found, "proctor_turns_total", agent="root/inner/idle", kind="scripted", outcome="ok") == 0
    assert sample(found, "proctor_mcp_calls_total", tool="ask", result="ok") == 2
    assert sample(found, "proctor_metric_samples_dropped_total", source="log") == 0


@pytest.mark.covers("R060")
async def test_an_agent_that_does_not_answer_keeps_its_state_and_is_counted(
    tmp_path: Path,
) -> None:
    metrics = Metrics({"root/none": AgentLabels("none", "claude")})
    async with trio.open_nursery() as nursery, proctor.open_supervisor([]) as sup:
        await nursery.start(metrics.follow, sup)
        await metrics.update_status()
    assert metrics.agents["root/none"].status is None
    assert metrics.dropped["status"] == 0  # that it is not there is an answer


async def test_what_runs_outside_of_the_tree_have_taken_is_shown_by_name() -> None:
    with AccountBook() as book:
        await Pools(limit=1).run(spoken_plan(), "hi")
        await Pools(limit=1).run(spoken_plan(), "crash")
        found = parsed(await PrometheusExporter(Metrics({}), accounts=lambda: book.expenses).render())
    names = ("turns", "unpriced_turns", "cost_usd")
    assert [sample(found, f"proctor_account_{name}_total", account="agent") for name in names] == [2, 1, 0.5]
    assert sample(found, "proctor_account_tokens_total", account="agent", tokens="input") == 0


async def test_the_places_of_pools_and_their_lines_are_shown_as_they_are_just_then(tmp_path: Path) -> None:
    pools = Pools(limits={"scripted": 2})
    pool = pools.of(worker("x", tmp_path))
    exporter = PrometheusExporter(Metrics({}), pools=pools.statistics)

    async def hold(over: trio.Event) -> None:
        async with pool.slot():
            await over.wait()

    async def shown() -> tuple[float, ...]:
        await trio.testing.wait_all_tasks_blocked()
        found = parsed(await exporter.render())
        names = ("slots", "slots_used", "requests_waiting")
        return tuple(sample(found, f"proctor_pool_{name}", pool="scripted") for name in names)

    over = trio.Event()
    async with trio.open_nursery() as nursery:
        empty = await shown()
        for _ in range(5):
            nursery.start_soon(hold, over)
        full = await shown()
        over.set()
    assert (empty, full, await shown()) == ((2, 0, 0), (2, 2, 3), (2, 0, 0))


# names


@pytest.mark.covers("R184")
def test_every_name_is_on_the_page_and_no_other() -> None:
    exported = {metric.name for metric in METRICS}
    documented = re.findall(r"^\| `(proctor_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(documented) == len({*documented})
    assert {*documented} == exported


def test_every_label_of_a_metric_is_on_the_page() -> None:
    for metric in METRICS:
        [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{metric.name}` ")]
        labels = {metric.label} if metric.subject is AGENT else {metric.label, *metric.subject.labels}
        assert all(f"`{label}`" in line for label in labels - {None}), line


async def test_every_name_is_exported_even_without_an_agent() -> None:
    text = (await PrometheusExporter(Metrics({})).render()).decode()
    shown = {*re.findall(r"^# HELP (\w+)", text, re.MULTILINE)}
    assert shown == {metric.name for metric in METRICS}
