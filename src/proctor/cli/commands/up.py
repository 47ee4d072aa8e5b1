"""`proctor up`: runs a fleet in the foreground.

Starts the children and sends each agent its prompt once it is ready. A run that was cut short is continued. A child that cannot start, or is
restarted too often, is left out; with `strict` it ends the command. The command ends when every prompt is answered, and every request that
came from elsewhere, and no agent is without a prompt; when no agent is left, when the root ends, or at a signal. Then the tree is stopped in order.

A reader of the output that has gone stops the fleet; a slow one does not delay it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from rich.console import ConsoleDimensions, RenderableType
from rich.text import Text

from proctor.actors.agent.states import Status
from proctor.actors.agent.stored_requests import current_requests
from proctor.actors.errors import AgentError
from proctor.actors.fleet.fleet import Child, Fleet, load_fleet
from proctor.actors.plan.plan import plan_of
from proctor.actors.process.orphans import track_processes
from proctor.actors.specs import Supervisor, open_supervisor
from proctor.actors.store.backend import StoreError
from proctor.actors.store.sqlite import Store
from proctor.cli.control_socket import ControlSocket, control_socket
from proctor.cli.exit_status import FAILED, OK, STDOUT_GONE, status_of
from proctor.cli.fleet_run import FleetRun, already_running, open_run, store_path
from proctor.cli.follower import BUFFER, FleetFollower
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.notify import notify
from proctor.cli.recordings import account_book, keep_room, state_directory
from proctor.cli.reload import FleetReload, replace
from proctor.cli.start_fleet import agents_of, is_stopped, locate_agents, start_children
from proctor.cli.ui.display import JsonDisplay, LineDisplay, LiveDisplay, TimedLine
from proctor.cli.ui.fleet_log import FleetNarrator, Line, describe_exit
from proctor.cli.ui.fleet_table import answers, live_table, result_record, summary
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, one_line
from proctor.cli.ui.verdict import report
from proctor.cli.unavailable import UnavailableAgents
from proctor.protocols.vocabulary import AnyEvent
from proctor.runtime.errors import ActorExited, CallTimeout, MaxRestartsExceeded
from proctor.runtime.events import SupervisorEvent
from proctor.runtime.exits import DeliveryError, is_clean
from proctor.runtime.processes import shortage_of

_LOOK, _LOOK_SELDOM = 0.25, 2.0
"""Seconds between two looks at the agents: for the picture, and for where their recordings are."""
_AT_AN_END = ("failed", "stopped", "done")
"""The states of an agent that begins no turn any more."""
_LAST_ENDS = 5.0
"""Seconds after the end of the root in which prompts come to their ends."""
_CAUSES = 3


def up_command(fleet: str, *, strict: bool = False, fresh: bool = False, json: bool = False) -> int:
    """Run the fleet of this file and return the exit status."""
    return trio.run(_main, Path(fleet), strict, fresh, json)


async def _main(path: Path, strict: bool, fresh: bool, json: bool) -> int:
    errors = Output(2)
    try:
        fleet = load_fleet(path)
        locate_agents((plan_of(member.spec()) for _, member in fleet.members("")), strict=strict)
        run = await open_run(Store(store_path(fleet.name, path)), fresh=fresh)
    except StoreError as error:
        await errors.say(already_running(str(path), error))
        return FAILED
    except AgentError as error:
        return await report(error, errors)
    record, fleet = state_directory(), fleet if strict else fleet.degrading()
    with control_socket(fleet.name, path) as control:
        async with track_processes(errors.say):
            command = Command(path, fleet, run, record, control, errors, strict=strict, json=json)
            return await interruptible(
                command.run, notify=command.show_message, background=partial(keep_room, record)
            )


class Command:
    """One `proctor up` of a fleet in `file`. `record` is the default folder for recordings."""

    def __init__(
        self,
        file: Path,
        fleet: Fleet,
        run: FleetRun,
        record: Path,
        control: ControlSocket,
        errors: Output,
        *,
        strict: bool = False,
        json: bool = False,
    ) -> None:
        self._fleet = fleet
        self._run = run
        self._control = control
        self._strict = strict
        self._unavailable = UnavailableAgents(fleet, record)
        self._record = record
        self._errors = errors
        self._narrator = FleetNarrator.of_fleet(fleet, trio.current_time, time.time)
        self._members = dict(fleet.members(fleet.name))
        self._names = names = fleet.names(fleet.name)
        self._reload = FleetReload(
            file.absolute(), fleet, strict=strict, record=record, on_started=self._on_started
        )
        self._reload.listeners.append(self._on_reload)
        self._asking: trio.Nursery | None = None
        self._prompt_ended = trio.Event()
        self._follower = FleetFollower(
            self._narrator, names, self._show_line, self._on_tree_event, self._on_agent_events
        )
        self._statuses: dict[str, Status] = {}
        self._sup: Supervisor | None = None
        self._messages: list[str] = []
        self._status: int | None = None
        out, width = Output(1), max(len(path) - len(fleet.name) - 1 for path in (*names, *_servers(fleet)))
        self._display = JsonDisplay(out) if json else self._display_for_a_person(out, width)

    async def run(self, interrupts: Interrupts) -> int:
        """Run the fleet to its end and return the exit status."""
        async with trio.open_nursery() as showing:
            showing.start_soon(self._show, interrupts)
            async with trio.open_nursery() as following:
                await self._tree(following, interrupts)
            # after the follower has ended: the last lines of the agents stand before the summary
            self._close_display()
            # only now: while the fleet runs, a slow reader delays nothing
            interrupts.limit_output(showing.cancel_scope)
        for message in self._messages:
            await self._errors.say(message)
        return self._result() if self._status is None else self._status

    async def show_message(self, text: str) -> None:
        """Show a message to the user at once."""
        if isinstance(self._display, LiveDisplay):
            self._show_line(self._narrator.note(text))
        else:
            await self._errors.say(text)

    def _result(self) -> int:
        answers = [
            self._narrator.agents[path].answer for path, m in self._members.items() if m.prompt is not None
        ]
        return OK if all(answer is not None and answer.ok for answer in answers) else FAILED

    # -- the tree

    async def _tree(self, following: trio.Nursery, interrupts: Interrupts) -> None:
        fleet = self._fleet
        try:
            with interrupts.scope, account_book(fleet.name):
                tree = open_supervisor((), name=fleet.name, store=self._run.store, **fleet.tree())
                async with tree as sup:
                    self._sup = self._reload.sup = sup
                    interrupts.kill = sup.ref.kill
                    # subscribed here, in the caller's task, so that the first start is not missed; it ends
                    # with the tree, in an outer nursery
                    following.start_soon(self._follower.follow, sup, sup.events(BUFFER))
                    # in the outer nursery too: it answers while the tree stops
                    following.start_soon(self._serve_control, sup, interrupts)
                    following.start_soon(self._notify, sup, interrupts)
                    await self._conduct(sup, partial(interrupts.manager.ready, f"{fleet.name} runs"))
            await self._run.finish(interrupts.first)
        except MaxRestartsExceeded as error:
            self._fail(f"{fleet.name} gave up: {_why(error, self._narrator.gave_up)}", FAILED)
        except StoreError as error:
            self._fail(str(error), FAILED)

    async def _conduct(self, sup: Supervisor, ready: Callable[[], None]) -> None:
        if self._run.is_continued:
            text = f"continues the run of {self._run.begun}; --fresh begins anew"
            self._show_line(self._narrator.note(text))
        idling = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_ended, sup, idling, nursery.cancel_scope)
            nursery.start_soon(self._look, sup)
            nursery.start_soon(self._run.prune_regularly)
            async with trio.open_nursery() as asking:
                self._asking = asking
                if not await self._start(sup, asking, nursery):
                    asking.cancel_scope.cancel("a child did not start")
                else:
                    ready()
                with idling:
                    await self._unavailable.wait_unavailable(
                        m.name for m in self._members.values() if m.prompt is None
                    )
                asking.start_soon(self._until_no_work, sup, asking)
            self._asking = None
            nursery.cancel_scope.cancel("there is nothing left to wait for")
        await self._look_once(sup)
        if self._unavailable.all_unavailable:
            text = f"no agent of {self._fleet.name} is left: {self._unavailable.summary}"
            self._fail(text, self._unavailable.status or FAILED)
        else:
            for name, why in sorted(self._unavailable.why.items()):
                self._fail(f"{name}: {why}", FAILED)
        if sup.ref.is_alive():
            self._show_line(self._narrator.note("stopping"))

    async def _until_no_work(self, sup: Supervisor, asking: trio.Nursery) -> None:
        """Wait until the prompts have their ends, and what other terminals have sent, too."""
        is_shown = False
        while sup.ref.is_alive():
            if len(asking.child_tasks) > 1:
                # at once at the end of a prompt: nothing else is to delay the end of the command
                with trio.move_on_after(_LOOK_SELDOM):
                    await self._prompt_ended.wait()
                continue
            if not (others := self._requests_left(sup)):
                return
            if not is_shown:
                is_shown = True
                text = f"the prompts are answered; {others} more request{'s' if others > 1 else ''} to be answered"
                self._show_line(self._narrator.note(text))
            await trio.sleep(_LOOK)

    def _requests_left(self, sup: Supervisor) -> int:
        """How many requests wait or run, of agents that may still answer."""
        stored, left = current_requests(), set[str]()
        for name in {member.name for member in self._members.values()} - self._unavailable.why.keys():
            state = sup.agent(name).kept_state()
            if state is None or state.status.state not in _AT_AN_END:
                left |= set() if stored is None else stored.open_ids(name)
            if state is not None and state.status.state not in _AT_AN_END:
                live = state.waiting if state.current is None else (*state.waiting, state.current)
                left |= {request.ticket for request in live}
        return len(left)

    async def _start(self, sup: Supervisor, asking: trio.Nursery, around: trio.Nursery) -> bool:
        async def conclude(child: Child, cause: Exception | None) -> bool:
            if isinstance(cause, DeliveryError):
                return False
            if cause is not None and self._strict:
                self._fail(f"{child.name} could not start: {one_line(str(cause), WHOLE)}", status_of(cause))
                return False
            if cause is not None:
                await self._unavailable.leave_out(sup, child, cause, around)
            # an agent whose start is repeated is asked too: `_ask` waits for the repetition first
            if cause is None or shortage_of(cause) is not None:
                for path in self._paths_in(child):
                    asking.start_soon(self._ask, sup, path)
            return True

        return await start_children(sup, self._fleet, self._record, conclude)

    def _paths_in(self, child: Child) -> Sequence[str]:
        brought = agents_of(child)
        return [path for path, member in self._members.items() if member in brought]

    # -- reloads

    def _on_reload(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._narrator.follow(fleet)
        self._unavailable.follow(fleet)
        replace(self._members, dict(fleet.members(fleet.name)))
        replace(self._names, fleet.names(fleet.name))
        for path in self._statuses.keys() - self._members.keys():
            del self._statuses[path]

    def _on_started(self, paths: Sequence[str]) -> None:
        self._show_line(self._narrator.note("the fleet file was read again"))
        if self._sup is None or self._asking is None:  # the fleet is ending
            return
        for path in paths:
            self._asking.start_soon(self._ask, self._sup, path)
            if self._members[path].prompt is None:  # it keeps the fleet running
                self._asking.start_soon(self._unavailable.wait_unavailable, [self._names[path]])

    async def _ask(self, sup: Supervisor, path: str) -> None:
        member = self._members[path]
        if member.prompt is None:
            return
        await self._unavailable.wait_retried(member.name)
        agent = sup.agent(member.name)
        try:
            if is_stopped(sup, path):
                text = f"{member.name} was stopped by the operator; proctor start {member.name} starts it"
                self._show_line(self._narrator.note(text))
                await agent.until_found()
            again = await self._run.has_ended(agent.name, member.prompt)
            self._show_line(self._narrator.asked(path, member.prompt, again=again))
            answer = await agent.ask(member.prompt, timeout=member.timeout, key=self._run.key(member.prompt))
        except (AgentError, DeliveryError) as error:
            line = self._narrator.unanswered(path, error)
        else:
            line = self._narrator.answered(path, answer)
        # what the agent wrote during the turn must stand before its answer
        self._follower.drain()
        self._show_line(line)
        ended, self._prompt_ended = self._prompt_ended, trio.Event()
        ended.set()

    async def _until_ended(self, sup: Supervisor, idling: trio.CancelScope, scope: trio.CancelScope) -> None:
        ended = await sup.wait_stopped()
        if is_clean(ended) and self._narrator.gave_up is None:
            self._show_line(self._narrator.note(f"the root ended: {ended}"))
        idling.cancel("the root has ended")
        await trio.sleep(_LAST_ENDS)  # an answer may still be on its way to the disk
        scope.cancel("the root has ended")

    def _fail(self, message: str, status: int) -> None:
        self._messages.append(message)
        self._status = status

    async def _notify(self, sup: Supervisor, interrupts: Interrupts) -> None:
        def is_done() -> bool:
            return interrupts.first is None and self._result() == OK

        await notify(self._fleet, sup, self._names, self._unavailable.why, is_done, self._reload.file)

    async def _serve_control(self, sup: Supervisor, interrupts: Interrupts) -> None:
        absent = self._unavailable.why
        await self._control.serve(
            self._fleet, sup, interrupts, absent=absent, reload=self._reload, notify=self.show_message
        )

    # -- display

    def _display_for_a_person(self, out: Output, width: int) -> LineDisplay | LiveDisplay:
        return LiveDisplay(out, width, self._draw) if out.is_terminal else LineDisplay(out, width)

    def _close_display(self) -> None:
        agents, root = self._narrator.agents, self._fleet.name
        if isinstance(self._display, JsonDisplay):
            records = (result_record(name, path, agents[path]) for path, name in self._names.items())
            self._display.close_with([*records])
        else:
            self._display.close(["", *summary(agents, root), *answers(agents, root)])

    def _on_tree_event(self, event: SupervisorEvent) -> None:
        self._unavailable.on_event(event)
        if isinstance(self._display, JsonDisplay):
            self._display.show_tree(event)

    def _on_agent_events(self, path: str, events: Sequence[AnyEvent]) -> None:
        if isinstance(self._display, JsonDisplay):
            self._display.show_agent(self._names[path], events)

    def _show_line(self, line: Line) -> None:
        self._display.show(time.time(), line)

    async def _show(self, interrupts: Interrupts) -> None:
        try:
            await self._display.run()
        except BrokenPipeError:
            self._status = STDOUT_GONE
        except OutputFailed as error:
            self._fail(str(error), FAILED)
        else:
            return
        # the same way out as for a signal, so that the tree stops in order
        interrupts.scope.cancel("nothing can be shown any more")

    async def _look(self, sup: Supervisor) -> None:
        while True:
            await self._look_once(sup)
            await trio.sleep(_LOOK if isinstance(self._display, LiveDisplay) else _LOOK_SELDOM)

    async def _look_once(self, sup: Supervisor) -> None:
        for path, member in list(self._members.items()):
            # an agent that is starting or restarting does not answer; the others must be drawn all the same
            with trio.move_on_after(_LOOK), suppress(CallTimeout, DeliveryError):
                self._statuses[path] = status = await sup.agent(member.name).status()
                self._narrator.agents[path].recording = status.recording

    def _draw(self, lines: Sequence[TimedLine], size: ConsoleDimensions) -> RenderableType:
        if self._sup is None:
            return Text("starting")
        return live_table(
            self._sup.tree(), self._statuses, self._narrator.agents, lines, size, trio.current_time()
        )


def _servers(fleet: Fleet) -> Sequence[str]:
    return [f"{path}/{server.name}" for path, group in fleet.groups(fleet.name) for server in group.servers]


def _why(error: MaxRestartsExceeded, child: str | None) -> str:
    last = [
        describe_exit(e.reason) if isinstance(e, ActorExited) else one_line(str(e))
        for e in error.exceptions[-_CAUSES:]
    ]
    restarts = error.message.rpartition(": ")[2]
    return f"{restarts}{f' of {child}' if child else ''}; last causes: {', '.join(last)}"
