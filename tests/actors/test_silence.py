from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from proctor.actors.silence import MERCY, Silence


class Turn:
    """What the clock asks: does silence count now?"""

    def __init__(self) -> None:
        self.counts = True

    def __call__(self) -> bool:
        return self.counts


@pytest.fixture
async def turn() -> Turn:
    return Turn()


@pytest.fixture
async def silence(turn: Turn) -> Silence:
    made = Silence(turn, patience=10.0, after_error=2.0)
    made.hear()
    return made


async def test_it_rings_when_nothing_is_heard_for_its_patience(
    silence: Silence, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(10.0 + MERCY)


async def test_each_sign_of_life_starts_it_anew(
    silence: Silence, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:  # R046
    start = trio.current_time()

    async def speak() -> None:
        for _ in range(60):
            await trio.sleep(1)
            silence.hear()

    nursery.start_soon(speak)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(70.0 + MERCY)


async def test_it_does_not_run_while_silence_is_legitimate(
    silence: Silence, turn: Turn, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    turn.counts = False

    async def finish_the_tool() -> None:
        await trio.sleep(3600)
        turn.counts = True
        silence.hear()
        silence.look_again()

    nursery.start_soon(finish_the_tool)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(3610.0 + MERCY)


async def test_an_announced_retry_holds_it(silence: Silence, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    silence.hold(30.0)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(40.0 + MERCY)


async def test_after_a_reported_error_its_patience_is_short(
    silence: Silence, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:  # L30
    start = trio.current_time()

    async def report() -> None:
        await trio.sleep(4)
        silence.error = "API Error"
        silence.hear()
        silence.look_again()

    nursery.start_soon(report)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(6.0 + MERCY)


async def test_what_is_in_the_pipe_when_the_time_is_up_is_let_in_first(
    silence: Silence, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:  # Q13
    start = trio.current_time()

    async def read_late() -> None:
        await trio.sleep(10.0 + MERCY / 2)
        silence.hear()

    nursery.start_soon(read_late)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(20.0 + MERCY / 2 + MERCY)


async def test_without_a_limit_it_never_rings(turn: Turn, autojump_clock: MockClock) -> None:
    silence = Silence(turn, patience=math.inf, after_error=5.0)
    silence.hear()
    with trio.move_on_after(10**6) as waiting:
        await silence.wait()
    assert waiting.cancelled_caught


async def test_a_short_patience_is_not_lengthened_by_an_error(turn: Turn, autojump_clock: MockClock) -> None:
    silence = Silence(turn, patience=1.0, after_error=5.0)
    silence.hear()
    silence.error = "API Error"
    start = trio.current_time()
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(1.0 + MERCY)
    assert silence.lasted == pytest.approx(1.0 + MERCY)
