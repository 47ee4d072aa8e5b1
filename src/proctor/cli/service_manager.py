"""Messages to the service manager that started this process, by the protocol of systemd's `sd_notify`; nothing where none did."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

import trio


class ServiceManager:
    """The service manager named in the environment `environ` (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).

    A message never waits and never fails: a manager that takes none is no reason to stop.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        place = environ.get("NOTIFY_SOCKET", "")
        # "@" begins the name of a socket without a file
        self._address = f"\0{place[1:]}" if place.startswith("@") else place
        self._interval = _watchdog_interval(environ)

    def ready(self, status: str) -> None:
        """The service has started; `status` is what the manager shows of it."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """The service is stopping."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    async def keep_alive(self) -> None:
        """Say that the event loop turns, twice within the time after which the manager would kill it. Returns where it does not ask for that."""
        while self._interval is not None:
            self._send("WATCHDOG=1")
            await trio.sleep(self._interval)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(text.encode(), self._address)


def _watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """Half of the time that the manager gives, in seconds; None where it watches no process, or another one."""
    try:
        limit = int(environ.get("WATCHDOG_USEC", "")) / 1e6
    except ValueError:
        return None
    watched = environ.get("WATCHDOG_PID", str(os.getpid()))
    return limit / 2 if limit > 0 and watched == str(os.getpid()) else None
