"""The frames of Claude Code's wire that the scripted agent writes: pure functions from facts to records.

The fields are those that a host reads; the many others of the real CLI are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from proctor.actors.scripted.frames import ENDINGS, Frame, new_id, new_uuid
from proctor.actors.scripted.interfaces import Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "2.1.330"
REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."
TOOLS = ("Task", "AskUserQuestion", "Bash", "Edit", "ExitPlanMode", "Read", "WebFetch", "WebSearch", "Write")

API_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
} | {
    429: "rate_limit_error",
    529: "overloaded_error",
}

STOP_REASONS: Mapping[str, str] = {"completed": "end_turn", "model_refused": "refusal"}


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def empty_block(block: Frame) -> Frame:
    """A content block as `content_block_start` has it: nothing in it yet."""
    empty: Frame = {"text": "", "thinking": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def usage(input_tokens: int, output_tokens: int) -> Frame:
    return {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def init(session: str, model: str, mode: str, agent: Frame, mcp_servers: list[Frame]) -> Frame:
    """`system/init`, the first frame of a turn."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": os.getcwd(),
        "original_cwd": os.getcwd(),
        "session_id": session,
        "tools": agent.get("tools", list(TOOLS)),
        "mcp_servers": mcp_servers,
        "model": model,
        "permissionMode": mode,
        "slash_commands": [],
        "apiKeySource": "none",
        "claude_code_version": agent.get("version", VERSION),
        "output_style": "default",
        "agents": [],
        "skills": [],
        "plugins": [],
        "capabilities": [],
    }


def greeting(model: str, mode: str, agent: Frame) -> Frame:
    """The body of the reply to `initialize`."""
    return {
        "commands": [],
        "agents": [],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": [{"value": "default", "resolvedModel": model, "displayName": "Scripted"}],
        "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"},
        "pid": os.getpid(),
        "claude_code_version": agent.get("version", VERSION),
        "current_permission_mode": mode,
        "hook_on_failure_supported": True,
        "session_state": "idle",
        "capabilities": [],
    }


def message(message_id: str, model: str, content: list[Frame]) -> Frame:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage(10, 1),
    }


def assistant(body: Frame, parent: str | None) -> Frame:
    return {
        "type": "assistant",
        "message": body,
        "parent_tool_use_id": parent,
        "timestamp": timestamp(),
        "request_id": new_id("req"),
    }


def api_failure(text: str, status: int | None, word: str) -> Frame:
    """The text of an API failure, as the CLI writes it in the place of an answer."""
    body = message(new_uuid(), "<synthetic>", [{"type": "text", "text": text}])
    body.update(stop_reason="stop_sequence", stop_sequence="", usage=usage(0, 0))
    frame = {**assistant(body, None), "error": word, "is_api_error_message": True}
    if status is not None:
        frame.update(api_error_status=status, api_error_type=API_TYPES.get(status, "api_error"))
    return frame


def tool_result(call: str, text: str, failed: bool, source: str | None) -> Frame:
    """The result of a tool; `source` says who refused it, None where it was not refused."""
    decision = {"decision": "reject" if source else "accept", "source": source or "config"}
    return {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "content": text, "is_error": failed, "tool_use_id": call}],
        },
        "parent_tool_use_id": None,
        "timestamp": timestamp(),
        "tool_use_result": f"Error: {text}"
        if failed
        else {"stdout": text, "stderr": "", "interrupted": False},
        "tool_result_meta": [{"id": call, "permission_decision": decision}],
    }


def user(content: Any, **fields: object) -> Frame:
    frame = {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}
    return {**frame, "timestamp": timestamp(), **fields}


def block(kind: str, text: str) -> Frame:
    """A content block of `text` or `thinking`."""
    return {"type": kind, kind: text, **({"signature": "c2ln"} if kind == "thinking" else {})}


def denial(call: Call) -> Frame:
    return {"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input}


def permission_request(call: Call, description: str | None) -> Frame:
    name, arguments = call.name, call.input
    rule = {"toolName": name, **({"ruleContent": arguments["command"]} if "command" in arguments else {})}
    request: Frame = {
        "subtype": "can_use_tool",
        "tool_name": name,
        "display_name": name,
        "input": arguments,
        "description": description or name,
        "permission_suggestions": [
            {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}
        ],
        "tool_use_id": call.id,
    }
    if name in ("AskUserQuestion", "ExitPlanMode"):
        request["requires_user_interaction"] = True
    return request


def rate_limit(resets_at: int) -> Frame:
    info = {
        "status": "rejected",
        "resetsAt": resets_at,
        "rateLimitType": "five_hour",
        "isUsingOverage": False,
    }
    return {"type": "rate_limit_event", "rate_limit_info": info}


def model_usage(model: str, used: Frame, cost: float) -> Frame:
    return {
        model: {
            "inputTokens": used["input_tokens"],
            "outputTokens": used["output_tokens"],
            "cacheReadInputTokens": used.get("cache_read_input_tokens", 0),
            "cacheCreationInputTokens": used.get("cache_creation_input_tokens", 0),
            "costUSD": cost,
        }
    }


def result(ending: str, text: str, **facts: object) -> Frame:
    """The frame that ends a turn: `ending` of ENDINGS with `text`, and the facts of the turn as they are."""
    subtype, reason, status, word, _ = ENDINGS[ending]
    frame: Frame = {
        "type": "result",
        "subtype": subtype,
        "is_error": ending != "completed",
        "stop_reason": STOP_REASONS.get(ending, "stop_sequence" if word else None),
        "api_error_status": status,
        **facts,
    }
    if reason is not None:
        frame.setdefault("terminal_reason", reason)
    frame.update({"result": text} if subtype == "success" else {"errors": [text]})
    return frame


def refused_start(session: str) -> Frame:
    """The result of `--resume` with an unknown id."""
    text = f"No conversation found with session ID: {session}"
    facts = {
        "duration_ms": 0,
        "duration_api_ms": 0,
        "num_turns": 0,
        "total_cost_usd": 0,
        "usage": usage(0, 0),
    }
    return result(
        "error", text, **facts, modelUsage={}, permission_denials=[], session_id=new_uuid(), result_index=0
    )
