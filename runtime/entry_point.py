"""Running a whole program: `trio.run`, with Ctrl-C and SIGTERM as an orderly stop.

The first signal cancels the program's scope, so that the supervisors inside stop their children in order. The second
kills every tree; since the loop may be held by a child that computes, it also raises `KeyboardInterrupt` in whatever
unprotected code it meets. The third needs no loop at all: it ends the process, by the signal's default action.

Guarantees: an interrupt leaves `run` bare, never in a group: the one that the first signal asks for, else the first
that a task raised. The errors beside it are its cause. The handlers of before are back when `run` returns.

Not here: a program that already runs Trio and owns its signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar, TypeVarTuple, Unpack, cast

import trio

from proctor.runtime.supervision import Interrupt, interrupt_in, kill_roots

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

HANDLED = (signal.SIGTERM, signal.SIGINT)


def run(main: Callable[[Unpack[Args]], Awaitable[Result]], *args: *Args) -> Result:
    """Run `await main(*args)` under Trio, in the main thread, and return its result.

    Raises `KeyboardInterrupt` after a SIGINT and `SystemExit(143)` after a SIGTERM, a `KeyboardInterrupt` or
    `SystemExit` that any task raised, bare, and else what `main` raises.
    """
    # signal.signal would raise too in another thread, but with a text that does not name the way out
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run handles signals, which only the main thread can; use trio.run in another thread"
        )
    signals = Signals()
    results: list[Result] = []

    async def program() -> None:
        # a signal before this one is only in the list; attach then cancels the scope, and main stops at its
        # first checkpoint
        signals.attach()
        with signals.scope:
            results.append(await main(*args))

    with signals.handled():
        try:
            trio.run(program)
        except BaseException as error:
            raised = interrupt_in(error)
            if raised is None:
                raise
            # the first signal decides the status: SIGTERM and then Ctrl-C is still 143
            interrupt = signals.interrupt() or raised
            if interrupt is error:
                raise
            raise interrupt from _beside(error)
    asked = signals.interrupt()
    # main may return normally although it was cancelled; the caller must still see that it was interrupted
    if asked is not None:
        raise asked
    return results[0]


def _beside(error: BaseException) -> BaseException | None:
    whole: object = error
    if not isinstance(whole, BaseExceptionGroup):
        return None
    return cast("BaseExceptionGroup[BaseException]", whole).split((KeyboardInterrupt, SystemExit))[1]


class Signals:
    """The signals that came to one program, and the `scope` in which it runs."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self._arrived: list[int] = []
        self._token: trio.lowlevel.TrioToken | None = None

    def interrupt(self) -> Interrupt | None:
        """The request of the first signal; `None` if none came."""
        if not self._arrived:
            return None
        first = self._arrived[0]
        return KeyboardInterrupt() if first == signal.SIGINT else SystemExit(128 + first)

    def attach(self) -> None:
        """Reach the loop of the current run from now on."""
        self._token = trio.lowlevel.current_trio_token()
        if self._arrived:  # before the loop began
            self._stop()

    @contextmanager
    def handled(self) -> Generator[None, None, None]:
        """Handle them; afterwards the handlers of before do."""
        before = {number: signal.signal(number, self._handle) for number in HANDLED}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: one that Python did not install and cannot put back
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # runs in the main thread between any two instructions, while the loop may be held: nothing here waits
        self._arrived.append(number)
        if len(self._arrived) == 1:
            self._soon(self._stop)
        elif len(self._arrived) == 2:
            # the loop may be held by a child that computes, hence both: kill by the loop, and raise right
            # here
            self._soon(kill_roots)
            # sees the interrupted code through this frame: Trio's own and the runtime's is protected
            if not trio.lowlevel.currently_ki_protected():
                # never inside protected code: Trio's own state would be torn
                raise KeyboardInterrupt
        else:
            for other in HANDLED:
                signal.signal(other, signal.SIG_DFL)
            # by the default action, so that the parent sees the signal as the cause of the end
            signal.raise_signal(number)

    def _soon(self, step: Callable[[], None]) -> None:
        if self._token is not None:
            # the signal came after the loop's end, and there is nothing left to stop
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(step)

    def _stop(self) -> None:
        self.scope.cancel(reason=signal.Signals(self._arrived[0]).name)
