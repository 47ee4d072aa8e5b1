from __future__ import annotations

import logging
from random import Random

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime.errors import InvalidSpec
from proctor.runtime.retry import Again, Retry, repeated
from proctor.runtime.spec import Backoff

STEADY = Backoff(min_delay=1.0, max_delay=5.0, jitter=0.0)


class Bad(Exception):
    """Not asked about."""


class Story:
    """Attempts that come to these in turn; when each began, and what time it was given."""

    def __init__(self, *ends: object) -> None:
        self.ends = [*ends]
        self.began: list[float] = []
        self.left: list[float | None] = []
        self.born = trio.current_time()

    async def __call__(self, left: float | None) -> object:
        self.began.append(trio.current_time() - self.born)
        self.left.append(left)
        await trio.lowlevel.checkpoint()
        match self.ends.pop(0):
            case Exception() as error:
                raise error
            case value:
                return value


def transient(came: object) -> Again | None:
    match came:
        case ConnectionError() | "again":
            return Again(str(came))
        case float():
            return Again("limit", came)
        case _:
            return None


def retry(attempts: int = 3) -> Retry:
    return Retry(judge=transient, on=(OSError,), attempts=attempts, backoff=STEADY)


async def tell(story: Story, policy: Retry, timeout: float | None = None) -> object:
    return await repeated(story, policy, name="reviewer", timeout=timeout, chance=Random(1))


@pytest.mark.covers("R117", "R080")
async def test_attempts_are_bounded_and_their_delays_grow_up_to_a_limit(
    autojump_clock: MockClock,
) -> None:
    story = Story(*[ConnectionError(f"no {n}") for n in range(6)])
    with pytest.raises(ConnectionError, match="no 5"):
        await tell(story, retry(attempts=6))
    assert story.began == [0, 1, 3, 7, 12, 17]


@pytest.mark.covers("R117")
async def test_a_repetition_that_goes_well_is_the_answer(autojump_clock: MockClock) -> None:
    story = Story(ConnectionError("x"), "again", "done")
    assert await tell(story, retry()) == "done"
    assert story.began == [0, 1, 3]


@pytest.mark.covers("R120")
@pytest.mark.parametrize(
    "end", [ValueError("not of `on`"), FileNotFoundError("of `on`, not transient"), Bad()]
)
async def test_what_no_repetition_heals_is_raised_by_the_first_attempt(
    end: Exception, autojump_clock: MockClock
) -> None:
    story = Story(end, "never")
    with pytest.raises(type(end)) as raised:
        await tell(story, retry())
    assert (raised.value, len(story.began)) == (end, 1)


@pytest.mark.covers("R080")
async def test_bytes_that_parse_the_same_are_tried_once_Q06(autojump_clock: MockClock) -> None:
    story = Story("garbled", "never")
    assert await tell(story, retry()) == "garbled"
    assert story.began == [0]


async def test_a_wait_until_a_limit_resets_spends_no_attempt(autojump_clock: MockClock) -> None:
    story = Story(60.0, 100.0, "again", "done")
    assert await tell(story, retry(attempts=2)) == "done"
    assert story.began == [0, 60, 160, 161]


async def test_the_deadline_is_for_all_attempts_and_nothing_is_waited_for_beyond_it(
    autojump_clock: MockClock,
) -> None:
    story = Story("again", "again", 60.0, "never")
    assert await tell(story, retry(attempts=9), timeout=10.0) == 60.0
    assert (story.left, trio.current_time()) == ([10, 9, 7], story.began[-1] + story.born)


async def test_a_cancellation_goes_through_an_attempt_and_through_a_delay(autojump_clock: MockClock) -> None:
    story = Story("again", "again", "again", "never")
    with trio.move_on_after(2.5) as scope:
        await tell(story, retry(attempts=9))
    assert scope.cancelled_caught
    assert story.began == [0, 1]


@pytest.mark.covers("R118")
async def test_each_repetition_is_logged_with_attempt_delay_and_cause(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "proctor"):
        await tell(Story(ConnectionError("busy"), "again", "done"), retry())
    assert [record.getMessage() for record in caplog.records] == [
        "reviewer: attempt 1 of 3: busy; the next one in 1.0 s",
        "reviewer: attempt 2 of 3: again; the next one in 2.0 s",
    ]
    told = [(r.__dict__["attempt"], r.__dict__["delay"], r.__dict__["cause"]) for r in caplog.records]
    assert told == [(1, 1.0, "busy"), (2, 2.0, "again")]


@pytest.mark.parametrize("attempts", [0, -1, True])
def test_a_policy_without_an_attempt_is_refused(attempts: int) -> None:
    with pytest.raises(InvalidSpec, match=r"attempts of 'retry' is .*: expected an int >= 1"):
        retry(attempts=attempts)
