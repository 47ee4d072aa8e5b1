"""`proctor serve`: serves agents as MCP tools, over stdio or HTTP.

Finds the command lines, starts the fleet, makes the tools and serves them. Agents that are not available are left out;
the log and the server's instructions give the reason. stdout carries the protocol alone.

It ends when stdin closes or a signal arrives: running calls are cancelled and answered, and their agents stopped. What
remains after `PATIENCE` is killed, because clients wait four seconds in all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from proctor.actors.errors import AgentError, BadOption, OptionFault
from proctor.actors.fleet.fleet import Fleet
from proctor.actors.gateways.mcp.server import GRACE, ToolsetServer
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.operations.health import AdapterChecks, Readiness, adapters_of, agent_problems, needs_of
from proctor.actors.operations.metrics import Metrics, agents_in
from proctor.actors.plan.environment import parse_env
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.process.orphans import track_processes
from proctor.actors.serving.agent_tools import Terms
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.serving.toolset import ServedTool, Toolset
from proctor.actors.specs import open_supervisor
from proctor.actors.tools.tools import Tool
from proctor.actors.web_server.listening import endpoint
from proctor.cli.agent_kinds import checked_plan
from proctor.cli.control_socket import ControlSocket, control_socket
from proctor.cli.daemon import run_daemon
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.notify import notify
from proctor.cli.parameters import ServeOptions, listed
from proctor.cli.recordings import account_book, keep_room, record_folder
from proctor.cli.reload import FleetReload, replace
from proctor.cli.submission_tools import SUBMISSION_TOOLS, Submissions, read_schema, submission_tools
from proctor.cli.supervisor_log import SupervisorLogger
from proctor.cli.tokens import protect_memory, token_for, token_of
from proctor.cli.tools import ONE_SHOT, OfferedTools
from proctor.cli.ui.output import Output
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

if TYPE_CHECKING:
    from proctor.actors.gateways.http import Check
    from proctor.cli.http_server import Health, HttpServer

SUBMITTING = "Submit an answer that matches the schema with submit; validate checks one, example shows one."
PATIENCE = GRACE / 2
"""Seconds from the stop until the remaining processes are killed."""

_log = logging.getLogger("proctor.serve")


def serve_command(options: ServeOptions) -> int:
    """Serve to the end and return the exit status."""
    return run_daemon(_main, options)


async def _main(options: ServeOptions) -> int:
    try:
        service = Service(options)
    except AgentError as error:
        return await report(error, Output(2))
    return await interruptible(
        service.run, notify=_log_message, background=partial(keep_room, service.record)
    )


async def _log_message(text: str) -> None:
    _log.info("%s", text)


class Service:
    """One `proctor serve`. Raises `BadOption` with all that is wrong with the words and the files, before anything starts."""

    def __init__(self, options: ServeOptions) -> None:
        self.record = record_folder(options)
        named_others = options.fleet is not None or options.schema is not None
        self._agents = listed(options.agents) or (() if named_others else ONE_SHOT)
        faults = list[OptionFault]()
        self._client_ttl = seconds_of("--client-ttl", options.client_ttl, faults)
        self._http_server = collect_faults(faults, partial(_http_server_of, options), None)
        self._probes = collect_faults(faults, partial(_probes, options), None)
        fleet = (
            None
            if options.fleet is None
            else collect_faults(faults, partial(read_fleet, options.fleet), None)
        )
        self._fleet = None if fleet is None else fleet.degrading()
        self._file = None if options.fleet is None else Path(options.fleet)
        self._terms = _terms(options, self.record, faults)
        self._submissions, submitting = _submissions(options, faults)
        for agent in self._agents:
            collect_faults(faults, partial(checked_plan, agent, self._terms.options), None)
        if faults:
            if self._submissions is not None:
                self._submissions.close()
            raise all_of(faults)
        _log.info("looking for %s", ", ".join(self._agents) or "the fleet only")
        self._offer = OfferedTools()
        self._offer.add_one_shot_tools(self._agents, self._terms)
        self._offer.tools.extend(map(ServedTool.of, submitting))
        self._unavailable = None if self._fleet is None else UnavailableAgents(self._fleet, self.record)
        self._accounts = AccountBook() if self._fleet is None else account_book(self._fleet.name)
        self._metrics = _metrics(options, self._fleet)
        self._toolset: Toolset | None = None
        self._reload = (
            None if self._fleet is None or self._file is None else self._reload_of(self._fleet, self._file)
        )
        self._names = {} if self._fleet is None else self._fleet.names(self._fleet.name)
        self._supervisor_log: SupervisorLogger | None = None
        self._shutdown = trio.Event()
        self._kill_tree: Callable[[], None] | None = None
        self._status = OK
        self._control, self._interrupts = ControlSocket(), Interrupts()

    async def run(self, interrupts: Interrupts) -> int:
        """Run the server to its end and return the exit status."""
        with self._control_socket() as self._control:
            return await self._run(interrupts)

    async def _run(self, interrupts: Interrupts) -> int:
        interrupts.kill, self._interrupts = self._kill, interrupts
        # before the agents of the fleet start: their tools could read the token out of this process
        if any(
            server is not None and server.token.value is not None
            for server in (self._http_server, self._probes)
        ):
            protect_memory()
        async with trio.open_nursery() as nursery:
            # outside the stack: the shutdown must be seen while the fleet is starting, too
            nursery.start_soon(self._listen, interrupts)
            nursery.start_soon(self._hurry)
            try:
                async with track_processes(_log_message), AsyncExitStack() as stack:
                    await enter_sessions(stack, self._terms.sessions, _log)
                    stack.enter_context(self._accounts)
                    await (self._serve() if self._fleet is None else self._with(self._fleet, nursery))
            except AgentError as error:
                self._status = await report(error, Output(2))
            nursery.cancel_scope.cancel("nothing is served any more")
            if self._submissions is not None:
                self._submissions.close()
        _log.info("stopped")
        return self._status

    def _control_socket(self) -> AbstractContextManager[ControlSocket]:
        # a client starts one of these for each of its conversations, so several of one fleet are no mistake
        if self._fleet is None or self._file is None:
            return nullcontext(ControlSocket())
        return control_socket(self._fleet.name, self._file)

    async def _listen(self, interrupts: Interrupts) -> None:
        with interrupts.scope:
            await trio.sleep_forever()
        self._shutdown.set()

    async def _hurry(self) -> None:
        await self._shutdown.wait()
        await trio.sleep(PATIENCE)
        self._kill()

    def _kill(self) -> None:
        # runs of one-shot tools are no part of the tree, so its kill does not reach them
        for run in self._terms.live:
            run.kill()
        if self._kill_tree is not None:
            self._kill_tree()

    # -- the fleet

    async def _with(self, fleet: Fleet, around: trio.Nursery) -> None:
        try:
            async with open_supervisor((), name=fleet.name, **fleet.tree()) as supervisor:
                self._kill_tree = supervisor.ref.kill
                if self._metrics is not None:
                    await around.start(self._metrics.follow, supervisor)
                if self._unavailable is not None and self._reload is not None:
                    self._reload.sup = supervisor
                    self._supervisor_log = SupervisorLogger(fleet, self._unavailable, _log)
                    await around.start(self._supervisor_log.follow, supervisor)
                    absent, reload = self._unavailable.why, self._reload
                    serve = partial(
                        self._control.serve,
                        fleet,
                        supervisor,
                        self._interrupts,
                        absent=absent,
                        reload=reload,
                        notify=_log_message,
                    )
                    around.start_soon(serve)
                    around.start_soon(
                        notify, fleet, supervisor, self._names, absent, lambda: False, reload.file
                    )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._until_shutdown, nursery.cancel_scope)
                    await self._offer.add_fleet_tools(supervisor, fleet, self._terms, self.record)
                    # from here on the server itself ends at the shutdown, and cancels its calls in its own
                    # order
                    nursery.cancel_scope.cancel("the fleet has started")
                await self._serve()
        except MaxRestartsExceeded as error:
            await Output(2).say(f"{fleet.name} gave up: {error.message}")
            self._status = FAILED

    def _reload_of(self, fleet: Fleet, file: Path) -> FleetReload:
        reload = FleetReload(
            file.absolute(),
            fleet,
            strict=False,
            record=self.record,
            on_started=self._on_started,
        )
        reload.listeners.append(self._on_reload)
        return reload

    def _on_reload(self, fleet: Fleet) -> None:
        self._fleet = fleet
        replace(self._names, fleet.names(fleet.name))
        if self._unavailable is not None:
            self._unavailable.follow(fleet)
        if self._supervisor_log is not None:
            self._supervisor_log.narrator.follow(fleet)
        if self._metrics is not None:
            for path, labels in agents_in(fleet.specs(), fleet.name).items():
                self._metrics.add(path, labels)

    def _on_started(self, paths: Sequence[str]) -> None:
        """Offer the agents of the file that was read again."""
        if self._fleet is None or self._reload is None or self._reload.sup is None:
            return
        started = {self._names[path] for path in paths}
        self._offer.follow(self._reload.sup, self._fleet, self._terms, self.record, started)
        if self._toolset is None:  # the fleet still starts
            return
        try:
            self._toolset.replace(self._offer.tools)
        except BadOption as error:
            _log.warning("the tools stay as they were: %s", error)
        _log.info("offers %s", ", ".join(tool.name for tool in self._toolset.tools) or "nothing")

    async def _until_shutdown(self, scope: trio.CancelScope) -> None:
        await self._shutdown.wait()
        scope.cancel("a signal came while the fleet started")

    # -- serving

    async def _serve(self) -> None:
        self._toolset = toolset = Toolset(self._offer.tools)
        _log.info("offers %s", ", ".join(tool.name for tool in toolset.tools) or "nothing")
        make = partial(
            ToolsetServer,
            "proctor",
            toolset,
            version=version("proctor"),
            instructions=self._instructions(),
            shutdown=self._shutdown,
            idle=self._client_ttl,
            changes=self._reload is not None,
        )
        if self._http_server is not None:
            await self._http_server.serve(make, self._health(toolset))
            return
        async with trio.open_nursery() as nursery:
            if self._probes is not None:
                await nursery.start(self._probes.serve_probes, self._health(toolset))
            _log.info("serves stdin and stdout")
            await make().serve_stdio()
            nursery.cancel_scope.cancel("nothing is served any more")

    def _health(self, toolset: Toolset) -> Health:
        from proctor.cli.http_server import Health  # needs the extra http

        checks = AdapterChecks(adapters_of(self._offer.plans)).by_name()
        alarms: dict[str, Check] = {"agents": partial(agent_problems, self._offer.agents)}
        if self._unavailable is not None:
            alarms["fleet"] = self._unavailable.check
        absent = {} if self._unavailable is None else self._unavailable.why
        can_answer = Readiness(self._offer.agents, needs_of(self._offer.plans), absent).check
        return Health(checks, alarms, can_answer, self._gather(toolset), self._shutdown)

    def _gather(self, toolset: Toolset) -> Callable[[], Awaitable[bytes]] | None:
        if self._metrics is None:
            return None
        from proctor.actors.operations.prometheus import PrometheusExporter  # needs the extra metrics

        pools = self._terms.pools.statistics
        return PrometheusExporter(
            self._metrics, lambda: toolset.counts, pools, lambda: self._accounts.expenses
        ).render

    def _instructions(self) -> str:
        names = ", ".join(tool.name for tool in self._offer.tools if tool.name not in SUBMISSION_TOOLS)
        lines = [] if self._submissions is None else [SUBMITTING]
        if names:
            lines += [
                f"Coding agents as tools: {names}.",
                f"They may work in these folders and below: {self._terms.roots}.",
            ]
        elif not lines:
            lines.append("No coding agent is available.")
        return "\n".join([*lines, *(f"Not available: {line}" for line in self._offer.absent)])


def _http_server_of(options: ServeOptions) -> HttpServer | None:
    if options.http is not None:
        return _http_server_at(options.http, options)
    # checked without HTTP too, so that a bad variable is reported with the other faults
    token_of(options.token_env)
    if options.metrics and options.probes is None:
        raise BadOption("--metrics needs an address: use --http, or --probes with stdio")
    return None


def _probes(options: ServeOptions) -> HttpServer | None:
    if options.probes is None:
        return None
    if options.http is not None:
        raise BadOption("--probes is for a server over stdio; --http serves the same routes beside /mcp")
    return _http_server_at(options.probes, options)


def _http_server_at(address: str, options: ServeOptions) -> HttpServer:
    from proctor.cli.http_server import HttpServer  # needs the extra http

    where = endpoint(address)
    return HttpServer(where, token_for(where, options.token_env, no_token=options.no_token))


def _submissions(
    options: ServeOptions, faults: list[OptionFault]
) -> tuple[Submissions | None, tuple[Tool, ...]]:
    """The file of answers, and the tools that fill it."""
    if options.schema is None or options.submit_to is None:
        if (options.schema, options.submit_to) != (None, None):
            text = "--schema and --submit-to must be used together: the schema of the answers, and the file for them"
            faults.append(OptionFault("", text))
        return None, ()
    schema = collect_faults(faults, partial(read_schema, options.schema), None)
    submissions = collect_faults(faults, partial(Submissions.opened, options.submit_to), None)
    if schema is None or submissions is None:
        return submissions, ()
    return submissions, collect_faults(faults, partial(submission_tools, schema, submissions), ())


def _metrics(options: ServeOptions, fleet: Fleet | None) -> Metrics | None:
    if not options.metrics:
        return None
    return Metrics({} if fleet is None else agents_in(fleet.specs(), fleet.name))


def _terms(options: ServeOptions, record: Path | None, faults: list[OptionFault]) -> Terms:
    here = (Path.cwd(),)
    return Terms(
        roots=collect_faults(faults, lambda: AllowedDirs(options.root or here), None) or AllowedDirs(here),
        pools=pools_of(options.limit, faults),
        sessions=sessions_of(options, faults),
        prefix=name_prefix(options),
        options={
            "env": collect_faults(faults, lambda: parse_env(options.env, os.environ), {}),
            "record": record,
            "permission": options.permission,
        },
        timeout=seconds_of("--timeout", options.timeout, faults),
    )
