"""Requests to one host over its control socket: HTTP/1.0, a connection each, so a response ends with its connection.

On Trio and the standard library: a client of one machine needs no pool, no proxy and no TLS, and a program that only asks pays for
nothing that serves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

import msgspec
import trio

from proctor.actors.client.problems import error_of
from proctor.actors.client.sockets import ENDING, LOOK, SILENCE, Host, connected, host_at
from proctor.actors.errors import AgentError
from proctor.runtime.error_facts import Fault

T = TypeVar("T")
JSON, STREAM = "application/json", "text/event-stream"
_CHUNK = 65536
_NO_CONTENT = 204


class NoSuchFleet(AgentError, LookupError):
    """No fleet of this name runs under this user, or several do and none was named; `running` are those that do."""

    fault: Fault = "caller"
    http_status = 404
    remedy = "start it with proctor up, or name one that runs"

    def __init__(self, name: str | None, running: Sequence[str]) -> None:
        what = "no fleet" if name is None else f"no fleet {name!r}"
        known = f"; these do: {', '.join(running)}; name one" if running else ""
        super().__init__(
            f"{what} runs under this user{known}"
            if name or not running
            else f"{len(running)} fleets run{known}"
        )
        self.name = name
        self.running = tuple(running)


class HostError(AgentError, ConnectionError):
    """The host of a fleet does not answer, has ended, or is of a version that this program does not understand. What was asked of it may have been
    carried out; a request with a key is asked again with it."""

    fault: Fault = "machine"
    http_status = 503
    remedy = "see with proctor ls what runs, and ask again with the same key"


class Connection:
    """The way to one host, which must answer within `timeout` seconds."""

    def __init__(self, host: Host, timeout: float) -> None:
        self.host = host
        self._timeout = timeout

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        agent: str = "",
    ) -> Any:
        """Send a request and return the record of its response. Raises `HostError`, and the error of the host about `agent`."""
        async with self._response(method, path, body, {"accept": JSON, **(headers or {})}, agent) as response:
            async with self.exchange():
                content = await response.content()
            return self.read(msgspec.json.decode, content)

    @asynccontextmanager
    async def stream(
        self, path: str, decode: Callable[[str, Any], T], agent: str = ""
    ) -> AsyncGenerator[Events[T]]:
        """Follow the events at `path`, of whose kind and data `decode` makes something, until they end in order. Raises as `call` does."""
        async with self._response("GET", path, None, {"accept": STREAM}, agent) as response:
            yield Events(self, response, decode)

    def read(self, decode: Callable[..., T], *record: Any) -> T:
        """Decode what the host sent. Raises `HostError` for what this version does not understand."""
        try:
            return decode(*record)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            text = f"{self.host} sent what cannot be read ({error}): it runs another version of proctor; use the same one here"
            raise HostError(text) from error

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str], agent: str
    ) -> AsyncGenerator[_Response]:
        async with AsyncExitStack() as stack:
            async with self.exchange():
                stream = await stack.enter_async_context(await self._open())
                response = _Response(stream)
                with trio.fail_after(self._timeout):
                    await stream.send_all(_request(method, path, body, headers))
                # a turn may take hours: meanwhile the host has to answer something else
                while not await response.has_come(self._timeout):
                    await self._check_host()
                first = await response.line()
                await response.skip_headers()
                status = self.read(_status_of, first)
                response.is_empty = status == _NO_CONTENT
                if status >= 400:
                    record = self.read(msgspec.json.decode, await response.content())
                    raise self.read(partial(error_of, agent=agent), record)
            yield response

    @asynccontextmanager
    async def exchange(self) -> AsyncGenerator[None]:
        """Raise what goes wrong with the connection as `HostError`."""
        try:
            yield
        except AgentError:  # of the host: some are an OSError as well
            raise
        except (trio.TooSlowError, trio.BrokenResourceError, EOFError, OSError) as error:
            raise await self._failure(error) from error

    async def _check_host(self) -> None:
        with trio.fail_after(self._timeout):
            async with await self._open() as stream:
                await stream.send_all(_request("GET", "/healthz", None, {"accept": JSON}))
                await stream.receive_some(1)

    async def _open(self) -> trio.SocketStream:
        # in a thread: the way to a socket with a long path goes by its folder
        own = await trio.to_thread.run_sync(connected, self.host.path, self._timeout)
        own.setblocking(False)
        return trio.SocketStream(trio.socket.from_stdlib_socket(own))

    async def _failure(self, error: Exception) -> HostError:
        # a full queue of connections (EAGAIN) is a host that accepts none
        if isinstance(error, trio.TooSlowError | TimeoutError | BlockingIOError):
            return HostError(self.host.silent)
        # of a process that is killed some connections close before others
        with trio.move_on_after(ENDING):
            while await self._is_alive():  # noqa: ASYNC110  # of another process
                await trio.sleep(LOOK)
            return HostError(self.host.ended)
        return HostError(self.host.refusing)

    async def _is_alive(self) -> bool:
        found = await trio.to_thread.run_sync(host_at, *os.path.split(self.host.path), abandon_on_cancel=True)
        return found is not None and found.pid == self.host.pid


def _status_of(line: bytes) -> int:
    return int(line.split()[1])


class Events(Generic[T]):
    """The server-sent events of a response; not a generator, which would have to be closed. `id` is that of the last one, None where it had none."""

    def __init__(self, connection: Connection, response: _Response, decode: Callable[[str, Any], T]) -> None:
        self.id: int | None = None
        self._connection = connection
        self._response = response
        self._decode = decode
        self._kind = ""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._response.is_empty:
            async with self._connection.exchange():
                with trio.fail_after(SILENCE):
                    line = await self._response.line()
            field, _, text = line.rstrip(b"\n").partition(b": ")
            if field == b"event":
                self._kind = text.decode()
            elif field == b"id":
                self.id = self._connection.read(int, text)
            elif field == b"data" and self._kind == "end":
                raise StopAsyncIteration
            elif field == b"data":
                data = self._connection.read(msgspec.json.decode, text)
                return self._connection.read(self._decode, self._kind, data)
        raise StopAsyncIteration


class _Response:
    """What comes over one connection. Raises `EOFError` where it ends too early."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._rest = bytearray()
        self._length: int | None = None
        self.is_empty = False
        """Whether it has no content, as that of a log that is read to its end."""

    async def has_come(self, seconds: float) -> bool:
        """Whether something of it comes in so many seconds."""
        with trio.move_on_after(seconds):
            await self._more()
        return bool(self._rest)

    async def line(self) -> bytes:
        """The next line, with its end."""
        start = 0
        while (end := self._rest.find(b"\n", start) + 1) == 0:
            start = len(self._rest)
            await self._more()
        line = bytes(self._rest[:end])
        del self._rest[:end]
        return line

    async def skip_headers(self) -> None:
        """Read its headers."""
        while header := (await self.line()).strip().lower():
            if header.startswith(b"content-length:"):
                self._length = int(header.partition(b":")[2])

    async def content(self) -> bytes:
        """All of it; where it has no length, until its end."""
        try:
            while self._length is None or len(self._rest) < self._length:
                await self._more()
        except EOFError:
            if self._length is not None:
                raise
        return bytes(self._rest)

    async def _more(self) -> None:
        if not (data := await self._stream.receive_some(_CHUNK)):
            raise EOFError("the connection was closed")
        self._rest += data


def _request(method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> bytes:
    data = b"" if body is None else msgspec.json.encode(body)
    own = {"host": "localhost", **headers}
    if body is not None:
        own |= {"content-type": JSON, "content-length": str(len(data))}
    head = "".join(f"{name}: {value}\r\n" for name, value in own.items())
    return f"{method} {path} HTTP/1.0\r\n{head}\r\n".encode() + data
