"""Host tools over the relay's socket: an agent whose far end is a function, which connects as a relay would."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import attrs
import httpx
import pytest
import trio

from proctor.actors.errors import RecordingFailed
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, acp_plan
from proctor.actors.runs import stream
from proctor.actors.tools.tools import Tool, ToolContext, tool
from proctor.actors.tools.toolsocket import (
    MAX_SOCKET_PATH,
    STDIO_PROXY,
    ToolSocket,
    proxy_server,
    socket_path,
)
from proctor.actors.transport.memory import Lines, PeerStreams, in_memory
from proctor.protocols import vocabulary as v
from proctor.protocols.acp.profile import GEMINI
from proctor.protocols.dialect import Memo
from tests.fakes.wire import Connection
from tests.protocols.acp.lines import INITIALIZED, OPENED, line, reply, update

SECRET = "s3cret-of-a-server"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def whose(me: ToolContext, note: str = "") -> str:
    """Who calls."""
    return f"{me.agent} {dict(me.values)} {me.session_id} {len(me.prompts)} {note}"


def napping(begun: trio.Event, ended: list[str], over: trio.Event | None = None) -> Tool:
    @tool
    async def nap() -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            ended.append("cancelled")
            raise
        finally:
            if over is not None:
                over.set()
        return "never"

    return nap


class Client:
    """A client of MCP at a socket."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._lines = Lines(self._some)
        self._next = 0

    async def _some(self) -> bytes:
        return bytes(await self.stream.receive_some(65536))

    async def tell(self, method: str, **params: Any) -> int:
        self._next += 1
        await self.stream.send_all(line(id=self._next, method=method, params=params))
        return self._next

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        key = await self.tell(method, **params)
        async for said in self._lines:
            told: dict[str, Any] = json.loads(said)
            if told["id"] == key:
                return told
        raise AssertionError("the host has hung up")

    async def call(self, name: str, **arguments: Any) -> str:
        told = await self.ask("tools/call", name=name, arguments=arguments)
        text: str = told["result"]["content"][0]["text"]
        return text


@asynccontextmanager
async def client_at(path: str) -> AsyncGenerator[Client]:
    at = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await at.connect(path)
    async with trio.SocketStream(at) as stream:
        yield Client(stream)


Scene = Callable[[str, PeerStreams], Awaitable[str | None]]
"""What happens in the turn, given the path of the socket, or the URL and the headers of the server `shared` as JSON: the
text of the answer, None for no end of the turn."""


def agent(scene: Scene, name: str = "a", **options: Unpack[AgentOptions]) -> Plan:
    """An agent of the Agent Client Protocol that plays the scene at its prompt."""

    async def live(side: PeerStreams) -> int | None:
        path = ""
        async for said in side.lines():
            frame = json.loads(said)
            match frame.get("method"):
                case "initialize":
                    can = {**INITIALIZED["agentCapabilities"], "mcpCapabilities": {"http": True}}
                    await side.send_all(reply(frame["id"], **{**INITIALIZED, "agentCapabilities": can}))
                case "session/new":
                    servers = {one["name"]: one for one in frame["params"]["mcpServers"]}
                    path = servers["host"]["args"][-1] if "host" in servers else json.dumps(servers["shared"])
                    await side.send_all(reply(frame["id"], **{**OPENED, "sessionId": f"of-{name}"}))
                case "session/prompt":
                    if (text := await scene(path, side)) is None:
                        return 3
                    content = {"type": "text", "text": text}
                    told = update("agent_message_chunk", f"of-{name}", messageId="m", content=content)
                    await side.send_all(told + reply(frame["id"], stopReason="end_turn"))
                case _:
                    pass
        return None

    chosen: AgentOptions = {"home": "private", "host_tools": [add, whose], **options}
    plan = acp_plan(name, [sys.executable], chosen, shutdown=3)
    return attrs.evolve(plan, reach=in_memory(live, name="agent"))


async def answered(plan: Plan, *, timeout: float = 20) -> tuple[str, list[v.AnyEvent], Path]:
    async with stream(plan, "go", timeout=timeout) as live:
        events = [event async for event in live]
    return live.answer.text or "", events, live.directory


@pytest.mark.covers("R161", "R162")
async def test_a_tool_is_called_and_its_result_comes_back() -> None:
    async def scene(path: str, side: PeerStreams) -> str:
        seen = stat.S_IMODE(os.stat(path).st_mode)
        async with client_at(path) as client:
            listed = await client.ask("tools/list")
            names = [one["name"] for one in listed["result"]["tools"]]
            return f"{seen:o} {names} {await client.call('add', a=2, b=3)} {await client.call('add', a='2')}"

    text, events, directory = await answered(agent(scene))
    assert text.startswith("600 ['add', 'whose'] 5 wrong arguments for 'add'")  # R163
    asked = [event for event in events if isinstance(event, v.ToolRequested)]
    first = asked[0]
    assert (first.frame, first.tool, first.input) == (v.HOST, "add", {"a": 2, "b": 3})
    assert not directory.exists()


async def test_what_its_cli_adds_to_the_arguments_does_not_reach_a_tool() -> None:
    async def scene(path: str, side: PeerStreams) -> str:
        async with client_at(path) as client:
            return await client.call("add", a=2, b=3, wait_for_previous=True)

    plan = agent(scene)
    assert (await answered(plan))[0].startswith("wrong arguments for 'add'")
    adding = attrs.evolve(plan, dialect=attrs.evolve(plan.dialect, adds=GEMINI.adds))
    assert (await answered(adding))[0] == "5"


async def relayed_client(path: str) -> tuple[Client, trio.Process]:
    """A client that speaks to our program, as a CLI does."""
    process = await trio.lowlevel.open_process(
        [*STDIO_PROXY, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return Client(trio.StapledStream(process.stdin, process.stdout)), process


@pytest.mark.covers("R162")
async def test_the_relay_carries_what_both_sides_say_and_ends_with_either_Q07() -> None:
    big = "x" * 300_000
    left: list[trio.Process] = []

    async def scene(path: str, side: PeerStreams) -> str:
        client, process = await relayed_client(path)
        said = await client.call("whose", note=big)
        await client.stream.aclose()
        stays, other = await relayed_client(path)
        left.append(other)
        return f"{said.endswith(big)} {await process.wait()} {await stays.call('add', a=1, b=1)}"

    assert (await answered(agent(scene)))[0] == "True 0 2"
    with trio.fail_after(10):
        assert await left[0].wait() == 0  # the host is gone


def test_a_relay_whose_host_is_gone_says_so(tmp_path: Path) -> None:
    done = subprocess.run([*STDIO_PROXY, str(tmp_path / "gone")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("proctor stdio proxy: cannot connect to the host")


@pytest.mark.covers("R164")
async def test_two_runs_at_once_never_mix_their_context() -> None:
    both = {"p1": trio.Event(), "p2": trio.Event()}

    def waiting(mine: str, other: str) -> Scene:
        async def scene(path: str, side: PeerStreams) -> str:
            async with client_at(path) as client:
                both[mine].set()
                await both[other].wait()
                return await client.call("whose", note=mine)

        return scene

    texts = dict[str, str]()

    async def run(mine: str, other: str) -> None:
        plan = agent(waiting(mine, other), mine, context={"project": mine})
        texts[mine] = (await answered(plan))[0]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "p1", "p2")
        nursery.start_soon(run, "p2", "p1")
    assert texts == {
        "p1": "p1 {'project': 'p1'} of-p1 1 p1",
        "p2": "p2 {'project': 'p2'} of-p2 1 p2",
    }


async def answering(stream: trio.SocketStream) -> None:
    """A server of MCP at a URL, as far as one call goes: it tells what came in the headers."""
    connection = Connection(stream)
    while (came := await connection.receive()) is not None:
        head, body = came
        asked = json.loads(body)
        text = f"{asked['params']['name']} {head.headers['proctor-context-project']} {head.headers['x-key']}"
        result = {"content": [{"type": "text", "text": text}]}
        await connection.respond(200, json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())


@pytest.mark.covers("R162", "R164")
async def test_one_server_at_a_url_serves_many_agents_each_with_its_own_context_Q07() -> None:
    async def scene(told: str, side: PeerStreams) -> str:
        server = json.loads(told)
        headers = {one["name"]: one["value"] for one in server["headers"]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look"}}
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(server["url"], json=call, headers=headers)
        text: str = answer.json()["result"]["content"][0]["text"]
        return text

    texts = dict[str, str]()

    async def run(name: str, url: str) -> None:
        shared = McpServer(url=url, headers={"X-Key": SECRET})
        plan = agent(scene, name, host_tools=(), mcp={"shared": shared}, context={"project": name})
        texts[name] = (await answered(plan))[0]

    async with trio.open_nursery() as serving:
        listeners = await serving.start(partial(trio.serve_tcp, answering, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            for name in ("p1", "p2"):
                nursery.start_soon(run, name, f"http://127.0.0.1:{port}/mcp")
        serving.cancel_scope.cancel()
    assert texts == {name: f"look {name} {SECRET}" for name in ("p1", "p2")}


@pytest.mark.covers("R163")
@pytest.mark.parametrize("end", ["success", "error", "timeout", "cancel"])
async def test_nothing_of_it_stays_on_any_path(end: str, tmp_path: Path) -> None:
    begun, ended, paths = trio.Event(), list[str](), list[str]()

    async def scene(path: str, side: PeerStreams) -> str | None:
        paths.append(path)
        async with client_at(path) as client:
            if end == "success":
                return "fine"
            await client.tell("tools/call", name="nap", arguments={})
            await begun.wait()
            if end == "error":
                return None
            await trio.sleep_forever()
        return None

    plan = agent(scene, host_tools=[napping(begun, ended)], record=str(tmp_path))
    with trio.move_on_after(20) as scope:
        if end == "cancel":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answered, plan)
                await begun.wait()
                nursery.cancel_scope.cancel()
        else:
            _, events, _ = await answered(plan, timeout=0.5 if end == "timeout" else 20)
            withdrawn = [event for event in events if isinstance(event, v.RequestWithdrawn)]
            assert len(withdrawn) == (end != "success")
    assert not scope.cancelled_caught
    assert ended == ([] if end == "success" else ["cancelled"])
    assert not await trio.Path(paths[0]).parent.exists()


async def test_a_client_that_leaves_has_its_call_withdrawn_and_the_next_is_served() -> None:
    begun, over, ended = trio.Event(), trio.Event(), list[str]()

    async def scene(path: str, side: PeerStreams) -> str:
        async with client_at(path) as client:
            await client.tell("tools/call", name="nap", arguments={})
            await begun.wait()
        await over.wait()
        async with client_at(path) as client:
            return await client.call("add", a=1, b=1)

    text, events, _ = await answered(agent(scene, host_tools=[napping(begun, ended, over), add]))
    assert (text, ended) == ("2", ["cancelled"])
    requests = [event.id for event in events if isinstance(event, v.ToolRequested)]
    assert [event.id for event in events if isinstance(event, v.RequestWithdrawn)] == requests[:1]
    assert len({*requests}) == 2


async def test_a_tool_that_takes_long_is_not_silence_of_the_cli() -> None:
    @tool
    async def slow() -> str:
        await trio.sleep(0.6)
        return "done"

    async def scene(path: str, side: PeerStreams) -> str:
        async with client_at(path) as client:
            return await client.call("slow")

    text, events, _ = await answered(agent(scene, host_tools=[slow], silence=0.3))
    assert (text, [e for e in events if isinstance(e, v.Notice) and e.code == "stalled"]) == ("done", [])


@pytest.mark.covers("R185")
async def test_secrets_of_a_server_are_in_no_recording(tmp_path: Path) -> None:
    told = list[str]()

    async def scene(path: str, side: PeerStreams) -> str:
        return "fine"

    server = McpServer(command=sys.executable, env={"TOKEN": SECRET})
    plan = agent(scene, mcp={"tiny": server}, record=str(tmp_path))
    assert plan.launch.mcp["tiny"].env == {"TOKEN": SECRET}
    _, events, directory = await answered(plan)
    for path in directory.rglob("*"):
        if path.is_file():
            told.append(path.name)
            assert SECRET not in path.read_text()
    assert "stdin.ndjson" in told
    assert '"value":"***"' in (directory / "1" / "stdin.ndjson").read_text()
    assert SECRET not in repr(events)


async def test_an_approval_for_a_tool_of_the_host_is_given_without_asking() -> None:
    async def scene(path: str, side: PeerStreams) -> str:
        for key, name in enumerate(("mcp_host_add", "mcp_host_add evil"), start=50):
            asked = {"toolCallId": name, "name": name, "title": name, "kind": "other"}
            options = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
            params = {"sessionId": "of-a", "toolCall": asked, "options": options}
            await side.send_all(line(id=key, method="session/request_permission", params=params))
        said = [json.loads(await anext(lines)) for lines in [side.lines()] for _ in range(2)]
        return str({one["id"]: one["result"]["outcome"]["optionId"] for one in said})

    text, _, _ = await answered(agent(scene, permission="deny"))
    assert text == "{50: 'y', 51: 'n'}"


def test_a_path_too_long_for_a_socket_is_put_elsewhere(tmp_path: Path) -> None:
    assert socket_path(Path("/tmp/x"), 2) == Path("/tmp/x/tools-2")
    far = socket_path(Path("/tmp") / ("x" * MAX_SOCKET_PATH), 1)
    assert len(os.fsencode(far)) <= MAX_SOCKET_PATH
    assert far.parent.parent == Path("/tmp")


async def test_a_folder_of_its_own_goes_with_the_socket_and_a_place_that_is_taken_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "own" / "tools"
    async with ToolSocket(path, (), Memo(), lambda events: None).listening():
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()
    (tmp_path / "file").touch()
    with pytest.raises(RecordingFailed, match="file"):
        async with ToolSocket(tmp_path / "file" / "x", (), Memo(), lambda events: None).listening():
            pass


def test_a_cli_waits_longer_for_a_tool_than_the_tool_may_take() -> None:
    server = proxy_server(Path("/s/tools-1"), 600)
    assert (server.timeout, server.approved, server.args[-1]) == (630, True, "/s/tools-1")
