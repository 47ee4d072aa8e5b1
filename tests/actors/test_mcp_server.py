"""The gateway with a toolset that knows no agent, met by the SDK's own client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from mcp import Client, MCPError
from mcp.types import TextContent
from starlette.types import ASGIApp

from proctor.actors.gateways.http import AuthMiddleware, Check, HealthChecks, Probes
from proctor.actors.gateways.http.probes import PROMETHEUS
from proctor.actors.gateways.mcp.server import GRACE, ToolsetServer
from proctor.actors.serving.toolset import Call, ServedTool, Toolset
from proctor.actors.tools.tools import ToolResult, tool
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from tests.fakes.mcp_client import INITIALIZE, READY, calls, over_streams, written


@tool
async def add(a: int, b: int = 0) -> int:
    "Add two numbers."
    return a + b


@tool
async def ready() -> str:
    "Takes nothing."
    return "yes"


async def _waits(arguments: Mapping[str, Any], call: Call) -> ToolResult:
    call.tell("begun")
    await trio.sleep(arguments.get("seconds", 1000))
    return ToolResult("waited", data={"n": 1}, facts={"outcome": "ok"})


async def _breaks(arguments: Mapping[str, Any], call: Call) -> ToolResult:
    raise LookupError("no such thing")


class Watched(Mapping[str, Any]):
    """A schema that counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self._inner = {"type": "object", "properties": {"seconds": {"type": "number"}}}

    def __getitem__(self, key: str) -> Any:
        self.reads += 1
        return self._inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


SCHEMA = Watched()
WAITS = ServedTool(name="waits", description="It waits.", schema=SCHEMA, function=_waits)
BREAKS = ServedTool(name="breaks", description="It breaks.", schema={"type": "object"}, function=_breaks)


def server(**options: Any) -> ToolsetServer:
    return ToolsetServer("things", Toolset([add, ready, WAITS, BREAKS]), version="7", **options)


Connect = Callable[[ToolsetServer], Client]
WAYS: Mapping[str, Connect] = {
    "handshake": lambda things: Client(over_streams(things), mode="legacy"),
    "stateless": lambda things: Client(over_streams(things)),
    "the SDK's server": lambda things: Client(things.sdk),
}


@pytest.fixture(params=[*WAYS.values()], ids=[*WAYS])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes the SDK's client of a server, in each way that it has."""
    way: Connect = request.param
    return way


def text_of(result: Any) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.covers("R005", "R155", "R156")
async def test_a_toolset_without_an_agent_is_served_listed_and_called(connect: Connect) -> None:
    async with connect(server()) as client:
        listed = (await client.list_tools()).tools
        assert [(each.name, each.description, each.input_schema) for each in listed] == [
            ("add", "Add two numbers.", add.declared.schema),
            ("ready", "Takes nothing.", ready.declared.schema),
            ("waits", "It waits.", dict(SCHEMA)),
            ("breaks", "It breaks.", {"type": "object"}),
        ]
        assert text_of(await client.call_tool("add", {"a": 2, "b": 40})) == "42"
        assert text_of(await client.call_tool("ready")) == "yes"


@pytest.mark.covers("L01", "L02")
async def test_tools_are_announced_and_every_listed_name_can_be_called(connect: Connect) -> None:
    arguments = {"add": {"a": 1}, "waits": {"seconds": 0}}
    async with connect(server()) as client:
        assert client.server_capabilities.tools is not None
        for each in (await client.list_tools()).tools:
            result = await client.call_tool(each.name, arguments.get(each.name, {}))
            assert "there is no tool" not in text_of(result)


@pytest.mark.covers("R154")
async def test_definitions_are_made_once_and_listing_again_reads_nothing(connect: Connect) -> None:
    things = server()
    async with connect(things) as client:
        read = SCHEMA.reads
        first, second = await client.list_tools(), await client.list_tools()
    assert first == second
    assert read == SCHEMA.reads


@pytest.mark.covers("R113", "R157", "L18")
@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("breaks", {}, "LookupError: no such thing"),
        ("add", {"a": "x", "c": 1}, '/a: "x" is not of type "integer"'),
        ("ad", {}, "there is no tool 'ad' (did you mean 'add'?)"),
    ],
)
async def test_what_a_tool_says_of_its_failure_is_a_result(
    name: str, arguments: dict[str, Any], text: str, connect: Connect
) -> None:
    async with connect(server()) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert text in text_of(result)


@pytest.mark.covers("R113")
async def test_what_breaks_the_protocol_is_an_error_of_json_rpc(connect: Connect) -> None:
    async with connect(server()) as client:
        with pytest.raises(MCPError, match="Method not found"):
            await client.read_resource("file:///x")


async def test_data_that_is_no_object_is_the_result_of_one(connect: Connect) -> None:
    async def gives(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return ToolResult("[1,2]", data=[1, 2])

    things = Toolset([ServedTool(name="gives", description="", schema={"type": "object"}, function=gives)])
    async with connect(ToolsetServer("things", things)) as client:
        result = await client.call_tool("gives")
    assert (text_of(result), result.structured_content) == ("[1,2]", {"result": [1, 2]})


async def test_a_result_has_its_data_and_its_facts(connect: Connect) -> None:
    async with connect(server()) as client:
        result = await client.call_tool("waits", {"seconds": 0})
    assert result.structured_content == {"n": 1}
    assert (result.meta or {})["proctor"] == {"outcome": "ok"}


# -- over streams


def deep(levels: int) -> str:
    """A request with params of so many levels."""
    params = '{"a":' * levels + "1" + "}" * levels
    return f'{{"jsonrpc": "2.0", "id": 10, "method": "ping", "params": {params}}}'


class Peer:
    """A client that writes lines by hand."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream
        self._left = b""

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            line = frame.encode() if isinstance(frame, str) else frame
            await self._stream.send_all(line + b"\n" if isinstance(line, bytes) else written(line))

    async def receive(self) -> dict[str, Any]:
        while b"\n" not in self._left:
            part = await self._stream.receive_some()
            assert part, self._left
            self._left += bytes(part)
        line, _, self._left = self._left.partition(b"\n")
        frame: dict[str, Any] = json.loads(line)
        return frame

    async def hang_up(self) -> None:
        await self._stream.send_eof()


@asynccontextmanager
async def connected(things: ToolsetServer) -> AsyncGenerator[Peer]:
    """A peer of `things`, past its greeting; `things` has ended by itself when the block is left."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(things.serve_streams, theirs, theirs)
        peer = Peer(ours)
        await peer.send(INITIALIZE, READY)
        assert (await peer.receive())["id"] == 0
        yield peer


async def test_calls_run_beside_each_other_and_one_that_is_withdrawn_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    things = server()
    async with connected(things) as peer:
        await peer.send(calls(1, "waits"), calls(2, "waits", token="t", seconds=3), calls(3, "add", a=1))
        assert (await peer.receive())["params"]["message"] == "begun"
        assert (await peer.receive())["id"] == 3
        await peer.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (await peer.receive())["id"] == 2
        await peer.hang_up()
    assert trio.current_time() < GRACE + 1  # nothing was waited for
    counts = things.counts["waits"]
    assert (counts.calls, counts.cancelled, counts.running) == (2, 1, 0)


@pytest.mark.covers("R113")
async def test_lines_that_are_no_requests_are_answered_and_cost_nothing_else() -> None:
    async with connected(server()) as peer:
        for line, code, id in (
            ("no json", -32700, None),
            ("[1]", -32600, None),
            ('{"jsonrpc": "2.0", "id": 5}', -32600, 5),
            ('{"id": {}, "method": "ping"}', -32600, None),
            ('{"jsonrpc":"2.0","id":6,"method":"no/such"}', -32601, 6),
            ('{"id": 7, "method": "ping"}', -32600, 7),
            ('{"jsonrpc": "1.0", "id": "8", "method": "ping"}', -32600, "8"),
            ('{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": [1]}', -32600, 9),
            (deep(20_000), -32700, None),
            (b'{"jsonrpc": "2.0", "id": 11, "method": "ping", "params": {"a": "\xff"}}', -32700, None),
        ):
            await peer.send("", line)
            answer = await peer.receive()
            assert (answer["error"]["code"], answer["id"]) == (code, id), line
        await peer.send(calls(7, "add", a=1))
        assert (await peer.receive())["result"]["content"][0]["text"] == "1"
        await peer.hang_up()


async def test_half_a_character_in_what_a_tool_says_is_a_sign_and_ends_nothing() -> None:
    half = "\ud83d"

    async def halves(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        call.tell(half)
        await trio.testing.wait_all_tasks_blocked(0.01)
        return ToolResult(f"a{half}", data={half: [half]}, facts={"path": half})

    tool = ServedTool(name="halves", description=half, schema={"type": "object"}, function=halves)
    async with connected(ToolsetServer("things", Toolset([tool]))) as peer:
        await peer.send({"id": 1, "method": "tools/list"}, calls(2, "halves", token="t"))
        assert (await peer.receive())["result"]["tools"][0]["description"] == "?"
        assert (await peer.receive())["params"]["message"] == "?"
        result = (await peer.receive())["result"]
        assert result["content"][0]["text"] == "a?"
        assert (result["structuredContent"], result["_meta"]["proctor"]) == ({"?": ["?"]}, {"path": "?"})
        await peer.hang_up()


@pytest.mark.parametrize(("levels", "kind"), [(200, "result"), (5000, "error")])
async def test_a_result_that_is_nested_too_deeply_is_an_error_and_ends_nothing(
    levels: int, kind: str
) -> None:
    async def deep(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        data: Any = 1
        for _ in range(levels):
            data = {"a": data}
        return ToolResult("deep", data=data)

    tool = ServedTool(name="deep", description="", schema={"type": "object"}, function=deep)
    async with connected(ToolsetServer("things", Toolset([tool]))) as peer:
        await peer.send(calls(1, "deep"), {"id": 2, "method": "ping"})
        answers = {answer["id"]: answer for answer in (await peer.receive(), await peer.receive())}
        assert kind in answers[1]
        assert answers[2]["result"] == {}
        await peer.hang_up()


@pytest.mark.covers("R159")
async def test_when_the_input_ends_what_was_asked_is_answered_and_serving_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    things = server()
    async with connected(things) as peer:
        await peer.send({"id": 1, "method": "tools/list"}, calls(2, "waits"))
        await peer.hang_up()
        assert len((await peer.receive())["result"]["tools"]) == 4
        answer = (await peer.receive())["result"]
    assert answer["isError"]
    assert answer["content"][0]["text"] == "the server is stopping; the call was cancelled"
    assert things.counts["waits"].running == 0


@pytest.mark.covers("R158")
async def test_a_server_is_built_with_a_name_a_shutdown_and_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    shutdown = trio.Event()
    things = server(shutdown=shutdown)
    async with connected(things) as peer:
        await peer.send(calls(1, "waits"))
        await trio.testing.wait_all_tasks_blocked()
        assert things.counts["waits"].running == 1
        shutdown.set()
        assert (await peer.receive())["result"]["isError"]
    assert (things.name, things.counts["waits"].cancelled) == ("things", 1)


async def test_a_client_that_reads_nothing_more_holds_up_no_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    things = server()
    ours, theirs = trio.testing.lockstep_stream_pair()  # a write waits for its reader
    async with trio.open_nursery() as nursery:
        nursery.start_soon(things.serve_streams, theirs, theirs)
        await ours.send_all(written(INITIALIZE))
        things.shutdown.set()
    assert trio.current_time() < GRACE + 2


async def test_a_client_that_is_gone_ends_the_serving() -> None:
    things = server()
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(things.serve_streams, theirs, theirs)
        peer = Peer(ours)
        await peer.send(INITIALIZE)
        await ours.aclose()


# -- over HTTP


@asynccontextmanager
async def over_http(things: ToolsetServer, **options: Any) -> AsyncGenerator[str]:
    """The address of `things`, which stops behind the block."""
    with bound(Endpoint()) as opened:
        async with trio.open_nursery() as nursery:

            async def serving(task_status: trio.TaskStatus[None]) -> None:
                await things.serve_http(opened, task_status=task_status, **options)

            await nursery.start(serving)
            yield f"http://{endpoint_of(opened)}"
            things.shutdown.set()


# the SDK's client leaves the body of an answer to the garbage collector
@pytest.mark.covers("R153", "R158")
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
async def test_http_lists_and_calls_and_answers_what_runs_when_it_stops() -> None:
    things = server()
    begun, ended = trio.Event(), list[Any]()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async def wait(client: Client) -> None:
        ended.append(await client.call_tool("waits", progress_callback=told))

    async with over_http(things) as address, Client(f"{address}/mcp") as client:
        assert len((await client.list_tools()).tools) == 4
        assert text_of(await client.call_tool("add", {"a": 2})) == "2"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, client)
            await begun.wait()
            things.stop()
    assert "stopping" in text_of(ended[0])


STREAMS = {"accept": "application/json, text/event-stream"}


async def test_http_forgets_a_session_in_which_nothing_is_asked() -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with over_http(server(idle=0.05)) as address, httpx2.AsyncClient(headers=STREAMS) as client:
        begun = await client.post(f"{address}/mcp", json={"jsonrpc": "2.0", **INITIALIZE})
        client.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
        known = (await client.post(f"{address}/mcp", json=listing)).status_code
        await trio.sleep(1)  # far longer than it is kept
        after = (await client.post(f"{address}/mcp", json=listing)).status_code
    assert after == 404
    assert known in (200, 404)  # a slow machine may have taken longer than that already


async def test_http_closes_the_connection_of_a_client_whose_stream_has_ended() -> None:
    body = json.dumps({"jsonrpc": "2.0", **INITIALIZE}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in STREAMS.items())
    sized = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    async with over_http(server()) as address:
        host, _, port = address.removeprefix("http://").rpartition(":")
        with trio.fail_after(20):
            async with await trio.open_tcp_stream(host, int(port)) as client:
                start = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}{sized}"
                await client.send_all(start.encode() + body)
                answer = b"".join([part async for part in client])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"0\r\n\r\n")


TOKEN = "0123456789abcdef"


def with_token(application: ASGIApp) -> ASGIApp:
    return AuthMiddleware(application, Endpoint(), token=TOKEN)


@pytest.mark.parametrize("middleware", [None, with_token], ids=["its own", "with a token"])
async def test_http_refuses_foreign_hosts_and_origins(middleware: Any) -> None:
    async with over_http(server(), middleware=middleware) as address, httpx2.AsyncClient() as client:
        bearer = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}

        async def status(**headers: str) -> int:
            frame = {"jsonrpc": "2.0", **INITIALIZE}
            answer = await client.post(f"{address}/mcp", json=frame, headers={**bearer, **headers})
            return answer.status_code

        assert await status() == 200
        assert {await status(Authorization=f"Bearer {TOKEN[1:]}"), await status(Authorization="")} == {
            401 if middleware else 200
        }
        assert await status(Host="evil.example") == 421
        assert await status(Origin="http://evil.example") == 403


@pytest.mark.covers("R158")
async def test_it_is_built_with_health_readiness_and_metrics_and_only_life_is_told_to_all() -> None:
    wrong, go = ["codex is not installed"], trio.Event()

    async def codex() -> str | None:
        await go.wait()
        return wrong[0]

    async def numbers() -> bytes:
        return b"x_total 1.0\n"

    checks: Mapping[str, Check] = {"codex": codex}
    async with trio.open_nursery() as nursery:
        probes = Probes(HealthChecks(checks, nursery), numbers)
        things = server(routes=probes.routes())
        async with over_http(things, middleware=with_token) as address, httpx2.AsyncClient() as client:
            alive = await client.get(f"{address}/healthz")  # while the check does not end
            strange = [await client.get(f"{address}/{name}") for name in ("readyz", "metrics")]
            client.headers["authorization"] = f"Bearer {TOKEN}"
            go.set()
            ready, metrics = [await client.get(f"{address}/{name}") for name in ("readyz", "metrics")]
            foreign = await client.get(f"{address}/metrics", headers={"host": "evil.example"})
            probes.metrics_text = None
            none = await client.get(f"{address}/metrics")
    assert (alive.status_code, alive.json()["ready"]) == (200, True)
    assert ([refused.status_code for refused in strange], foreign.status_code) == ([401, 401], 421)
    assert (ready.status_code, ready.json()["checks"]) == (503, {"codex": wrong[0]})
    assert (metrics.headers["content-type"], metrics.text) == (PROMETHEUS, "x_total 1.0\n")
    assert (none.status_code, none.json()["detail"]) == (404, "this server has no metrics")
