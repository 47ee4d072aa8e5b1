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
        with trio.fail_after(5):
            assert await a.call([b, a]) == "at once"
            assert await b.call([]) == "at once"
        assert not any(isinstance(event, Deadlock) for event in heard(events))
