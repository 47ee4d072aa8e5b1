"""The frames of Codex that the scripted agent writes: a thread, its turns, tool calls as items, causes of failed turns.

A call with a command is a shell command, every other one a tool of an MCP server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import ENDINGS, Frame
from proctor.actors.scripted.interfaces import Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "0.169.0"
SERVER = "scripted"

# ending: what the app-server calls the cause, and the message of both modes; None: only the script's own text
FAILURES: Mapping[str, tuple[Any, str | None]] = {
    "authentication": (
        {"httpConnectionFailed": {"httpStatusCode": 401}},
        "unexpected status 401 Unauthorized: Incorrect API key provided",
    ),
    "limit": ("usageLimitExceeded", "Quota exceeded. Check your plan and billing details."),
    "overloaded": ("serverOverloaded", "Selected model is at capacity. Please try a different model."),
    "api_error": (
        {"responseTooManyFailedAttempts": {"httpStatusCode": 500}},
        "exceeded retry limit, last status: 500 Internal Server Error",
    ),
    "invalid_request": ("badRequest", "unexpected status 400 Bad Request: bad"),
    "prompt_too_long": ("contextWindowExceeded", "Your input exceeds the context window of this model."),
    "model_not_found": ("modelNotFound", "unexpected status 404 Not Found: no such model"),
    "model_refused": ("cyberPolicy", "This content was flagged."),
    "max_turns": ("other", None),
    "budget": ("sessionBudgetExceeded", None),
    "schema_unmet": ("other", None),
    "error": ("other", None),
}


def failure(ending: str, text: str) -> tuple[Any, str]:
    """The cause and the message of a turn that failed; `text` of the script goes before the wire's own."""
    cause, message = FAILURES[ending]
    return cause, text if message is None or text != ENDINGS[ending][-1] else message


def is_command(call: Call) -> bool:
    return isinstance(call.input.get("command"), str)


def wrapped(call: Call) -> str:
    return f"/bin/bash -lc '{call.input['command']}'"


def call_item(call: Call, status: str, text: str | None = None) -> Frame:
    """A tool call of the app-server: `inProgress`, `completed`, `failed` or `declined`."""
    done = status in ("completed", "failed")
    content = {"content": [{"type": "text", "text": text or ""}]}
    if not is_command(call):
        return {
            "type": "mcpToolCall",
            "id": call.id,
            "server": SERVER,
            "tool": call.name,
            "status": status,
            "arguments": call.input,
            "result": {**content, "structuredContent": None, "_meta": None}
            if status == "completed"
            else None,
            "error": {"message": text} if status == "failed" else None,
            "durationMs": 1 if done else None,
        }
    return {
        "type": "commandExecution",
        "id": call.id,
        "command": wrapped(call),
        "cwd": os.getcwd(),
        "processId": None,
        "source": "agent",
        "status": status,
        "commandActions": [{"type": "unknown", "command": call.input["command"]}],
        "aggregatedOutput": text if done else None,
        "exitCode": int(status == "failed") if done else None,
        "durationMs": 1 if done else None,
    }


def exec_item(call: Call, item: str, status: str, text: str | None = None) -> Frame:
    """The same of `exec --json`: `in_progress`, `completed` or `failed`."""
    done = status != "in_progress"
    if is_command(call):
        return {
            "id": item,
            "type": "command_execution",
            "command": wrapped(call),
            "aggregated_output": text or "",
            "exit_code": int(status == "failed") if done else None,
            "status": status,
        }
    result = {"content": [{"type": "text", "text": text or ""}], "structured_content": None}
    return {
        "id": item,
        "type": "mcp_tool_call",
        "server": SERVER,
        "tool": call.name,
        "arguments": call.input,
        "result": result if status == "completed" else None,
        "error": {"message": text} if status == "failed" else None,
        "status": status,
    }


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
    settings = {
        "model": agent.model,
        "modelProvider": "scripted",
        "cwd": os.getcwd(),
        "reasoningEffort": None,
    }
    rules = {"approvalPolicy": policy, "approvalsReviewer": "user", "sandbox": {"type": "workspaceWrite"}}
    return {"thread": thread, **settings, **rules}


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


def counted(input_tokens: int, output_tokens: int) -> Frame:
    """Tokens as the app-server counts them."""
    none = {"cachedInputTokens": 0, "cacheWriteInputTokens": 0, "reasoningOutputTokens": 0}
    return {
        "totalTokens": input_tokens + output_tokens,
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        **none,
    }
