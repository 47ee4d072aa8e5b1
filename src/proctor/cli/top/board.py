"""What is known of a fleet that is followed, and the frames that are drawn of it.

The thread that follows the host puts records in, and the view takes a frame out whenever it draws: only the newest record of
an agent is kept, so a view that is slow, or a fleet that is busy, costs no memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from proctor.cli.ui.need import need, shown_state, word_of

Record = Mapping[str, Any]
RATE_SECONDS = 10.0
"""The seconds over which the tokens per second are taken."""


@attrs.frozen
class Row:
    """A row of the table: an agent with its `record`, or a supervisor, which has an empty one."""

    name: str
    depth: int = 0
    record: Record = attrs.field(factory=dict[str, Any])
    asks: Record | None = None
    """The oldest of its open approvals."""

    @property
    def state(self) -> str:
        """The state that counts for a person; "" for a supervisor."""
        return shown_state(self.record["state"], self.record["approvals"]) if self.record else ""


def row_of(agent: Record, approvals: Mapping[str, Sequence[Record]], depth: int = 0) -> Row:
    """The row of an agent; `approvals` are the open ones, by agent."""
    asks = approvals.get(agent["name"]) if agent["approvals"] else None
    return Row(agent["name"], depth, agent, asks[0] if asks else None)


@attrs.frozen
class Frame:
    """A fleet at one moment. `trouble`: why nothing new comes from its host, "" while something does."""

    fleet: Record = attrs.field(factory=dict[str, Any])
    rows: Sequence[Row] = ()
    agents: Mapping[str, Record] = attrs.field(factory=dict[str, Record])
    approvals: Mapping[str, Sequence[Record]] = attrs.field(factory=dict[str, Sequence[Record]])
    tokens_per_second: float | None = None
    trouble: str = ""

    def count(self, *states: str) -> int:
        """How many agents are in one of these states."""
        return sum(shown_state(one["state"], one["approvals"]) in states for one in self.agents.values())


class Board:
    """The newest records of one fleet, filled by a thread and read by another. `version` grows with each change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fleet: Record = {}
        self._tree: Record | None = None
        self._agents: dict[str, Record] = {}
        self._approvals: dict[str, list[Record]] = {}
        self._trouble = ""
        self._tokens = deque[tuple[float, int]]()
        self.version = 0

    def put_snapshot(self, snapshot: Record, **host: Any) -> None:
        """Replace all that is known; `host` has what the snapshot itself does not say."""
        with self._lock:
            self._fleet = {**snapshot, **host, "agents": None, "tree": None}
            self._agents = {agent["name"]: agent for agent in snapshot["agents"]}
            self._tree = snapshot["tree"]
            self._trouble = ""
            self.version += 1

    def put(self, kind: str, record: Record) -> None:
        """Put in a change, by the kind of its event."""
        with self._lock:
            if kind == "agent":
                self._agents[record["name"]] = record
            elif kind == "tree":
                self._tree = record
            else:
                self._fleet = {**self._fleet, **record}
            self.version += 1

    def put_approval(self, approval: Record, now: float) -> None:
        """Put in an open approval, in the place of itself if it has more time; it gets the time at which it `ends`."""
        ending = {**approval, "ends": now + approval["seconds_left"]}
        with self._lock:
            asked = self._approvals.setdefault(approval["agent"], [])
            ids = [one["id"] for one in asked]
            if approval["id"] in ids:
                asked[ids.index(approval["id"])] = ending
            else:
                asked.append(ending)
            self.version += 1

    def settle_approval(self, agent: str, id: str) -> None:
        """Take an approval away that is open no more."""
        with self._lock:
            left = [one for one in self._approvals.pop(agent, ()) if one["id"] != id]
            self._approvals |= {agent: left} if left else {}
            self.version += 1

    def clear_approvals(self) -> None:
        """Take all approvals away: their host is gone."""
        with self._lock:
            self._approvals.clear()
            self.version += 1

    def agent(self, name: str) -> Record | None:
        """The newest record of an agent."""
        with self._lock:
            return self._agents.get(name)

    def touch(self) -> None:
        """Say that something else has changed that is drawn."""
        with self._lock:
            self.version += 1

    def put_trouble(self, why: str) -> None:
        """Say why nothing new comes from the host, "" when something does."""
        with self._lock:
            if why != self._trouble:
                self._trouble = why
                self.version += 1

    def frame(self, now: float, pattern: str = "") -> Frame:
        """The fleet now, with the rows of those agents that have `pattern` in one of their words."""
        with self._lock:
            return Frame(
                fleet=self._fleet,
                rows=tuple(self._rows(pattern.lower())),
                agents=dict(self._agents),
                approvals={name: tuple(asked) for name, asked in self._approvals.items()},
                tokens_per_second=self._rate(now),
                trouble=self._trouble,
            )

    def _rows(self, pattern: str) -> Iterator[Row]:
        left = {name for name, agent in self._agents.items() if _matches(agent, pattern)}
        if self._tree is not None:
            # its root is the fleet, which the head of the view has
            for child in self._sorted(self._tree.get("children", ())):
                yield from self._branch(child, 0, left)
        for agent in sorted((self._agents[name] for name in left), key=_key):
            yield row_of(agent, self._approvals)

    def _branch(self, node: Record, depth: int, left: set[str]) -> Iterator[Row]:
        if (name := node.get("agent")) is not None:
            if name in left:
                left.discard(name)
                yield row_of(self._agents[name], self._approvals, depth)
            return
        children = self._sorted(node.get("children", ()))
        below = [row for child in children for row in self._branch(child, depth + 1, left)]
        if below:
            yield Row(node["id"], depth)
            yield from below

    def _sorted(self, nodes: Sequence[Record]) -> Sequence[Record]:
        return sorted(nodes, key=self._node_key)

    def _node_key(self, node: Record) -> tuple[int, str]:
        """Its place: that of the agent below it that needs somebody most."""
        agent = self._agents.get(node.get("agent", ""))
        if agent is not None:
            return _key(agent)
        return min(map(self._node_key, node.get("children", ())), default=(99, ""))[0], node["id"]

    def _rate(self, now: float) -> float | None:
        counted = [agent["tokens"] for agent in self._agents.values() if agent.get("tokens") is not None]
        if not counted:
            return None
        self._tokens.append((now, sum(counted)))
        while len(self._tokens) > 2 and now - self._tokens[1][0] > RATE_SECONDS:
            self._tokens.popleft()
        (since, before), (_, total) = self._tokens[0], self._tokens[-1]
        # a restarted host counts from the beginning
        return max(0, total - before) / (now - since) if now > since else None


def _key(agent: Record) -> tuple[int, str]:
    return need(agent["state"], agent["approvals"]), agent["name"]


def _matches(agent: Record, pattern: str) -> bool:
    state = shown_state(agent["state"], agent["approvals"])
    words = (
        agent["name"],
        word_of(state),
        agent["evidence"],
        agent.get("kind"),
        agent["model"],
        agent.get("activity"),
    )
    return not pattern or any(pattern in word.lower() for word in words if word)
