"""A Codex thread and a turn of it, as records of the app-server."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from proctor.actors.scripted.agent import Agent

    Frame: TypeAlias = dict[str, Any]

VERSION = "0.169.0"


def thread_reply(agent: Agent, policy: str, forked: str | None) -> Frame:
    """The result of `thread/start`, `thread/resume` and `thread/fork`."""
    now = int(time.time())
    thread: Frame = {
        "id": agent.session,
        "sessionId": agent.session,
        "forkedFromId": forked,
        "preview": "",
        "ephemeral": False,
        "modelProvider": "scripted",
        "model": agent.model,
        "createdAt": now,
        "updatedAt": now,
        "status": {"type": "idle"},
        "cwd": os.getcwd(),
        "cliVersion": agent.script.agent.get("version", VERSION),
        "source": "vscode",
        "turns": [],
    }
    known = {"model": agent.model, "modelProvider": "scripted", "cwd": os.getcwd(), "reasoningEffort": None}
    rules = {"approvalPolicy": policy, "approvalsReviewer": "user", "sandbox": {"type": "workspaceWrite"}}
    return {"thread": thread, **known, **rules}


def turn_frame(name: str, status: str, last: Frame | None, *, started: bool, error: Frame | None) -> Frame:
    """A turn; one that is completed carries its last message."""
    now = int(time.time())
    return {
        "id": name,
        "rootTurnId": name,
        "items": [last] if last is not None and status == "completed" else [],
        "itemsView": "summary" if status == "completed" else "notLoaded",
        "status": status,
        "error": error,
        "startedAt": now if started else None,
        "completedAt": None if status == "inProgress" else now,
        "durationMs": None,
    }


def counted(taken: int, given: int) -> Frame:
    """Tokens as the app-server counts them."""
    none = {"cachedInputTokens": 0, "cacheWriteInputTokens": 0, "reasoningOutputTokens": 0}
    return {"totalTokens": taken + given, "inputTokens": taken, "outputTokens": given, **none}
