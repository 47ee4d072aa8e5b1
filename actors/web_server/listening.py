"""Where a server listens: an address as people write it, and a socket bound there.

    8321  127.0.0.1:8321  localhost:0  [::1]:8321  0.0.0.0:8321  unix:/run/user/1000/proctor.sock

Guarantees: a name other than `localhost` is refused, because what it stands for can change; nobody but its owner can
connect to a Unix socket of ours at any moment (its mode is set before it listens); the file of a server that died is
taken over, that of one that lives is not, nor any other file; what we bound is removed when the block is left, unless
somebody else has put a socket there meanwhile.

Not here: who may speak there. `Endpoint.private` says whether the system already keeps strangers out.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

import attrs

from proctor.actors.errors import BadOption

LOOPBACK = "127.0.0.1"
ACCEPTED = "PORT, HOST:PORT (an address or localhost), or unix:PATH"
LONGEST_PATH = 107
"""Bytes in the path of a Unix socket; the system's limit."""


@attrs.frozen
class Endpoint:
    """A place to listen: a TCP `host` (an IP address) and `port` (0: any that is free), or the `path` of a Unix socket."""

    host: str = LOOPBACK
    port: int = 0
    path: str | None = None

    @property
    def private(self) -> bool:
        """Nobody on another machine can reach it."""
        return self.path is not None or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str) -> Endpoint:
    """What `text` names. Raises `BadOption` with what is accepted."""
    if text.startswith("unix:"):
        return Endpoint(path=_path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadOption(f"cannot listen on {text!r}: expected {ACCEPTED}, a port from 0 to 65535")
    try:
        return Endpoint(_address(host), int(port))
    except ValueError:
        raise BadOption(f"cannot listen on {text!r}: expected {ACCEPTED}, not a host's name") from None


@contextmanager
def bound(where: Endpoint) -> Generator[socket.socket]:
    """A socket bound to `where`, not listening yet. Closed at the end, and a Unix socket's file removed.

    Raises `BadOption` when somebody listens there already or the system does not let us.
    """
    family = (
        socket.AF_UNIX if where.path is not None else socket.AF_INET6 if ":" in where.host else socket.AF_INET
    )
    with socket.socket(family, socket.SOCK_STREAM) as opened:
        try:
            kept = _bind_file(opened, where.path) if where.path is not None else _bind_port(opened, where)
        except OSError as error:
            raise BadOption(f"cannot listen on {where}: {error.strerror or error}") from error
        try:
            yield opened
        finally:
            if where.path is not None:
                _remove(where.path, kept)


def endpoint_of(opened: socket.socket) -> Endpoint:
    """Where a bound socket listens, the port that the system chose included."""
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
    opened.setsockopt(
        socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
    )  # after a restart: it does not let two listen
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    opened.bind((where.host, where.port))
    return 0


def _bind_file(opened: socket.socket, path: str) -> int:
    """The inode of the file."""
    if _is_left_over(path):
        os.unlink(path)
    opened.bind(path)
    os.chmod(path, 0o600)  # until it listens, nobody gets in whatever its mode
    return os.stat(path).st_ino


def _is_left_over(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file of another kind")
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a server whose backlog is full is one that lives
        return probe.connect_ex(path) == errno.ECONNREFUSED


def _remove(path: str, inode: int) -> None:
    with suppress(OSError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)
