from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import Actor, Call, CallTimeout, ChildSpec, NoProc, open_supervisor
from proctor.runtime.deadlines import LANES, SLACK, Deadlines
from tests.runtime.stage import settled


class Relay(Actor):
    """Asks the next one while it handles a call, in the way the message says."""

    async def init(self, seen: list[Any], behind: str = "") -> None:
        self.seen, self.behind = seen, behind

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        self.seen.append((self.id, msg, from_.deadline))
        match msg:
            case ("relay", timeout):
                return await self.supervisor.name(self.behind).call("end", timeout)
            case ("request", timeout):
                return await self.supervisor.name(self.behind).send_request("end", timeout).wait()
            case ("relay too late", seconds):
                await trio.sleep(seconds)
                with pytest.raises(CallTimeout, match="within 0 s"):
                    await self.supervisor.name(self.behind).call(("sleep", 1), None)
                self.seen.append("told")
            case ("in a task", timeout):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.ask, timeout)
            case ("in the actor's nursery", timeout):
                self.nursery.start_soon(self.ask, timeout)
            case ("wait for nobody", timeout):
                return await self.supervisor.name("nobody").call("end", wait_for=timeout)
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case _:
                pass
        return None

    async def handle_cast(self, msg: Any) -> None:
        self.seen.append((self.id, msg, None))
        if isinstance(msg, float):
            await trio.sleep(msg)
        else:
            await self.ask(None)

    async def ask(self, timeout: float | None) -> None:
        await self.supervisor.name(self.behind).call("end", timeout)


def chain(seen: list[Any]) -> list[ChildSpec]:
    return [
        ChildSpec("a", Relay, (seen, "b"), name="a"),
        ChildSpec("b", Relay, (seen,), name="b"),
    ]


@pytest.mark.parametrize("kind", ["relay", "request"])
@pytest.mark.parametrize(
    ("outer", "inner", "left"), [(3, 5, 3), (5, 3, 3), (3, None, 3), (None, 4, 4), (None, None, math.inf)]
)
async def test_a_call_made_while_handling_a_call_takes_no_longer_X14_T14(
    kind: str, outer: float | None, inner: float | None, left: float, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        begun = trio.current_time()
        await sup.name("a").call((kind, inner), outer)
    assert seen[1] == ("b", "end", begun + left)


async def test_what_is_left_is_less_than_there_was_X14(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup, trio.open_nursery() as nursery:
        begun = trio.current_time()
        await sup.name("b").cast(2.0)
        nursery.start_soon(sup.name("a").call, ("relay", 5), 3)
        await trio.sleep(2.5)
    assert seen[-1] == ("b", "end", begun + 3)


@pytest.mark.parametrize(("how", "deadline"), [("in a task", math.inf), ("in the actor's nursery", math.inf)])
async def test_a_task_of_its_own_is_free_of_the_deadline_X14(
    how: str, deadline: float, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        await sup.name("a").call((how, None), 3)
        await settled()
    assert seen[1] == ("b", "end", deadline)


async def test_a_call_made_after_the_call_or_by_a_cast_is_free_X14(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        await sup.name("a").call("x", 3)
        await sup.name("a").cast("ask")
        await settled()
    assert seen[-1] == ("b", "end", math.inf)


async def test_the_wait_for_a_name_ends_with_the_call_being_handled_X14_X17(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        begun = trio.current_time()
        with pytest.raises(CallTimeout):
            await sup.name("a").call(("wait for nobody", 100), 3)
        ref = sup.name("a").ref()
        with ref.monitor() as monitor:
            reason = (await monitor).reason
        assert isinstance(getattr(reason, "error", None), NoProc)
        assert trio.current_time() - begun == 3


async def test_a_call_whose_time_was_up_before_its_turn_is_not_handled_X14(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup, trio.open_nursery() as nursery:
        await sup.name("b").cast(10.0)

        async def late() -> None:
            with pytest.raises(CallTimeout):
                await sup.name("b").call("late", 3)

        nursery.start_soon(late)
        nursery.start_soon(sup.name("b").call, "in time", 20)
        await trio.sleep(11)
    assert [msg for _, msg, _ in seen] == [10.0, "in time"]


async def test_a_call_behind_a_handler_that_blocked_the_loop_is_not_handled_either_X14(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []

    class Blocks(Relay):
        async def handle_cast(self, msg: Any) -> None:
            autojump_clock.jump(10)

    async with open_supervisor([ChildSpec("b", Blocks, (seen,), name="b")]) as sup:
        await sup.name("b").cast("block")
        request = sup.name("b").send_request("late", 3)
        with pytest.raises(CallTimeout):
            await request.wait()
    assert seen == []


async def test_a_caller_that_gave_up_while_its_call_was_queued_is_served_all_the_same_X14_M16(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        await sup.name("b").cast(1.0)
        with trio.move_on_after(0.5):
            await sup.name("b").call("gone")
        await trio.sleep(2)
    assert [msg for _, msg, _ in seen] == [1.0, "gone"]


class Asked:
    """Something with a deadline; notes when it was told."""

    def __init__(self, deadline: float, ended: list[float]) -> None:
        self.deadline, self.settled, self._ended = deadline, False, ended

    def expire(self) -> None:
        if not self.settled:
            self.settled = True
            self._ended.append(trio.current_time())


async def test_each_deadline_is_kept_whatever_the_order_of_the_time_outs_T14(
    autojump_clock: MockClock,
) -> None:
    deadlines, ended = Deadlines(), list[float]()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        for n in range(3 * LANES):
            deadlines.add(Asked(begun + 100 - n, ended), 100 - n)
            deadlines.add(Asked(begun + 50 - n, ended), 100)
        await trio.sleep(200)
        nursery.cancel_scope.cancel()
    wanted = [begun + 100 - n for n in range(3 * LANES)] + [begun + 50 - n for n in range(3 * LANES)]
    assert ended == sorted(wanted)


async def test_settled_calls_are_forgotten_behind_one_that_waits_T14() -> None:
    deadlines, ended = Deadlines(), list[float]()
    now = trio.current_time()
    deadlines.add(Asked(now + 100, ended), 100)
    for n in range(20 * SLACK):
        call = Asked(now + 100, ended)
        deadlines.add(call, 100 if n % 2 else 50)
        call.settled = True
        assert len(deadlines) <= 4 * SLACK


async def test_an_idle_clock_stops_at_most_once_for_calls_that_were_answered_T14(
    autojump_clock: MockClock,
) -> None:
    stops: list[float] = []

    class Counts(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            stops.append(trio.current_time())

    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        for n in range(100):
            await sup.name("b").call("x", timeout=5 + n % 3)
            await trio.sleep(0.01)
        begun = trio.current_time()
        instrument = Counts()
        trio.lowlevel.add_instrument(instrument)
        await trio.sleep(100)
        trio.lowlevel.remove_instrument(instrument)
    assert {stop for stop in stops if begun < stop < begun + 100} == {seen[0][2]}
