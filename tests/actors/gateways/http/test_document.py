from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import pytest
import requests
import schemathesis
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from proctor.actors.gateways.http.operations import OPERATIONS, Operation, body_schemas, openapi
from tests.actors.gateways.http.serving import served, spoken

EXAMPLES = int(os.environ.get("PROCTOR_EXAMPLES", "1"))
"""For each operation and kind of data; the environment asks for more."""

ASKED = [o for o in OPERATIONS if o.body or (o.parameters and EXAMPLES > 1)]
"""To make data takes seconds: the gate has those that take bodies."""

DOCUMENT: Mapping[str, Any] = openapi(body_schemas())
SCHEMA: Any = schemathesis.openapi.from_dict(dict(DOCUMENT))
CHECKS: tuple[Any, ...] = tuple(
    getattr(checks, f"{name}_conformance") for name in ("status_code", "content_type", "response_schema")
)


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """A server in a thread of its own: who asks it here has no event loop."""
    urls: list[str] = []
    up, over = threading.Event(), threading.Event()

    async def main() -> None:
        async with served(spoken("a"), spoken("b", permission="ask"), seconds=3600) as server:
            urls.append(f"http://{server.where}")
            up.set()
            await trio.to_thread.run_sync(over.wait)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    try:
        assert up.wait(30)
        yield urls[0]
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: operation.endpoint)
def test_nothing_that_can_be_asked_is_a_fault_of_the_server(
    operation: Operation, mode: GenerationMode, url: str
) -> None:
    described: Any = SCHEMA[operation.path][operation.method]
    asked = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        nonlocal asked
        case = data.draw(described.as_strategy(mode))
        if "name" in case.path_parameters:
            case.path_parameters["name"] = data.draw(
                st.sampled_from(["a", "b", case.path_parameters["name"]])
            )
        answer(case, url)
        asked += 1

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # there is nothing in it that could be wrong
    else:
        assert asked >= 1


def answer(case: Any, url: str) -> None:
    with (
        requests.Session() as session,
        session.request(**case.as_transport_kwargs(url), stream=True, timeout=20) as response,
    ):
        assert response.status_code != 500, response.text
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            case.validate_response(response, checks=list(CHECKS))


def test_every_reference_of_the_document_has_its_schema() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name in schemas:
        jsonschema_rs.validator_for(
            {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
        )
    assert {"TurnRequest", "TurnRecord", "ProblemRecord", "EndRecord", "Event", "TurnEnded"} <= set(schemas)


def test_the_document_says_what_its_table_says() -> None:
    said = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert said == {(operation.method.lower(), operation.path) for operation in OPERATIONS}


async def test_the_document_is_served() -> None:
    async with served() as server:
        response = await server.client.get("/openapi.json")
    assert response.json()["paths"] == DOCUMENT["paths"]
    assert set(response.json()["components"]["schemas"]) == set(DOCUMENT["components"]["schemas"])
