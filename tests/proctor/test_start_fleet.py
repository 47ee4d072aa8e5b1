"""The start of a fleet's children, as `up`, `web` and `serve` do it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import GreetingTimeout, StartRefused
from proctor.actors.fleet.fleet import Child, Fleet, Nested
from proctor.actors.fleet.schema import AgentTable
from proctor.actors.specs import Supervisor, agent_spec
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.cli.start_fleet import start_children
from proctor.cli.unavailable import UnavailableAgents
from proctor.runtime.exits import DeliveryError
from proctor.runtime.spec import ChildSpec, StartOrder, Strategy
from tests.actors.spoken import deaf, speaks, spoken_plan


@attrs.frozen(kw_only=True)
class SpokenTable(AgentTable):
    """An agent whose far end is a function."""

    far_end: Peer
    start_order: StartOrder = "parallel"

    def spec(self, record: Path | None = None) -> ChildSpec:
        return agent_spec(self.name, spoken_plan(self.far_end), {"start_order": self.start_order})


def greets_after(seconds: float) -> Peer:
    async def live(side: PeerStreams) -> int | None:
        await trio.sleep(seconds)
        return await speaks(side)

    return live


def fails_after(seconds: float) -> Peer:
    async def live(side: PeerStreams) -> int | None:
        await trio.sleep(seconds)
        side.complain(b"out of order")
        return 3

    return live


def fleet_of(
    *agents: AgentTable, strategy: Strategy | None = None, supervisors: tuple[Nested, ...] = ()
) -> Fleet:
    return Fleet(agents=agents, strategy=strategy, supervisors=supervisors)


@asynccontextmanager
async def root_of(fleet: Fleet) -> AsyncGenerator[Supervisor]:
    async with proctor.open_supervisor((), name=fleet.name, **fleet.tree()) as sup:
        yield sup


class Ends:
    """The ends of starts: the second of each, and the cause if it failed. Goes on until `until` has ended."""

    def __init__(self, until: str | None = None) -> None:
        self._begin = trio.current_time()
        self._until = until
        self.seconds: dict[str, float] = {}
        self.causes: dict[str, Exception] = {}

    async def conclude(self, child: Child, cause: Exception | None) -> bool:
        self.seconds[child.name] = round(trio.current_time() - self._begin, 1)
        if cause is not None:
            self.causes[child.name] = cause
        return child.name != self._until


def names_in(sup: Supervisor) -> list[str]:
    return [node.id for node in sup.tree().children]


async def test_fifty_agents_that_greet_after_half_a_second_are_up_within_a_second(
    autojump_clock: MockClock,
) -> None:
    fleet = fleet_of(*(SpokenTable(name=f"a{n}", far_end=greets_after(0.5)) for n in range(50)))
    async with root_of(fleet) as sup:
        ends = Ends()
        assert await start_children(sup, fleet, None, ends.conclude)
        assert max(ends.seconds.values()) <= 0.5 * -(-50 // (16 * len(os.sched_getaffinity(0))))
        assert (len(ends.seconds), ends.causes) == (50, {})
        assert names_in(sup) == [f"a{n}" for n in range(50)]


async def test_an_agent_that_never_greets_delays_no_other(autojump_clock: MockClock) -> None:
    silent = SpokenTable(name="silent", far_end=deaf)
    others = [SpokenTable(name=name, far_end=greets_after(0.5)) for name in "ab"]
    fleet = fleet_of(silent, *others)
    async with root_of(fleet) as sup:
        ends = Ends()
        assert await start_children(sup, fleet, None, ends.conclude)
    assert ends.seconds.pop("silent") >= 60
    assert ends.seconds == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.1)
    assert isinstance(ends.causes["silent"], GreetingTimeout)


async def test_each_agent_that_fails_is_named_with_its_cause_and_the_others_go_on(
    autojump_clock: MockClock,
) -> None:
    fleet = fleet_of(
        SpokenTable(name="a", far_end=greets_after(0.5)),
        SpokenTable(name="late", far_end=fails_after(0.3)),
        SpokenTable(name="b", far_end=greets_after(0.2)),
        SpokenTable(name="early", far_end=fails_after(0.1)),
        SpokenTable(name="c", far_end=speaks),
    )
    unavailable = UnavailableAgents(fleet)
    async with root_of(fleet) as sup, trio.open_nursery() as nursery:

        async def conclude(child: Child, cause: Exception | None) -> bool:
            if cause is not None:
                await unavailable.leave_out(sup, child, cause, nursery)
            return True

        assert await start_children(sup, fleet, None, conclude)
        states = {node.id: node.state for node in sup.tree().children}
        assert (await sup.agent("a").ask("hello")).text == "1: hello"
    assert unavailable.why.keys() == {"late", "early"}
    assert all(why.startswith("could not start: ") for why in unavailable.why.values())
    assert all("out of order" in why for why in unavailable.why.values())
    assert list(states.items()) == [
        ("a", "running"),
        ("late", "down"),
        ("b", "running"),
        ("early", "down"),
        ("c", "running"),
    ]


async def test_a_sequential_agent_starts_after_those_before_it_and_before_those_after_it(
    autojump_clock: MockClock,
) -> None:
    fleet = fleet_of(
        SpokenTable(name="a", far_end=greets_after(1)),
        SpokenTable(name="b", far_end=greets_after(2)),
        SpokenTable(name="alone", far_end=greets_after(1), start_order="sequential"),
        SpokenTable(name="c", far_end=greets_after(1)),
    )
    async with root_of(fleet) as sup:
        ends = Ends()
        assert await start_children(sup, fleet, None, ends.conclude)
    assert ends.seconds == pytest.approx({"a": 1.0, "b": 2.0, "alone": 3.0, "c": 4.0}, abs=0.1)


async def test_agents_that_depend_on_each_other_start_in_order(autojump_clock: MockClock) -> None:
    agents = [SpokenTable(name=name, far_end=greets_after(1)) for name in "abc"]
    fleet = fleet_of(*agents, strategy="rest_for_one")
    async with root_of(fleet) as sup:
        ends = Ends()
        assert await start_children(sup, fleet, None, ends.conclude)
    assert ends.seconds == pytest.approx({"a": 1.0, "b": 2.0, "c": 3.0}, abs=0.1)


async def test_nested_supervisors_start_their_agents_at_the_same_time(autojump_clock: MockClock) -> None:
    nested = [
        Nested(
            name=f"g{n}",
            agents=tuple(SpokenTable(name=f"g{n}-{m}", far_end=greets_after(1)) for m in range(3)),
        )
        for n in range(3)
    ]
    fleet = fleet_of(SpokenTable(name="a", far_end=greets_after(1)), supervisors=tuple(nested))
    async with root_of(fleet) as sup:
        ends = Ends()
        assert await start_children(sup, fleet, None, ends.conclude)
    assert ends.seconds == pytest.approx(dict.fromkeys(["a", "g0", "g1", "g2"], 1.0), abs=0.1)


async def test_a_command_that_ends_with_the_first_failure_waits_for_no_other_start(
    autojump_clock: MockClock,
) -> None:
    fleet = fleet_of(
        SpokenTable(name="silent", far_end=deaf),
        SpokenTable(name="broken", far_end=fails_after(1)),
        SpokenTable(name="never", far_end=deaf, start_order="sequential"),
    )
    async with root_of(fleet) as sup:
        ends = Ends(until="broken")
        assert not await start_children(sup, fleet, None, ends.conclude)
        assert ends.seconds == {"broken": pytest.approx(1.0, abs=0.1)}
        assert isinstance(ends.causes["broken"], StartRefused)
        assert "never" not in names_in(sup)


async def test_the_end_of_the_root_during_the_starts_is_their_cause(autojump_clock: MockClock) -> None:
    fleet = fleet_of(*(SpokenTable(name=name, far_end=deaf) for name in "ab"))
    async with root_of(fleet) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(stopped_after, 1.0, sup.stop)
        ends = Ends()
        await start_children(sup, fleet, None, ends.conclude)
    assert ends.seconds == pytest.approx({"a": 1.0, "b": 1.0}, abs=0.1)
    assert all(isinstance(cause, DeliveryError) for cause in ends.causes.values())


async def stopped_after(seconds: float, stop: Callable[[], Awaitable[object]]) -> None:
    await trio.sleep(seconds)
    await stop()
