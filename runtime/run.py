"""Running a whole program: `trio.run`, with Ctrl-C and SIGTERM as an orderly stop (T5).

The first signal cancels the program's scope, so that the supervisors inside stop their children in order; what it
asks for, `KeyboardInterrupt` or `SystemExit`, is raised bare afterwards. A second signal kills every tree. A third
finds Python's own handlers again.

Not here: a program that already runs Trio and owns its signals.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from proctor.runtime.root import ROOTS

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


def run(main: Callable[[Unpack[Args]], Awaitable[Result]], *args: *Args) -> Result:
    """Run `await main(*args)` under Trio, in the main thread, and return its result.

    Raises `KeyboardInterrupt` after a SIGINT, `SystemExit(143)` after a SIGTERM, else what `main` raises.
    """
    asked: list[int] = []
    results: list[Result] = []

    async def body(scope: trio.CancelScope) -> None:
        with scope:
            results.append(await main(*args))

    trio.run(_supervised, body, asked)
    if asked:
        raise KeyboardInterrupt if asked[0] == signal.SIGINT else SystemExit(128 + asked[0])
    return results[0]


async def _supervised(body: Callable[[trio.CancelScope], Awaitable[None]], asked: list[int]) -> None:
    scope = trio.CancelScope()
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(_heed_signals, scope, asked)
        try:
            await body(scope)
        except Exception as raised:  # noqa: BLE001  # raised again below, outside the nursery's group
            error = raised
        nursery.cancel_scope.cancel(reason="the program ended")
    if error is not None:
        raise error


async def _heed_signals(
    scope: trio.CancelScope, asked: list[int], *, task_status: trio.TaskStatus[None]
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            asked.append(number)
            scope.cancel(reason=signal.Signals(number).name)
            if len(asked) > 1:
                break
    for core in ROOTS.get() or {}:
        core.kill()
