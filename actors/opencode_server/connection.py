"""The connection of one agent to an opencode server: lines of JSON on our side, HTTP and server-sent events on the other.

The event stream is open before the first request, so no event is missed. Requests run one after another, and each gets
one line as its reply. A broken event stream is opened again, and a line says that events may have been missed.

Not here: the meaning of the lines. Needs the extra `opencode`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
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
"""Delays in seconds before the attempts to reopen a broken stream."""
RETURN = 10.0
"""Seconds to wait for the next incarnation of a lost server."""


class Request(msgspec.Struct, frozen=True):
    """A line from the agent: one HTTP request."""

    key: str
    verb: str
    path: str
    query: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()


@asynccontextmanager
async def open_line(server: str, directory: str) -> AsyncGenerator[Peer]:
    """Subscribe to the events of `directory`, and yield the peer of an agent's conversation.

    Raises `ServerLost` when the server does not exist or does not reply, `BadOption` outside a supervision tree.
    """
    try:
        registry = current_actor().registry
    except RuntimeError:
        raise BadOption("an agent on a server must be in a supervision tree, after that server") from None
    ref, address = await _look_up(registry, server)
    async with client_of(address) as client:
        connection = _Connection(client, directory, _Server(registry, server, ref))
        try:
            # The stream is open before the first request, so that no event is missed.
            await connection.subscribe()
            yield connection.carry
        except httpx.HTTPError as error:
            raise ServerLost(server, _text(error)) from error
        finally:
            await connection.close()


async def _look_up(registry: Registry, server: str) -> tuple[Ref, Address]:
    with trio.move_on_after(RETURN):
        try:
            # a server that is restarting right now is worth the wait
            ref = await registry.wait_out(server)
            return ref, await ref.call(GetAddress(), timeout=RETURN)
        except DeliveryError as error:
            raise ServerLost(server, str(error)) from error
    raise ServerLost(server, f"it did not restart within {RETURN:g} s")


class _Server:
    """One incarnation of a server, to wait for the next one."""

    def __init__(self, registry: Registry, name: str, ref: Ref) -> None:
        self.name = name
        self._registry = registry
        self._ref = ref

    async def wait_successor(self) -> None:
        with trio.move_on_after(RETURN), Monitor(self._ref, self._ref.find()) as end:
            await end
            # a server that is given up has no successor, and the agent's own restart then fails with that
            # reason
            with suppress(DeliveryError):
                await self._registry.wait_out(self.name)


class _Connection:
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
            await _close(self._stream)

    async def carry(self, side: PeerStreams) -> int | None:
        """Pass requests and events on until the agent closes its side or the server is lost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_lost, self._receive_events, side, nursery.cancel_scope)
            nursery.start_soon(self._until_lost, self._send_requests, side, nursery.cancel_scope)
        if self._lost is None:
            return None
        # An agent that is restarted before its server stands would fail again at once, and could keep the common supervisor
        # from restarting the server.
        await self._await_successor(side)
        raise ServerLost(self._server.name, _text(self._lost))

    async def _until_lost(
        self, go: Callable[[PeerStreams], Any], side: PeerStreams, both: trio.CancelScope
    ) -> None:
        try:
            await go(side)
        except httpx.HTTPError as error:
            # The first loss is the cause; the other direction fails because of it.
            self._lost = self._lost or error
        # the agent's side is closed or the server is lost: the other direction has no end of its own
        both.cancel("the connection has ended")

    async def _send_requests(self, side: PeerStreams) -> None:
        async for line in side.lines():
            # One after another: the requests of a conversation depend on each other.
            await side.send_all(await self._respond(line))

    async def _respond(self, line: bytes) -> bytes:
        request = msgspec.json.decode(line, type=Request)
        content = bytes(request.body) or None
        headers = {"content-type": "application/json"} if content else {}
        try:
            reply = await self._client.request(
                request.verb, request.path, params=request.query, content=content, headers=headers
            )
        except httpx.TimeoutException as error:
            # Answered as a status: the conversation decides what a lost reply means.
            return _reply(request.key, 504, {"name": "Timeout", "data": {"message": _text(error)}})
        return _reply(request.key, reply.status_code, _json(reply))

    async def _receive_events(self, side: PeerStreams) -> None:
        while True:
            # A broken stream is not the end: what was missed is read again after it is open.
            with suppress(httpx.HTTPError):
                await self._forward(side)
            await self._subscribe_again()
            await side.send_all(_line({"type": RESUBSCRIBED}))

    async def _forward(self, side: PeerStreams) -> None:
        events = EventStream()
        assert self._stream is not None
        async with raw_chunks(self._stream) as chunks:
            async for chunk in chunks:
                # One event a line: newlines within the data are white space of JSON.
                lines = [data.replace(b"\n", b" ") + b"\n" for data in events.feed(chunk)]
                await side.send_all(b"".join(lines))

    async def _subscribe_again(self) -> None:
        error: httpx.HTTPError | None = None
        for delay in ATTEMPTS:
            await trio.sleep(delay)
            # before the new one: two open streams would deliver each event twice
            await self.close()
            try:
                return await self.subscribe()
            except httpx.HTTPError as failed:
                error = failed
        assert error is not None
        raise error

    async def _await_successor(self, side: PeerStreams) -> None:
        async def watch() -> None:
            await side.receive_some()
            # A request for a lost server has to fail now, not after the wait.
            nursery.cancel_scope.cancel("the agent sent a request to a lost server")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await self._server.wait_successor()
            nursery.cancel_scope.cancel("the server has a successor")


@asynccontextmanager
async def raw_chunks(response: httpx.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The body of a response as it arrives. Leaving the block closes the response."""
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        await _close(response)
        # A reader that is cancelled between two chunks leaves five generators of httpx 0.28 and httpcore 1.0, one within the other,
        # and `aclose` of the outer one leaves the others to the garbage collector. Reading on from the closed response ends all.
        with trio.CancelScope(shield=True, relative_deadline=1), suppress(httpx.HTTPError, httpx.StreamError):
            async for _ in chunks:
                pass


async def _close(response: httpx.Response) -> None:
    # Shielded for one second at most: a stream that is left open keeps a connection of the server.
    with trio.CancelScope(shield=True, relative_deadline=1), suppress(httpx.HTTPError):
        await response.aclose()


def _json(reply: httpx.Response) -> Any:
    try:
        return msgspec.json.decode(reply.content) if reply.content else None
    except msgspec.DecodeError:
        return {"name": "NoJSON", "data": {"message": reply.text[:300]}}


def _reply(key: str, status: int, body: Any) -> bytes:
    return _line({"type": REPLY, "request": key, "status": status, "body": body})


def _line(frame: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(frame) + b"\n"


def _text(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
