"""Who is at the other end of a Unix socket, as the kernel tells it, and whether it may come in.

Guarantees: a process of another user is refused, the superuser excepted; so is a process that the host itself has
started, directly or through others: an agent, and any tool that an agent runs. Guards are subreapers, so such a process
has the host above it for as long as it lives, whatever it does with its session, its group or its environment.

Linux. Elsewhere nothing is known of the other end, and the mode of the socket's file is what protects it.
"""

from __future__ import annotations

import os
import socket
import struct

import trio

from proctor.runtime.processes import stat_of

_CREDENTIALS = struct.Struct("3i")
_ANCESTORS = 1000
"""Steps upwards before the search ends: parents that change meanwhile must not make it endless."""


def refusal(connection: trio.socket.SocketType, host: int | None = None) -> str | None:
    """Why the peer of an accepted connection is refused, None when it may come in.

    `host` is the process whose descendants are refused; left out, this one. Nothing but a Unix socket is judged.
    """
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    if uid not in (0, os.geteuid()):
        return f"process {pid} belongs to user {uid}"
    return (
        f"process {pid} was started by an agent"
        if is_below(pid, os.getpid() if host is None else host)
        else None
    )


def is_below(pid: int, ancestor: int) -> bool:
    """Whether `ancestor` has started `pid`, directly or through others. A process is not below itself."""
    for _ in range(_ANCESTORS):
        stat = stat_of(pid)
        if stat is None or stat.parent <= 1:
            return False
        if stat.parent == ancestor:
            return True
        pid = stat.parent
    return False
