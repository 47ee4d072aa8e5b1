from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import NO_REPLY, Actor, Call, CallTimeout, ChildSpec, NoProc, open_supervisor, reply
from proctor.runtime.messaging.deadlines import LANES, SLACK, Deadlines, Heap
from tests.runtime.effort import instructions
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


@pytest.mark.covers("X14", "T14")
@pytest.mark.parametrize("kind", ["relay", "request"])
@pytest.mark.parametrize(
    ("outer", "inner", "left"), [(3, 5, 3), (5, 3, 3), (3, None, 3), (None, 4, 4), (None, None, math.inf)]
)
async def test_a_call_made_while_handling_a_call_takes_no_longer(
    kind: str, outer: float | None, inner: float | None, left: float, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        begun = trio.current_time()
        await sup.name("a").call((kind, inner), outer)
    assert seen[1] == ("b", "end", begun + left)


@pytest.mark.covers("X14")
async def test_what_is_left_is_less_than_there_was(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup, trio.open_nursery() as nursery:
        begun = trio.current_time()
        await sup.name("b").cast(2.0)
        nursery.start_soon(sup.name("a").call, ("relay", 5), 3)
        await trio.sleep(2.5)
    assert seen[-1] == ("b", "end", begun + 3)


@pytest.mark.covers("X14")
@pytest.mark.parametrize(("how", "deadline"), [("in a task", math.inf), ("in the actor's nursery", math.inf)])
async def test_a_task_of_its_own_is_free_of_the_deadline(
    how: str, deadline: float, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        await sup.name("a").call((how, None), 3)
        await settled()
    assert seen[1] == ("b", "end", deadline)


@pytest.mark.covers("X14")
async def test_a_call_made_after_the_call_or_by_a_cast_is_free(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    async with open_supervisor(chain(seen)) as sup:
        await sup.name("a").call("x", 3)
        await sup.name("a").cast("ask")
        await settled()
    assert seen[-1] == ("b", "end", math.inf)


@pytest.mark.covers("X14", "X17")
async def test_the_wait_for_a_name_ends_with_the_call_being_handled(
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


@pytest.mark.covers("X14")
async def test_a_call_whose_time_was_up_before_its_turn_is_not_handled(autojump_clock: MockClock) -> None:
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


@pytest.mark.covers("X14")
async def test_a_call_behind_a_handler_that_blocked_the_loop_is_not_handled_either(
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


@pytest.mark.covers("X14", "M16")
async def test_a_caller_that_gave_up_while_its_call_was_queued_is_served_all_the_same(
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
    """Something with a deadline; notes when its time was up."""

    def __init__(self, deadline: float, ended: list[float]) -> None:
        self.deadline, self._ended = deadline, ended

    def expire(self) -> None:
        self._ended.append(trio.current_time())


@pytest.mark.covers("T14")
async def test_each_deadline_is_kept_whatever_the_order_of_the_time_outs(
    autojump_clock: MockClock,
) -> None:
    deadlines, ended = Deadlines(), list[float]()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        for n in range(3 * LANES):
            deadlines.add(Asked(begun + 100 - n, ended), 100 - n)
            deadlines.add_late(Asked(begun + 50 - n, ended))
        await trio.sleep(200)
        nursery.cancel_scope.cancel()
    wanted = [begun + 100 - n for n in range(3 * LANES)] + [begun + 50 - n for n in range(3 * LANES)]
    assert ended == sorted(wanted)


@pytest.mark.covers("T14", "M4")
async def test_a_call_that_waited_for_room_is_expired_before_those_made_meanwhile(
    autojump_clock: MockClock,
) -> None:
    ended: dict[str, float] = {}
    async with open_supervisor([ChildSpec("q", Keeps, name="q", mailbox=1)]) as sup:
        begun = trio.current_time()

        async def ask(msg: float | str) -> None:
            with pytest.raises(CallTimeout):
                await sup.name("q").call(msg, 10)
            ended[str(msg)] = trio.current_time() - begun

        async with trio.open_nursery() as nursery:
            for msg in (4.0, "queued", "waits for room"):
                nursery.start_soon(ask, msg)
                await settled()
            await trio.sleep(5)
            nursery.start_soon(ask, "later")
    assert ended == {"4.0": 10, "queued": 10, "waits for room": 10, "later": 15}


@pytest.mark.covers("T14")
async def test_what_is_taken_out_is_not_expired(autojump_clock: MockClock) -> None:
    deadlines, ended = Deadlines(), list[float]()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        for n in range(10 * LANES):
            call = Asked(begun + 1 + n, ended)
            held = deadlines.add(call, 1 + n)
            if n % 2:
                held.pop(call, None)
                held.pop(call, None)
        assert len(deadlines) == 5 * LANES
        await trio.sleep(20 * LANES)
        nursery.cancel_scope.cancel()
    assert ended == [begun + 1 + n for n in range(0, 10 * LANES, 2)]
    assert len(deadlines) == 0


class Keeps(Actor):
    """Keeps each question until it is asked for the answers; sleeps when given a number."""

    async def init(self) -> None:
        self.open: list[Call] = []

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        if msg == "answer all":
            for call in self.open:
                reply(call, None)
            self.open.clear()
            return None
        if isinstance(msg, float):
            await trio.sleep(msg)
        self.open.append(from_)
        return NO_REPLY


class Large:
    """An answer that somebody would notice."""


@pytest.mark.covers("T14")
async def test_an_answer_is_freed_when_its_caller_is_done_with_it_beside_a_call_that_waits() -> None:
    answers: weakref.WeakSet[Large] = weakref.WeakSet()

    class Answers(Keeps):
        async def handle_call(self, msg: Any, from_: Call) -> Any:
            if msg == "wait":
                return await super().handle_call(msg, from_)
            answers.add(answer := Large())
            return answer

    async with open_supervisor([ChildSpec("q", Answers, name="q")]) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.name("q").call, "wait", 3600)
        await settled()
        for n in range(3 * LANES):
            assert isinstance(await sup.name("q").call(Large(), 3600), Large)
            assert isinstance(await sup.name("q").call("x", 3600 + n), Large)
            assert isinstance(await sup.name("q").send_request("x", 3600 + n).wait(), Large)
        await settled()
        gc.collect()
        assert len(answers) == 0
        nursery.cancel_scope.cancel()


@pytest.mark.covers("T14", "M16")
async def test_a_question_is_freed_when_its_caller_has_given_up() -> None:
    questions: weakref.WeakSet[Large] = weakref.WeakSet()

    class Drops(Actor):
        async def handle_call(self, msg: Any, from_: Call) -> Any:
            return NO_REPLY

    async with open_supervisor([ChildSpec("q", Drops, name="q")]) as sup:
        async with trio.open_nursery() as nursery:
            for n in range(3 * LANES):
                questions.add(question := Large())
                nursery.start_soon(sup.name("q").call, question, 3600 + n)
                questions.add(question := Large())
                sup.name("q").send_request(question, 3600 + n).abandon()
                del question
            await settled()
            nursery.cancel_scope.cancel()
        del nursery
        gc.collect()
        assert len(questions) == 0


@pytest.mark.covers("T14")
@pytest.mark.parametrize("answered", [True, False])
def test_calls_with_time_outs_of_their_own_do_about_the_work_of_calls_with_one(answered: bool) -> None:
    async def main(distinct: bool, clock: MockClock) -> None:
        async with open_supervisor([ChildSpec("q", Keeps, name="q", mailbox=10_000)]) as sup:
            target = sup.name("q").ref()
            requests = [target.send_request("x", 1000 + (n if distinct else 0)) for n in range(400)]
            await trio.lowlevel.checkpoint()
            if answered:
                await target.call("answer all")
            else:
                clock.jump(3000)
                await trio.sleep(0.1)
            for request in requests:
                await request.receive() if answered else request.abandon()

    def work(distinct: bool) -> int:
        clock = MockClock(autojump_threshold=0)
        return instructions(lambda: trio.run(main, distinct, clock, clock=clock))

    assert work(distinct=True) <= 2 * work(distinct=False)


@pytest.mark.covers("T14")
def test_deadlines_that_are_taken_out_leave_a_bounded_number_of_places() -> None:
    heap = Heap()
    heap.push(Asked(0, []))
    for n in range(100 * SLACK):
        heap.push(call := Asked(n, []))
        heap.pop(call, None)
        assert heap.places <= 2 + SLACK + 1


@pytest.mark.covers("T14")
async def test_an_idle_clock_stops_at_most_once_for_calls_that_were_answered(
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
