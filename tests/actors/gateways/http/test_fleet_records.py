"""What the records of a fleet say of the work of its agents, and what it costs to say it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import trio

import proctor
from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.progress import WIDTH, Progress
from proctor.actors.expense import DailyExpense
from proctor.actors.gateways.http.fleet_view import TICK, FleetView
from proctor.actors.recording.eventlog import EventLog
from proctor.protocols import vocabulary as v
from proctor.protocols.vocabulary import AnyEvent
from tests.actors.gateways.http.serving import Served, served, spoken
from tests.actors.gateways.http.test_approvals import asks
from tests.actors.spoken import COUNTED, saying
from tests.protocols.lines import line, text
from tests.tables import each_row

CALL = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make\n test"}}
MODELS = {"m": {"contextWindow": 200_000}, "other": {"contextWindow": 1}}


def counted(*blocks: dict[str, Any], **usage: int) -> bytes:
    message = {"role": "assistant", "id": "m1", "model": "m", "content": [*blocks], "usage": usage}
    return line(type="assistant", session_id="s", message=message)


async def record_when(server: Served, **expected: object) -> dict[str, Any]:
    """The record of the agent, as soon as these fields are so."""
    while True:
        record: dict[str, Any] = (await server.client.get("/fleet")).json()["agents"][0]
        if {name: record[name] for name in expected} == expected:
            return record
        await trio.sleep(0.01)


# -- what it does


def prompted(*events: AnyEvent) -> list[AnyEvent]:
    return [v.TurnStarted(0, "t"), *events]


RUNS = v.ToolCall(1, "t", "c1", "Bash", {"command": "make\n test"})


ACTIVITIES: dict[str, tuple[list[AnyEvent], str]] = {
    "nothing yet": ([], ""),
    "a tool that runs": (prompted(v.Text(1, "t", "I look."), RUNS), "Bash: make test"),
    "the newest of two tools": (
        prompted(v.ToolCall(1, "t", "c0", "Read", {"path": "a"}), RUNS),
        "Bash: make test",
    ),
    "the one that goes on": (
        prompted(RUNS, v.ToolCall(1, "t", "c2", "Read"), v.ToolResult(2, "t", "c2", "")),
        "Bash: make test",
    ),
    "its text when the tool has ended": (
        prompted(v.Text(1, "t", "I  look."), RUNS, v.ToolResult(2, "t", "c1", "")),
        "I look.",
    ),
    "text as it is written": (prompted(v.TextDelta(1, "t", "I l"), v.TextDelta(2, "t", "ook")), "I look"),
    "the end of a long text": (
        prompted(v.Text(1, "t", "a" * 500 + " end")),
        "…" + "a" * (WIDTH - 5) + " end",
    ),
    "the block behind a whole one": (prompted(v.Text(1, "t", "One."), v.TextDelta(2, "t", "Two")), "Two"),
    "no text of a subagent": (prompted(v.Text(1, "t", "mine"), v.Text(2, "t", "its", parent="c1")), "mine"),
    "a long command": (
        prompted(v.ToolCall(1, "t", "c", "B", {"command": "x" * 500})),
        "B: " + "x" * 116 + "…",
    ),
    "nothing after the end": (prompted(RUNS, v.TurnEnded(3, "t", "completed", text="done")), ""),
    "nothing of a dead process": (prompted(RUNS, v.Exited(-1, "t", "crashed")), ""),
}


@each_row("events, activity", [*ACTIVITIES.values()], ids=[*ACTIVITIES])
def test_the_activity_is_the_tool_that_runs_or_the_end_of_the_newest_text(
    events: list[AnyEvent], activity: str
) -> None:
    log, whole, piecewise = EventLog(), Progress(), Progress()
    for event in events:
        log.append([event])
        piecewise.follow(log)
    whole.follow(log)
    assert (whole.text, piecewise.text) == (activity, activity)
    log.release()


def test_an_activity_is_read_from_memory_alone(tmp_path: Path) -> None:
    log, progress = EventLog(tmp_path / "log", limit=2**16), Progress()
    for number in range(3000):
        log.append([v.Text(number, "t", f"{number} " + "x" * 50)])
    log.append([v.Text(3000, "t", "the last")])
    log.close()
    (tmp_path / "log").unlink(missing_ok=True)
    progress.follow(log)
    assert (progress.text, progress.position) == ("the last", 3001)


async def test_the_record_of_an_agent_that_works_says_what_it_does_and_has_taken() -> None:
    frames = (counted(CALL, input_tokens=7, output_tokens=5, cache_read_input_tokens=100),)
    async with served(spoken(far_end=saying(*frames))) as server:
        await server.client.post("/agents/a/queue", json={"prompt": "go"})
        record = await record_when(server, activity="Bash: make test")
        assert record["state"] == "working"
        assert (record["tokens"], record["tokens_today"]) == (12, 12)
        assert (record["context_tokens"], record["context_window"]) == (112, None)
        assert record["started"] <= record["since"] <= record["last_event"]


async def test_the_record_of_an_agent_that_rests_has_the_sums_of_its_turns() -> None:
    usage = {"input_tokens": 9, "output_tokens": 1}
    result: dict[str, Any] = {"subtype": "success", "is_error": False, "result": "4"}
    far_end = saying(counted(text("It is 4."), **usage), total_cost_usd=0.25, modelUsage=MODELS, **result)
    async with served(spoken(far_end=far_end), budget=proctor.Budget(usd=5.0, period=60)) as server:
        await server.ask("go")
        record = await record_when(server, state="idle")
        fleet = (await server.client.get("/fleet")).json()
    assert (record["activity"], record["tokens"]) == ("", sum(COUNTED.values()))
    assert (record["cost_usd"], record["cost_today_usd"]) == (0.25, 0.25)
    assert (record["context_tokens"], record["context_window"]) == (10, 200_000)
    assert (record["kind"], record["worktree"], record["recording"]) == ("claude", None, None)
    assert (fleet["cost_today_usd"], fleet["cost_cap_usd"], fleet["limits"]) == (0.25, 5.0, [])
    assert (fleet["host"], fleet["file"]) == (socket.gethostname(), None)


async def limits_of(server: Served) -> list[dict[str, Any]]:
    """The limits of the fleet, as soon as there are any."""
    await server.client.post("/agents/a/queue", json={"prompt": "go"})
    while not (limits := (await server.client.get("/fleet")).json()["limits"]):  # noqa: ASYNC110
        await trio.sleep(0.01)
    return [*limits]


async def test_a_spent_budget_is_a_limit_of_the_fleet() -> None:
    far_end = saying(subtype="success", is_error=False, total_cost_usd=1.0, result="4")
    async with served(spoken(far_end=far_end), budget=proctor.Budget(usd=0.5, period=3600)) as server:
        [limit] = await limits_of(server)
    assert limit["name"] == "the tree"
    assert "has spent $1 of $0.5" in limit["why"]
    assert 3500 < limit["until"] - time.time() <= 3601


async def test_a_usage_limit_is_a_limit_of_the_fleet_until_its_reset() -> None:
    resets_at = time.time() + 3600
    info = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": resets_at}
    rejected = line(type="rate_limit_event", rate_limit_info=info)
    failed: dict[str, Any] = {"subtype": "success", "is_error": True, "terminal_reason": "api_error"}
    async with served(spoken(far_end=saying(rejected, result="Limit", **failed), account="team")) as server:
        [limit] = await limits_of(server)
    assert (limit["name"], limit["why"]) == ("team", "usage limit of the account team")
    assert abs(limit["until"] - resets_at) < 10


async def test_what_was_stopped_by_request_is_told_from_what_ended_by_itself() -> None:
    async with served(spoken("a")) as server:
        assert (await record_when(server))["stopped_by"] == ""
        await server.client.post("/agents/a/stop")
        assert (await record_when(server, state="stopped"))["stopped_by"] == "operator"
        await server.client.post("/agents/a/start")
        assert (await record_when(server, state="idle"))["stopped_by"] == ""


def spent_on(today: DailyExpense, day: date) -> float | None:
    expense = today.on(day)
    return None if expense is None else expense.cost_usd


def test_the_expense_of_a_day_ends_with_it() -> None:
    now = [1_800_000_000.0]
    today = DailyExpense(lambda: now[0])
    day = date.fromtimestamp(now[0])
    today.take(v.TurnEnded(0, "t", "completed", cost_usd=1.0))
    today.take(v.TurnEnded(0, "t", "completed", cost_usd=0.5))
    following = day + timedelta(days=1)
    assert (spent_on(today, day), spent_on(today, following)) == (1.5, None)
    now[0] += 86400
    today.take(v.TurnEnded(0, "t", "completed", cost_usd=0.25))
    assert (spent_on(today, day), spent_on(today, following)) == (None, 0.25)


def test_the_expense_of_a_day_goes_on_in_the_next_host_and_an_unreadable_one_begins_anew() -> None:
    def wall() -> float:
        return 1_800_000_000.0

    day, usage = date.fromtimestamp(wall()), v.Usage(input_tokens=7)
    first = DailyExpense(wall)
    first.take(v.TurnEnded(0, "t", "completed", cost_usd=1.0, usage=usage))
    following = DailyExpense.of_text(first.as_text(), wall)
    following.take(v.TurnEnded(0, "t", "completed", cost_usd=0.5, usage=usage))
    assert spent_on(following, day) == 1.5
    found = following.on(day)
    assert found is not None
    assert found.usage == v.Usage(input_tokens=14)
    for kept in (None, "", "{", '{"day": 3}'):
        assert DailyExpense.of_text(kept, wall).on(day) is None


# -- how often it says so


@asynccontextmanager
async def viewed() -> AsyncGenerator[tuple[FleetView, AgentState]]:
    async with proctor.open_supervisor([spoken("a", asks, permission="ask")]) as sup:
        agent = sup.agent("a")
        with FleetView({"a": agent}, None, {}, wall=trio.current_time) as view:
            kept = agent.kept_state()
            assert kept is not None
            yield view, kept


async def test_an_agent_that_works_has_a_new_record_once_a_second(autojump_clock: trio.abc.Clock) -> None:
    async with viewed() as (view, kept):
        view.refresh(anew=True)
        records = 0
        for number in range(100):
            kept.log.append([v.Text(number, "t", f"{number}")])
            before = view.sequence
            view.refresh()
            records += len(list(view.changes_since(before)))
            await trio.sleep(TICK)
        assert 9 <= records <= 11
        assert view.records()[0].activity == "99"


async def test_a_change_of_state_is_shown_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with viewed() as (view, kept):
        view.refresh(anew=True)
        for state in ("stalled", "idle"):
            kept.evolve(state=state)
            view.refresh()
            item = view.records()[0]
            assert item.state == state


async def test_a_look_at_agents_at_rest_makes_no_record(autojump_clock: trio.abc.Clock) -> None:
    async with viewed() as (view, _):
        view.refresh(anew=True)
        sequence = view.sequence
        for _ in range(200):
            view.refresh()
            await trio.sleep(TICK)
        assert view.sequence == sequence


async def test_the_memory_and_the_folder_of_a_real_process_are_in_its_record(tmp_path: Path) -> None:
    script = tmp_path / "script.ndjson"
    script.write_text('{"reply": "hello"}\n')
    spec = proctor.scripted("a", script, cwd=tmp_path, record=tmp_path / "runs")
    async with served(spec) as server:
        [record] = (await server.client.get("/fleet")).json()["agents"]
    assert record["memory"] > os.sysconf("SC_PAGE_SIZE")
    assert (record["kind"], record["cwd"]) == ("scripted", str(tmp_path))
    assert Path(record["recording"]).parent == tmp_path / "runs"
