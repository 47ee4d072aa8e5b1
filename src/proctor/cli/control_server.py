"""The gateway of a fleet's host: what every command that runs a fleet serves, on its control socket or elsewhere.

Imported only to serve, because it needs the extra `http`.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.fleet.fleet import Fleet
from proctor.actors.gateways.http import AuthMiddleware, Gateway, Hooks, Lifecycle, application, open_gateway
from proctor.actors.gateways.openai import routes
from proctor.actors.operations.health import AdapterChecks, adapters_of, needs_of
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.serving.completion import CompletionModel
from proctor.actors.serving.in_flight import InFlight
from proctor.actors.specs import Supervisor
from proctor.actors.web_server.listening import endpoint_of
from proctor.actors.web_server.server import serve
from proctor.cli.interrupts import Interrupts

GRACE = 0.1
"""Seconds in which the last responses are sent when the tree has ended."""


def handles_of(fleet: Fleet, sup: Supervisor) -> dict[str, Agent]:
    """The agents of a running fleet, by name."""
    return {member.name: sup.agent(member.name) for _, member in fleet.members("")}


def hooks_of(
    fleet: Fleet,
    sup: Supervisor,
    plans: Mapping[str, Plan],
    absent: Mapping[str, str],
    interrupts: Interrupts,
    file: Path | None,
) -> Hooks:
    """The hooks of the gateway of a running fleet. `plans` are those of its agents; `absent` has why one is left out; both by name. `file` is its fleet file."""
    visits = InFlight()
    models = {name: CompletionModel.make(agent) for name, agent in handles_of(fleet, sup).items()}
    return Hooks(
        checks=AdapterChecks(adapters_of(plans)).by_name(),
        needs=needs_of(plans),
        absent=absent,
        routes=routes(models, visits),
        visits=visits,
        # as the signal: all hosts stop in one way
        file=file,
        shutdown=partial(interrupts.on_signal, signal.SIGTERM),
        lifecycle=Lifecycle(sup, {member.name: path[1:] for path, member in fleet.members("")}),
    )


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
) -> None:
    """Serve a running fleet on its control socket until its tree has ended."""
    plans = {member.name: plan_of(member.spec()) for _, member in fleet.members("")}
    hooks, shutdown = hooks_of(fleet, sup, plans, absent, interrupts, file), trio.Event()
    async with open_gateway(handles_of(fleet, sup), hooks) as gateway, trio.open_nursery() as nursery:
        nursery.start_soon(serve_gateway, gateway, opened, shutdown)
        await sup.wait_stopped()
        await gateway.drain(0.0, "the fleet has ended")
        shutdown.set()
