"""The view of a whole fleet that clients follow: a record of each agent, the tree, and a sequence number for each change.

A client takes a snapshot, and then the changes since its sequence number. Only the newest record of an agent is kept, so
a slow client gets each agent once, as it is by then, and costs no memory. Numbers begin with the time, in 10 µs: one of an
earlier host is recognized, and its client takes a new snapshot.

Agents are not asked: what they keep for their supervisor is read, so a busy one delays no view.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import msgspec
import trio

from proctor.actors.agent.approval_queue import Approval
from proctor.actors.agent.handle import Agent
from proctor.actors.gateways.http.agent_view import PACE, AgentView, Moment
from proctor.actors.gateways.http.lifecycle import Lifecycle
from proctor.actors.gateways.http.schemas import (
    FleetAgentRecord,
    FleetFacts,
    FleetRecord,
    LimitRecord,
    SettledRecord,
    TreeRecord,
    approval_record,
    record_of,
)
from proctor.actors.gateways.http.streams import PING, Write, frame
from proctor.actors.limits.admission import TreeLimits
from proctor.actors.serving.in_flight import CancelSignal
from proctor.runtime.messaging import TreeNode

TICK = 0.1
"""Seconds between two looks for changes while somebody follows them: at 500 agents 0.2 % of a core, 2 % while all work, for all who follow
(`bench/views.py`)."""
_SHARES = 10
_CLOCK_SET = 0.05
"""Seconds by which the difference of two clocks moves when one of them is set."""


@attrs.define
class Item:
    """A record, and the number of its last change."""

    record: FleetAgentRecord | TreeRecord | FleetFacts
    sequence: int
    _encoded: bytes | None = None

    @property
    def event(self) -> bytes:
        """It as a server-sent event, encoded once for all clients."""
        if self._encoded is None:
            self._encoded = frame(_EVENTS[type(self.record)], msgspec.json.encode(self.record), self.sequence)
        return self._encoded


_EVENTS: Mapping[type, str] = {FleetAgentRecord: "agent", TreeRecord: "tree", FleetFacts: "fleet"}
_TREE, _FLEET = "tree ", "fleet "
"""Their keys among those of agents, whose names have no blank."""


class FleetView:
    """The view of `agents`, by name. `lifecycle` has the supervisor above them, if any, and `absent` the reason why one is left out; `file` is their
    fleet file, `limits` are those that they share. `wall` gives Unix seconds."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        lifecycle: Lifecycle | None,
        absent: Mapping[str, str],
        *,
        file: Path | None = None,
        limits: TreeLimits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self.sequence = self._first = time.time_ns() // 10_000
        self._agents = agents
        self._tree = None if lifecycle is None else lifecycle.tree
        self._names = _names_of(lifecycle)
        self._lifecycle = lifecycle
        self._absent = absent
        self._limits = limits
        self._wall = wall
        self._facts = FleetFacts(host=socket.gethostname(), file=None if file is None else str(file))
        self._views: dict[str, AgentView] = {}
        self._items: dict[str, Item] = {}
        self._nodes: Mapping[str, TreeNode] = {}
        # one event is enough to show that something has changed
        self._events = None if self._tree is None else self._tree.events(1)
        self._looked = False
        self._refreshed = self._summed = -math.inf
        self._ahead = 0.0
        self._decisions: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._events is not None:
            self._events.close()

    def covers(self, sequence: int) -> bool:
        """Whether the changes since that number are known: it is one of this host."""
        return self._first <= sequence <= self.sequence

    def changes_since(self, sequence: int) -> Iterator[bytes]:
        """What has changed since that number, as server-sent events in the order of their numbers."""
        changed = (item for item in self._items.values() if item.sequence > sequence)
        return (item.event for item in sorted(changed, key=lambda item: item.sequence))

    def records(self) -> tuple[FleetAgentRecord, ...]:
        """The agents now, by name."""
        self.refresh(anew=True)
        records = (item.record for _, item in sorted(self._items.items()))
        return tuple(record for record in records if isinstance(record, FleetAgentRecord))

    def refresh(self, *, anew: bool = False) -> None:
        """Look at every agent that has changed or is due; with `anew` at each, and at all of it."""
        at = self._moment()
        self._refreshed = at.now
        # what others have decided about agents is not in what the agents keep
        decisions = None if self._limits is None else self._limits.changes.value
        is_other = self._look_at_tree() or decisions != self._decisions
        self._decisions = decisions
        for number, (name, agent) in enumerate(self._agents.items()):
            if (view := self._views.get(name)) is None:
                # spread over the pace, so that no look makes the records of all
                seen = at.now - PACE * (number % _SHARES) / _SHARES
                view = self._views[name] = AgentView(agent, seen)
            absent = self._absent.get(name)
            if not (anew or is_other) and absent == view.absent and view.is_as_seen(at.now):
                continue
            view.absent = absent
            is_stopped = self._lifecycle is not None and self._lifecycle.is_stopped(name)
            stopped_by = "operator" if is_stopped else ""
            record = view.look(self._nodes.get(name), stopped_by, at, anew=anew)
            if record is not None:
                self._put(name, record)
        if anew or at.now - self._summed >= PACE:
            self._summed = at.now
            self._put(_FLEET, self._sum(at))

    def look(self) -> None:
        """Look at every agent, unless that was done just now: one look serves all who follow."""
        if trio.current_time() - self._refreshed >= TICK:
            self.refresh()

    def _moment(self) -> Moment:
        now = trio.current_time()
        ahead = self._wall() - now
        # kept while the clocks agree: else each look would give another time for the same event
        if abs(ahead - self._ahead) > _CLOCK_SET:
            self._ahead = ahead
        return Moment(now, self._ahead, date.fromtimestamp(now + self._ahead))

    def _sum(self, at: Moment) -> FleetFacts:
        records = [item.record for item in self._items.values()]
        costs = [record.cost_today_usd for record in records if isinstance(record, FleetAgentRecord)]
        known = [cost for cost in costs if cost is not None]
        limits = self._limits
        budget = None if limits is None else limits.book.budget
        in_force = () if limits is None else limits.in_force(at.now)
        return msgspec.structs.replace(
            self._facts,
            cost_today_usd=round(math.fsum(known), 6) if known else None,
            cost_cap_usd=None if budget is None else budget.usd,
            limits=tuple(
                LimitRecord(name=name, until=round(at.unix(at.now + left)), why=why)
                for name, left, why in in_force
            ),
        )

    def forget_tree(self) -> None:
        """Look at the tree next time, also without an event of it."""
        self._looked = False

    def on_reload(self) -> None:
        """Other agents are there. Where some have gone, all who follow take a new snapshot."""
        self._names = _names_of(self._lifecycle)
        self.forget_tree()
        if gone := self._views.keys() - self._agents.keys():
            for name in gone:
                del self._views[name]
                self._items.pop(name, None)
            self.sequence += 1
            self._first = self.sequence

    def snapshot(self) -> FleetRecord:
        """The whole fleet now."""
        agents = self.records()
        facts, tree = self._items[_FLEET].record, self._items.get(_TREE)
        return record_of(
            FleetRecord,
            facts,
            fleet="" if self._tree is None else self._tree.tree().id,
            pid=os.getpid(),
            since=self._began,
            sequence=self.sequence,
            agents=agents,
            tree=tree.record if tree is not None else None,
        )

    def approvals(self) -> tuple[Approval, ...]:
        """The open approvals of all agents, by name, the oldest of each first."""
        views = (view for _, view in sorted(self._views.items()))
        return tuple(approval for view in views for approval in view.open_approvals())

    async def wait_changed(self, sequence: int, closing: CancelSignal, pause: float) -> bool:
        """Wait until something has changed since that number, at most `pause` seconds and until `closing` fires."""
        with closing.limit(pause):
            while self.sequence == sequence:
                self.look()
                if self.sequence == sequence:
                    await trio.sleep(TICK)
        return self.sequence != sequence

    # -- looks

    def _look_at_tree(self) -> bool:
        """Whether anything may have changed in it."""
        if self._tree is None or (self._looked and not self._has_event()):
            return False
        self._looked = True
        root = self._tree.tree()
        self._nodes = {
            self._names[_place(node)]: node for node in _below(root) if _place(node) in self._names
        }
        self._put(_TREE, self._tree_record(root))
        return True

    def _has_event(self) -> bool:
        with suppress(trio.WouldBlock):
            if self._events is not None:
                self._events.receive_nowait()
                return True
        return False

    def _tree_record(self, node: TreeNode) -> TreeRecord:
        if (name := self._names.get(_place(node))) is not None:
            return TreeRecord(id=node.id, path=node.path, agent=name)
        below = tuple(map(self._tree_record, node.children))
        return TreeRecord(
            id=node.id, path=node.path, state=node.state, restarts=node.restarts, children=below
        )

    def _put(self, key: str, record: FleetAgentRecord | TreeRecord | FleetFacts) -> None:
        item = self._items.get(key)
        if item is None or item.record != record:
            self.sequence += 1
            self._items[key] = Item(record, self.sequence)


def _names_of(lifecycle: Lifecycle | None) -> dict[str, str]:
    return {} if lifecycle is None else {path: name for name, path in lifecycle.paths.items()}


def _place(node: TreeNode) -> str:
    return node.path.partition("/")[2]


def _below(node: TreeNode) -> Iterator[TreeNode]:
    for child in node.children:
        yield child
        yield from _below(child)


async def write_changes(
    view: FleetView, since: int | None, closing: CancelSignal, pause: float, write: Write
) -> str:
    """Write what changes in a fleet after the number `since`, by default from now on, until `closing` fires."""
    await write(b": changes\n\n")
    view.refresh()
    sequence = view.sequence if since is None else since
    while closing.why is None:
        if not view.covers(sequence):
            sequence = view.sequence
            await write(frame("snapshot", b"{}", sequence))
        # taken before the write, which may take long: what changes meanwhile is sent next
        data, sequence = b"".join(view.changes_since(sequence)), view.sequence
        if data:
            await write(data)
        elif not await view.wait_changed(sequence, closing, pause) and closing.why is None:
            await write(PING)
    return closing.why


async def write_all_approvals(view: FleetView, closing: CancelSignal, pause: float, write: Write) -> str:
    """Write the open approvals of all agents, new ones, those that have more time, and how each is settled, until `closing` fires."""
    await write(b": approvals\n\n")
    shown: dict[Approval, float] = {}
    written = trio.current_time()
    while closing.why is None:
        view.look()
        found = {approval: approval.deadline for approval in view.approvals()}
        data = b"".join(_approval_events(shown, found))
        shown = found
        if data or trio.current_time() - written >= pause:
            await write(data or PING)
            written = trio.current_time()
        with closing.limit(TICK):
            await trio.sleep_forever()
    return closing.why


def _approval_events(shown: Mapping[Approval, float], found: Mapping[Approval, float]) -> Iterator[bytes]:
    for approval in shown:
        if approval not in found:
            end = record_of(SettledRecord, approval, settled=approval.settled or "")
            yield frame("settled", msgspec.json.encode(end))
    for approval, deadline in found.items():
        if shown.get(approval) != deadline:
            yield frame("approval", msgspec.json.encode(approval_record(approval)))
