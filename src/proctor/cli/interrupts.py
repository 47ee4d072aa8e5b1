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


def heeded(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those that are not ignored: what our parent has had ignored stays so (`nohup`, a background job of a script)."""
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


_TELLING = 0.5
_TO_READ = 1.0


def _nothing() -> None:
    return


@attrs.define
class Interrupts:
    """`first` is the first signal that came. The work sets `kill` when there is something to kill."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    kill: Callable[[], None] = _nothing
    first: signal.Signals | None = None
    _last: trio.CancelScope | None = None

    @property
    def status(self) -> int | None:
        """The exit status that the signal gives: 130, 143 or 129; None without one."""
        return None if self.first is None else BY_SIGNAL + self.first

    def arrived(self, number: signal.Signals) -> None:
        """The first signal: leave."""
        self.first = number
        self.scope.cancel(number.name)
        if self._last is not None:
            self.in_the_end(self._last)

    def in_the_end(self, scope: trio.CancelScope) -> None:
        """From now on there is only a reader to wait for, in `scope`: an interrupt, past or to come, gives it a
        second."""
        self._last = scope
        if self.first is not None:
            scope.deadline = min(scope.deadline, trio.current_time() + _TO_READ)


Work = Callable[[Interrupts], Awaitable[int]]


async def interruptible(
    work: Work, *, told: Callable[[str], Awaitable[None]], beside: Callable[[], Awaitable[None]]
) -> int:
    """The exit status of `work`, or of the signal that came. `told` is given what a user should know; `beside` runs
    meanwhile and is cancelled at the end."""
    interrupts = Interrupts()
    async with trio.open_nursery() as nursery:
        await nursery.start(_listen, interrupts, told)
        nursery.start_soon(beside)
        status = await work(interrupts)
        nursery.cancel_scope.cancel("the command is over")
    return status if interrupts.status is None else interrupts.status


async def _listen(
    interrupts: Interrupts,
    told: Callable[[str], Awaitable[None]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    if not (numbers := heeded(*LISTENED)):
        task_status.started()
        return
    with trio.open_signal_receiver(*numbers) as arriving:
        task_status.started()
        async for number in arriving:
            if interrupts.first is not None:
                interrupts.kill()
                continue
            interrupts.arrived(signal.Signals(number))
            with trio.move_on_after(
                _TELLING
            ):  # a terminal that does not read must not hide the second signal
                await told("stopping; once more kills at once")
