"""The view of a whole fleet that clients follow: a record of each agent, the tree, and a sequence number for each change.

A client takes a snapshot, and then the changes since its sequence number. Only the newest record of an agent is kept, so
a slow client gets each agent once, as it is by then, and costs no memory. Numbers begin with the time, in 10 µs: one of an
earlier host is recognized, and its client takes a new snapshot.

Agents are not asked: what they keep for their supervisor is read, so a busy one delays no view.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import attrs
import msgspec
import trio

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import Status
from proctor.actors.gateways.http.lifecycle import Lifecycle
from proctor.actors.gateways.http.schemas import FleetAgentRecord, FleetRecord, TreeRecord, record_of
from proctor.actors.gateways.http.streams import PING, Write, frame
from proctor.actors.serving.in_flight import CancelSignal
from proctor.runtime.exits import Crash, ExitReason
from proctor.runtime.messaging import TreeNode

TICK = 0.1
"""Seconds between two looks for changes while somebody follows them: at 500 agents 2 % of a core, for all who follow."""


@attrs.define
class Item:
    """A record, the facts that it was made of, and the number of its last change."""

    record: msgspec.Struct
    facts: tuple[Any, ...]
    sequence: int
    _encoded: bytes | None = None

    @property
    def event(self) -> bytes:
        """It as a server-sent event, encoded once for all clients."""
        if self._encoded is None:
            kind = "tree" if isinstance(self.record, TreeRecord) else "agent"
            self._encoded = frame(kind, msgspec.json.encode(self.record), self.sequence)
        return self._encoded


class FleetView:
    """The view of `agents`, by name. `lifecycle` has the supervisor above them, if any, and `absent` the reason why one is left out."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        lifecycle: Lifecycle | None,
        absent: Mapping[str, str],
    ) -> None:
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self.sequence = self._first = time.time_ns() // 10_000
        self._agents = agents
        self._tree = None if lifecycle is None else lifecycle.tree
        self._names = {} if lifecycle is None else {path: name for name, path in lifecycle.paths.items()}
        self._absent = absent
        self._items: dict[str, Item] = {}
        self._nodes: Mapping[str, TreeNode] = {}
        # one event is enough to show that something has changed
        self._events = None if self._tree is None else self._tree.events(1)
        self._looked = False
        self._refreshed = 0.0

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
        self.refresh()
        records = (item.record for _, item in sorted(self._items.items()))
        return tuple(record for record in records if isinstance(record, FleetAgentRecord))

    def refresh(self) -> None:
        """Look at every agent."""
        self._refreshed = trio.current_time()
        self._look_at_tree()
        for name, agent in self._agents.items():
            self._look_at(name, agent)

    def snapshot(self) -> FleetRecord:
        """The whole fleet now."""
        agents, tree = self.records(), self._items[""].record if "" in self._items else None
        return FleetRecord(
            fleet="" if self._tree is None else self._tree.tree().id,
            pid=os.getpid(),
            since=self._began,
            sequence=self.sequence,
            agents=agents,
            tree=tree if isinstance(tree, TreeRecord) else None,
        )

    async def wait_changed(self, sequence: int, closing: CancelSignal, pause: float) -> bool:
        """Wait until something has changed since that number, at most `pause` seconds and until `closing` fires."""
        with closing.limit(pause):
            while self.sequence == sequence:
                # one look serves all who follow
                if trio.current_time() - self._refreshed >= TICK:
                    self.refresh()
                if self.sequence == sequence:
                    await trio.sleep(TICK)
        return self.sequence != sequence

    # -- looks

    def _look_at_tree(self) -> None:
        if self._tree is None or (self._looked and not self._has_event()):
            return
        self._looked = True
        root = self._tree.tree()
        self._nodes = {
            self._names[_place(node)]: node for node in _below(root) if _place(node) in self._names
        }
        record = self._tree_record(root)
        self._put("", record, (record,))

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

    def _look_at(self, name: str, agent: Agent) -> None:
        kept, node, why = agent.kept_state(), self._nodes.get(name), self._absent.get(name)
        seen = () if kept is None else (kept.status, kept.pid, len(kept.waiting), len(kept.approvals.open()))
        facts = (node, why, *seen)
        if (item := self._items.get(name)) is None or item.facts != facts:
            self._put(name, _agent_record(name, kept, node, why), facts)

    def _put(self, key: str, record: FleetAgentRecord | TreeRecord, facts: tuple[Any, ...]) -> None:
        item = self._items.get(key)
        if item is not None and item.record == record:
            item.facts = facts
            return
        self.sequence += 1
        self._items[key] = Item(record, facts, self.sequence)


def _agent_record(
    name: str, kept: AgentState | None, node: TreeNode | None, why: str | None
) -> FleetAgentRecord:
    status = _status(name, kept, node, why)
    since = round(time.time() - (trio.current_time() - status.since), 3) if status.since else None
    return record_of(
        FleetAgentRecord,
        status,
        seconds=None,
        since=since,
        path=name if node is None else node.path,
        restarts=0 if node is None else node.restarts,
        last_exit=None if node is None or node.exit is None else _exit_text(node.exit),
        approvals=0 if kept is None else len(kept.approvals.open()),
    )


def _status(name: str, kept: AgentState | None, node: TreeNode | None, why: str | None) -> Status:
    """The status as the agent itself gives it, or as its supervisor knows it."""
    if why is not None:
        return Status(name=name, state="failed", evidence=why)
    if kept is not None and (node is None or node.state != "restarting"):
        return kept.now(incarnation=0 if node is None else node.incarnation)
    if kept is not None:
        return kept.backoff_status()
    if node is None or node.state == "starting":
        return Status(name=name, state="starting")
    return Status(name=name, state="stopped", evidence="" if node.exit is None else _exit_text(node.exit))


def _exit_text(reason: ExitReason) -> str:
    return str(reason.error) or type(reason.error).__name__ if isinstance(reason, Crash) else str(reason)


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
