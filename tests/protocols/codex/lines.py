"""Messages that the Codex app server may write, of the thread `OURS` and of one that it started."""

from __future__ import annotations

from typing import Any

OURS, CHILD = "thread-0", "thread-1"
HELLO: dict[str, Any] = {"id": 1, "result": {"userAgent": "proctor/0.169.0 (x)"}}
OPENED: dict[str, Any] = {
    "id": 2,
    "result": {"thread": {"id": OURS}, "model": "m", "approvalPolicy": {"granular": True}},
}
SHELL: dict[str, Any] = {"id": "call-1", "command": "ls", "cwd": "/w", "status": "inProgress"}
APPROVAL = "item/commandExecution/requestApproval"


def said(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": OURS, **params}, "emittedAtMs": 1}


def started(turn: str, thread: str = OURS) -> dict[str, Any]:
    return said("turn/started", threadId=thread, turn={"id": turn, "status": "inProgress"})


def ended(turn: str = "T1", status: str = "completed", thread: str = OURS, **more: Any) -> dict[str, Any]:
    return said("turn/completed", threadId=thread, turn={"id": turn, "status": status, **more})


def item(kind: str, thread: str = OURS, *, done: bool = True, **fields: Any) -> dict[str, Any]:
    method = "item/completed" if done else "item/started"
    return said(method, threadId=thread, turnId="T1", item={"type": kind, **fields})


def question(key: Any = 0, method: str = APPROVAL, **params: Any) -> dict[str, Any]:
    return {"id": key, **said(method, turnId="T1", itemId="call-1", **params)}
