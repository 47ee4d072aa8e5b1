"""The address of a server as users write it, and a socket bound there.

    8321  127.0.0.1:8321  localhost:0  [::1]:8321  0.0.0.0:8321  unix:/run/user/1000/proctor.sock

Host names other than `localhost` are refused, because their address can change. Only its owner can connect to a Unix
socket of ours, at any moment. The file of a dead server is replaced, that of a running one is not, nor is any other file.

Not here: authentication. `Endpoint.private` says whether other machines can connect.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

import attrs

from proctor.actors.errors import BadOption
from proctor.actors.web_server.peers import peer_of

LOOPBACK = "127.0.0.1"
ACCEPTED = "PORT, HOST:PORT (an address or localhost), or unix:PATH"
LONGEST_PATH = 107
"""Bytes in the path of a Unix socket; a limit of the system."""
BACKLOG = 1024


class AddressInUse(BadOption):
    """Another process listens there: `pid`, where the system says it."""

    def __init__(self, where: Endpoint, pid: int) -> None:
        by = f": process {pid} listens there" if pid else ""
        super().__init__(f"cannot listen on {where}: {os.strerror(errno.EADDRINUSE)}{by}")
        self.pid = pid


@attrs.frozen
class Endpoint:
    """An address to listen on: a TCP `host` (an IP address) and `port` (0: any free one), or the `path` of a Unix socket."""

    host: str = LOOPBACK
    port: int = 0
    path: str | None = None

    @property
    def private(self) -> bool:
        """Whether no other machine can reach it."""
        return self.path is not None or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str) -> Endpoint:
    """Parse an address. Raises `BadOption`."""
    if text.startswith("unix:"):
        return Endpoint(path=_path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadOption(f"cannot listen on {text!r}: expected {ACCEPTED}, a port from 0 to 65535")
    try:
        return Endpoint(_address(host), int(port))
    except ValueError:
        raise BadOption(f"cannot listen on {text!r}: expected {ACCEPTED}, not a host name") from None


@contextmanager
def bound(where: Endpoint) -> Generator[socket.socket]:
    """Bind a socket to `where`. It is closed at the end, and the file of a Unix socket removed.

    A Unix socket listens at once, so that no other server takes it for that of a dead one; a port does not listen yet.
    Raises `AddressInUse` for a Unix socket whose server runs, `BadOption` when the system refuses the address.
    """
    family = (
        socket.AF_UNIX if where.path is not None else socket.AF_INET6 if ":" in where.host else socket.AF_INET
    )
    with socket.socket(family, socket.SOCK_STREAM) as opened:
        try:
            inode = (
                _bind_file(opened, where, where.path) if where.path is not None else _bind_port(opened, where)
            )
        except OSError as error:
            raise BadOption(f"cannot listen on {where}: {error.strerror or error}") from error
        try:
            yield opened
        finally:
            if where.path is not None:
                _remove(where.path, inode)


def endpoint_of(opened: socket.socket) -> Endpoint:
    """The address of a bound socket, with the port that the system chose."""
    name = opened.getsockname()
    return Endpoint(path=name) if opened.family == socket.AF_UNIX else Endpoint(name[0], name[1])


def _path(text: str) -> str:
    path = os.path.abspath(os.path.expanduser(text))
    if not text or len(os.fsencode(path)) > LONGEST_PATH:
        raise BadOption(f"cannot listen on 'unix:{text}': expected a path of 1 to {LONGEST_PATH} bytes")
    return path


def _address(host: str) -> str:
    if host in ("", "localhost"):
        return LOOPBACK
    return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]") if host[0] == "[" else host))


def _bind_port(opened: socket.socket, where: Endpoint) -> int:
    # for a bind right after a restart; two servers still cannot listen on one port
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Without it one bind to `::` would also take the port of IPv4.
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    opened.bind((where.host, where.port))
    return 0


def _bind_file(opened: socket.socket, where: Endpoint, path: str) -> int:
    """Bind the socket, and return the inode of its file."""
    # from the look at the old file to the first connection that is possible: else of two servers that start at once each
    # could remove the other's new file
    with _locked(os.path.dirname(path)) as folder:
        if len(os.fsencode(path)) > LONGEST_PATH:
            path = f"/proc/self/fd/{folder}/{os.path.basename(path)}"
        pid = _listener(path)
        if pid is not None:
            raise AddressInUse(where, pid)
        opened.bind(path)
        os.chmod(path, 0o600)  # before it listens; until then every connect is refused
        opened.listen(BACKLOG)
        return os.stat(path).st_ino


@contextmanager
def _locked(folder: str) -> Generator[int]:
    """Open a folder, and lock it if it is ours. That of others, such as /tmp, is not locked: they could keep the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _listener(path: str) -> int | None:
    """The process that listens at `path`, 0 where the system does not say it, None for none. The file of a dead one is removed."""
    try:
        # Never removed: a file of another kind may be anything of the user's.
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "a file of another kind exists there")
    except FileNotFoundError:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a full backlog (EAGAIN) means that a server is running
        failure = probe.connect_ex(path)
        if failure == errno.ECONNREFUSED:
            # A socket file outlives its server; one that refuses connections has none.
            os.unlink(path)
            return None
        peer = None if failure else peer_of(probe)
        return 0 if peer is None else peer[0]


def _remove(path: str, inode: int) -> None:
    # the file may be that of another server by now
    with suppress(OSError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)
