"""Classification of any error by the facts that its class carries: who must act, and what to do.

An error that wraps another (`CompletionError`, `ProviderError`, `StartError`) is judged by that one. A call that the system refused
because something had run out (`runtime.processes.shortage`) may pass, whatever its class says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import trio

from proctor.actors.errors import CompletionError, MaybeExecuted, ProviderError, delivery_of
from proctor.runtime.error_facts import ErrorFacts, Facts, Fault
from proctor.runtime.errors import StartError
from proctor.runtime.processes import shortage_of

Response = Literal["retry", "return", "refuse_start", "report"]

RESPONSES: Mapping[Fault, Response] = {
    "caller": "return",
    "machine": "refuse_start",
    "peer": "report",
    "us": "report",
}
"""Who must act → what is done about an error that is not retryable: back to the caller, no start before something was
changed, or logged, counted and back."""

UNKNOWN = Facts(fault="us", http_status=500, remedy="report it: this is a fault of proctor")
"""The facts of an error that says none."""

FOREIGN: Mapping[type[BaseException], Facts] = {
    trio.TooSlowError: Facts(
        fault="peer", http_status=503, retryable=True, remedy="ask again: the agent did not reply in time"
    ),
    OSError: Facts(fault="machine", http_status=500, remedy="see what the system says"),
}
"""Errors of others that callers meet → their facts."""


def facts_of(error: BaseException) -> ErrorFacts:
    """The facts of an error: its own, or those of the error that it wraps."""
    each = error
    while _is_wrapper(each) and each.__cause__ is not None:
        each = each.__cause__
    facts = _own_facts(each)
    if facts.retryable or isinstance(each, MaybeExecuted) or (shortage := shortage_of(each)) is None:
        return facts
    return Facts(
        fault="machine",
        http_status=503,
        exit_status=facts.exit_status,
        retryable=True,
        remedy=shortage.remedy,
    )


def fault_of(error: BaseException) -> Fault:
    """The party that must act; ours for an error without that fact."""
    return facts_of(error).fault


def is_retryable(error: BaseException) -> bool:
    """Whether the same request may succeed later with nothing changed. Whether it is safe to repeat is another question:
    see `is_safe_to_repeat`."""
    return facts_of(error).retryable


def is_safe_to_repeat(error: BaseException) -> bool:
    """Whether a repetition may succeed and nothing of the request was carried out."""
    delivery = delivery_of(error)
    return is_retryable(error) and (delivery is None or delivery.is_repeatable)


def response_of(error: BaseException) -> Response:
    """The response to an error."""
    facts = facts_of(error)
    return "retry" if facts.retryable else RESPONSES[facts.fault]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and the causes behind it."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


def _is_wrapper(error: BaseException) -> bool:
    if isinstance(error, ProviderError):
        return error.outcome is None
    return isinstance(error, CompletionError | StartError)


def _own_facts(error: BaseException) -> ErrorFacts:
    if isinstance(error, ErrorFacts):
        return error
    return next((FOREIGN[kind] for kind in type(error).__mro__ if kind in FOREIGN), UNKNOWN)
