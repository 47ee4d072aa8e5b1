"""Traces of the command line: sent to a receiver on loopback by the standard variables, and by nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from proctor.cli.traces import is_export_on
from tests.proctor.command import EXAMPLES, proctor_process
from tests.tables import each_row

HELLO = ("run", f"scripted:{EXAMPLES / 'hello.ndjson'}", "hi", "--quiet")


class Receiver(HTTPServer):
    """A receiver of OTLP over HTTP; `requests` are those that came, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.requests.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_a_run_sends_its_spans_to_the_endpoint_that_the_environment_names(
    home: Path, receiver: Receiver
) -> None:
    at = f"http://127.0.0.1:{receiver.server_port}"
    done = proctor_process(*HELLO, home=home, env={"OTEL_EXPORTER_OTLP_ENDPOINT": at})
    assert (done.status, done.err) == (0, "")
    [(path, body)] = receiver.requests
    assert path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(body)
    [resource] = request.resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "proctor"
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert set(spans) == {"invoke_agent scripted", "chat scripted"}
    assert spans["chat scripted"].parent_span_id == spans["invoke_agent scripted"].span_id
    assert b"hi" not in {value.value.string_value for span in spans.values() for value in span.attributes}


def test_a_receiver_that_is_not_there_neither_fails_nor_holds_a_run(home: Path) -> None:
    at = "http://127.0.0.1:9"
    done = proctor_process(*HELLO, home=home, env={"OTEL_EXPORTER_OTLP_ENDPOINT": at})
    assert (done.status, done.out) == (0, "Hello! You said: hi\n")
    assert "Traceback" not in done.err


def test_a_missing_package_is_one_line_and_the_run_goes_on(home: Path) -> None:
    hide = "import sys; sys.modules['opentelemetry.sdk'] = None"
    done = proctor_process(*HELLO, home=home, env={"OTEL_TRACES_EXPORTER": "otlp"}, first=hide)
    assert (done.status, done.out) == (0, "Hello! You said: hi\n")
    assert "pip install 'proctor[otel]'" in done.complaint


@each_row(
    ("variables", "is_on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, False),
    ],
)
def test_the_standard_variables_say_whether_traces_are_sent(variables: dict[str, str], is_on: bool) -> None:
    assert is_export_on(variables) == is_on
