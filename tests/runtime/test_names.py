"""What each verb of a name does in each phase of the child that holds it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    AlreadyRegistered,
    AlreadyStarted,
    CallingSelf,
    ChildSpec,
    DeadLetter,
    ExitReason,
    Killed,
    Name,
    NoProc,
    Shutdown,
    Stop,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Backoff
from tests.runtime.stage import Boom, Notes, end, forever, heard, player, settled

ENDED = 10.0
"""Seconds after which a child that is stopping has ended."""
BACK = 30.0
"""Seconds of back-off."""


class Slow(Actor):
    """Answers with its incarnation; takes `ENDED` seconds to end."""

    async def init(self, starts_in: float = 0) -> None:
        if self.incarnation > 1:
            await trio.sleep(starts_in)

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return self.incarnation

    async def handle_cast(self, msg: Any) -> Any:
        if isinstance(msg, Exception):
            raise msg
        return msg

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(ENDED)


def slow(**spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "a", "shutdown": 60, "args": (0,)}
    return ChildSpec("a", Slow, **(fields | spec))


# -- how each phase comes about; each returns with the child in it


async def started(sup: Supervisor, nursery: trio.Nursery) -> None:
    await settled()


async def terminated(sup: Supervisor, nursery: trio.Nursery) -> None:
    nursery.start_soon(sup.terminate_child, "a")
    await settled()


async def asked_to_end(sup: Supervisor, nursery: trio.Nursery) -> None:
    sup.name("a").exit(Shutdown("asked"))
    await settled()


async def crashed(sup: Supervisor, nursery: trio.Nursery) -> None:
    await sup.name("a").cast(Boom("crash"))
    await settled()


async def ended_itself(sup: Supervisor, nursery: trio.Nursery) -> None:
    await sup.name("a").cast(Stop(Shutdown("itself")))
    await settled()


async def killed(sup: Supervisor, nursery: trio.Nursery) -> None:
    sup.name("a").kill()
    await settled()


async def terminated_and_gone(sup: Supervisor, nursery: trio.Nursery) -> None:
    sup.name("a").kill()
    await settled()
    await sup.terminate_child("a")


async def tree_stops(sup: Supervisor, nursery: trio.Nursery) -> None:
    sup.ref.exit(Shutdown())
    await settled()


@attrs.frozen
class Phase:
    """`lives`: the incarnation is there to be watched and killed. `answers`: it takes messages.

    `successor`: seconds until the next incarnation takes messages, None if there is none. `decided`: seconds until
    that is known.
    """

    reach: Callable[[Supervisor, trio.Nursery], Any]
    lives: bool = True
    answers: bool = False
    successor: float | None = None
    decided: float = 0.0
    waited: bool = True
    spec: dict[str, Any] = attrs.field(factory=dict[str, Any])


LATER = Backoff(min_delay=BACK, max_delay=BACK, jitter=0)
PHASES: dict[str, Phase] = {
    "running": Phase(started, answers=True, successor=0),
    "stopping, no successor": Phase(terminated, decided=ENDED),
    "asked, no successor": Phase(asked_to_end, decided=ENDED, spec={"restart": "transient"}),
    "asked, dropped": Phase(asked_to_end, decided=ENDED, spec={"restart": "temporary"}),
    "asked, successor": Phase(asked_to_end, successor=ENDED),
    "crashed, successor": Phase(crashed, successor=ENDED, spec={"restart": "transient"}),
    "itself, successor": Phase(ended_itself, successor=ENDED),
    "itself, no successor": Phase(ended_itself, decided=ENDED, spec={"restart": "transient"}),
    "itself, back-off": Phase(ended_itself, successor=ENDED + BACK, spec={"backoff": LATER}),
    "restarting": Phase(killed, lives=False, successor=BACK, spec={"backoff": LATER}),
    "down": Phase(terminated_and_gone, lives=False, spec={"backoff": LATER}),
    "gone": Phase(killed, lives=False, spec={"restart": "temporary"}),
    "tree stopping": Phase(tree_stops, waited=False),
}


@asynccontextmanager
async def reached(phase: Phase) -> AsyncGenerator[tuple[Supervisor, Name], None]:
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery, open_supervisor([slow(**phase.spec)]) as sup:
            await phase.reach(sup, nursery)
            yield sup, sup.name("a")


in_every_phase = pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES)


@pytest.mark.covers("M14", "M32")
@in_every_phase
async def test_a_call_ends_at_once_in_every_phase(phase: Phase, autojump_clock: MockClock) -> None:
    async with reached(phase) as (_, name):
        begun = trio.current_time()
        if phase.answers:
            assert await name.call("incarnation") == 1
        else:
            with pytest.raises(NoProc):
                await name.call("incarnation")
            with pytest.raises(NoProc):
                await name.send_request("incarnation").wait()
            with pytest.raises(NoProc):
                async with name.stream("incarnation"):
                    raise AssertionError
        assert trio.current_time() == begun


@pytest.mark.covers("M3")
@in_every_phase
async def test_a_cast_is_taken_or_a_dead_letter_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (sup, name):
        with sup.events() as events:
            if phase.answers:
                return
            await name.cast("one")
            name.cast_nowait("two")
            letters = [event.msg for event in heard(events) if isinstance(event, DeadLetter)]
            assert letters == ["one", "two"]


@pytest.mark.covers("X17")
@in_every_phase
async def test_a_call_with_wait_for_waits_for_the_next_that_answers_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (_, name):
        begun = trio.current_time()
        if phase.successor is not None:
            assert await name.call("incarnation", wait_for=200) == (1 if phase.answers else 2)
            assert trio.current_time() - begun == phase.successor
        else:
            with pytest.raises(NoProc):
                await name.call("incarnation", wait_for=200)
            assert trio.current_time() - begun == (200 if phase.waited else 0)


@pytest.mark.covers("X17")
@in_every_phase
async def test_a_call_with_too_short_a_wait_ends_after_it_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (_, name):
        begun = trio.current_time()
        if phase.answers:
            return
        with pytest.raises(NoProc):
            await name.call("incarnation", wait_for=5)
        assert trio.current_time() - begun == (5 if phase.waited else 0)


@pytest.mark.covers("X17")
@in_every_phase
async def test_a_wait_finds_the_next_that_answers_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (_, name):
        begun = trio.current_time()
        if phase.successor is not None:
            ref = await name.wait(200)
            assert await ref.call("incarnation") == (1 if phase.answers else 2)
            assert trio.current_time() - begun == phase.successor
        else:
            with pytest.raises(NoProc):
                await name.wait(200)
            assert trio.current_time() - begun == (200 if phase.waited else 0)


@pytest.mark.covers("X17")
@in_every_phase
async def test_a_wait_without_any_time_looks_once_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (_, name):
        if phase.answers:
            assert await name.wait(0) is name.ref()
        else:
            with pytest.raises(NoProc):
                await name.wait(0)


@pytest.mark.covers("X17")
@in_every_phase
async def test_wait_out_ends_when_the_successor_is_there_or_none_is_due_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (_, name):
        begun = trio.current_time()
        if phase.successor is not None:
            ref = await name.wait_out()
            assert await ref.call("incarnation") == (1 if phase.answers else 2)
            assert trio.current_time() - begun == phase.successor
        else:
            with pytest.raises(NoProc):
                await name.wait_out()
            assert trio.current_time() - begun == phase.decided


@pytest.mark.covers("X17")
@in_every_phase
async def test_the_retry_loop_of_a_client_sees_a_call_through_in_every_phase(
    phase: Phase, autojump_clock: MockClock
) -> None:
    tries = 0
    async with reached(phase) as (_, name):
        answer: object = None
        with contextlib.suppress(NoProc):
            while answer is None:
                tries += 1
                try:
                    answer = await name.call("incarnation")
                except NoProc:
                    await name.wait_out()
        assert tries <= 2
        assert (answer is None) == (phase.successor is None)


@in_every_phase
async def test_a_retry_loop_can_be_cancelled_in_every_phase(phase: Phase, autojump_clock: MockClock) -> None:
    async with reached(phase) as (_, name):
        with trio.move_on_after(0) as scope:
            await name.wait_out()
            raise AssertionError
        assert scope.cancelled_caught


@pytest.mark.covers("M25", "M31")
@in_every_phase
async def test_one_that_is_stopping_lives_and_can_be_watched_and_killed(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (sup, name):
        begun = trio.current_time()
        assert name.is_alive() == phase.lives
        assert (sup.registry.whereis("a") is not None) == phase.lives
        with name.monitor() as monitor:
            name.kill()
            assert (await monitor).reason == (Killed() if phase.lives else NoProc())
        assert trio.current_time() == begun


@pytest.mark.covers("M29", "S12")
@in_every_phase
async def test_a_name_is_not_given_away_while_its_holder_is_stopping(
    phase: Phase, autojump_clock: MockClock
) -> None:
    async with reached(phase) as (sup, name):
        if not phase.lives or not phase.waited:
            return
        holder = name.ref()
        with pytest.raises(AlreadyRegistered):
            sup.registry.register("a", sup.ref)
        if sup.tree().children[0].state == "running":  # else the supervisor has its hands full
            with pytest.raises(AlreadyStarted) as caught:
                await sup.start_child(ChildSpec("b", forever, name="a"))
            assert caught.value.ref is holder


@pytest.mark.covers("M5")
async def test_one_that_starts_takes_messages_and_handles_them_when_it_is_ready(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([slow(args=(7,))]) as sup:
        await end(sup.name("a"), Killed())
        await trio.sleep(1)
        begun = trio.current_time()
        assert await sup.name("a").wait_out() is await sup.name("a").wait() is sup.name("a").ref()
        assert await sup.name("a").call("incarnation", timeout=10) == 2
        assert trio.current_time() - begun == 6


async def test_a_name_whose_holder_was_not_its_child_is_waited_out_to_its_end(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([slow(name=None, restart="temporary")]) as sup:
        sup.registry.register("by hand", sup.child("a").ref())
        sup.child("a").exit(Shutdown())
        begun = trio.current_time()
        with pytest.raises(NoProc):
            await sup.name("by hand").wait_out()
        assert trio.current_time() - begun == ENDED


@pytest.mark.covers("M8", "X17")
async def test_one_that_drains_is_stopping_for_who_comes_now(autojump_clock: MockClock) -> None:
    class Drains(Slow):
        async def handle_cast(self, msg: Any) -> None:
            await trio.sleep(3)

        async def terminate(self, reason: ExitReason) -> None:
            pass

    async with open_supervisor([ChildSpec("a", Drains, name="a", drain=True, shutdown=60)]) as sup:
        for _ in range(2):
            await sup.name("a").cast("work")
        await settled()
        begun = trio.current_time()
        sup.name("a").exit(Shutdown())
        with pytest.raises(NoProc):
            await sup.name("a").call("incarnation")
        assert await sup.name("a").call("incarnation", wait_for=10) == 2
        assert trio.current_time() - begun == 6


@pytest.mark.covers("X17")
async def test_a_nested_supervisor_that_stops_is_waited_out(autojump_clock: MockClock) -> None:
    inner = supervisor_spec("s", [slow()], name="s")
    async with open_supervisor([inner]) as sup:
        first = sup.name("s").ref()
        first.exit(Shutdown())
        assert sup.name("s").is_alive()
        second = await sup.name("s").wait_out()
        assert second is not first
        assert trio.current_time() == ENDED
        assert await sup.name("a").call("incarnation", wait_for=0) == 1


@pytest.mark.covers("X17")
async def test_a_nested_supervisor_that_gives_up_is_waited_out(autojump_clock: MockClock) -> None:
    inner = supervisor_spec("s", [slow(), player("b", [])], name="s", intensity=0)
    async with open_supervisor([inner]) as sup:
        await end(sup.name("b"), Killed())
        first = sup.name("s").ref()
        await settled()
        assert sup.name("s").is_alive()
        assert await sup.name("s").wait_out() is not first
        assert trio.current_time() == ENDED


@pytest.mark.covers("M18")
async def test_calling_oneself_is_refused_in_terminate_too() -> None:
    caught: list[Exception] = []

    class Calls(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            for fn in (self.ref.call, self.registry_name().call):
                try:
                    await fn("me", wait_for=100)
                except CallingSelf as error:
                    caught.append(error)
            try:
                async with self.ref.stream("me"):
                    raise AssertionError
            except CallingSelf as error:
                caught.append(error)

        def registry_name(self) -> Name:
            return self.supervisor.name("a")

    async with open_supervisor([ChildSpec("a", Calls, name="a")]):
        pass
    assert len(caught) == 3


async def test_a_wait_for_a_name_ends_with_its_tree() -> None:
    notes: Notes = []
    ended: list[object] = []

    async def wait(sup: Supervisor, name: str) -> None:
        try:
            await sup.name(name).wait()
        except NoProc as error:
            ended.append(str(error))

    async with trio.open_nursery() as nursery:
        async with open_supervisor([player("a", notes)]) as sup:
            nursery.start_soon(wait, sup, "nobody")
            await settled()
        await settled()
        assert ended == ["no such actor: nobody"]
        nursery.start_soon(wait, sup, "a")  # begun when it has ended
    assert ended == ["no such actor: nobody", "no such actor: a"]


async def test_a_child_that_waits_for_a_sibling_while_the_tree_stops_learns_that_none_comes(
    autojump_clock: MockClock,
) -> None:
    class Asks(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            with pytest.raises(NoProc):
                await self.supervisor.name("a").wait_out()

    children = [ChildSpec("b", Asks, shutdown=60), player("a", [])]
    async with open_supervisor(children) as sup:
        ref = sup.child("b").ref()
    assert ref.exit_reason == Shutdown()
    assert trio.current_time() == 0


@pytest.mark.covers("D4")
async def test_a_kill_takes_no_more_of_what_is_queued() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        a = sup.name("a").ref()
        for number in range(3):
            a.cast_nowait(number)
        a.kill()
        a.cast_nowait("too late")
        await settled()
        assert notes == ["+a"]
        assert a.exit_reason == Killed()
