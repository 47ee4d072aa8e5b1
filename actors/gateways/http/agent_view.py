"""The view of one agent of a fleet: its record, made anew when its state changes, and once a second when it only works.

What tells that an agent works (its activity, its tokens, its last event) changes with each line of its command line. It is read from
what the agent keeps, when somebody looks: it costs the agent nothing, and all who follow a fleet share one look.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import attrs

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.approval_queue import Approval
from proctor.actors.agent.handle import Agent
from proctor.actors.agent.progress import Progress
from proctor.actors.agent.states import Status
from proctor.actors.expense import add_usage
from proctor.actors.gateways.http.schemas import AgentRecord, FleetAgentRecord
from proctor.actors.operations.restarts import cause_of
from proctor.actors.plan.account_id import kind_of
from proctor.actors.process.agent_process import AgentProcess
from proctor.protocols.vocabulary import Usage
from proctor.runtime.messaging import TreeNode
from proctor.runtime.processes import resident_of

PACE = 1.0
"""Seconds between two records of an agent whose state does not change."""
MEMORY_PACE = 5.0
"""Seconds between two looks at the memory of its process."""
_STATUS = tuple(name for name in AgentRecord.__struct_fields__ if name != "seconds")


@attrs.frozen
class Moment:
    """The time of a look: on Trio's clock (seconds), what Unix time is ahead of that, and the local day."""

    now: float
    ahead: float
    day: date

    def unix(self, time: float) -> float:
        """A time on Trio's clock in Unix seconds."""
        return round(time + self.ahead, 3)


@attrs.define
class AgentView:
    """The view of `agent`; `absent` is why it is left out. `seen` is when it was looked at last for its work (Trio's clock)."""

    agent: Agent
    seen: float
    absent: str | None = None
    _facts: tuple[Any, ...] | None = None
    _kept: AgentState | None = None
    _cwd: str = ""
    _state: tuple[object, ...] = ()
    _progress: Progress = attrs.field(factory=Progress)
    _pid: int | None = None
    _memory: int | None = None
    _weighed: float = 0.0

    def open_approvals(self) -> tuple[Approval, ...]:
        """Its questions without an answer, as of the last look at it."""
        return () if self._kept is None else self._kept.approvals.open()

    def look(
        self, node: TreeNode | None, stopped_by: str, at: Moment, *, anew: bool
    ) -> FleetAgentRecord | None:
        """The record, if its state has changed, or it has worked on and the last look is old enough, or at any age if `anew`; else None."""
        is_due = at.now - self.seen >= PACE
        if is_due and not anew:  # else one snapshot would make all due at one look
            self.seen = at.now
        self._kept = kept = self.agent.kept_state()
        facts: tuple[Any, ...] = (node, stopped_by, self.absent)
        if kept is not None:
            self._state = _state(kept)
            facts = (*facts, *self._state, kept.hold())
        if facts != self._facts:
            self._facts = facts
            # only here: to ask the system for it is a quarter of a record
            self._cwd = "" if kept is None else _folder(kept.plan.workplace.cwd)
        elif not anew and not (is_due and self._has_news(kept, at)):
            return None
        return self._record(kept, node, stopped_by, at)

    def is_as_seen(self, now: float) -> bool:
        """Whether a look would find the same state, as far as the agent itself tells it, and is not due for its work either. It costs a tenth of a
        look: 500 agents are asked ten times a second."""
        kept = self._kept
        return kept is not None and now - self.seen < PACE and _state(kept) == self._state

    def _has_news(self, kept: AgentState | None, at: Moment) -> bool:
        if kept is None:
            return False
        return kept.log.end != self._progress.position or at.now - self._weighed >= MEMORY_PACE

    def _record(
        self, kept: AgentState | None, node: TreeNode | None, stopped_by: str, at: Moment
    ) -> FleetAgentRecord:
        status = _status(self.agent.name, kept, node, self.absent)
        if stopped_by and status.state in (
            "stopped",
            "failed",
        ):  # also one whose first start was ended by that
            status = attrs.evolve(status, state="stopped", evidence=f"by the {stopped_by}")
        fields: dict[str, Any] = {name: getattr(status, name) for name in _STATUS}
        if kept is not None:
            fields.update(self._work(kept, at))
            fields.update(_current(kept, node))
        return FleetAgentRecord(
            **fields,
            since=at.unix(status.since) if status.since else None,
            path=self.agent.name if node is None else node.path,
            restarts=0 if node is None else node.restarts,
            last_exit=None if node is None or node.exit is None else cause_of(node.exit),
            stopped_by=stopped_by if status.state in ("stopping", "stopped") else "",
        )

    def _work(self, kept: AgentState, at: Moment) -> dict[str, Any]:
        """The fields that tell of its work."""
        self._progress.follow(kept.log)
        memo = None if kept.process is None else kept.process.conversation.memo
        # a turn is counted at its end: until then some CLIs report what it has taken so far
        running = None if kept.process is None else kept.process.conversation.used()[0]
        today = kept.today.on(at.day)
        return {
            "kind": kind_of(kept.plan),
            "activity": self._progress.text,
            "context_tokens": None if memo is None else memo.context_tokens,
            "context_window": None if memo is None else memo.context_window,
            "tokens": _count(add_usage(kept.expense.usage, running)),
            "tokens_today": _count(add_usage(None if today is None else today.usage, running)),
            "cost_today_usd": None if today is None else today.cost_usd,
            "last_event": at.unix(_last_event(kept)),
            "started": at.unix(kept.began),
            "memory": self._weigh(kept.process, at.now),
            "cwd": self._cwd,
            "recording": kept.status.recording,
            "worktree": None if kept.workspace is None else str(kept.workspace.place or "") or None,
            "approvals": len(kept.approvals),
        }

    def _weigh(self, process: AgentProcess | None, now: float) -> int | None:
        pid = None if process is None else process.program_pid
        if pid != self._pid or now - self._weighed >= MEMORY_PACE:
            self._pid, self._weighed = pid, now
            self._memory = None if pid is None else resident_of(pid)
        return self._memory


def _state(kept: AgentState) -> tuple[object, ...]:
    """What changes with the state of an agent."""
    return kept.status, kept.process, kept.queued, kept.approvals.asked


def _count(usage: Usage | None) -> int:
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _folder(cwd: Path | None) -> str:
    try:
        return str(cwd or Path.cwd())
    except OSError:  # that of the host was removed
        return ""


def _last_event(kept: AgentState) -> float:
    process = kept.process
    return kept.status.since if process is None else max(kept.status.since, process.liveness.last_output)


def _status(name: str, kept: AgentState | None, node: TreeNode | None, why: str | None) -> Status:
    """The status as the agent itself gives it, or as its supervisor knows it."""
    if why is not None:
        return Status(name=name, state="failed", evidence=why)
    if kept is not None:
        return kept.held_status()
    if node is None or node.state == "starting":
        return Status(name=name, state="starting")
    return Status(name=name, state="stopped", evidence="" if node.exit is None else cause_of(node.exit))


def _current(kept: AgentState, node: TreeNode | None) -> dict[str, Any]:
    """The fields of its status that are not kept in it, as `AgentState.now` and `backoff_status` have them."""
    if node is not None and node.state == "restarting":
        return {"state": "backoff", "queued": kept.queued}
    pid = None if kept.process is None else kept.process.pid
    return {
        "pid": pid,
        "queued": kept.queued,
        "incarnation": 0 if node is None else node.incarnation,
    }
