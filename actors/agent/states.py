"""The states of an agent and the table of their transitions.

    starting ─ready→ idle ─prompt→ working ─turn_ended→ idle        blocked: a question is open
                                   working ─limit→ parked           parked: until a limit resets or a budget frees
    any ─exited→ backoff (a restart is due)  ─started→ starting
    any ─stop→ stopping ─exited→ stopped (on request) · failed (a restart would not help) · done (exited by itself)

A pair without an entry cannot happen: `AgentState.transition` notes it and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

State = Literal[
    "starting",
    "idle",
    "working",
    "blocked",
    "parked",
    "stalled",
    "backoff",
    "stopping",
    "done",
    "stopped",
    "failed",
]
Trigger = Literal[
    "started", "ready", "prompt", "turn_started", "question", "answered", "turn_ended", "limit", "woke", "refused", "stalled",
    "stop", "lost", "left", "gone",
]  # fmt: skip

_IGNORED_WHILE_STOPPING: tuple[Trigger, ...] = (
    "stop", "ready", "turn_started", "question", "answered", "turn_ended", "limit", "refused", "stalled",
)  # fmt: skip
_ALIVE: tuple[State, ...] = ("starting", "idle", "working", "blocked", "parked", "stalled", "failed", "done")

TRANSITIONS: Mapping[tuple[State, Trigger], State] = {
    ("starting", "ready"): "idle",
    ("starting", "refused"): "failed",
    ("idle", "prompt"): "working",
    ("idle", "limit"): "parked",
    ("idle", "turn_started"): "working",
    ("idle", "refused"): "failed",
    ("idle", "stalled"): "stalled",
    ("idle", "question"): "blocked",
    ("idle", "turn_ended"): "idle",
    ("idle", "answered"): "idle",
    ("working", "prompt"): "working",
    ("working", "ready"): "working",
    ("working", "question"): "blocked",
    ("working", "answered"): "working",
    ("working", "turn_ended"): "idle",
    ("working", "limit"): "parked",
    ("working", "refused"): "failed",
    ("working", "stalled"): "stalled",
    ("blocked", "question"): "blocked",
    ("blocked", "answered"): "working",
    ("blocked", "turn_ended"): "idle",
    ("blocked", "limit"): "parked",
    ("blocked", "refused"): "failed",
    ("blocked", "stalled"): "stalled",
    ("parked", "woke"): "working",
    ("parked", "turn_ended"): "parked",
    ("stalled", "turn_ended"): "stalled",
    ("failed", "prompt"): "working",
    ("failed", "refused"): "failed",
    ("failed", "limit"): "parked",
    ("failed", "stalled"): "stalled",
    ("done", "limit"): "parked",
    ("failed", "ready"): "idle",
    ("done", "prompt"): "working",
    **{(state, "started"): "starting" for state in ("backoff", "stopping", "stopped", *_ALIVE)},
    **{(state, "stop"): "stopping" for state in _ALIVE},
    **{("stopping", trigger): "stopping" for trigger in _IGNORED_WHILE_STOPPING},
    **{(state, "lost"): "backoff" for state in _ALIVE},
    **{(state, "left"): "done" for state in _ALIVE},
    ("stopping", "lost"): "stopped",
    ("stopping", "left"): "stopped",
    **{(state, "gone"): "stopped" for state in ("backoff", "stopping", "stopped", *_ALIVE)},
}


@attrs.frozen(kw_only=True)
class Status:
    """An agent at one moment. `evidence` says why it is in that state; `since` is on Trio's clock (seconds).

    `until` is when it wakes (Unix seconds) if parked, `queued` the requests waiting, `cost_usd` all turns so far.
    `unresponsive` says what was found of a CLI that answers nothing, "" for one that does; `not_recorded` why nothing is
    recorded at present, "" where it is. `recording` is the folder that its recording is kept in, None where none is.
    """

    name: str
    state: State
    evidence: str = ""
    unresponsive: str = ""
    not_recorded: str = ""
    recording: str | None = None
    since: float = 0.0
    pid: int | None = None
    incarnation: int = 0
    session_id: str | None = None
    model: str | None = None
    queued: int = 0
    until: float | None = None
    turns: int = 0
    cost_usd: float | None = None

    @property
    def summary(self) -> str:
        """State and evidence, for a person."""
        return f"{self.state} ({self.evidence})" if self.evidence else self.state
