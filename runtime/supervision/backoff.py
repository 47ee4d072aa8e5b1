"""Back-off: the delay before each restart of a child in a row, and the limit on such restarts.

Guarantees: a delay is never above `max_delay`, however long the row; the same `chance` gives the same delay. Plain
functions: the length of the row is kept by the child's slot, the random source by the tree.

Not here: waiting (`loop`), the intensity of the supervisor, which holds besides (`decide.Window`) for all exits but those
for a shortage.
"""

from __future__ import annotations

import math

from proctor.runtime.exits import Crash, ExitReason
from proctor.runtime.processes import shortage_of
from proctor.runtime.spec import Backoff


def delay(backoff: Backoff, k: int, chance: float) -> float:
    """The seconds before restart `k` of a row, from 0; `chance` is a random number from 0 to 1."""
    return min(backoff.max_delay, _grown(backoff, k)) * (1 - backoff.jitter * chance)


def _grown(backoff: Backoff, k: int) -> float:
    try:
        return backoff.min_delay * float(backoff.factor) ** k
    except OverflowError:
        # A float, not an integer, power: a row of thousands would otherwise build a number of as many digits.
        return math.inf


def ends_row(backoff: Backoff | None, ready_for: float) -> bool:
    """Whether an incarnation that was ready for so many seconds ends a row of restarts.

    Without back-off being ready at all does.
    """
    if backoff is None:
        return True
    # Being ready for a moment must not end a row, or a child that dies right after its start would never wait
    # longer.
    return ready_for >= (backoff.max_delay if backoff.reset_after is None else backoff.reset_after)


def waits_out(backoff: Backoff | None, reason: ExitReason) -> bool:
    """Whether a restart is no fault of the child: the machine lacked something, and the back-off waits for that."""
    return backoff is not None and isinstance(reason, Crash) and shortage_of(reason.error) is not None


def is_too_long(backoff: Backoff, row: int) -> bool:
    """Whether a row of so many restarts is more than is allowed."""
    return backoff.max_in_row is not None and row > backoff.max_in_row
