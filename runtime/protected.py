"""Async context managers whose entrance and exit a Ctrl-C does not cut in two.

Python handles a signal between any two instructions. Under `trio.run` a SIGINT raises `KeyboardInterrupt` there and then in
code that is not protected, and what `contextlib` runs between the end of a block and the clean-up behind it is not: the
clean-up would never begin. Trio looks up the stack for the nearest frame that says whether it is protected, so one frame
around both protects all that they call.

A SIGINT that comes meanwhile is raised at the next checkpoint of the main task, as in all protected code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

import trio

T = TypeVar("T")
P = ParamSpec("P")


def protected_context(
    function: Callable[P, AsyncGenerator[T, None]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """`contextlib.asynccontextmanager`, protected from SIGINT but for the block inside."""
    manager = asynccontextmanager(function)

    @wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Protected(manager(*args, **kwargs))

    return opened


class _Protected(AbstractAsyncContextManager[T], Generic[T]):
    """`inner`, entered and left under protection."""

    def __init__(self, inner: AbstractAsyncContextManager[T]) -> None:
        self._inner = inner

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)
