"""The control socket of a fleet's host, through which other terminals reach it: the HTTP application on `own_socket(fleet)`.

The host does not depend on it: where it cannot be had, the fleet runs without it, and a line says why. What serves it is imported in a thread while the agents start.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import trio

from proctor.actors.errors import BadOption
from proctor.actors.fleet.fleet import Fleet
from proctor.actors.specs import Supervisor
from proctor.actors.web_server.listening import AddressInUse, bound
from proctor.cli.interrupts import Interrupts
from proctor.cli.recordings import own_socket
from proctor.cli.reload import FleetReload
from proctor.cli.usage_errors import missing_of

SERVER = "proctor.cli.control_server"
"""The module that serves it, which needs the extra `http`."""


@attrs.frozen
class ControlSocket:
    """The bound socket of a host, None where it has none. `note` is what the user should know of it, "" for nothing; `file` is the fleet file of the host."""

    opened: socket.socket | None = None
    note: str = ""
    file: Path | None = None

    async def serve(
        self,
        fleet: Fleet,
        sup: Supervisor,
        interrupts: Interrupts,
        *,
        absent: Mapping[str, str],
        reload: FleetReload | None = None,
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        """Serve the running tree of a fleet until it has ended; a request can interrupt it. `absent` has why an agent is left out, by name; `reload` reads its file again; `notify` shows a
        line to the user."""
        if self.note:
            await notify(self.note)
        if self.opened is None:
            return
        # in a thread: it takes as long as the start of a few agents, which must not wait for it
        server: Any = await trio.to_thread.run_sync(import_module, SERVER, abandon_on_cancel=True)
        await server.serve_control(self.opened, fleet, sup, absent, interrupts, self.file, reload)


@contextmanager
def control_socket(fleet: str, file: Path) -> Generator[ControlSocket]:
    """Bind the control socket of the fleet of this name, which is in `file`, or, where another host has it, one with the number of this process."""
    with ExitStack() as stack:
        try:
            control = _bound(fleet, stack)
        except BadOption as error:
            control = ControlSocket(None, f"no other terminal can reach {fleet}: {error}")
        yield attrs.evolve(control, file=file.absolute())


def _bound(fleet: str, stack: ExitStack) -> ControlSocket:
    if missing := missing_of("http"):
        raise BadOption(missing)
    try:
        return ControlSocket(stack.enter_context(bound(own_socket(fleet))))
    except AddressInUse as error:
        name = f"{fleet}-{os.getpid()}"
        by = f"process {error.pid}" if error.pid else "another process"
        note = f"{by} runs a fleet of that name: this one is reached as {name}"
        return ControlSocket(stack.enter_context(bound(own_socket(name))), note)
