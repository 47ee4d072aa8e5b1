"""JSON values, ids, and the endings of a turn, which all wires share."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias, cast

    Frame: TypeAlias = dict[str, Any]
else:

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
    found: Frame | None = cast("Any", value) if isinstance(value, dict) else None
    return found


def as_list(value: object) -> list[Any]:
    """The value when it is an array of JSON, else an empty one."""
    found: list[Any] = cast("Any", value) if isinstance(value, list) else []
    return found


def tokens(text: str) -> int:
    return len(text) // 4 + 1
