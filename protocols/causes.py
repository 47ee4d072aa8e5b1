"""Causes of a failed model call, as the ending of its turn: by HTTP status, and by patterns in the text of the error."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proctor.protocols.vocabulary import Ending

STATUSES: Mapping[int, Ending] = {
    400: "invalid_request",
    401: "authentication",
    403: "authentication",
    404: "model_not_found",
    413: "prompt_too_long",
    429: "overloaded",
    503: "overloaded",
    529: "overloaded",
}
"""HTTP status of the model's API → ending, for every CLI. A usage limit has the status 429 too: the text tells it apart."""

Texts = tuple[tuple[str, Ending], ...]

TEXTS: Texts = (
    (r"api.?key|authenticat|unauthori[sz]ed|\b401\b|\b403\b|permission denied by the api", "authentication"),
    (r"exceeded your current quota|usage limit|insufficient_quota|billing", "limit"),
    (r"context.?(length|window)|prompt is too long|too many tokens|maximum context", "prompt_too_long"),
    (r"model.{0,40}not found|unknown model|no such model|model_not_found", "model_not_found"),
    (r"rate.?limit|too many requests|overloaded|\b429\b|\b503\b|\b529\b|unavailable", "overloaded"),
    (r"bad request|invalid_request|\b400\b", "invalid_request"),
)
"""Pattern in an error's text (case ignored) → ending; the first match counts."""


def cause_of(text: str, texts: Texts = TEXTS, *, status: Ending | None = None) -> Ending:
    """The ending by the text of an error. `status`, the ending by a status or code, goes first, but a usage limit has
    the status of a busy API, and only the text separates the two."""
    by_text = ending_by_text(text, texts) or "api_error"
    return by_text if status is None or (status, by_text) == ("overloaded", "limit") else status


def ending_by_text(text: str, texts: Texts) -> Ending | None:
    """The ending of the first pattern that is in the text."""
    return next((ending for pattern, ending in texts if re.search(pattern, text, re.IGNORECASE)), None)
