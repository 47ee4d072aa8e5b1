"""What of a fleet is not there, and why: agents that could not start, and those that were given up.

A host goes on without them. What could not start because the machine lacked something is tried again, put off as restarts
of agents are, until it runs; a start by an operator is seen, too. `wait_gone` ends when nothing is left to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import trio

from proctor.actors.fleet.fleet import Fleet
from proctor.actors.plan.plan import BACKOFF
from proctor.actors.specs import Supervisor
from proctor.cli.start_fleet import Child, agents_of
from proctor.cli.ui.fleet_log import told
from proctor.cli.ui.text import one_line
from proctor.cli.verdicts import innermost, status_of
from proctor.runtime.errors import StartError, SupervisionError
from proctor.runtime.events import ChildStarted, MaxRestarts, SupervisorEvent
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import shortage_of
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import delay


class Absent:
    """Those of one fleet that a host runs without. `why` has the reason by agent, `status` the exit status of the first."""

    def __init__(self, fleet: Fleet, record: Path | None = None) -> None:
        self.why: dict[str, str] = {}
        self.status: int | None = None
        self._names = {path: member.name for path, member in fleet.members(fleet.name)}
        self._record = record
        self._specs: list[ChildSpec] = []
        self._awaited: dict[str, trio.Event] = {}
        self._news = trio.Event()

    @property
    def summary(self) -> str:
        """All of them, each with its reason; "" when none is absent."""
        return "; ".join(f"{name}: {self.why[name]}" for name in sorted(self.why))

    async def check(self) -> str | None:
        """For `/readyz`: `summary`, None when nobody is absent."""
        return self.summary or None

    def hear(self, event: SupervisorEvent) -> None:
        """Take in what a supervisor of the fleet did."""
        match event:
            case ChildStarted(path=path) if path in self._names:
                self.why.pop(self._names[path], None)
            case MaxRestarts(child_only=True):
                reason = f"was given up: {event.limit}; at last: {told(event.reason)}"
                self._mark(self._below(f"{event.path}/{event.id}"), reason)
            case _:
                pass

    def started(self, child: Child) -> None:
        """It runs."""
        self._specs.append(child.spec(self._record))

    async def leave_out(self, sup: Supervisor, child: Child, cause: Exception, nursery: trio.Nursery) -> None:
        """Go on without a child of the root that could not start: it is held, down, so that it can be started later.

        Raises `DeliveryError` when `sup` has ended."""
        self.status = self.status or status_of(cause)
        self._specs.append(child.spec(self._record))
        await sup.change(self._specs)
        short = shortage_of(cause) is not None
        if short:
            self._awaited.update(dict.fromkeys(_names_in(child), trio.Event()))
            nursery.start_soon(self._try_again, sup, child)
        self._not_started(child, cause)

    @property
    def is_all(self) -> bool:
        """Whether every agent is absent, and none is tried again."""
        return self._are_gone(self._names.values())

    async def wait_gone(self, names: Iterable[str] | None = None) -> None:
        """Wait until these agents (None: all) are absent, and none is tried again."""
        awaited = self._names.values() if names is None else names
        while not self._are_gone(awaited):
            await self._news.wait()

    def _are_gone(self, names: Iterable[str]) -> bool:
        return not self._awaited and {*names} <= self.why.keys()

    async def wait_tried(self, name: str) -> None:
        """Wait until an agent that is tried again runs, or is not tried again."""
        if name in self._awaited:
            await self._awaited[name].wait()

    async def _try_again(self, sup: Supervisor, child: Child) -> None:
        attempt, cause = 0, None
        while attempt == 0 or (cause is not None and shortage_of(cause) is not None):
            await trio.sleep(delay(BACKOFF, attempt, 0.0))
            attempt, cause = attempt + 1, None
            try:
                await sup.restart_child(child.name)
            except StartError as error:
                cause = innermost(error)
                self._not_started(child, cause)
            except (SupervisionError, DeliveryError):
                break  # somebody else has started it, or the root has ended
        for name in _names_in(child):
            self._awaited.pop(name).set()
        self._look()

    def _not_started(self, child: Child, cause: Exception) -> None:
        self._mark(_names_in(child), f"could not start: {one_line(str(cause))}")

    def _mark(self, names: list[str], reason: str) -> None:
        self.why.update(dict.fromkeys(names, reason))
        self._look()

    def _look(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    def _below(self, path: str) -> list[str]:
        return [name for at, name in self._names.items() if at == path or at.startswith(f"{path}/")]


def _names_in(child: Child) -> list[str]:
    return [member.name for member in agents_of(child)] or [child.name]
