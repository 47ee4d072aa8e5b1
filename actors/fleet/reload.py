"""The change of a running fleet to another version of its file.

What is new is started, what is gone is stopped in order, and what is the same is not touched. An agent whose table has changed goes on as it was
started until it is started again: at once where it is down, when it is idle and a restart was asked for, else by the next
reload that asks, or the next host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import attrs

from proctor.actors.errors import BadOption, FleetFaults
from proctor.actors.fleet.fleet import Child, Fleet, Group, Nested
from proctor.actors.fleet.schema import AgentTable, Server
from proctor.actors.scripted import ScriptError
from proctor.actors.specs import Supervisor
from proctor.runtime.errors import InvalidSpec, NotFound, StartError
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import Flags
from proctor.runtime.supervision import Supervisor as Nearest

GroupT = TypeVar("GroupT", bound=Group)
LATER = "takes effect when the host starts again"


@attrs.frozen(kw_only=True)
class Difference:
    """What another version of a file changes: agents by name, and what a reload cannot do, a line each."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def difference(old: Fleet, new: Fleet) -> Difference:
    """Compare the fleet that runs with the one of the file."""
    before, after = dict(old.members("")), dict(new.members(""))
    both = [path for path in after if path in before]
    return Difference(
        added=tuple(member.name for path, member in after.items() if path not in before),
        changed=tuple(after[path].name for path in both if after[path] != before[path]),
        removed=tuple(member.name for path, member in before.items() if path not in after),
        unchanged=tuple(after[path].name for path in both if after[path] == before[path]),
        problems=tuple(_out_of_reach(old, new)),
    )


def _out_of_reach(old: Fleet, new: Fleet) -> Iterator[str]:
    for name in ("name", "budget", "stagger", "notify"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: {LATER}"
    before = {f"{path}/{one.name}": one for path, group in old.groups("") for one in group.servers}
    for path, group in new.groups(""):
        for server in group.servers:
            if before.get(f"{path}/{server.name}", server) != server:
                yield f"server {server.name!r}: {LATER}"


@attrs.define
class FleetUpdate:
    """The update of the tree `sup` from `old` to `new`. `record` is the folder for recordings of agents that name none; with `restart` changed
    agents that are idle are started anew.

    `started` has the paths of the agents that were started, `failed` a line for each child that could not be.
    """

    sup: Supervisor
    old: Fleet
    new: Fleet
    record: Path | None
    restart: bool
    started: list[str] = attrs.field(factory=list[str])
    failed: list[str] = attrs.field(factory=list[str])
    _due: list[tuple[Nearest, str, Child]] = attrs.field(factory=list[tuple[Nearest, str, Child]])

    async def carry_out(self, on_change: Callable[[Fleet], None]) -> None:
        """Do it. `on_change` is called with the fleet that runs then, before anything new starts. Raises `FleetFaults` when a file that
        the fleet needs is gone, and then nothing has changed."""
        try:
            self.old.specs(self.record)
        except (BadOption, ScriptError, InvalidSpec) as error:
            raise FleetFaults(self.old.name, [f"as it runs: {error}"]) from error
        # First in the whole tree: an agent that moves to another supervisor keeps its name.
        await self._remove(self.sup, self.old, self.new)
        on_change(await self._update(self.sup, "", self.old, self._reachable()))
        for supervisor, path, child in self._due:
            try:
                await supervisor.restart_child(child.name)
            except StartError as error:
                self.failed.append(f"{child.name}: could not start: {error}")
            else:
                self.started += (
                    [path + at for at, _ in child.members("")] if isinstance(child, Nested) else [path]
                )

    def _reachable(self) -> Fleet:
        return attrs.evolve(
            self.new,
            name=self.old.name,
            budget=self.old.budget,
            stagger=self.old.stagger,
            notify=self.old.notify,
        )

    async def _remove(self, supervisor: Nearest, old: Group, new: Group) -> None:
        after, nested = {child.name: child for child in new.children}, list[tuple[Nested, Nested]]()
        for child in reversed(old.children):
            same = after.get(child.name)
            if not _is_alike(child, same):
                await _forget(supervisor, child.name)
            elif isinstance(child, Nested) and isinstance(same, Nested):
                nested.append((child, same))
        for child, same in nested:
            if (below := _running(supervisor, child.name)) is not None:
                await self._remove(below, child, same)

    async def _update(self, supervisor: Nearest, path: str, old: Group, new: GroupT) -> GroupT:
        """Update a supervisor and those below it; returns the group that runs then."""
        before = {child.name: child for child in old.children}
        due, kept = list[Child](), list[Child]()
        for child in new.children:
            runs = await self._kept(supervisor, f"{path}/{child.name}", before.get(child.name), child)
            due += [child] if runs is None else []
            kept.append(runs or child)
        running = attrs.evolve(
            new,
            servers=tuple(child for child in kept if isinstance(child, Server)),
            agents=tuple(child for child in kept if isinstance(child, AgentTable)),
            supervisors=tuple(child for child in kept if isinstance(child, Nested)),
        )
        await supervisor.change(running.specs(self.record), **attrs.asdict(Flags(**running.flags())))
        self._due += [
            (supervisor, f"{path}/{child.name}", child)
            for child in due
            if not self.sup.overrides.is_stopped(f"{path}/{child.name}"[1:])
        ]
        return running

    async def _kept(self, supervisor: Nearest, path: str, was: Child | None, child: Child) -> Child | None:
        """The child as it runs on; None where it is to be started."""
        if was is None or not _is_alike(child, was):
            return None
        if isinstance(child, Nested) and isinstance(was, Nested):
            below = _running(supervisor, child.name)
            return child if below is None else await self._update(below, path, was, child)
        if was == child or not isinstance(was, AgentTable) or not await self._dropped(supervisor, was):
            return was
        return None

    async def _dropped(self, supervisor: Nearest, agent: AgentTable) -> bool:
        """Whether an agent whose table has changed is down, or was stopped because it is idle, so that it can be started as it is now."""
        state = self.sup.agent(agent.name).kept_state()
        if state is not None:
            is_idle = state.status.state in ("idle", "done", "failed") and not state.waiting
            if not (self.restart and is_idle):
                return False
        # With all that it kept: its folder, its recording and its budget are those of the new table.
        await _forget(supervisor, agent.name)
        return True


async def _forget(supervisor: Nearest, id: str) -> None:
    with suppress(NotFound):  # a temporary one that has ended
        await supervisor.terminate_child(id)
        await supervisor.delete_child(id)


def _is_alike(one: Child, other: Child | None) -> bool:
    """Whether both are agents of one kind, both servers, or both supervisors."""
    return type(one) is type(other)


def _running(supervisor: Nearest, id: str) -> Nearest | None:
    try:
        return supervisor.supervisor(id)
    except NoProc:  # it starts with its new spec
        return None
