"""One policy for repeating what failed and may go well the next time.

Guarantees: there are at most so many attempts, and the delays between them grow as the back-off says. What the judge does
not want repeated is handed on at once, as it came. A wait that it asks for (until a limit resets) takes the place of the
delay and spends no attempt. Nothing is waited for that would end after the deadline: what came last is handed on instead.
Each repetition is logged before its delay: attempt, delay, cause. A cancellation goes through everything.

It wraps a whole run, on one level: repeating on two of them multiplies. Not here: what is transient; parsing, which gives
the same of the same bytes however often.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeAlias, TypeVar

import attrs
import trio
from outcome import Error, Value

from proctor.runtime.errors import InvalidSpec
from proctor.runtime.spec import Backoff
from proctor.runtime.supervision import delay

T = TypeVar("T")
LOG = "proctor"
"""The logger that attempts are written to."""
DELAYS = Backoff(min_delay=0.5, max_delay=30.0)


@attrs.frozen
class Again:
    """Repeat it, because of `cause`: after the back-off's delay, or after `wait` seconds, which spends no attempt."""

    cause: str
    wait: float | None = None


Judge: TypeAlias = Callable[[object], Again | None]
"""Called with what an attempt returned or raised; None takes it as it is."""


@attrs.frozen(kw_only=True)
class Retry:
    """At most `attempts` in all (3), put off by `backoff` (0.5 s to 30 s); `judge` says which are repeated.

    Of errors, it is asked about those of the types `on`. Raises `InvalidSpec` for fewer attempts than 1.
    """

    judge: Judge
    on: tuple[type[Exception], ...]
    attempts: int = 3
    backoff: Backoff = DELAYS

    def __attrs_post_init__(self) -> None:
        if isinstance(self.attempts, bool) or self.attempts < 1:
            raise InvalidSpec("attempts", self.attempts, "an int >= 1", of="retry")

    def pause(self, again: Again, attempt: int, chance: float) -> float | None:
        """The seconds before the attempt after number `attempt` (from 1); None when that was the last one."""
        if again.wait is not None:
            return again.wait
        return None if attempt >= self.attempts else delay(self.backoff, attempt - 1, chance)


async def repeated(
    attempt: Callable[[float | None], Awaitable[T]],
    retry: Retry,
    *,
    name: str,
    timeout: float | None = None,
    chance: Random,
) -> T:
    """Call `attempt` with the seconds that are left of `timeout` (None: no limit) until it is taken as it came.

    Returns what it returned or raises what it raised the last time. `name` is what the log calls it.
    """
    ends = math.inf if timeout is None else trio.current_time() + timeout
    spent = 1
    while True:
        came = await _tried(attempt, None if timeout is None else ends - trio.current_time(), retry.on)
        again = retry.judge(came.error if isinstance(came, Error) else came.value)
        pause = None if again is None else retry.pause(again, spent, chance.random())
        if again is None or pause is None or trio.current_time() + pause >= ends:
            # a wait that ends after the deadline cannot help: handed on now, with its real cause, not as a
            # timeout
            return came.unwrap()
        _log_attempt(name, spent, retry.attempts, again, pause)
        await trio.sleep(pause)
        # an account that is at its limit may be so for hours: that wait says nothing about the attempts
        spent += again.wait is None


async def _tried(
    attempt: Callable[[float | None], Awaitable[T]], left: float | None, on: tuple[type[Exception], ...]
) -> Value[T] | Error:
    try:
        return Value(await attempt(left))
    except on as error:
        # only the types it may judge; a Cancelled or a bug of ours passes through
        return Error(error)


def _log_attempt(name: str, attempt: int, attempts: int, again: Again, pause: float) -> None:
    logging.getLogger(LOG).warning(
        "%s: attempt %d of %d: %s; the next one in %.1f s",
        *(name, attempt, attempts, again.cause, pause),
        extra={"agent": name, "attempt": attempt, "delay": pause, "cause": again.cause},
    )
