"""The line of one agent to a server of sessions: requests one way, events and replies the other, as lines of JSON.

Guarantees: the stream of events is open before the first request is made, so that nothing is missed. Requests are
made one after another, in the order of their lines; each gets one line as its reply. When the stream breaks it is
opened again, and a line says that events may have been missed; when it cannot be, the server is lost.

A lost server ends the line with `ServerLost`, but not before the server's successor stands, its host speaks, or
`RETURN` has passed: who is started anew at once would stand before a closed door, and, under the same supervisor,
keep the server itself from being started.

Not here: what the lines mean. Needs the extra `opencode`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import msgspec
import trio

from proctor.actors.errors import BadOption, ServerLost
from proctor.actors.opencode_server.address import Address, GetAddress, client_of
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.protocols.opencode.serve.event_stream import EventStream
from proctor.protocols.opencode.serve.wire import REPLY, RESUBSCRIBED
from proctor.runtime.exits import DeliveryError
from proctor.runtime.messaging import Monitor, Ref, Registry, current_actor

EVENTS = "/event"
ATTEMPTS = (0.1, 0.4, 1.0)
"""Seconds before each attempt to open a broken stream again."""
RETURN = 10.0
"""Seconds for which a lost server's successor is waited for."""


class Request(msgspec.Struct, frozen=True):
    """A line to the server."""

    key: str
    verb: str
    path: str
    query: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()


@asynccontextmanager
async def open_line(server: str, directory: str) -> AsyncGenerator[Peer]:
    """The far end of an agent's conversation, once the events of `directory` are subscribed to.

    Raises `ServerLost` where there is no such server or it does not answer, `BadOption` outside of a tree.
    """
    try:
        registry = current_actor().registry
    except RuntimeError:
        raise BadOption("an agent on a server has its place in a tree, after that server") from None
    ref, address = await _look_up(registry, server)
    async with client_of(address) as client:
        line = _Line(client, directory, _Server(registry, server, ref))
        try:
            await line.subscribe()
            yield line.carry
        except httpx.HTTPError as error:
            raise ServerLost(server, _words(error)) from error
        finally:
            await line.close()


async def _look_up(registry: Registry, server: str) -> tuple[Ref, Address]:
    with trio.move_on_after(RETURN):
        try:
            ref = await registry.wait_out(server)
            return ref, await ref.call(GetAddress(), timeout=RETURN)
        except DeliveryError as error:
            raise ServerLost(server, str(error)) from error
    raise ServerLost(server, f"it did not come back within {RETURN:g} s")


class _Server:
    """One incarnation of a server, and how its successor is waited for."""

    def __init__(self, registry: Registry, name: str, ref: Ref) -> None:
        self.name = name
        self._registry = registry
        self._ref = ref

    async def succeeded(self) -> None:
        with trio.move_on_after(RETURN), Monitor(self._ref, self._ref.find()) as end:
            await end
            with suppress(DeliveryError):
                await self._registry.wait_out(self.name)


class _Line:
    def __init__(self, client: httpx.AsyncClient, directory: str, server: _Server) -> None:
        self._client = client
        self._directory = directory
        self._server = server
        self._stream: httpx.Response | None = None
        self._lost: httpx.HTTPError | None = None

    async def subscribe(self) -> None:
        """Open the stream of events. Raises httpx.HTTPError."""
        request = self._client.build_request("GET", EVENTS, params={"directory": self._directory})
        self._stream = await self._client.send(request, stream=True)
        self._stream.raise_for_status()

    async def close(self) -> None:
        if self._stream is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(1), suppress(httpx.HTTPError):
                await self._stream.aclose()

    async def carry(self, side: PeerStreams) -> int | None:
        """The whole life of the line: until its host has no more to say, or the server is lost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_lost, self._hear, side, nursery.cancel_scope)
            nursery.start_soon(self._until_lost, self._speak, side, nursery.cancel_scope)
        if self._lost is None:
            return None
        await self._await_successor(side)
        raise ServerLost(self._server.name, _words(self._lost))

    async def _until_lost(
        self, go: Callable[[PeerStreams], Any], side: PeerStreams, both: trio.CancelScope
    ) -> None:
        try:
            await go(side)
        except httpx.HTTPError as error:
            self._lost = self._lost or error
        both.cancel("the line has ended")

    async def _speak(self, side: PeerStreams) -> None:
        async for line in side.lines():
            await side.send_all(await self._asked(line))

    async def _asked(self, line: bytes) -> bytes:
        wanted = msgspec.json.decode(line, type=Request)
        content = bytes(wanted.body) or None
        headers = {"content-type": "application/json"} if content else {}
        try:
            reply = await self._client.request(
                wanted.verb, wanted.path, params=wanted.query, content=content, headers=headers
            )
        except httpx.TimeoutException as error:
            return _reply(wanted.key, 504, {"name": "Timeout", "data": {"message": _words(error)}})
        return _reply(wanted.key, reply.status_code, _json(reply))

    async def _hear(self, side: PeerStreams) -> None:
        while True:
            with suppress(httpx.HTTPError):
                await self._pass_on(side)
            await self._subscribe_again()
            await side.send_all(_line({"type": RESUBSCRIBED}))

    async def _pass_on(self, side: PeerStreams) -> None:
        events = EventStream()
        assert self._stream is not None
        async for chunk in self._stream.aiter_raw():
            lines = [data.replace(b"\n", b" ") + b"\n" for data in events.feed(chunk)]
            await side.send_all(b"".join(lines))

    async def _subscribe_again(self) -> None:
        error: httpx.HTTPError | None = None
        for delay in ATTEMPTS:
            await trio.sleep(delay)
            await self.close()
            try:
                return await self.subscribe()
            except httpx.HTTPError as failed:
                error = failed
        assert error is not None
        raise error

    async def _await_successor(self, side: PeerStreams) -> None:
        async def heed() -> None:
            await side.receive_some()
            nursery.cancel_scope.cancel("the host speaks to a server that is lost")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heed)
            await self._server.succeeded()
            nursery.cancel_scope.cancel("the server has a successor")


def _json(reply: httpx.Response) -> Any:
    try:
        return msgspec.json.decode(reply.content) if reply.content else None
    except msgspec.DecodeError:
        return {"name": "NoJSON", "data": {"message": reply.text[:300]}}


def _reply(key: str, status: int, body: Any) -> bytes:
    return _line({"type": REPLY, "request": key, "status": status, "body": body})


def _line(frame: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(frame) + b"\n"


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
