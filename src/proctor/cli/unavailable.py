"""The unavailable agents of a fleet, with the reasons: those that could not start and those that were given up.

A host continues without them. A start that failed because the machine lacked something (memory, descriptors, disk) is
repeated with back-off until it succeeds. `wait_unavailable` returns when no agent can become available any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import trio

from proctor.actors.fleet.fleet import Child, Fleet
from proctor.actors.plan.options import BACKOFF
from proctor.actors.specs import Supervisor
from proctor.cli.exit_status import innermost, status_of
from proctor.cli.start_fleet import agents_of
from proctor.cli.ui.fleet_log import describe_exit
from proctor.cli.ui.text import one_line
from proctor.runtime.errors import StartError, SupervisionError
from proctor.runtime.events import ChildStarted, MaxRestarts, SupervisorEvent
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import shortage_of
from proctor.runtime.supervision import delay


class UnavailableAgents:
    """The unavailable agents of one fleet. `why` maps each to its reason."""

    def __init__(self, fleet: Fleet, record: Path | None = None) -> None:
        self.why: dict[str, str] = {}
        self._fleet = fleet
        self._names = dict[str, str]()
        self._record = record
        self._statuses: dict[str, int] = {}
        self._awaited: dict[str, trio.Event] = {}
        self._changed = trio.Event()
        self.follow(fleet)

    def follow(self, fleet: Fleet) -> None:
        """Go on with the agents of another version of the file."""
        self._fleet = fleet
        self._names = fleet.names(fleet.name)
        for name in self.why.keys() - {*self._names.values()}:
            del self.why[name]
        self._wake()

    @property
    def status(self) -> int | None:
        """The exit status for the first child of the file that could not start, None when all have."""
        children = (child.name for child in self._fleet.children)
        return next((self._statuses[name] for name in children if name in self._statuses), None)

    @property
    def summary(self) -> str:
        """All of them, each with its reason; "" when every agent is available."""
        return "; ".join(f"{name}: {self.why[name]}" for name in sorted(self.why))

    async def check(self) -> str | None:
        """The check for `/readyz`: `summary`, None when every agent is available."""
        return self.summary or None

    def on_event(self, event: SupervisorEvent) -> None:
        """Update the list from an event of a supervisor."""
        match event:
            case ChildStarted(path=path) if path in self._names:
                self.why.pop(self._names[path], None)
            case MaxRestarts(child_only=True):
                reason = f"was given up: {event.limit}; last cause: {describe_exit(event.reason)}"
                self._mark(self._below(f"{event.path}/{event.id}"), reason)
            case _:
                pass

    async def leave_out(self, sup: Supervisor, child: Child, cause: Exception, nursery: trio.Nursery) -> None:
        """Continue without a child that could not start. Its spec stays in `sup`, so that it can be started later.

        Raises `DeliveryError` when `sup` has ended."""
        self._statuses[child.name] = status_of(cause)
        held = {child.name, *(node.id for node in sup.tree().children)}
        # with those that still start, so that all stay in the order of the file
        await sup.change([spec for spec in self._fleet.specs(self._record) if spec.id in held])
        short = shortage_of(cause) is not None
        if short:
            # before the name is marked below: else "all unavailable" would be true for an instant and end the
            # command
            self._awaited.update(dict.fromkeys(_names_in(child), trio.Event()))
            nursery.start_soon(self._repeat_start, sup, child)
        self._not_started(child, cause)

    @property
    def all_unavailable(self) -> bool:
        """Whether no agent is available and no start will be repeated."""
        return self._are_unavailable(self._names.values())

    async def wait_unavailable(self, names: Iterable[str] | None = None) -> None:
        """Wait until these agents (None: all) are unavailable and no start will be repeated."""
        awaited = None if names is None else {*names}
        while not self._are_unavailable(self._names.values() if awaited is None else awaited):
            await self._changed.wait()

    def _are_unavailable(self, names: Iterable[str]) -> bool:
        # one that is in the file no more is not waited for
        return not self._awaited and {*names} & {*self._names.values()} <= self.why.keys()

    async def wait_retried(self, name: str) -> None:
        """Wait until the repeated start of an agent has succeeded or is given up."""
        if name in self._awaited:
            await self._awaited[name].wait()

    async def _repeat_start(self, sup: Supervisor, child: Child) -> None:
        attempt, cause = 0, None
        # any other cause will not go away by itself, so only a shortage is tried again
        while attempt == 0 or (cause is not None and shortage_of(cause) is not None):
            await trio.sleep(delay(BACKOFF, attempt, 0.0))
            attempt, cause = attempt + 1, None
            try:
                await sup.restart_child(child.name)
            except StartError as error:
                cause = innermost(error)
                self._not_started(child, cause)
            except (SupervisionError, DeliveryError):
                break  # an operator has started it, or the root has ended
        for name in _names_in(child):
            # whichever way it ended: who waits for this agent must not wait for ever
            self._awaited.pop(name).set()
        self._wake()

    def _not_started(self, child: Child, cause: Exception) -> None:
        self._mark(_names_in(child), f"could not start: {one_line(str(cause))}")

    def _mark(self, names: list[str], reason: str) -> None:
        self.why.update(dict.fromkeys(names, reason))
        self._wake()

    def _wake(self) -> None:
        # replaced first, so that a waiter that looks and waits again does not spin on the one that is set
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _below(self, path: str) -> list[str]:
        return [name for at, name in self._names.items() if at == path or at.startswith(f"{path}/")]


def _names_in(child: Child) -> list[str]:
    return [member.name for member in agents_of(child)] or [child.name]
