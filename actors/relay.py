"""The relay: an MCP server that is a wire, run by a CLI as `python -I -S RELAY SOCKET`.

It copies its stdin to a Unix socket of the host and what comes back to its stdout, byte by byte. It ends when either side
does: with the host's death the kernel closes the socket, with the CLI's the pipe. It holds nothing, so it leaves nothing.

Two directions, two threads: with one, a CLI that writes before it reads would wait for a relay that waits for it.
Standard library only, and little of it: `_socket` and `_thread` are what `socket` and `threading` wrap.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal
    import _socket as socket

PIECE = 65536


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(sys.argv[1])
    except OSError as refusal:
        os.write(2, f"proctor relay: the host does not listen: {refusal}\n".encode())
        os._exit(1)
    _thread.start_new_thread(carry, (link.fileno(), 1))
    carry(0, link.fileno())


def carry(source: int, target: int) -> None:
    try:
        while data := os.read(source, PIECE):
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass  # the other side has gone
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
