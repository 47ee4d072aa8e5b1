"""`proctor web`: runs a fleet and serves it over HTTP.

Binds the socket, serves (`/readyz` reports that the agents start), starts the agents and sends their prompts. An agent
that cannot start, or is restarted too often, is left out; with `strict` it ends the command.

The first signal stops in order: no new turns, `grace` for running ones, then they are interrupted and the agents stop.
Agents that remain `LAST` seconds after the grace are killed, as all are at the second signal.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
from trio_util import wait_any

from proctor.actors.durations import duration
from proctor.actors.errors import AgentError, OptionFault
from proctor.actors.fleet.fleet import Child, Fleet
from proctor.actors.fleet.schema import AgentTable
from proctor.actors.gateways.http import (
    AuthMiddleware,
    Gateway,
    Hooks,
    SessionTurns,
    application,
    check_listen_address,
)
from proctor.actors.gateways.http.schemas import TurnRequest
from proctor.actors.gateways.http.turns import ask_with_key
from proctor.actors.operations.metrics import Metrics, agents_in
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.plan.plan import Plan
from proctor.actors.process.orphans import track_processes
from proctor.actors.specs import Supervisor, open_supervisor
from proctor.actors.store.backend import StoreError
from proctor.actors.store.sqlite import Store
from proctor.actors.transport.transport import ProcessTransport
from proctor.actors.web_server.listening import Endpoint, bound, endpoint, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.cli.control_server import hooks_of, open_fleet_gateway, serve_gateway
from proctor.cli.control_socket import ControlSocket, control_socket
from proctor.cli.daemon import run_daemon
from proctor.cli.exit_status import FAILED, OK, status_of
from proctor.cli.fleet_run import FleetRun, already_running, open_run, store_path
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.notify import notify
from proctor.cli.parameters import WebOptions
from proctor.cli.recordings import account_book, keep_room, own_socket, state_directory
from proctor.cli.reload import FleetReload, replace
from proctor.cli.start_fleet import agents_of, locate_agents, plans_of, start_children
from proctor.cli.supervisor_log import SupervisorLogger
from proctor.cli.tokens import Token, announce, token_for, token_of
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import WHOLE, one_line
from proctor.cli.ui.verdict import report
from proctor.cli.unavailable import UnavailableAgents
from proctor.cli.words import (
    all_of,
    enter_sessions,
    name_prefix,
    pools_of,
    read_fleet,
    seconds_of,
    sessions_of,
)
from proctor.runtime.errors import MaxRestartsExceeded
from proctor.runtime.exits import DeliveryError

LAST = 0.2
"""Seconds after the grace in which agents may still exit by themselves."""

_log = logging.getLogger("proctor.web")


def web_command(fleet: str, options: WebOptions) -> int:
    """Serve the fleet of this file and return the exit status."""
    return run_daemon(partial(_main, fleet), options)


async def _main(fleet: str, options: WebOptions) -> int:
    errors = Output(2)
    try:
        service = Service(fleet, options, errors)
        # bound before any agent starts: a port in use is found at once and costs nothing
        with bound(service.where) as opened, service.control_socket() as service.control:
            async with track_processes(errors.say):
                return await interruptible(
                    partial(service.run, opened),
                    notify=errors.say,
                    background=partial(keep_room, state_directory()),
                )
    except AgentError as error:
        return await report(error, errors)


class Service:
    """One `proctor web`. Raises `BadOption` before anything starts."""

    def __init__(self, file: str, options: WebOptions, errors: Output) -> None:
        self._options = options
        self._errors = errors
        self._file = Path(file).absolute()
        fleet, self.where, self._token, rooms, self._grace = _checked(file, options)
        self._fleet = fleet if options.strict else fleet.degrading()
        self._unavailable = UnavailableAgents(self._fleet, state_directory())
        self._plans = plans_of(self._fleet, state_directory())
        locate_agents(self._plans.values(), strict=options.strict)
        self._sessioned = _in_sessions(self._plans)
        self._rooms = attrs.evolve(rooms, plans=self._sessioned)
        self._accounts = account_book(self._fleet.name)
        self._store = Store(store_path(self._fleet.name, Path(file)))
        self._supervisor_log = SupervisorLogger(self._fleet, self._unavailable, _log)
        self._metrics = Metrics(agents_in(self._fleet.specs(), self._fleet.name))
        self._reload = FleetReload(
            self._file,
            self._fleet,
            strict=options.strict,
            record=state_directory(),
            on_started=self._on_started,
        )
        self._reload.listeners.append(self._on_reload)
        self._begin: Callable[[AgentTable], None] | None = None
        self._names = self._fleet.names(self._fleet.name)
        self._shutdown = trio.Event()
        self._stopping: float | None = None
        self._late = trio.CancelScope()
        self._kill_tree: Callable[[], None] = self._rooms.kill
        self._status = OK
        self.control = ControlSocket()

    def control_socket(self) -> AbstractContextManager[ControlSocket]:
        """The socket for other terminals, where the fleet is served at another address."""
        if self._options.listen is None:
            return nullcontext(ControlSocket())
        return control_socket(self._fleet.name, self._file)

    async def run(self, opened: socket.socket, interrupts: Interrupts) -> int:
        """Run the server to its end and return the exit status."""
        server = partial(serve, bound=opened, shutdown=self._shutdown, grace=LAST / 2)
        where = self.where if self.where.path is not None else endpoint_of(opened)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            nursery.start_soon(self._kill_late)
            await enter_sessions(stack, self._rooms.sessions, _log)
            stack.enter_context(self._accounts)
            try:
                run = await open_run(self._store, fresh=self._options.fresh)
                tree = open_supervisor((), name=self._fleet.name, store=self._store, **self._fleet.tree())
                async with tree as sup:
                    self._reload.sup = sup
                    self._kill_tree = interrupts.kill = partial(self._kill, sup)
                    await nursery.start(self._metrics.follow, sup)
                    await nursery.start(self._supervisor_log.follow, sup)
                    nursery.start_soon(run.prune_regularly)
                    nursery.start_soon(
                        notify,
                        self._fleet,
                        sup,
                        self._names,
                        self._unavailable.why,
                        lambda: False,
                        self._file,
                    )
                    await self._serve(server, where, sup, run, interrupts)
                await run.finish(interrupts.first)
            except MaxRestartsExceeded as error:
                await self._errors.say(f"{self._fleet.name} gave up: {one_line(str(error))}")
                self._status = FAILED
            except StoreError as error:
                await self._errors.say(already_running(self._fleet.name, error))
                self._status = FAILED
            nursery.cancel_scope.cancel("the fleet has stopped")
        seconds = round(trio.current_time() - (self._stopping or trio.current_time()), 3)
        _tell("server stopped", {"fleet": self._fleet.name, "seconds": seconds})
        return self._status

    async def _serve(
        self,
        server: Callable[..., Any],
        where: Endpoint,
        sup: Supervisor,
        run: FleetRun,
        interrupts: Interrupts,
    ) -> None:
        hooks = self._hooks(sup, interrupts)
        async with (
            open_fleet_gateway(self._fleet, sup, hooks, self._reload) as gateway,
            trio.open_nursery() as serving,
        ):
            gateway.probes.not_ready = "agents are starting"
            app = AuthMiddleware(
                application(gateway), where, token=self._token.value, origins=self._options.origin
            )
            # before the agents start, so that /readyz can report that they do
            await serving.start(partial(server, app))
            if self.control.opened is not None:
                serving.start_soon(serve_gateway, gateway, self.control.opened, self._shutdown)
            if self.control.note:
                await self._errors.say(self.control.note)
            await announce(self._errors, f"serving {self._fleet.name} on {_shown(where)}", self._token)
            if where.path is None:  # no browser opens a Unix socket
                await self._errors.say(f"the web page is {_shown(where)}/{self._token.fragment}")
            _tell("server started", {"fleet": self._fleet.name, "address": _shown(where)})
            with interrupts.scope:
                ready = partial(interrupts.manager.ready, f"{self._fleet.name} is served on {_shown(where)}")
                await self._work(sup, gateway, run, ready)
            self._stopping = now = trio.current_time()
            # set now, so that it also bounds the drain and the stop of the tree
            self._late.deadline = now + self._grace + LAST
            _tell("server stopping", {"fleet": self._fleet.name, "grace": self._grace})
            # before the shutdown: the server must still carry the events of the running turns to their
            # readers
            await gateway.drain(self._grace)
            self._shutdown.set()

    async def _kill_late(self) -> None:
        with self._late:
            await trio.sleep_forever()
        self._kill_tree()

    def _kill(self, sup: Supervisor) -> None:
        # the sessions' runs are outside the tree
        self._rooms.kill()
        sup.ref.kill()

    async def _work(
        self, sup: Supervisor, gateway: Gateway, run: FleetRun, ready: Callable[[], None]
    ) -> None:
        async with trio.open_nursery() as nursery:
            self._begin = lambda member: nursery.start_soon(self._begin_turn, gateway, member, run)
            if await self._start(sup, gateway, run, nursery):
                gateway.probes.not_ready = None
                ready()
                await wait_any(sup.wait_stopped, self._unavailable.wait_unavailable)
            self._begin = None
            nursery.cancel_scope.cancel("nothing is left to be served")
        if self._unavailable.all_unavailable:
            await self._errors.say(f"no agent of {self._fleet.name} is left: {self._unavailable.summary}")
            self._status = self._unavailable.status or FAILED

    async def _start(self, sup: Supervisor, gateway: Gateway, run: FleetRun, nursery: trio.Nursery) -> bool:
        async def conclude(child: Child, cause: Exception | None) -> bool:
            if isinstance(cause, DeliveryError):
                return False
            if cause is None:
                for member in agents_of(child):
                    nursery.start_soon(self._begin_turn, gateway, member, run)
            elif self._options.strict:
                self._status = status_of(cause)
                await self._errors.say(f"{child.name} could not start: {one_line(str(cause), WHOLE)}")
                return False
            else:
                await self._unavailable.leave_out(sup, child, cause, nursery)
            return True

        return await start_children(sup, self._fleet, state_directory(), conclude)

    def _on_reload(self, fleet: Fleet) -> None:
        self._fleet = fleet
        replace(self._names, fleet.names(fleet.name))
        self._unavailable.follow(fleet)
        self._supervisor_log.narrator.follow(fleet)
        for path, labels in agents_in(fleet.specs(), fleet.name).items():
            self._metrics.add(path, labels)
        replace(self._sessioned, _in_sessions(plans_of(fleet, state_directory())))

    def _on_started(self, paths: Sequence[str]) -> None:
        for path, member in self._fleet.members(self._fleet.name):
            if path in paths and self._begin is not None:
                self._begin(member)

    async def _begin_turn(self, gateway: Gateway, member: AgentTable, run: FleetRun) -> None:
        """Send an agent its prompt, as a request of the run."""
        if member.prompt is None:
            return
        agent = gateway.agent(member.name)
        if gateway.hooks.lifecycle is not None and gateway.hooks.lifecycle.is_stopped(member.name):
            with suppress(DeliveryError):
                await agent.until_found()
        request = TurnRequest(prompt=member.prompt, timeout=member.timeout)
        gateway.turns.begin(agent, request, partial(ask_with_key, agent, request, run.key(member.prompt)))

    def _metrics_text(self) -> Callable[[], Awaitable[bytes]] | None:
        if not self._options.metrics:
            return None
        from proctor.actors.operations.prometheus import PrometheusExporter  # loads prometheus_client

        pools = self._rooms.pools.statistics
        return PrometheusExporter(self._metrics, pools=pools, accounts=lambda: self._accounts.expenses).render

    def _hooks(self, sup: Supervisor, interrupts: Interrupts) -> Hooks:
        return attrs.evolve(
            hooks_of(
                self._fleet, sup, self._plans, self._unavailable.why, interrupts, self._file, self._reload
            ),
            alarms={"fleet": self._unavailable.check},
            metrics=self._metrics_text(),
            session_turns=self._rooms,
            log=_tell,
        )


def _in_sessions(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """Those that can run turns in sessions."""
    return {name: plan for name, plan in plans.items() if plan.reach is ProcessTransport}


def _checked(file: str, options: WebOptions) -> tuple[Fleet, Endpoint, Token, SessionTurns, float]:
    """The fleet, and the values of the flags. Raises `BadOption` with every fault of them and of the fleet file."""
    faults = list[OptionFault]()
    fleet = collect_faults(faults, partial(read_fleet, file), None)
    grace = seconds_of("--grace", options.grace, faults, duration)
    where = token = None
    if options.listen is not None:
        where = collect_faults(faults, partial(endpoint, options.listen), None)
    elif fleet is not None:
        where = collect_faults(faults, partial(own_socket, fleet.name), None)
    if where is None:
        collect_faults(faults, partial(token_of, options.token_env), None)
    else:
        token = collect_faults(faults, partial(_token, options, where), None)
    rooms = SessionTurns(
        sessions=sessions_of(options, faults),
        plans={},
        pools=pools_of(options.limit, faults),
        prefix=name_prefix(options),
    )
    if fleet is None or where is None or token is None or faults:
        raise all_of(faults)
    return fleet, where, token, rooms, grace


def _token(options: WebOptions, where: Endpoint) -> Token:
    token = token_for(where, options.token_env, no_token=options.no_token)
    check_listen_address(where, token.value)
    return token


def _tell(what: str, facts: Mapping[str, Any]) -> None:
    words = " ".join(f"{name}={value}" for name, value in facts.items())
    _log.info("%s: %s", what, words, extra={"event": f"http_{what.replace(' ', '_')}", **facts})


def _shown(where: Endpoint) -> str:
    return str(where) if where.path is not None else f"http://{where}"
