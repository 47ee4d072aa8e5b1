"""The export of traces, by the standard variables of OpenTelemetry (`OTEL_*`). Without them nothing of it is imported.

The spans are those of `actors.tracing`. They leave the process in batches, in a thread of the SDK's own, so a receiver that is slow or
gone delays no agent; at the end of the command the last ones have `LAST_WAIT` seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

LAST_WAIT = 2.0
"""Seconds in which the last spans are sent when the command has ended."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_export_on(environment: Mapping[str, str]) -> bool:
    """Whether the variables ask for an export: `OTEL_TRACES_EXPORTER=otlp`, or an endpoint. `none` and `OTEL_SDK_DISABLED` say no."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    chosen = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return chosen == "otlp" if chosen else any(environment.get(name) for name in _ENDPOINTS)


@contextmanager
def exported_traces(environment: Mapping[str, str], complain: Callable[[str], None]) -> Generator[None]:
    """Export the spans of what runs in the block, if the variables ask for it; what is missing for that is one line."""
    if not is_export_on(environment):
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        complain("traces are not exported, for want of a package: pip install 'proctor[otel]'")
        yield
        return
    is_named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    name = {} if is_named or environment.get("OTEL_SERVICE_NAME") else {"service.name": "proctor"}
    # not at exit: the SDK would wait there for as long as it likes
    provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # in a thread that may be left behind: the exporter repeats an attempt for much longer than a command may hang
        last = threading.Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(LAST_WAIT)
