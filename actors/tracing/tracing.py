"""Traces of turns, for OpenTelemetry: on while the program has a tracer provider, else nothing of it is imported.

`begin_trace` is all that an agent, a run and a turn know of it; `spans` makes the spans, of the same events that every reader gets.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.actors.tracing.spans import TurnTrace


TRACER = "opentelemetry.trace"
"""The module that a program which traces has imported; without it no prompt comes here."""


def begin_trace(prompt: str) -> TurnTrace | None:
    """The trace of a request that is made now, below the current span; None where the program has set no tracer provider."""
    api = sys.modules.get(TRACER)
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    from proctor.actors.tracing.spans import TurnTrace

    return TurnTrace(prompt)


@contextmanager
def below_caller(headers: Mapping[str, Any]) -> Generator[None]:
    """Have what is begun in the block stand below the span of a caller elsewhere, which the header `traceparent` names."""
    if "traceparent" not in headers or TRACER not in sys.modules:
        yield
        return
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)
