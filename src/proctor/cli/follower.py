"""Follows a running tree: merges every agent's log and the supervisors' events into lines in one order.

A task for each agent reads its log from the first event on and through its restarts. Every event of an agent is shown
exactly once, and no agent waits for a reader; the sink must not wait either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.recording.eventlog import Cursor
from proctor.actors.specs import Supervisor
from proctor.cli.ui.fleet_log import FleetNarrator, Line
from proctor.protocols.vocabulary import AnyEvent
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.events import ChildStarted, Subscription, SupervisorEvent
from proctor.runtime.exits import NoProc

BUFFER = 10_000
"""Events of supervisors that may wait to be shown."""

Sink = Callable[[Line], None]


def _received(events: Subscription) -> Iterator[SupervisorEvent]:
    """The events that are there now."""
    with suppress(trio.WouldBlock):
        while True:
            yield events.receive_nowait()


def _ignore(*args: object) -> None:
    return


class FleetFollower:
    """Reader of one fleet. `names` maps the path of an agent to its name; `on_event` gets each event of a supervisor,
    `on_agent` the path of an agent and what was read of its events."""

    def __init__(
        self,
        narrator: FleetNarrator,
        names: Mapping[str, str],
        sink: Sink,
        on_event: Callable[[SupervisorEvent], None] = _ignore,
        on_agent: Callable[[str, Sequence[AnyEvent]], None] = _ignore,
    ) -> None:
        self._narrator = narrator
        self._names = names
        self._sink = sink
        self._on_event = on_event
        self._on_agent = on_agent
        self._cursors: dict[str, Cursor] = {}
        self._followed: set[str] = set()

    async def follow(self, sup: Supervisor, events: Subscription) -> None:
        """Show what happens until the tree has ended."""
        # subscribed by the caller before the first child starts, so that no start is missed
        with events:
            async with trio.open_nursery() as nursery:
                async for event in events:
                    # all that is there in one step: of agents that start together each is shown as started before it is asked
                    self._show_events([event, *_received(events)], sup, nursery)
        if events.dropped:
            self._sink(
                self._narrator.note(f"{events.dropped} events of supervisors came too fast and were dropped")
            )

    def _show_events(self, events: Sequence[SupervisorEvent], sup: Supervisor, nursery: trio.Nursery) -> None:
        for event in events:
            self._show_event(event, sup, nursery)

    def _show_event(self, event: SupervisorEvent, sup: Supervisor, nursery: trio.Nursery) -> None:
        self.drain()  # first what the agents wrote: a death stands before the restart that it caused
        self._on_event(event)
        if line := self._narrator.of_tree(event):
            self._sink(line)
        if isinstance(event, ChildStarted) and event.path in self._names:
            self._start(nursery, sup, event.path)

    def _start(self, nursery: trio.Nursery, sup: Supervisor, path: str) -> None:
        # a restart is reported while the reader of the log may still run, and two would show each event twice
        if path not in self._followed:
            self._followed.add(path)
            nursery.start_soon(self._read_log, sup.agent(self._names[path]), path)

    async def _read_log(self, agent: Agent, path: str) -> None:
        try:
            async with agent.events(since=0) as fresh:
                old = self._cursors.get(path)
                # where it is still the same log, our place in it is kept: read from 0 again, it would show
                # each event twice
                cursor = self._cursors[path] = fresh if old is None or old.log is not fresh.log else old
                # a closed log may still hold a batch: read on until one comes empty
                while self._show(path, await cursor.batch()) or not cursor.log.closed:
                    pass
        except (NoProc, ActorExited, CallTimeout):
            pass  # it ended before its log was opened: its next start comes back here
        finally:
            # by the time the next incarnation is reported a reader can be started for it
            self._followed.discard(path)

    def drain(self) -> None:
        """Show what the agents' logs hold by now."""
        for path, cursor in self._cursors.items():
            while self._show(path, cursor.batch_nowait()):
                pass

    def _show(self, path: str, events: Sequence[AnyEvent]) -> bool:
        self._on_agent(path, events)
        for line in self._narrator.of_agent(path, events):
            self._sink(line)
        return bool(events)
