"""One exercise for three faces: it is a coroutine function, which plain code runs without ever waiting."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import trio

import proctor
from proctor import aio, sync

Exercise = Callable[..., Coroutine[Any, Any, None]]


class Face:
    """How a program of one kind uses the names of its module. `touched` is what it has used."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.touched: set[str] = set()

    @property
    def name(self) -> str:
        return str(self.module.__name__)

    def run(self, exercise: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it as a program of this kind does."""
        if self.module is proctor:
            trio.run(exercise)
        elif self.module is aio:
            with aio.TrioThread():
                asyncio.run(exercise())
        else:
            with sync.TrioThread():
                _run_at_once(exercise())

    def note(self, owner: object, name: str) -> None:
        self.touched.add(name if isinstance(owner, ModuleType) else f"{type(owner).__name__}.{name}")

    def get(self, owner: Any, name: str) -> Any:
        """An attribute."""
        self.note(owner, name)
        return getattr(owner, name)

    async def do(self, owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function, await what is to be awaited, and return its result."""
        found = self.get(owner, name)
        result = found(*args, **kwargs) if callable(found) else found
        return await result if self.module is not sync and inspect.isawaitable(result) else result

    @asynccontextmanager
    async def block(self, owner: Any, name: str, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        """A block that a function gives."""
        async with self.entered(self.get(owner, name)(*args, **kwargs)) as value:
            yield value

    @asynccontextmanager
    async def entered(self, manager: Any) -> AsyncGenerator[Any]:
        """A block."""
        if self.module is not sync and hasattr(manager, "__aenter__"):
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value

    def each(self, items: Any) -> AsyncIterator[Any]:
        """The items of an iterable."""
        self.note(items, "items")
        return _Each(iter(items)) if self.module is sync else aiter(items)

    async def listed(self, items: Any) -> list[Any]:
        return [item async for item in self.each(items)]

    def function(self, function: Callable[..., Any]) -> Any:
        """A plain function as this face wants the caller's own: for Trio and asyncio an async one."""
        if self.module is sync:
            return function

        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            if self.module is proctor:
                await trio.lowlevel.checkpoint()
            else:
                await asyncio.sleep(0)
            return function(*args, **kwargs)

        asynchronous.__name__, asynchronous.__doc__ = function.__name__, function.__doc__
        asynchronous.__annotations__ = function.__annotations__
        asynchronous.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return asynchronous


class _Each:
    """The items of a plain iterator, for `async for`. No generator: one that is left early has to be closed."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __aiter__(self) -> _Each:
        return self

    async def __anext__(self) -> Any:
        for item in self._items:
            return item
        raise StopAsyncIteration


def _run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("plain code cannot wait")
