"""Errors of a model's API as an agent reports them: message and HTTP status, by the ending of the turn."""

from __future__ import annotations

from proctor.actors.scripted.frames import ENDINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    Frame: TypeAlias = dict[str, Any]

MESSAGES: Mapping[str, str] = {
    "authentication": "Incorrect API key provided: sk-fake.",
    "limit": "You exceeded your current quota.",
    "overloaded": "The server is overloaded.",
    "invalid_request": "Bad request from the fake.",
    "prompt_too_long": "prompt is too long: over the maximum context length",
    "model_not_found": "model not found",
}


def api_error(ending: str, text: str, step: Frame) -> tuple[str, int | None]:
    """The message and the status; a text or a status of the script goes first."""
    own = ENDINGS[ending]
    return MESSAGES.get(ending, text) if text == own[-1] else text, step.get("status", own[2])
