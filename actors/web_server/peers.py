"""The process at the other end of a Unix socket, and whether it may connect.

Processes of another user are refused, except for root. So are descendants of this process: an agent, and every tool that
an agent runs. Guards are subreapers, so a descendant stays one, whatever it does with its session, group or environment.

Linux only: elsewhere the mode of the socket's file is the protection.
"""

from __future__ import annotations

import os
import socket
import struct

import trio

from proctor.runtime.processes import stat_of

_CREDENTIALS = struct.Struct("3i")
_ANCESTORS = 1000
"""The limit of the search upwards, so that parents which change meanwhile cannot make it endless."""


def refusal(connection: trio.socket.SocketType, host: int | None = None) -> str | None:
    """Why the peer of an accepted connection is refused, None when it may connect.

    Descendants of the process `host` are refused, by default of this one. Connections other than Unix sockets are not checked.
    """
    if (peer := peer_of(connection)) is None:
        return None
    pid, uid = peer
    # Root may connect: it could read our memory anyway.
    if uid not in (0, os.geteuid()):
        return f"process {pid} belongs to user {uid}"
    return (
        f"process {pid} was started by an agent"
        if is_below(pid, os.getpid() if host is None else host)
        else None
    )


def peer_of(connection: socket.socket | trio.socket.SocketType) -> tuple[int, int] | None:
    """The process and the user at the other end of a Unix socket, None where the system does not say it."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid


def is_below(pid: int, ancestor: int) -> bool:
    """Whether `ancestor` has started `pid`, directly or through others. A process is not below itself."""
    for _ in range(_ANCESTORS):
        stat = stat_of(pid)
        # A parent of 1 or less: it has left the tree of this process, or is in another namespace.
        if stat is None or stat.parent <= 1:
            return False
        if stat.parent == ancestor:
            return True
        pid = stat.parent
    return False
