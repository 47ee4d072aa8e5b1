"""Shapes of Trio's side that the faces have as blocks, and models of the caller that Trio reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio

from proctor.bridge.proxies import Proxy, unwrapped
from proctor.bridge.trio_thread import TrioThread

P = TypeVar("P", bound=Proxy[Any])
Hosted = Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]


@asynccontextmanager
async def entered(
    make: Callable[..., AbstractContextManager[Any]], *args: Any, **kwargs: Any
) -> AsyncGenerator[Any]:
    """A plain context manager of Trio's side, made and entered there."""
    with make(*args, **kwargs) as value:
        yield value


@asynccontextmanager
async def served(serve: Callable[..., Awaitable[None]]) -> AsyncGenerator[None]:
    """A service of Trio's side that runs until it is cancelled, for the length of a block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        yield
        nursery.cancel_scope.cancel("the block is left")


def as_is(value: Any, thread: TrioThread) -> Any:
    """The value of a block, where that is plain data."""
    return value


def each(kind: type[P], values: tuple[Any, ...], thread: TrioThread) -> tuple[P, ...]:
    """A proxy for each."""
    return tuple(kind.around(value, thread) for value in values)


class HostedModel:
    """A completion model of the caller: its functions run where the caller is, also each step of its stream."""

    def __init__(self, model: Any, hosted: Hosted, reader: Callable[[Any, Any], Any]) -> None:
        self.completion = hosted(model.completion)
        if hasattr(model, "stream"):
            self._open, self._hosted, self._reader = model.stream, hosted, reader
            self.stream = self._stream

    async def _stream(self, request: Any) -> AsyncGenerator[Any]:
        reader = self._reader(self._open, request)
        await self._hosted(reader.open)()
        try:
            while (chunk := await self._hosted(reader.next)()) is not END:
                yield chunk
        finally:
            # Shielded for a moment: the model may hold a connection open, which its loop or thread has to close.
            with trio.move_on_after(CLOSING, shield=True):
                await self._hosted(reader.close)()


CLOSING = 5.0
"""Seconds for a model of the caller to close its stream."""


class End:
    """The end of a stream of the caller."""


END = End()


def provided(
    make: Callable[[Any], Any], hosted: Hosted, reader: Callable[[Any, Any], Any]
) -> Callable[[Any], Any]:
    """The `make` of a provider, for Trio: it gives an agent, a spec, or a model of the caller."""

    def made(context: Any) -> Any:
        model = make(context)
        of_trio = isinstance(model, Proxy) or not hasattr(model, "completion")
        return unwrapped(model) if of_trio else HostedModel(model, hosted, reader)

    return made
