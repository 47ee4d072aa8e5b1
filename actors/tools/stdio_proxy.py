"""An MCP server on stdio that passes bytes between a CLI and a Unix socket of the host: `python -I -S STDIO_PROXY SOCKET`.

It ends when either side does. It holds one chunk for each direction; neither direction waits for the other, because a CLI that
writes before it reads would block both. Standard library only: a CLI starts it anew for each session, and `_socket` loads
faster than `socket`.
"""

from __future__ import annotations

import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket

CHUNK = 65536


class Direction:
    """One direction: from a descriptor to another, and the piece that waits between them. None is the end."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.piece: bytes | None = b""

    def waits_for(self) -> tuple[int, int]:
        return (self.target, select.POLLOUT) if self.piece else (self.source, select.POLLIN)

    def move(self) -> None:
        try:
            if self.piece:
                self.piece = self.piece[os.write(self.target, self.piece) :]
            else:
                self.piece = os.read(self.source, CHUNK) or None
        except BlockingIOError:
            pass


def main() -> None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(sys.argv[1])
    except OSError as refusal:
        os.write(2, f"proctor stdio proxy: cannot connect to the host: {refusal}\n".encode())
        os._exit(1)
    try:
        carry(Direction(0, link.fileno()), Direction(link.fileno(), 1))
    except OSError:
        pass  # the reader has gone
    finally:
        # Without clean-up of the interpreter: a CLI waits for the end of its server.
        os._exit(0)


def carry(*ways: Direction) -> None:
    for way in ways:  # a full pipe in one direction must not stop the other
        os.set_blocking(way.target, False)
    while all(way.piece is not None for way in ways):
        poll = select.poll()
        events = [way.waits_for() for way in ways]
        for fd in {fd for fd, _ in events}:
            poll.register(fd, sum(event for other, event in events if other == fd))
        ready = dict(poll.poll())
        for way, (fd, event) in zip(ways, events, strict=True):
            if ready.get(fd, 0) & (event | select.POLLHUP | select.POLLERR):
                way.move()


if __name__ == "__main__":
    main()
