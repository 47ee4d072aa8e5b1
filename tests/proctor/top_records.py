"""Records of a fleet as a host sends them, and a source that has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from proctor.cli.top.board import Board, Record
from proctor.cli.top.feed import Report

NOW = datetime(2026, 11, 18, 11, 6, 40).timestamp()
"""The time of all screens, by the clock of the place, so that all places show the same."""
DIFF = """--- src/session.py
+++ src/session.py
@@ -12,3 +12,4 @@
 def close(self):
-    self.file.close()
+    if self.file is not None:
+        self.file.close()
     self.open = False
"""
QUESTION = {
    "text": "Which databases may I use?",
    "options": [
        {"label": "staging", "description": "a copy of last night"},
        {"label": "local", "description": "empty"},
        {"label": "none", "description": ""},
    ],
    "multiple": True,
}
COLOUR = {"text": "Which colour?", "options": [{"label": "red", "description": ""}], "multiple": False}
EVENTS = (*(f"Read: src/part_{n}.py" for n in range(3)), "says: I change the way a session is closed.")


def agent(name: str, state: str = "idle", **fields: Any) -> dict[str, Any]:
    """The record of an agent."""
    lives = state not in ("failed", "stopped", "backoff")
    common = {
        "name": name, "path": f"demo/{name}", "state": state, "evidence": "", "unresponsive": "",
        "not_recorded": "", "seconds": None, "pid": 4000 + len(name) if lives else None, "incarnation": 1,
        "session_id": None, "model": "claude-opus-4-5", "queued": 0, "until": None, "turns": 3,
        "cost_usd": 0.25, "since": NOW - 200, "restarts": 0, "last_exit": None, "approvals": 0,
        "kind": "claude", "activity": "", "context_tokens": 126_000, "context_window": 200_000,
        "tokens": 1_250_000, "cost_today_usd": 1.25, "tokens_today": 1_250_000, "last_event": NOW - 4,
        "started": NOW - 7500, "memory": 412 * 2**20 if lives else None, "cwd": f"/srv/demo/{name}",
        "worktree": None, "recording": f"/var/lib/proctor/runs/demo/{name}", "stopped_by": "",
    }  # fmt: skip
    return {**common, **fields}


def approval(name: str, id: str = "q1", **fields: Any) -> dict[str, Any]:
    """The record of an open approval."""
    common = {
        "agent": name, "id": id, "tool": "Bash", "input": {"command": "make deploy"}, "description": None,
        "tool_call": None, "seconds_left": 45.0, "diff": None, "choices": ["allow", "deny", "always"],
        "asked": NOW - 15, "question": None, "questions": [],
    }  # fmt: skip
    return {**common, **fields}


AGENTS = (
    agent("reader", turns=12),
    agent("fixer", "blocked", approvals=1, evidence="asks for Bash", model="claude-sonnet-4-5"),
    agent("tests", "working", activity="Bash: make test", queued=2, kind="codex", model="gpt-5.2-codex", context_window=400_000),
    agent("docs", "working", activity="I am reading the guide on approvals now", last_event=NOW - 130, kind="opencode", model="kimi-k2"),
    agent("audit", "parked", evidence="usage limit of claude until 15:00", until=NOW + 14_000, pid=None, memory=None),
    agent("build", "failed", evidence="not logged in: run claude /login", pid=None, memory=None, started=None, cost_today_usd=0.0, tokens=0),
    agent("deploy", "backoff", evidence="killed by SIGKILL", pid=None, memory=None, restarts=2, last_exit="killed by SIGKILL"),
    agent("old", "stopped", stopped_by="operator", pid=None, memory=None, started=None, last_event=NOW - 200_000),
)  # fmt: skip
TREE = {
    "id": "demo", "path": "demo", "state": "running",
    "children": [
        {"id": "review", "path": "demo/review", "state": "running", "children": [
            {"id": name, "path": f"demo/review/{name}", "agent": name} for name in ("reader", "fixer", "tests")
        ]},
        *({"id": one["name"], "path": one["path"], "agent": one["name"]} for one in AGENTS[3:]),
    ],
}  # fmt: skip
FLEET = {
    "fleet": "demo", "pid": 4242, "since": datetime.fromtimestamp(NOW - 8800).astimezone().isoformat(), "sequence": 1, "host": "build-7",
    "cost_today_usd": 8.75, "cost_cap_usd": 20.0, "file": "/srv/demo/fleet.toml",
    "limits": [{"name": "claude", "until": NOW + 14_000, "why": "the limit of five hours"}],
}  # fmt: skip


def crowd(number: int) -> tuple[dict[str, Any], ...]:
    """So many agents that work, every seventh of which asks for something."""
    states = ("working", "idle", "working", "working", "idle", "working", "blocked")
    return tuple(
        agent(
            f"worker-{n:02}",
            state := states[n % 7],
            approvals=int(state == "blocked"),
            activity="Read: src/a.py",
        )
        for n in range(number)
    )


def board_of(
    agents: Sequence[Record] = AGENTS, tree: Record | None = None, approvals: Sequence[Record] | None = None
) -> Board:
    """A board of these agents."""
    board = Board()
    board.put_snapshot({**FLEET, "agents": agents, "tree": tree})
    asking = [one["name"] for one in agents if one["approvals"]]
    for one in [approval(name) for name in asking] if approvals is None else approvals:
        board.put_approval(one, NOW)
    return board


@attrs.define
class Recorded:
    """The source of a board that is there already. `sent` has the requests."""

    board: Board = attrs.field(factory=board_of)
    lines: Sequence[str] = ()
    sent: list[tuple[str, str, Record | None]] = attrs.field(factory=list[tuple[str, str, Record | None]])
    watched: list[str | None] = attrs.field(factory=list[str | None])

    def start(self) -> None: ...

    def close(self) -> None: ...

    def watch(self, agent: str | None) -> None:
        self.watched.append(agent)

    def events(self) -> Sequence[str]:
        return self.lines

    def post(self, agent: str, rest: str, body: Record | None, report: Report) -> None:
        self.sent.append((agent, rest, body))
        report(f"{agent}: done", False)
