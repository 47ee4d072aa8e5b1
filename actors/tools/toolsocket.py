"""The host's tools on a Unix socket, for one process of a CLI that reaches them by MCP only.

The CLI starts the stdio proxy as an MCP server, which connects here. The socket exists before the CLI starts, is accessible to
this user only, and is removed on every path. Several clients may connect; a client that disconnects withdraws its calls. Reading
never waits for a tool, and each message is written whole.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from proctor.actors.errors import RecordingFailed
from proctor.actors.tools import exec_file, stdio_proxy
from proctor.protocols.dialect import HostTool, Memo
from proctor.protocols.mcp import Server
from proctor.protocols.mcp_host_line import ToolLine
from proctor.protocols.vocabulary import AnyEvent, ToolReturn
from proctor.runtime.processes import make_directory

MAX_SOCKET_PATH = 100
"""Bytes that the path of a socket may have on every system."""
MAX_CLIENTS = 32
"""Clients at a time; one CLI may start the relay more than once."""
TIMEOUT_MARGIN = 30.0
"""Seconds that a CLI waits for a tool beyond the tool's own deadline."""

STDIO_PROXY, EXEC_FILE = (
    (sys.executable, "-I", "-S", str(Path(str(each.__file__)))) for each in (stdio_proxy, exec_file)
)
"""The words that start our programs; a socket, or a file, follows."""

OnEvents = Callable[[list[AnyEvent]], None]


def socket_path(folder: Path, number: int) -> Path:
    """The path of the socket of this incarnation: in its private `folder`, unless the path is too long for that."""
    path = folder / f"tools-{number}"
    short = len(os.fsencode(path)) <= MAX_SOCKET_PATH
    return path if short else Path("/tmp") / f"proctor-{secrets.token_hex(8)}" / "tools"


def proxy_server(path: Path, patience: float) -> Server:
    """The MCP server for the configuration of a CLI; `patience` is the longest deadline of a tool."""
    program, *words = STDIO_PROXY
    return Server(command=program, args=(*words, str(path)), approved=True, timeout=patience + TIMEOUT_MARGIN)


class ToolSocket:
    """`tell` takes the events of all clients; `memo` is the conversation that their calls belong to; `added` names
    arguments as `Dialect.adds` does."""

    def __init__(
        self,
        path: Path,
        tools: Sequence[HostTool],
        memo: Memo,
        tell: OnEvents,
        *,
        added: frozenset[str] = frozenset(),
    ) -> None:
        self._path = path
        self._tools = tools
        self._added = added
        self._memo = memo
        self._tell = tell
        self._clients: list[_Client] = []
        self._seen = 0
        self._listener: trio.SocketListener

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Open the socket for the length of a block; clients that connect wait until `serve`. Raises `RecordingFailed`."""
        own = not self._path.parent.exists()
        at = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await self._bind(at, own_folder=own)
            yield
        finally:
            at.close()
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                if own:
                    self._path.parent.rmdir()

    async def _bind(self, at: trio.socket.SocketType, *, own_folder: bool) -> None:
        try:
            if own_folder:
                make_directory(self._path.parent)
            await at.bind(str(self._path))
            self._path.chmod(0o600)  # before it listens; until then every connect is refused
            at.listen(MAX_CLIENTS)
        except OSError as error:
            raise RecordingFailed(str(self._path), error) from error
        self._listener = trio.SocketListener(at)

    async def serve(self) -> None:
        """Accept clients until cancelled."""
        await trio.serve_listeners(self._attend, [self._listener])

    async def give(self, answer: ToolReturn) -> bool:
        """Write an answer to the client that waits for it; False if none does."""
        for client in self._clients:
            if client.line.holds(answer.id):
                await client.answer(answer)
                return True
        return False

    async def _attend(self, stream: trio.SocketStream) -> None:
        async with stream:
            # The mode of the file keeps other users out; this also holds where the file was replaced.
            if len(self._clients) >= MAX_CLIENTS or not _is_ours(stream):
                return
            self._seen += 1
            line = ToolLine(self._tools, self._memo, f"host.{self._seen}", added=self._added)
            client = _Client(stream, line)
            self._clients.append(client)
            try:
                await client.live(self._tell)
            finally:
                self._clients.remove(client)
                # Its calls are withdrawn: no one waits for their results.
                self._tell(client.line.hang_up())


class _Client:
    def __init__(self, stream: trio.SocketStream, line: ToolLine) -> None:
        self.line = line
        self._stream = stream
        self._writing = trio.StrictFIFOLock()

    async def live(self, tell: OnEvents) -> None:
        # a command line that is killed resets its connection, and then its turn has ended anyway
        with suppress(trio.BrokenResourceError):
            async for chunk in self._stream:
                tell(self.line.receive(bytes(chunk)))
                await self._write(self.line.data_to_send())

    async def answer(self, answer: ToolReturn) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the client is gone
            await self._write(self.line.write(answer))

    async def _write(self, data: bytes) -> None:
        if data:
            # In order and whole: two results must not mix.
            async with self._writing:
                await self._stream.send_all(data)


def _is_ours(stream: trio.SocketStream) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # elsewhere the modes of folder and socket keep other users out
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())
