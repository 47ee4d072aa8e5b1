"""Follows a tree that runs: every agent's log and the supervisors' events, into one story in one order.

Each agent is read by a task of its own, from the first event on and through its restarts. Before a line about a
supervisor's event is told, what the agents' logs hold is told first: a death is read before the restart it caused.

Guarantees: no event of an agent is told twice or left out, and nothing here makes an agent wait. The sink must not
wait either. Ends when the tree has ended and the logs are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.recording.eventlog import Cursor
from proctor.actors.specs import Supervisor
from proctor.cli.ui.fleet_log import Line, Story
from proctor.protocols.vocabulary import AnyEvent
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.events import ChildStarted, Subscription, SupervisorEvent
from proctor.runtime.exits import NoProc

BUFFER = 10_000
"""Events of supervisors that may wait to be told."""

Sink = Callable[[Line], None]


def _ignore(event: SupervisorEvent) -> None:
    return


class Follower:
    """`names` gives the name in the registry of each agent's path; `on_event` gets each supervisor's event."""

    def __init__(
        self,
        story: Story,
        names: Mapping[str, str],
        sink: Sink,
        on_event: Callable[[SupervisorEvent], None] = _ignore,
    ) -> None:
        self._story = story
        self._names = names
        self._sink = sink
        self._on_event = on_event
        self._cursors: dict[str, Cursor] = {}
        self._followed: set[str] = set()

    async def follow(self, sup: Supervisor, events: Subscription) -> None:
        """Tell what happens until the tree has ended."""
        with events:
            async with trio.open_nursery() as nursery:
                async for event in events:
                    self._hear(event, sup, nursery)
        if events.dropped:
            self._sink(self._story.note(f"{events.dropped} events of supervisors came too fast to be told"))

    def _hear(self, event: SupervisorEvent, sup: Supervisor, nursery: trio.Nursery) -> None:
        self.drain()
        self._on_event(event)
        if line := self._story.of_tree(event):
            self._sink(line)
        if isinstance(event, ChildStarted) and event.path in self._names:
            self._start(nursery, sup, event.path)

    def _start(self, nursery: trio.Nursery, sup: Supervisor, path: str) -> None:
        if path not in self._followed:
            self._followed.add(path)
            nursery.start_soon(self._read_log, sup.agent(self._names[path]), path)

    async def _read_log(self, agent: Agent, path: str) -> None:
        try:
            async with agent.events(since=0) as fresh:
                old = self._cursors.get(path)
                cursor = self._cursors[path] = fresh if old is None or old.log is not fresh.log else old
                while self._tell(path, await cursor.batch()) or not cursor.log.closed:
                    pass
        except (NoProc, ActorExited, CallTimeout):
            pass  # it ended before it could be asked: its next start brings us back
        finally:
            self._followed.discard(path)

    def drain(self) -> None:
        """Tell what the agents' logs hold by now."""
        for path, cursor in self._cursors.items():
            while self._tell(path, cursor.batch_nowait()):
                pass

    def _tell(self, path: str, events: Sequence[AnyEvent]) -> bool:
        for line in self._story.of_agent(path, events):
            self._sink(line)
        return bool(events)
