"""JSON values, ids, and the endings of a turn with their errors, which all wires share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, cast

    Frame: TypeAlias = dict[str, Any]
else:
    Frame = dict

    def cast(_kind: object, value: object) -> object:
        """`typing.cast` without the price of importing typing."""
        return value


ABORTED = "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"
# ending: subtype, terminal_reason, HTTP status, the word of an API failure, text
ENDINGS: Mapping[str, tuple[str, str | None, int | None, str | None, str]] = {
    "completed": ("success", "completed", None, None, ""),
    "interrupted": ("error_during_execution", "aborted_streaming", None, None, ABORTED),
    "authentication": ("success", "api_error", 401, "authentication_failed", "Invalid API key"),
    "limit": ("success", "api_error", 429, "rate_limit", "You've hit your 5-hour limit"),
    "overloaded": ("success", "api_error", 529, "server_error", "API Error: Repeated 529 Overloaded errors."),
    "api_error": ("success", "api_error", 500, "server_error", "API Error: 500 Internal server error"),
    "invalid_request": ("success", "api_error", 400, "unknown", "API Error: 400 messages: bad"),
    "prompt_too_long": ("success", "prompt_too_long", 400, "invalid_request", "Prompt is too long"),
    "model_not_found": ("success", "api_error", 404, "model_not_found", "There's an issue with the model."),
    "model_refused": ("success", "api_error", None, "invalid_request", "API Error: safeguards flagged this."),
    "max_turns": ("error_max_turns", "max_turns", None, None, "Reached maximum number of turns"),
    "budget": ("error_max_budget_usd", "budget_exhausted", None, None, "Reached maximum budget"),
    "schema_unmet": (
        "error_max_structured_output_retries",
        "structured_output_retry_exhausted",
        None,
        None,
        "Failed to provide valid structured output after 5 attempts",
    ),
    "error": ("error_during_execution", None, None, None, "the script ends this turn with an error"),
}
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def new_uuid() -> str:
    h = os.urandom(16).hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


def new_id(prefix: str) -> str:
    return f"{prefix}_{os.urandom(12).hex()}"


def as_frame(value: object) -> Frame | None:
    """The value when it is an object of JSON."""
    return cast("Frame", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any]:
    """The value when it is an array of JSON, else an empty one."""
    items: list[Any] = cast("Any", value) if isinstance(value, list) else []
    return items


def frames_in(value: object) -> list[Frame]:
    """The objects in an array of JSON."""
    return [frame for item in as_list(value) if (frame := as_frame(item)) is not None]


def tokens(text: str) -> int:
    return len(text) // 4 + 1


API_MESSAGES: Mapping[str, str] = {
    "authentication": "Incorrect API key provided: sk-fake.",
    "limit": "You exceeded your current quota.",
    "overloaded": "The server is overloaded.",
    "invalid_request": "Bad request from the fake.",
    "prompt_too_long": "prompt is too long: over the maximum context length",
    "model_not_found": "model not found",
}
"""Ending → message of the model's API, as agents other than Claude Code report it."""


def api_error(ending: str, text: str, step: Frame) -> tuple[str, int | None]:
    """The message and the HTTP status; a text or a status of the script goes first."""
    own = ENDINGS[ending]
    return API_MESSAGES.get(ending, text) if text == own[-1] else text, step.get("status", own[2])
