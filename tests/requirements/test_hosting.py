"""What is asked of a host that lives long, on a virtual clock; the far ends are functions."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import GreetingTimeout, NotExecuted
from proctor.actors.plan.discovery import CLAUDE_CODE
from proctor.actors.plan.options import Clocks
from proctor.actors.plan.plan import claude_plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import WINDOW_EVENTS, EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import PeerStreams, in_memory
from proctor.protocols import vocabulary as v
from tests.actors.spoken import speaks, spoken_plan
from tests.protocols.lines import ASKED, INIT, RESULT, line, reply
from tests.runtime.programs import installed

HOUR = 3600.0
DAY_AND_NIGHT = float(os.environ.get("PROCTOR_REQUIREMENTS_HOURS", "24")) * HOUR
EVERY = float(os.environ.get("PROCTOR_REQUIREMENTS_EVERY", "1200"))
"""Seconds between two requests to an agent of the daemon, on the virtual clock; asked for: a load of 24 hours."""


class Daemon:
    """A program with a loop of its own that starts and stops agents and gives them work; some of it kills them."""

    def __init__(self, sup: proctor.Supervisor, chance: random.Random) -> None:
        self._sup, self._chance = sup, chance
        self.ends = dict[str, int]()

    async def live(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(self._employ, f"agent-{number}")

    async def _employ(self, name: str) -> None:
        while trio.current_time() < DAY_AND_NIGHT:
            plan = attrs.evolve(spoken_plan(), name=name)
            spec = agent_spec(name, plan, {"shutdown": 3, "restart": "transient"})
            await self._sup.start_child(spec)
            for _ in range(self._chance.randrange(1, 12)):
                await self._ask(name)
                await trio.sleep(self._chance.uniform(0, 2 * EVERY))
            await self._sup.terminate_child(name)
            await self._sup.delete_child(name)

    async def _ask(self, name: str) -> None:
        what = self._chance.choice(("work", "work", "work", "crash", "hang"))
        try:
            end: str = (await self._sup.agent(name).ask(what, timeout=300)).outcome
        except (proctor.AgentError, proctor.NoProc) as error:
            end = type(error).__name__
        self.ends[end] = self.ends.get(end, 0) + 1


@pytest.mark.covers("P08")
async def test_a_daemon_survives_a_day_of_agents_that_fail(autojump_clock: MockClock) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with proctor.open_supervisor(intensity=10_000, period=DAY_AND_NIGHT) as sup:
        daemon = Daemon(sup, random.Random(7))
        with trio.fail_after(2 * DAY_AND_NIGHT):
            await daemon.live()
        assert (await sup.count_children()).specs == 0
    assert trio.current_time() >= DAY_AND_NIGHT
    assert sum(daemon.ends.values()) > 4 * DAY_AND_NIGHT / EVERY / 4
    assert daemon.ends["ok"] > 100
    assert len(daemon.ends) > 1
    assert trio.lowlevel.current_statistics().tasks_living == tasks


def greeting_reply(said: bytes) -> bytes:
    frame: dict[str, Any] = json.loads(said)
    return reply(frame["request_id"], pid=1)


@pytest.mark.covers("C17")
async def test_output_is_read_before_and_while_the_greeting_is_written(
    autojump_clock: MockClock,
) -> None:
    async def talks_first(side: PeerStreams) -> int | None:
        for number in range(200):  # more than the line between us holds
            await side.send_all(line(type="hologram", number=number))
        lines = side.lines()
        await side.send_all(greeting_reply(await anext(lines)))
        await anext(lines)
        await side.send_all(INIT + RESULT)
        return None

    answer = await ask(spoken_plan(talks_first), "hi", timeout=30)
    assert (answer.outcome, answer.text) == ("ok", "ok")


@pytest.mark.covers("C23")
@pytest.mark.parametrize(("patience", "connects"), [(60.0, True), (30.0, False)])
async def test_a_greeting_may_take_its_time_and_no_more(
    patience: float, connects: bool, autojump_clock: MockClock
) -> None:
    async def slow(side: PeerStreams) -> int | None:
        lines = side.lines()
        said = await anext(lines)
        await trio.sleep(45)
        await side.send_all(greeting_reply(said))
        await anext(lines)
        await side.send_all(INIT + RESULT)
        return None

    assert Clocks().greeting == 60.0
    plan = spoken_plan(slow, greeting=patience)
    if connects:
        assert (await ask(plan, "hi", timeout=300)).ok
    else:
        with pytest.raises(GreetingTimeout):
            await ask(plan, "hi", timeout=300)


@pytest.mark.covers("C21")
async def test_a_callback_that_is_asked_may_call_back(autojump_clock: MockClock) -> None:
    seen = list[str]()

    async def asks(side: PeerStreams) -> int | None:
        lines = side.lines()
        async for said in lines:
            frame = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(greeting_reply(said))
            elif frame["type"] == "user":
                await side.send_all(INIT + ASKED)
            else:
                await side.send_all(RESULT)
        return None

    async with proctor.open_supervisor() as sup:

        async def policy(question: v.ApprovalRequested) -> bool:
            agent = sup.agent("agent")
            seen.append((await agent.status()).state)
            await agent.set_model("another")
            return True

        plan = spoken_plan(asks, permission=policy)
        await sup.start_child(agent_spec("agent", plan, {"shutdown": 3}))
        with trio.fail_after(30):
            answer = await sup.agent("agent").ask("hi", timeout=20)
    assert (answer.outcome, seen) == ("ok", ["blocked"])


@pytest.mark.covers("R024")
async def test_a_path_that_changes_changes_no_program_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    for folder in ("first", "second"):
        installed(tmp_path / folder / "claude")
    monkeypatch.delenv(CLAUDE_CODE.variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "first"))
    told = claude_plan("agent", {"home": "private", "record": tmp_path / "runs"}, shutdown=5.0)
    plan = attrs.evolve(told, reach=in_memory(speaks))
    async with proctor.open_supervisor([agent_spec("agent", plan, {"shutdown": 3})]) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("one", timeout=30)).ok
        monkeypatch.setenv("PATH", str(tmp_path / "second"))
        with pytest.raises(proctor.AgentError):
            await agent.ask("crash", timeout=30)
        assert (await agent.ask("two", timeout=30)).ok
    starts = [
        json.loads(meta.read_bytes())["argv"][0] for meta in sorted((tmp_path / "runs").glob("*/*/meta.json"))
    ]
    assert starts == [str(tmp_path / "first" / "claude")] * 2


@pytest.mark.covers("R052")
def test_the_window_of_events_has_a_thousand_unless_it_is_told_another() -> None:
    def window(**size: Any) -> int:
        log = EventLog(None, **size)
        for number in range(3000):
            log.append([v.Text(number, None, "x")])
        statistics = log.statistics()
        log.release()
        return statistics.end - statistics.window_start

    assert WINDOW_EVENTS == 1000
    assert window() <= 1000
    assert window(window=100) <= 100 < window()


@pytest.mark.covers("C20")
async def test_a_write_that_fails_leaves_no_request_behind_and_its_asker_is_told(tmp_path: Path) -> None:
    async def leaves(side: PeerStreams) -> int | None:
        await side.send_all(greeting_reply(await anext(side.lines())))
        return 0

    plan = spoken_plan(leaves)
    directory = RunDirectory(None, "agent")
    log = EventLog(None)
    live = AgentProcess(plan, log, directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(live.serve)
        await live.transport.wait()
        with pytest.raises(NotExecuted):
            await live.send(v.Prompt("p", "hi"))
        assert (list(live.conversation.memo.prompts), live.conversation.memo.pending) == ([], {})
    log.release()
    directory.close()
