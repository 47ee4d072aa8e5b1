"""Far ends that behave alike on every transport: each as a program, and as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import trio

from proctor.actors.transport.memory import Peer, PeerStreams, in_memory
from proctor.actors.transport.transport import ProcessTransport, Start, Transport
from proctor.runtime.processes.process import Command
from tests.runtime.programs import ENV, python


@attrs.frozen
class Part:
    """One behaviour: the program's text, and the function."""

    program: str
    function: Peer


async def _echo(side: PeerStreams) -> int | None:
    while chunk := await side.receive_some():
        await side.send_all(chunk)
    return None


async def _after_the_end(side: PeerStreams) -> int | None:
    heard = b""
    while chunk := await side.receive_some():
        heard += chunk
    await side.send_all(b"heard " + heard)
    return None


async def _boom(side: PeerStreams) -> int | None:
    await side.send_all(b"last words\n")
    side.complain(b"boom")
    return 1


async def _silent_but_alive(side: PeerStreams) -> int | None:
    side.end_output()
    while await side.receive_some():
        pass
    return None


async def _first_hears_then_speaks(side: PeerStreams) -> int | None:
    heard = 0
    while heard < 2_000_000:
        heard += len(await side.receive_some())
        await side.send_all(b"x" * 65536)
    side.end_output()
    while await side.receive_some():
        pass
    return None


async def _for_ever(side: PeerStreams) -> int | None:
    await side.send_all(b"up\n")
    await trio.sleep_forever()
    return None


_ECHO = """
import os
while chunk := os.read(0, 65536):
    while chunk:
        chunk = chunk[os.write(1, chunk):]
"""
_PARTS: Mapping[str, Part] = {
    "echo": Part(_ECHO, _echo),
    "after the end": Part(
        "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(b'heard ' + d)", _after_the_end
    ),
    "boom": Part(
        "import os; os.write(1, b'last words\\n'); os.write(2, b'boom'); os._exit(1)",
        _boom,
    ),
    "silent but alive": Part("import os, sys; os.close(1); sys.stdin.read(); os._exit(0)", _silent_but_alive),
    "both at once": Part(
        "import os\nheard = 0\n"
        "while heard < 2_000_000:\n    heard += len(os.read(0, 65536))\n    os.write(1, b'x' * 65536)\n"
        "os.close(1)\nwhile os.read(0, 65536): pass\nos._exit(0)",
        _first_hears_then_speaks,
    ),
    "for ever": Part("import os, time; os.write(1, b'up\\n'); time.sleep(1000)", _for_ever),
}

Make = Callable[[str], Transport]
"""A transport to the far end of this behaviour, not yet connected."""


def by_process(behaviour: str) -> Transport:
    return ProcessTransport(Start(command=python(_PARTS[behaviour].program), on_stderr=_forget))


def by_function(behaviour: str) -> Transport:
    reach = in_memory(_PARTS[behaviour].function, name=behaviour)
    return reach(Start(command=Command(("not", "run"), ENV), on_stderr=_forget))


KINDS: Mapping[str, Make] = {"process": by_process, "function": by_function}


def _forget(data: bytes) -> None:
    return
