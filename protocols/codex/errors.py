"""Why a turn of Codex failed, as an `Ending`. All of it is tables.

The app server says a word (`codexErrorInfo`) and often the HTTP status; the word decides, then the status. Where the
word is none, as for `other` and in a one-shot run, which has words for people alone, the cause is found in those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs
import msgspec

from proctor.protocols.causes import STATUSES, Texts, ending_by_text
from proctor.protocols.codex.wire import Failure, HttpCause
from proctor.protocols.lenient import Refusal
from proctor.protocols.vocabulary import Ending

FAILURES: Mapping[str, Ending] = {
    "badRequest": "invalid_request",
    "contextWindowExceeded": "prompt_too_long",
    "cyberPolicy": "model_refused",
    "flexUnavailable": "overloaded",
    "internalServerError": "api_error",
    "misalignmentPolicyViolation": "model_refused",
    "modelNotFound": "model_not_found",
    "policyCapacityUnavailable": "overloaded",
    "rateLimitExceeded": "overloaded",
    "serverOverloaded": "overloaded",
    "sessionBudgetExceeded": "budget",
    "unauthorized": "authentication",
    "usageLimitExceeded": "limit",
}
"""By `codexErrorInfo`."""

CONNECTIONS = frozenset(
    (
        "httpConnectionFailed",
        "responseStreamConnectionFailed",
        "responseStreamDisconnected",
        "responseTooManyFailedAttempts",
    )
)
"""Words that only say that the model's API could not be had; the status says more, where there is one."""

WORDS: Texts = (
    (r"quota exceeded|usage limit", "limit"),
    (r"context window|too long|input_too_large", "prompt_too_long"),
    (r"invalid_request_error", "invalid_request"),
    (r"missing environment variable|not logged in", "authentication"),
    (r"at capacity|overloaded", "overloaded"),
    (r"stream disconnected|connection failed|error sending|high demand", "api_error"),
)
"""Pattern in the text of a failure that names no HTTP status → ending."""

_STATUS = re.compile(r"(?:unexpected|last) status:? (\d{3})", re.ASCII)


@attrs.frozen
class Cause:
    """Why the model's API failed: Codex's word and the HTTP status, as far as it reports them."""

    word: str = ""
    status: int | None = None


def cause_of(failure: Failure) -> Cause:
    """The word of a failure and the HTTP status that it carries."""
    try:
        info = msgspec.json.decode(failure.codex_error_info, type=str | dict[str, HttpCause | None])
    except Refusal:
        return Cause()
    if isinstance(info, str):
        return Cause(info)
    word, more = next(iter(info.items()), ("", None))
    return Cause(word, None if more is None else more.http_status_code)


def ending_of(cause: Cause, text: str) -> Ending:
    """By the word; where that only says that the API could not be had, by the status; else by the text."""
    # First by the word: texts are for people, and change with the version.
    if cause.word in CONNECTIONS:
        return STATUSES.get(cause.status or 0, "api_error")
    return FAILURES.get(cause.word) or by_words(text)


def by_words(text: str) -> Ending:
    """By the text for people: an HTTP status in it, else its pattern."""
    if (status := status_of(text)) is not None:
        return STATUSES.get(status, "api_error")
    return ending_by_text(text, WORDS) or "error"


def status_of(text: str) -> int | None:
    """The HTTP status that the words of a failure name."""
    match = _STATUS.search(text)
    return int(match[1]) if match else None
