"""`proctor up`: a fleet in the foreground, from its first start to its last stop.

The children are started one after another under the root, so that their starts can be followed too; one that cannot
start, or is restarted too often, is left out, and the others go on (`strict`: it ends the command, as it would end the
supervisor, S10). Each agent gets its prompt once it is up. The command ends when every prompt is answered and no agent is
without one, when no agent is left, when the root ends or gives up, or when it is interrupted; the tree is always stopped in
order behind it, and told of to the end.

A reader of our output that has gone ends the fleet; one that sleeps does not hold it up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from rich.console import ConsoleDimensions, RenderableType
from rich.text import Text

from proctor.actors.agent.states import Status
from proctor.actors.errors import AgentError
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.process.orphans import track_processes
from proctor.actors.specs import Supervisor, open_supervisor, plan_of
from proctor.cli.absent import Absent
from proctor.cli.codes import FAILED, OK, STDOUT_GONE
from proctor.cli.follow import BUFFER, Follower
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.recordings import account_book, keep_room, state_directory
from proctor.cli.start_fleet import Child, agents_of, children_of, locate_some, started
from proctor.cli.ui.display import Lines, Moment, Picture
from proctor.cli.ui.fleet_log import Line, Story, told
from proctor.cli.ui.fleet_table import answers, board, summary
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, one_line
from proctor.cli.verdicts import refused, status_of
from proctor.runtime.errors import ActorExited, CallTimeout, MaxRestartsExceeded
from proctor.runtime.exits import DeliveryError, is_clean
from proctor.runtime.processes import shortage_of

_LOOK, _LOOK_SELDOM = 0.25, 2.0
"""Seconds between two looks at the agents: for the picture, and for where their recordings are."""
_CAUSES = 3


def up_command(fleet: str, *, strict: bool = False) -> int:
    """Run the fleet of this file and return the exit status."""
    return trio.run(_main, Path(fleet), strict)


async def _main(path: Path, strict: bool) -> int:
    errors = Output(2)
    try:
        fleet = load_fleet(path)
        locate_some((plan_of(member.spec()) for _, member in fleet.members("")), strict=strict)
    except AgentError as error:
        return await refused(error, errors)
    record = state_directory()
    async with track_processes(errors.say):
        command = Command(fleet if strict else fleet.degrading(), record, errors, strict=strict)
        return await interruptible(command.run, told=command.told, beside=partial(keep_room, record))


class Command:
    """One `proctor up`. `record` is where agents are recorded that name no other place."""

    def __init__(self, fleet: Fleet, record: Path, errors: Output, *, strict: bool = False) -> None:
        self._fleet = fleet
        self._strict = strict
        self._absent = Absent(fleet, record)
        self._record = record
        self._errors = errors
        self._story = Story(fleet, trio.current_time, time.time)
        self._members = dict(fleet.members(fleet.name))
        names = {path: member.name for path, member in self._members.items()}
        self._follower = Follower(self._story, names, self._tell, self._absent.hear)
        self._statuses: dict[str, Status] = {}
        self._sup: Supervisor | None = None
        self._complaints: list[str] = []
        self._status: int | None = None
        out, width = Output(1), max(len(path) - len(fleet.name) - 1 for path in (*names, *_servers(fleet)))
        self._screen = Picture(out, width, self._draw) if out.is_terminal else Lines(out, width)

    async def run(self, interrupts: Interrupts) -> int:
        """Start, ask, wait, stop. Returns the exit status."""
        async with trio.open_nursery() as showing:
            showing.start_soon(self._show, interrupts)
            async with trio.open_nursery() as following:
                await self._tree(following, interrupts)
            agents, root = self._story.agents, self._fleet.name
            self._screen.close(["", *summary(agents, root), *answers(agents, root)])
            interrupts.in_the_end(showing.cancel_scope)
        for complaint in self._complaints:
            await self._errors.say(complaint)
        return self._result() if self._status is None else self._status

    async def told(self, text: str) -> None:
        """Something the user should know at once."""
        if isinstance(self._screen, Picture):
            self._tell(self._story.note(text))
        else:
            await self._errors.say(text)

    def _result(self) -> int:
        answers = [
            self._story.agents[path].answer for path, m in self._members.items() if m.prompt is not None
        ]
        return OK if all(answer is not None and answer.ok for answer in answers) else FAILED

    # -- the tree

    async def _tree(self, following: trio.Nursery, interrupts: Interrupts) -> None:
        fleet = self._fleet
        try:
            with interrupts.scope, account_book(fleet.name):
                async with open_supervisor((), name=fleet.name, **fleet.tree()) as sup:
                    self._sup = sup
                    interrupts.kill = sup.ref.kill
                    following.start_soon(self._follower.follow, sup, sup.events(BUFFER))
                    await self._conduct(sup)
        except MaxRestartsExceeded as error:
            self._fail(f"{fleet.name} gave up: {_why(error, self._story.gave_up)}", FAILED)

    async def _conduct(self, sup: Supervisor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_ended, sup, nursery.cancel_scope)
            nursery.start_soon(self._look, sup)
            async with trio.open_nursery() as asking:
                if not await self._start(sup, asking, nursery):
                    asking.cancel_scope.cancel("a child did not start")
                else:
                    await self._absent.wait_gone(m.name for m in self._members.values() if m.prompt is None)
            nursery.cancel_scope.cancel("there is nothing left to wait for")
        await self._look_once(sup)
        if self._absent.is_all:
            text = f"no agent of {self._fleet.name} is left: {self._absent.summary}"
            self._fail(text, self._absent.status or FAILED)
        else:
            for name, why in sorted(self._absent.why.items()):
                self._fail(f"{name}: {why}", FAILED)
        if sup.ref.is_alive():
            self._tell(self._story.note("stopping"))

    async def _start(self, sup: Supervisor, asking: trio.Nursery, around: trio.Nursery) -> bool:
        for child in children_of(self._fleet):
            try:
                if (cause := await started(sup, child, self._record)) is None:
                    self._absent.started(child)
                elif self._strict:
                    self._fail(
                        f"{child.name} could not start: {one_line(str(cause), WHOLE)}", status_of(cause)
                    )
                    return False
                else:
                    await self._absent.leave_out(sup, child, cause, around)
            except DeliveryError:  # the root has ended meanwhile
                return False
            if cause is None or shortage_of(cause) is not None:
                for path in self._paths_in(child):
                    asking.start_soon(self._ask, sup, path)
        return True

    def _paths_in(self, child: Child) -> Sequence[str]:
        brought = agents_of(child)
        return [path for path, member in self._members.items() if member in brought]

    async def _ask(self, sup: Supervisor, path: str) -> None:
        member = self._members[path]
        if member.prompt is None:
            return
        await self._absent.wait_tried(member.name)
        self._tell(self._story.asked(path, member.prompt))
        try:
            answer = await sup.agent(member.name).ask(member.prompt, timeout=member.timeout)
        except (AgentError, DeliveryError) as error:
            line = self._story.unanswered(path, error)
        else:
            line = self._story.answered(path, answer)
        self._follower.drain()
        self._tell(line)

    async def _until_ended(self, sup: Supervisor, scope: trio.CancelScope) -> None:
        ended = await sup.wait_stopped()
        if is_clean(ended) and self._story.gave_up is None:
            self._tell(self._story.note(f"ended by itself: {ended}"))
        scope.cancel("the root has ended")

    def _fail(self, complaint: str, status: int) -> None:
        self._complaints.append(complaint)
        self._status = status

    # -- what is shown

    def _tell(self, line: Line) -> None:
        self._screen.tell(time.time(), line)

    async def _show(self, interrupts: Interrupts) -> None:
        try:
            await self._screen.run()
        except BrokenPipeError:
            self._status = STDOUT_GONE
        except OutputFailed as error:
            self._fail(str(error), FAILED)
        else:
            return
        interrupts.scope.cancel("nothing can be shown any more")

    async def _look(self, sup: Supervisor) -> None:
        while True:
            await self._look_once(sup)
            await trio.sleep(_LOOK if isinstance(self._screen, Picture) else _LOOK_SELDOM)

    async def _look_once(self, sup: Supervisor) -> None:
        for path, member in self._members.items():
            with trio.move_on_after(_LOOK), suppress(CallTimeout, DeliveryError):
                self._statuses[path] = status = await sup.agent(member.name).status()
                self._story.agents[path].recording = status.recording

    def _draw(self, moments: Sequence[Moment], size: ConsoleDimensions) -> RenderableType:
        if self._sup is None:
            return Text("starting")
        return board(self._sup.tree(), self._statuses, self._story.agents, moments, size, trio.current_time())


def _servers(fleet: Fleet) -> Sequence[str]:
    return [f"{path}/{server.name}" for path, group in fleet.groups(fleet.name) for server in group.servers]


def _why(error: MaxRestartsExceeded, child: str | None) -> str:
    last = [
        told(e.reason) if isinstance(e, ActorExited) else one_line(str(e))
        for e in error.exceptions[-_CAUSES:]
    ]
    restarts = error.message.rpartition(": ")[2]
    return f"{restarts}{f' of {child}' if child else ''}; the last causes: {', '.join(last)}"
