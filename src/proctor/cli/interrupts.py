"""Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly stop, the second for an immediate one.

The first cancels `scope`, which the work puts around what it is to leave, so that it goes down in its own order. The
second calls `kill`, whatever the work is doing then. Signals are listened to until the work has ended, also while it
stops.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import attrs
import trio

from proctor.cli.codes import BY_SIGNAL

LISTENED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TELLING = 0.5


def _nothing() -> None:
    return


@attrs.define
class Interrupts:
    """`signal` is the first that came. The work sets `kill` when there is something to kill."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    kill: Callable[[], None] = _nothing
    signal: signal.Signals | None = None

    @property
    def status(self) -> int | None:
        """The exit status that the signal gives: 130, 143 or 129; None without one."""
        return None if self.signal is None else BY_SIGNAL + self.signal


Work = Callable[[Interrupts], Awaitable[int]]


async def interruptible(work: Work, told: Callable[[str], Awaitable[None]]) -> int:
    """The exit status of `work`, or of the signal that ended it. `told` is given what a user should know."""
    interrupts = Interrupts()
    async with trio.open_nursery() as nursery:
        await nursery.start(_listen, interrupts, told)
        status = await work(interrupts)
        nursery.cancel_scope.cancel("the command is over")
    return status if interrupts.status is None else interrupts.status


async def _listen(
    interrupts: Interrupts,
    told: Callable[[str], Awaitable[None]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(*LISTENED) as arriving:
        task_status.started()
        async for number in arriving:
            if interrupts.signal is not None:
                interrupts.kill()
                continue
            interrupts.signal = signal.Signals(number)
            interrupts.scope.cancel(interrupts.signal.name)
            with trio.move_on_after(_TELLING):  # a terminal that does not read must not hide the second signal
                await told("stopping; once more kills at once")
