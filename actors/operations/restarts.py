"""The restarts of the agents of a tree: when each was, and why. With a store they outlive the host, whose next one goes on with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
import trio

from proctor.actors.agent.stored_requests import RESTARTS, StoredRequests
from proctor.actors.specs import Supervisor
from proctor.protocols.lenient import decoded_or
from proctor.runtime.events import ChildRestarting
from proctor.runtime.exits import Crash, ExitReason

KEPT = 50
"""Restarts of one agent, or of one supervisor, that are kept: the last."""
BUFFER = 1000
"""Events of supervisors that may wait to be noted."""


class Restart(msgspec.Struct, frozen=True):
    """A restart, `at` Unix seconds, for a `cause` as text."""

    at: float
    cause: str


class RestartHistory:
    """The restarts of `tree`, by place below its root; `stored` keeps them. `wall` gives Unix seconds."""

    def __init__(
        self, tree: Supervisor, stored: StoredRequests | None, wall: Callable[[], float] = time.time
    ) -> None:
        self._tree = tree
        self._stored = stored
        self._wall = wall
        self._noted: dict[str, tuple[Restart, ...]] = {}

    async def follow(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Note each restart until the tree has ended."""
        with self._tree.events(BUFFER) as events:
            task_status.started()
            async for event in events:
                if isinstance(event, ChildRestarting):
                    self._note(event.path.partition("/")[2], event.reason)

    def of(self, place: str) -> list[Restart]:
        """The restarts of the agent at this place, with those of the supervisors above it, the newest first."""
        found = [restart for above in _and_above(place) for restart in self._at(above)]
        return sorted(found, key=lambda restart: restart.at, reverse=True)

    def _note(self, place: str, reason: ExitReason) -> None:
        noted = (*self._at(place), Restart(round(self._wall(), 3), cause_of(reason)))[-KEPT:]
        self._noted[place] = noted
        if self._stored is not None:
            self._stored.keep(place, RESTARTS, msgspec.json.encode(noted).decode())

    def _at(self, place: str) -> tuple[Restart, ...]:
        if place not in self._noted:
            text = None if self._stored is None else self._stored.fact(place, RESTARTS)
            # a record that cannot be read costs only itself
            self._noted[place] = decoded_or((), tuple[Restart, ...], (text or "[]").encode())
        return self._noted[place]


def cause_of(reason: ExitReason) -> str:
    """The text of an exit reason."""
    return str(reason.error) or type(reason.error).__name__ if isinstance(reason, Crash) else str(reason)


def _and_above(place: str) -> Iterator[str]:
    while place:
        yield place
        place = place.rpartition("/")[0]
