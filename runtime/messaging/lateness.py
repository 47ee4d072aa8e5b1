"""The lag of a clock that is checked late, and the time added for those that it judges.

While somebody computes without a checkpoint the loop stands still, and the clocks go on. The task that is looked at first
afterwards would be found late though the loop gave it no turn. So a clock that is noticed late is looked at a second time,
by as much later as the first look was, at most `LIMIT`. One that is noticed at its very instant judges at once.

All clocks of a tree are looked at in this way: graces, start time-outs, watchdogs, deadlines of calls.
"""

from __future__ import annotations

import trio

from proctor.runtime.messaging.one_shot import OneShotEvent

LIMIT = 1.0


def seconds_late(due: float) -> float:
    """The seconds since the instant `due`, from 0 to `LIMIT`."""
    return min(max(0.0, trio.current_time() - due), LIMIT)


async def catch_up(due: float) -> None:
    """Wait between the two looks at a clock that was `due`."""
    late = seconds_late(due)
    if late > 0:
        await trio.sleep(late)


async def wait_in_time(event: OneShotEvent, scope: trio.CancelScope) -> None:
    """Wait in `scope` until `event` happens or the clock, which is the deadline of `scope`, was looked at twice."""
    with scope:
        await event.wait()
    late = seconds_late(scope.deadline)
    if late > 0 and not event.is_set():
        with trio.move_on_after(late):
            await event.wait()
