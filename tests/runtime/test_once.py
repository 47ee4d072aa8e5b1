from __future__ import annotations

import trio

from proctor.runtime.messaging.one_shot import OneShotEvent
from tests.runtime.stage import settled


async def test_all_who_wait_go_on_when_it_happens() -> None:
    once, seen = OneShotEvent(), list[int]()

    async def wait(n: int) -> None:
        await once.wait()
        seen.append(n)

    async with trio.open_nursery() as nursery:
        for n in range(3):
            nursery.start_soon(wait, n)
        await settled()
        assert (once.is_set(), seen) == (False, [])
        once.set()
        once.set()
    assert (once.is_set(), sorted(seen)) == (True, [0, 1, 2])


async def test_afterwards_nobody_waits_but_a_cancellation_is_heard() -> None:
    once = OneShotEvent()
    once.set()
    await once.wait()
    with trio.CancelScope() as scope:
        scope.cancel()
        await once.wait()
    assert scope.cancelled_caught


async def test_one_who_gives_up_changes_nothing_for_the_others() -> None:
    once, seen = OneShotEvent(), list[str]()

    async def wait() -> None:
        await once.wait()
        seen.append("told")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await settled()
        with trio.move_on_after(0):
            await once.wait()
        once.set()
    assert seen == ["told"]


async def test_who_is_released_goes_on_though_it_has_not_happened() -> None:
    once, seen = OneShotEvent(), list[bool]()
    once.release()

    async def wait() -> None:
        await once.wait()
        seen.append(once.is_set())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await settled()
        once.release()
        await settled()
        assert seen == [False]
        nursery.start_soon(wait)
        await settled()
        assert seen == [False]
        once.set()
    assert seen == [False, True]
