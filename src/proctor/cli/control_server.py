"""The gateway of a fleet's host: what every command that runs a fleet serves, on its control socket or elsewhere.

Imported only to serve, because it needs the extra `http`.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.fleet.fleet import Fleet
from proctor.actors.gateways.http import AuthMiddleware, Gateway, Hooks, Lifecycle, application, open_gateway
from proctor.actors.gateways.openai import routes
from proctor.actors.operations.health import AdapterChecks, adapters_of, needs_of
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.completion import CompletionModel
from proctor.actors.serving.in_flight import InFlight
from proctor.actors.specs import Supervisor
from proctor.actors.web_server.listening import endpoint_of
from proctor.actors.web_server.server import serve
from proctor.cli.interrupts import Interrupts
from proctor.cli.reload import FleetReload, replace
from proctor.cli.start_fleet import plans_of

GRACE = 0.1
"""Seconds in which the last responses are sent when the tree has ended."""


def handles_of(fleet: Fleet, sup: Supervisor) -> dict[str, Agent]:
    """The agents of a running fleet, by name."""
    return {name: sup.agent(name) for name in fleet.names("").values()}


def hooks_of(
    fleet: Fleet,
    sup: Supervisor,
    plans: Mapping[str, Plan],
    absent: Mapping[str, str],
    interrupts: Interrupts,
    file: Path | None,
    reload: FleetReload | None,
) -> Hooks:
    """The hooks of the gateway of a running fleet. `plans` are those of its agents; `absent` has why one is left out; both by name. `file` is its fleet file,
    and `reload` reads it again."""
    visits, models, paths = InFlight(), dict[str, CompletionModel](), dict[str, str]()
    checks, needs = AdapterChecks(adapters_of(plans)).by_name(), dict[str, str]()

    def follow(fleet: Fleet, plans: Mapping[str, Plan]) -> None:
        replace(models, {name: CompletionModel.make(agent) for name, agent in handles_of(fleet, sup).items()})
        replace(paths, {name: path[1:] for path, name in fleet.names("").items()})
        # a command line that is new to the host has no check until it starts again
        replace(needs, {name: need for name, need in needs_of(plans).items() if need in checks})

    follow(fleet, plans)
    if reload is not None:
        reload.listeners.append(lambda fleet: follow(fleet, plans_of(fleet)))
    return Hooks(
        checks=checks,
        needs=needs,
        absent=absent,
        routes=routes(models, visits),
        visits=visits,
        file=file,
        # as the signal: all hosts stop in one way
        shutdown=partial(interrupts.on_signal, signal.SIGTERM),
        lifecycle=Lifecycle(sup, paths),
        reload=reload,
    )


@asynccontextmanager
async def open_fleet_gateway(
    fleet: Fleet, sup: Supervisor, hooks: Hooks, reload: FleetReload | None
) -> AsyncGenerator[Gateway]:
    """The gateway of a running fleet, whose agents may change by a reload."""
    agents = handles_of(fleet, sup)
    async with open_gateway(agents, hooks) as gateway:

        def on_change(fleet: Fleet) -> None:
            replace(agents, handles_of(fleet, sup))
            gateway.view.on_reload()

        if reload is not None:
            reload.listeners.append(on_change)
        yield gateway


async def serve_gateway(gateway: Gateway, opened: socket.socket, shutdown: trio.Event) -> None:
    """Serve a gateway on a control socket, whose file only its owner can open, until `shutdown` is set."""
    app = AuthMiddleware(application(gateway), endpoint_of(opened))
    await serve(app, opened, shutdown=shutdown, grace=GRACE)


async def serve_control(
    opened: socket.socket,
    fleet: Fleet,
    sup: Supervisor,
    absent: Mapping[str, str],
    interrupts: Interrupts,
    file: Path | None,
    reload: FleetReload | None,
) -> None:
    """Serve a running fleet on its control socket until its tree has ended."""
    hooks = hooks_of(fleet, sup, plans_of(fleet), absent, interrupts, file, reload)
    shutdown = trio.Event()
    async with open_fleet_gateway(fleet, sup, hooks, reload) as gateway, trio.open_nursery() as nursery:
        nursery.start_soon(serve_gateway, gateway, opened, shutdown)
        await sup.wait_stopped()
        await gateway.drain(0.0, "the fleet has ended")
        shutdown.set()
