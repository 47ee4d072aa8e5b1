"""An opencode server as a supervised actor: one process that many agents share.

It is ready when the process reports its URL. The password is random for each start, and only in the environment of the
process. A stop first ends the server's sessions, then the server. The end of the process ends the actor with the same
reason. A private home outlives the process, because it holds the sessions.

Not here: requests to the server, and the sessions of agents after a restart.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from proctor.actors.errors import BadOption, StartRefused
from proctor.actors.opencode_server.address import DISPOSAL, Address, GetAddress, dispose
from proctor.actors.plan.discovery import OPENCODE, Product, find_program
from proctor.actors.plan.environment import Home, build_environment
from proctor.actors.plan.option_checks import ENVIRONMENT, SECONDS, OptionRule, is_count
from proctor.actors.plan.options import BACKOFF, option_faults
from proctor.actors.transport.transport import ProcessTransport, Start
from proctor.protocols.opencode.serve.launch import USER, address_in, server_command
from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging import Actor, Call, Stop
from proctor.runtime.processes import Command, Step, make_folder
from proctor.runtime.spec import ChildSpec

SHUTDOWN = 10.0
START_TIMEOUT = 60.0
"""Seconds from the start until it listens."""


_ACCEPTED: Mapping[str, OptionRule] = {
    "env": attrs.evolve(ENVIRONMENT, optional=True),
    "port": OptionRule(
        "a number from 0 to 65535 (0: any that is free)",
        lambda value: is_count(value) and 0 <= value <= 65535,
    ),
    "start": SECONDS,
}


@attrs.frozen(kw_only=True)
class Service:
    """The options of a server; see `opencode_server`."""

    product: Product = OPENCODE
    executable: Path | None = None
    cwd: Path | None = None
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=lambda env: repr(sorted(env)))
    home: Home = "user"
    port: int = 0
    start: float = START_TIMEOUT
    shutdown: float = SHUTDOWN


@attrs.frozen
class _ProcessEnded:
    reason: ExitReason


class ServerActor(Actor):
    """The actor of a server, started with a `Service`; replies to `GetAddress`."""

    service: Service
    _address: Address
    _transport: ProcessTransport | None = None

    async def init(self, service: Service) -> None:
        self.service = service
        if "scratch" not in self.kept:
            scratch = self.kept["scratch"] = make_folder("proctor-server-")
            self.kept.when_dropped(lambda: shutil.rmtree(scratch, ignore_errors=True))
        # Out of time, `start` cancels the task, and leaving `connect` kills the process.
        with trio.move_on_after(service.start) as clock:
            self._address = await self.background.start(self._run)
        if clock.cancelled_caught:
            raise self._refusal(f"it did not report its address within {service.start:g} s")

    async def handle_call(self, msg: object, from_: Call) -> object:
        if isinstance(msg, GetAddress):
            return self._address
        return await super().handle_call(msg, from_)

    async def handle_info(self, msg: object) -> Stop | None:
        match msg:
            case _ProcessEnded(reason):
                return Stop(reason)
            case _:
                return None

    async def terminate(self, reason: ExitReason) -> None:
        transport = self._transport
        if transport is None or transport.exit is not None:
            return
        # Before the signal: OpenCode has no handlers, and would leave its tools behind (1.18.33).
        await dispose(self._address)
        grace = max(0.0, self.service.shutdown * 0.9 - DISPOSAL)
        # What is left of `shutdown` after the disposal, so that the kill comes before the supervisor's.
        await transport.stop((Step("terminate", grace), Step("kill")))

    async def _run(self, task_status: trio.TaskStatus[Address]) -> None:
        # For each start: a password from an earlier life must not open a new server.
        password = secrets.token_urlsafe(24)
        self._transport = transport = ProcessTransport(self._start(password))
        stdout, url = b"", None
        async with transport.connect():
            async for chunk in transport.messages():
                # The last 4096 bytes: the line may come in two reads, and output before it is without bound.
                if url is None and (url := address_in(stdout := (stdout + chunk)[-4096:])) is not None:
                    task_status.started(Address(url, USER, password, transport.process.leader_pid))
            reason = await transport.wait()
        if url is None:
            raise self._refusal(f"it ended with {reason} before it listened")
        self.send_info(_ProcessEnded(reason))

    def _start(self, password: str) -> Start:
        service = self.service
        executable = (str(find_program(service.product, service.executable)),)
        launch = server_command(executable, service.env, password, service.port)
        # The launch has the last word: its configuration holds the owner's already.
        named = {name: value for name, value in service.env.items() if name not in launch.env}
        environment = build_environment(
            named, home=service.home, private=self.kept["scratch"], extra=launch.env
        )
        cwd = None if service.cwd is None else str(service.cwd)
        command = Command(launch.argv, environment.variables, cwd, stdin="null")
        return Start(
            command=command, on_stderr=_ignore, marker=f"{self.kept['scratch'].name}/{self.incarnation}"
        )

    def _refusal(self, why: str) -> StartRefused:
        stderr = "" if self._transport is None else self._transport.stderr.decode("utf-8", "replace")
        return StartRefused(self.id, f"{why}; stderr ends {stderr[-300:]!r}", stderr=stderr)


def opencode_server(
    id: str,
    *,
    executable: str | Path | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    home: Home = "user",
    port: int = 0,
    start: float = START_TIMEOUT,
    shutdown: float = SHUTDOWN,
    **spec: Any,
) -> ChildSpec:
    """`opencode serve` as a child, for the agents that name it by `server=id`; put it before them.

    Without `executable` it is searched for; `env` is added to the inherited variables; `home="private"` gives it a home of its
    own, which lives as long as the spec. `port` 0 takes any free port. `start` and `shutdown` are in seconds; `spec` has
    further fields of `ChildSpec`. Raises `BadOption` or `InvalidSpec`.
    """
    options = {"executable": executable, "cwd": cwd, "env": env, "home": home, "port": port, "start": start}
    if faults := list(option_faults(options, _ACCEPTED)):
        raise BadOption("\n".join(f"server {id!r}: {fault}" for fault in faults), faults)
    service = Service(
        executable=None if executable is None else Path(executable),
        cwd=None if cwd is None else Path(os.path.expanduser(cwd)).absolute(),
        env=dict(env or {}),
        home=home,
        port=port,
        start=start,
        shutdown=shutdown,
    )
    chosen: dict[str, Any] = {"name": id, "shutdown": shutdown, "backoff": BACKOFF, **spec}
    return ChildSpec(id, ServerActor, (service,), **chosen)


def _ignore(data: bytes) -> None:
    return
