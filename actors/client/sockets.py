"""The control sockets of the fleets that run under this user: where they are, and who listens at them.

On the standard library alone, so that a command that needs no more starts at once. Nothing here waits longer than it is given.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

TIMEOUT = 10.0
"""Seconds in which a host must answer."""
SILENCE = 40.0
"""Seconds without a byte after which a stream is given up; its host sends a comment every 15 seconds."""
ENDING = 2.0
"""Seconds in which a host that closes its connections has ended, if it does."""
LOOK = 0.05
"""Seconds between two looks for a socket that is to go."""
SUFFIX = ".sock"
LONGEST_PATH = 107
"""Bytes in the path of a Unix socket; a limit of the system."""
_CREDENTIALS = struct.Struct("3i")


class Host(NamedTuple):
    """A running host: the name of its fleet, its socket and its process."""

    fleet: str
    path: str
    pid: int

    def __str__(self) -> str:
        return f"the host of fleet {self.fleet!r} (process {self.pid})"

    @property
    def silent(self) -> str:
        """The error of a host that does not answer."""
        return (
            f"{self} does not answer: it may be overloaded, or stopped. kill -CONT {self.pid} lets a stopped one go on; "
            f"kill -9 {self.pid} ends it, and the next proctor up continues its run"
        )

    @property
    def ended(self) -> str:
        """The error of a host that is not there any more."""
        return f"{self} has ended; start the fleet again with proctor up"

    @property
    def refusing(self) -> str:
        """The error of a host that closes connections."""
        return f"{self} closed the connection; it refuses the processes that its own agents start"


def running_hosts() -> list[Host]:
    """The hosts that run, by the name of their fleet. A socket of a dead host is left out."""
    return sorted(_hosts_in(*_usual_folders()) or _hosts_in(*_folders_without_home()))


def _usual_folders() -> list[str]:
    """The folders in which hosts of this user put their sockets: with a login session, and without one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return [*([os.path.join(runtime, "proctor")] if runtime else []), os.path.join(state, "proctor", "run")]


def _folders_without_home() -> list[str]:
    import tempfile  # takes a tenth of the time of a command, and is rarely needed

    try:
        return [os.path.join(tempfile.gettempdir(), f"proctor-{os.getuid()}", "run")]
    except FileNotFoundError:  # none can be written, so no host has put a socket there
        return []


def _hosts_in(*folders: str) -> list[Host]:
    found = list[Host]()
    for folder in folders:
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
            found += filter(None, (host_at(folder, name) for name in names))
    return found


def host_at(folder: str, name: str) -> Host | None:
    """The host that listens at a socket of this name; None for that of a dead one."""
    path = os.path.join(folder, name)
    try:
        with connected(path, TIMEOUT) as connection:
            return Host(unquote(name.removesuffix(SUFFIX)), path, _peer_of(connection))
    except OSError:
        return None


def connected(path: str, timeout: float) -> socket.socket:
    """A connection to the socket of a process of this user. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        if len(os.fsencode(path)) <= LONGEST_PATH:
            connection.connect(path)
        else:
            _connect_below(connection, *os.path.split(path))
        _peer_of(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_below(connection: socket.socket, folder: str, name: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _peer_of(connection: socket.socket) -> int:
    """The process at the other end. Raises OSError for one of another user, who would get our prompts."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    facts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int
    pid, uid, _ = _CREDENTIALS.unpack(facts)
    if uid not in (0, os.geteuid()):
        raise PermissionError(f"process {pid} belongs to user {uid}")
    return pid
