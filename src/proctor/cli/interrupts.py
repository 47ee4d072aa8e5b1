"""Ctrl-C, SIGTERM and SIGHUP: the first signal stops a command in order, the second kills at once.

The first cancels `scope`, so that the work stops in its own order. The second calls `kill`, whatever the work is doing.
Signals are handled until the work has ended, also while it stops.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable

import attrs
import trio

from proctor.cli.exit_status import BY_SIGNAL
from proctor.cli.service_manager import ServiceManager

HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def not_ignored(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """The signals that are not ignored: a parent may have set one to be ignored (`nohup`, a background job of a script)."""
    # to handle an ignored SIGHUP would end a run that nohup was asked to keep
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


_NOTICE_SECONDS = 0.5
_OUTPUT_SECONDS = 1.0


def _nothing() -> None:
    return


@attrs.define
class Interrupts:
    """The signals of one command. `first` is the first one; the work sets `kill` when there is something to kill, and calls
    `manager.ready` when it has started."""

    manager: ServiceManager = attrs.field(factory=lambda: ServiceManager(os.environ))
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    kill: Callable[[], None] = _nothing
    first: signal.Signals | None = None
    _last: trio.CancelScope | None = None

    @property
    def status(self) -> int | None:
        """The exit status for the signal: 130, 143 or 129; None without one."""
        return None if self.first is None else BY_SIGNAL + self.first

    def on_signal(self, number: signal.Signals) -> None:
        """Stop for the first signal."""
        self.first = number
        self.manager.stopping(f"stopping by {number.name}")
        self.scope.cancel(number.name)
        if self._last is not None:
            self.limit_output(self._last)

    def limit_output(self, scope: trio.CancelScope) -> None:
        """Give a slow reader of the last output, which is written in `scope`, one second after an interrupt."""
        self._last = scope
        if self.first is not None:
            # never later than before: a signal calls this again while the output is being written
            scope.deadline = min(scope.deadline, trio.current_time() + _OUTPUT_SECONDS)


Work = Callable[[Interrupts], Awaitable[int]]


async def interruptible(
    work: Work, *, notify: Callable[[str], Awaitable[None]], background: Callable[[], Awaitable[None]]
) -> int:
    """Run `work` and return its exit status, or that of the first signal.

    `notify` shows a message to the user. `background` runs beside the work and is cancelled at its end.
    """
    interrupts = Interrupts()
    async with trio.open_nursery() as nursery:
        # started, not spawned: a signal between the two would still have its default action and kill us
        await nursery.start(_listen, interrupts, notify)
        nursery.start_soon(background)
        nursery.start_soon(interrupts.manager.keep_alive)
        # the work has its own scope for the first signal; this nursery must live on to hear the second
        status = await work(interrupts)
        nursery.cancel_scope.cancel("the command is over")
    return status if interrupts.status is None else interrupts.status


async def _listen(
    interrupts: Interrupts,
    notify: Callable[[str], Awaitable[None]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    # Trio refuses a receiver for no signal
    if not (numbers := not_ignored(*HANDLED_SIGNALS)):
        task_status.started()
        return
    with trio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for number in signals:
            # each further signal kills again: the second may come before there is anything to kill
            if interrupts.first is not None:
                interrupts.kill()
                continue
            interrupts.on_signal(signal.Signals(number))
            # a terminal that does not read must not delay the second signal
            with trio.move_on_after(_NOTICE_SECONDS):
                await notify("stopping; a second signal kills at once")
