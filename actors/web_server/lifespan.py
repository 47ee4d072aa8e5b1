"""The startup and the shutdown of an ASGI application, around what serves it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from proctor.actors.web_server.exchange import Application, Message

START_TIMEOUT = 60.0


class LifespanError(RuntimeError):
    """An application cannot start, or did not end in order; the text says why."""


@asynccontextmanager
async def lifespan(application: Application, state: dict[str, Any], grace: float) -> AsyncGenerator[None]:
    """A block for the serving of an application, which has started; behind it the application has `grace` seconds to end. `state` is what it puts
    there for its requests. An application without a lifespan is served as it is. Raises `LifespanError`, and TooSlowError when the start takes longer
    than a minute."""
    orders, incoming = trio.open_memory_channel[Message](2)
    started, ended = trio.Event(), trio.Event()
    failures = list[str]()

    async def send(message: Message) -> None:
        kind = message["type"]
        if kind.endswith(".failed"):
            failures.append(message.get("message", ""))
        (started if kind.startswith("lifespan.startup") else ended).set()
        await trio.lowlevel.checkpoint()

    async def live() -> None:
        scope: Message = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }
        try:
            await application(scope, incoming.receive, send)
        except Exception:
            # before its start: it has no lifespan
            if started.is_set() and not failures:
                raise
        finally:
            started.set()
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await orders.send({"type": "lifespan.startup"})
        with trio.fail_after(START_TIMEOUT):
            await started.wait()
        _check("start", failures)
        yield
        await orders.send({"type": "lifespan.shutdown"})
        # An application whose shutdown hangs must not keep the server from its end.
        with trio.move_on_after(grace):
            await ended.wait()
        nursery.cancel_scope.cancel("the server has stopped")
    _check("end in order", failures)


def _check(what: str, failures: list[str]) -> None:
    if failures:
        raise LifespanError(f"the application could not {what}: {failures[0]}")
