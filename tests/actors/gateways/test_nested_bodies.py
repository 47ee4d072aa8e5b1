"""Bodies that are no JSON a server can read, or are nested too deeply, on every route that takes one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio

from proctor.actors.gateways.mcp.server import ToolsetServer
from proctor.actors.gateways.openai import routes
from proctor.actors.serving.completion import CompletionModel
from proctor.actors.serving.toolset import Toolset
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from tests.actors.gateways.http.serving import served
from tests.actors.spoken import TALK, spec_of

JSON: Mapping[str, str] = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
DEEP = 100_000
BODIES = {
    "a list in lists": b"[" * DEEP + b"]" * DEEP,
    "a list that is not closed": b"[" * DEEP,
    "a member in members": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a schema in schemas": b'{"prompt":"x","schema":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a list in what is skipped": b'{"model":"agent","messages":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a tool call in lists": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":'
    + b'{"a":' * DEEP
    + b"1"
    + b"}" * DEEP
    + b"}}",
    "bytes that are no text": b'{"prompt": "\xff"}',
}


@asynccontextmanager
async def tools() -> AsyncGenerator[str]:
    server = ToolsetServer("things", Toolset([]))
    with bound(Endpoint()) as opened:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(server.serve_http, opened))
            yield f"http://{endpoint_of(opened)}"
            server.shutdown.set()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_that_is_nested_too_deeply_is_refused_by_every_route(body: bytes) -> None:
    chat = routes({"agent": CompletionModel.make(spec_of(TALK))})
    async with served(hooks={"routes": chat}) as server, tools() as address:
        for path in ("/agents/a/turns", "/agents/a/steer", "/v1/chat/completions"):
            response = await server.client.post(path, content=body, headers=JSON)
            assert (path, response.status_code) == (path, 400)
            assert response.json()
        async with httpx2.AsyncClient() as client:
            response = await client.post(f"{address}/mcp", content=body, headers=JSON)
        assert response.status_code == 400
        assert (await server.ask("hi")).status_code == 200
