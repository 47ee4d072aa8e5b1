"""Actors that wait for each other in a circle are reported, with the circle."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import Actor, Call, CallTimeout, ChildSpec, Deadlock, Name, open_supervisor
from tests.runtime.stage import heard, settled


class Passes(Actor):
    """Passes a call on to the next of those that it names."""

    async def handle_call(self, msg: list[Name], from_: Call) -> Any:
        return await msg[0].call(msg[1:], None) if msg else "end"

    async def handle_cast(self, msg: list[Name]) -> None:
        await msg[0].call(msg[1:], None)


SPECS = [ChildSpec(id, Passes, name=id, restart="temporary", shutdown=1) for id in "abc"]


@pytest.mark.parametrize(
    ("way", "cycle"), [("aba", "aba"), ("abca", "abca"), ("abcb", "bcb"), ("abc", ""), ("aca", "aca")]
)
@pytest.mark.parametrize("begun_by", ["call", "cast"])
async def test_calls_in_a_circle_are_reported_with_the_circle_at_once(
    way: str, cycle: str, begun_by: str, autojump_clock: MockClock
) -> None:
    async with open_supervisor(SPECS) as sup:
        first, *others = (sup.name(id) for id in way)
        events = sup.events()
        if begun_by == "cast":
            await first.cast(others)
            await settled()
        elif cycle:
            with pytest.raises(CallTimeout):
                await first.call(others, 1)
        else:
            assert await first.call(others, 1) == "end"
        found = [event for event in heard(events) if isinstance(event, Deadlock)]
        assert [event.cycle for event in found] == ([tuple(f"root/{id}" for id in cycle)] if cycle else [])
        sup.name("a").kill()


async def test_an_actor_that_answered_before_it_calls_back_is_in_no_circle() -> None:
    class Answers(Passes):
        async def handle_call(self, msg: list[Name], from_: Call) -> Any:
            from_.reply("at once")
            return await super().handle_call(msg, from_)

    async with open_supervisor([SPECS[0], ChildSpec("b", Answers, name="b")]) as sup:
        events = sup.events()
        a, b = sup.name("a"), sup.name("b")
        with trio.fail_after(30):
            assert await a.call([b, a]) == "at once"
            assert await b.call([]) == "at once"
        assert not any(isinstance(event, Deadlock) for event in heard(events))


async def test_the_time_out_of_a_call_in_a_circle_names_the_circle_and_of_another_call_none(
    autojump_clock: MockClock,
) -> None:
    ends: list[tuple[tuple[str, ...], str]] = []

    class Tries(Passes):
        async def handle_call(self, msg: list[Name], from_: Call) -> Any:
            for target in msg[:1]:
                try:
                    await target.call(msg[1:], 1)
                except CallTimeout as error:
                    ends.append((error.cycle, str(error).partition("deadlock")[2]))
            return "end"

    class Sleeps(Actor):
        async def handle_call(self, msg: object, from_: Call) -> Any:
            await trio.sleep_forever()

    class TriesTwice(Tries):
        async def handle_call(self, msg: list[Name], from_: Call) -> Any:
            await super().handle_call(msg, from_)
            return await super().handle_call(msg[1:], from_)

    specs = [SPECS[0], ChildSpec("b", TriesTwice, name="b"), ChildSpec("s", Sleeps, name="s", shutdown=0)]
    async with open_supervisor(specs) as sup:
        a, b, s = (sup.name(id) for id in "abs")
        assert await a.call([b, a, s], 10) == "end"
    cycle = ("root/a", "root/b", "root/a")
    assert ends == [(cycle, ", each waited for the next: root/a > root/b > root/a"), ((), "")]


async def test_a_handler_that_does_not_end_shows_in_the_tree(autojump_clock: MockClock) -> None:
    class Works(Actor):
        async def handle_call(self, msg: object, from_: Call) -> Any:
            await trio.sleep(30)

        async def handle_cast(self, msg: object) -> None:
            await trio.sleep(30)

    async with open_supervisor([ChildSpec("a", Works, name="a")]) as sup, trio.open_nursery() as nursery:
        await trio.sleep(5)

        def seen() -> tuple[float | None, str | None]:
            [node] = sup.tree().children
            return node.busy_for, node.handling

        assert seen() == (None, None)
        nursery.start_soon(sup.name("a").call, 1.5, None)
        await trio.sleep(10)
        assert seen() == (10.0, "float")
        await trio.sleep(25)
        assert seen() == (None, None)
        await sup.name("a").cast("x")
        await trio.sleep(10)
        assert seen() == (10.0, None)


@pytest.mark.parametrize("ahead", [0, 20])
async def test_two_that_call_each_other_at_once_are_reported_whatever_they_were_at(
    ahead: int, autojump_clock: MockClock
) -> None:
    class Both(Actor):
        async def handle_cast(self, msg: Name | None) -> None:
            if msg is not None:
                await trio.sleep(1)  # the other has begun as well
                with pytest.raises(CallTimeout) as caught:
                    await msg.call("x", 3)
                cycles.append(caught.value.cycle)

        async def handle_call(self, msg: object, from_: Call) -> Any:
            return msg

    cycles: list[tuple[str, ...]] = []
    async with open_supervisor([ChildSpec(id, Both, name=id, shutdown=1) for id in "ab"]) as sup:
        a, b = sup.name("a"), sup.name("b")
        events = sup.events(kinds=("deadlock",))
        await a.cast(b)
        await b.cast(a)
        for _ in range(ahead):
            await a.cast(None)
        await trio.sleep(1.5)
        [found] = [event for event in heard(events) if isinstance(event, Deadlock)]
        await trio.sleep(5)
        assert await a.call("now") == await b.call("now") == "now"
    assert {*found.cycle} == {"root/a", "root/b"}
    assert found.cycle[0] == found.cycle[-1]
    assert found.cycle in cycles
