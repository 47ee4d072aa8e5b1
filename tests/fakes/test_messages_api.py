from __future__ import annotations

import http.client
import json
import tracemalloc
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.messages_api import MessagesApi, open_messages_api
from tests.fakes.steps import (
    KINDS,
    Drop,
    Hang,
    Held,
    Malformed,
    Message,
    Repeat,
    Status,
    Step,
    StreamError,
    Text,
    Thinking,
    Tool,
    Usage,
)

Json: TypeAlias = dict[str, Any]

TOOLS: list[Json] = [{"name": "Bash", "input_schema": {}}]


@attrs.frozen
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def events(self) -> list[Json]:
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: ")]

    @property
    def deltas(self) -> list[Json]:
        return [event["delta"] for event in self.events if event["type"] == "content_block_delta"]

    @property
    def text(self) -> str:
        return "".join(delta.get("text", "") for delta in self.deltas)


class Client:
    def __init__(self, api: MessagesApi) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)

    async def ask(self, prompt: str = "hi", *, stream: bool = True, **fields: object) -> Reply:
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": prompt}],
            "stream": stream,
            "tools": TOOLS,
        }
        return await self.send("POST", "/v1/messages?beta=true", json.dumps(body | fields))

    async def send(self, method: str, target: str, body: str | None = None) -> Reply:
        return await trio.to_thread.run_sync(self._send, method, target, body)

    def close(self) -> None:
        self._connection.close()

    def _send(self, method: str, target: str, body: str | None) -> Reply:
        self._connection.request(method, target, body, {"x-api-key": "k", "X-Claude-Code-Session-Id": "s1"})
        response = self._connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, response.read())


@pytest.fixture
async def api() -> AsyncGenerator[MessagesApi]:
    async with open_messages_api() as made:
        yield made


@pytest.fixture
async def client(api: MessagesApi) -> AsyncGenerator[Client]:
    made = Client(api)
    yield made
    made.close()


@given(st.text(max_size=8), st.integers(0, 400), st.integers(0, 450), st.integers(0, 450))
def test_any_part_of_a_text_is_the_same_part_of_the_whole(
    text: str, size: int, start: int, more: int
) -> None:
    sized = Text(text, size=size)
    assert sized.part(start, start + more) == sized.whole()[start : start + more]
    assert len(sized.whole()) == max(size, len(text))


async def test_a_text_comes_in_deltas_of_the_size_asked_for(api: MessagesApi, client: Client) -> None:
    step = Text("hello ", size=1000, chunk=300)
    api.play(step)
    reply = await client.ask()

    assert [len(delta["text"]) for delta in reply.deltas] == [300, 300, 300, 100]
    assert reply.text == step.whole()
    assert [event["type"] for event in reply.events if "block" not in event["type"]] == [
        "message_start",
        "ping",
        "message_delta",
        "message_stop",
    ]


async def test_blocks_keep_their_order_and_a_tool_call_sets_the_stop_reason(
    api: MessagesApi, client: Client
) -> None:
    blocks = (
        Thinking("hm"),
        Text("first"),
        Tool("Bash", {"command": "x" * 5000}, id="toolu_1"),
        Tool("Read", {}),
    )
    api.play(Message(blocks), Message(blocks, usage=Usage(7, 8), stop_reason="max_tokens"))
    streamed = await client.ask()
    whole = json.loads((await client.ask(stream=False)).body)

    started = [event["content_block"] for event in streamed.events if event["type"] == "content_block_start"]
    assert [block["type"] for block in started] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert started[2]["id"] == whole["content"][2]["id"] == "toolu_1"
    assert started[3]["id"] != whole["content"][3]["id"]
    written = [delta["partial_json"] for delta in streamed.deltas if delta["type"] == "input_json_delta"]
    assert len(written) == 3
    assert json.loads("".join(written[:2])) == whole["content"][2]["input"] == {"command": "x" * 5000}
    assert streamed.events[-2]["delta"]["stop_reason"] == "tool_use"
    assert whole["stop_reason"] == "max_tokens"
    assert (whole["usage"]["input_tokens"], whole["usage"]["output_tokens"]) == (7, 8)


@pytest.mark.parametrize("code", KINDS)
async def test_an_error_has_the_status_kind_and_headers_of_the_api(
    api: MessagesApi, client: Client, code: int
) -> None:
    api.play(Status(code, "because", headers={"retry-after": "3"}))
    reply = await client.ask()
    assert (reply.status, reply.headers["retry-after"]) == (code, "3")
    assert json.loads(reply.body)["error"] == {"type": KINDS[code], "message": "because"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_dropped_answer_ends_in_mid_body(api: MessagesApi, client: Client, stream: bool) -> None:
    api.play(Drop(Text(size=100, chunk=10), after=4))
    with pytest.raises(http.client.IncompleteRead) as error:
        await client.ask(stream=stream)
    assert error.value.partial.count(b"text_delta") == (4 if stream else 0)
    await api.scripted[0].finished.wait()
    assert api.scripted[0].outcome == "cut"


async def test_a_reset_answer_is_an_error_to_the_client(api: MessagesApi, client: Client) -> None:
    api.play(Drop(Text(size=100, chunk=10), after=4, reset=True))
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        await client.ask()
    await api.scripted[0].finished.wait()
    assert api.scripted[0].outcome == "cut"


@pytest.mark.parametrize(
    ("step", "heard"),
    [
        (Hang(), b""),
        (Hang(Text(size=100, chunk=10), after=3), b"text_delta"),
        (Hang(Text(), pings=0.01), b"event: ping"),
        (Held(Text()), b""),
    ],
    ids=["no headers", "after three deltas", "pinging", "held"],
)
async def test_a_silent_answer_ends_when_the_client_leaves(
    api: MessagesApi, step: Step, heard: bytes
) -> None:
    api.play(step)
    stream = await trio.open_tcp_stream("127.0.0.1", api.port)
    async with stream:
        await stream.send_all(request_bytes())
        request = await api.wait_scripted(1)
        received = b""
        while received.count(heard) < 3 and heard:
            received += await stream.receive_some()
        assert not request.finished.is_set()
    await request.finished.wait()
    assert request.outcome == "client gone"


@pytest.mark.parametrize("after", [0, 1, 10])
async def test_a_broken_answer_never_gets_past_its_last_delta(
    api: MessagesApi, client: Client, after: int
) -> None:
    api.play(Drop(Text(size=100, chunk=10), after=after))
    with pytest.raises(http.client.IncompleteRead) as error:
        await client.ask()
    assert error.value.partial.count(b"text_delta") == after
    assert b"content_block_start" in error.value.partial
    assert b"content_block_stop" not in error.value.partial


async def test_a_step_with_too_few_deltas_to_break_ends_the_test() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="at least 4 deltas"), flatten_subgroups=True):
        async with open_messages_api(Drop(Text("short"), after=4)) as api:
            stream = await trio.open_tcp_stream("127.0.0.1", api.port)
            async with stream:
                await stream.send_all(request_bytes())
                await trio.sleep_forever()


async def test_a_held_answer_comes_once_it_is_released(
    api: MessagesApi, client: Client, nursery: trio.Nursery
) -> None:
    held = Held(Text("now"))
    api.play(held)
    nursery.start_soon(client.ask)
    request = await api.wait_scripted(1)
    assert not request.finished.is_set()
    held.until.set()
    await request.finished.wait()
    assert request.outcome == "answered"


async def test_a_stream_error_comes_after_the_deltas_asked_for(api: MessagesApi, client: Client) -> None:
    api.play(Repeat(StreamError(Text(size=100, chunk=10), after=2)))
    streamed, whole = await client.ask(), await client.ask(stream=False)
    assert len(streamed.deltas) == 2
    assert streamed.events[-1]["error"]["type"] == "overloaded_error"
    assert whole.status == 529


async def test_a_malformed_answer_is_sent_as_it_is(api: MessagesApi, client: Client) -> None:
    api.play(Malformed(b"<html>", "text/html"))
    reply = await client.ask()
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"<html>", "text/html")


async def test_a_repeated_step_counts_down_and_the_script_goes_on(api: MessagesApi, client: Client) -> None:
    api.play(Repeat(Status(500), times=2), Text("fine"))
    assert [(await client.ask()).status for _ in range(3)] == [500, 500, 200]
    assert (api.steps_left, api.unexpected) == (0, [])


async def test_what_comes_after_the_script_is_answered_and_kept(api: MessagesApi, client: Client) -> None:
    api.play(Text("one"))
    await client.ask("first")
    assert "over" in (await client.ask("second")).text
    assert [request.last_user_text for request in api.unexpected] == ["second"]


async def test_a_function_answers_by_the_request(api: MessagesApi, client: Client) -> None:
    api.answer_with(lambda request: Text(f"{request.session_id} said {request.last_user_text}"))
    assert (await client.ask("hi")).text == "s1 said hi"


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("HEAD", "/", 200),
        ("POST", "/v1/messages/count_tokens?beta=true", 200),
        ("GET", "/v1/models", 404),
    ],
)
async def test_probes_and_counts_eat_no_step(
    api: MessagesApi, client: Client, method: str, target: str, status: int
) -> None:
    api.play(Text("kept"))
    reply = await client.send(method, target, json.dumps({"model": "m"}) if method == "POST" else None)
    assert (reply.status, api.steps_left, api.scripted) == (status, 1, [])
    assert (await client.ask()).text == "kept"


async def test_a_small_request_without_tools_is_a_side_request(api: MessagesApi, client: Client) -> None:
    api.play(Text("kept"))
    await client.ask("a title, please", tools=[])
    assert [request.kind for request in api.requests] == ["side"]
    assert (await client.ask("x" * 5000, tools=[])).text == "kept"


async def test_a_request_is_recorded_with_what_tests_ask_for(api: MessagesApi, client: Client) -> None:
    result: Json = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "done"}]}
    failed: Json = {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True}
    parts: list[Json] = [
        result,
        failed,
        {"type": "image", "source": {}},
        {"type": "text", "text": "and now?"},
    ]
    api.play(Text())
    await client.ask(messages=[{"role": "assistant", "content": "x"}, {"role": "user", "content": parts}])
    (request,) = api.scripted
    assert (request.model, request.n_messages, request.tools) == ("m", 2, ("Bash",))
    assert (request.last_user_text, request.session_id, request.api_key) == ("and now?", "s1", "k")
    assert [attrs.astuple(each) for each in request.tool_results] == [
        ("t1", "done", False),
        ("t2", "no", True),
    ]


async def test_a_request_may_come_byte_by_byte(api: MessagesApi) -> None:
    api.play(Text("heard"))
    async with await trio.open_tcp_stream("127.0.0.1", api.port) as stream:
        for byte in request_bytes():
            await stream.send_all(bytes([byte]))
        request = await api.wait_scripted(1)
        await request.finished.wait()
    assert (request.outcome, request.last_user_text) == ("answered", "hi")


@pytest.mark.parametrize("kept", [1, 30, -1])
async def test_a_client_that_leaves_in_mid_request_leaves_no_record(api: MessagesApi, kept: int) -> None:
    api.play(Text("for the next"))
    async with await trio.open_tcp_stream("127.0.0.1", api.port) as stream:
        await stream.send_all(request_bytes()[:kept])
    client = Client(api)
    assert (await client.ask()).text == "for the next"
    client.close()


async def test_a_slow_reader_holds_the_answer_up_and_not_the_memory(api: MessagesApi) -> None:
    step = Text(size=24_000_000, chunk=16_384)
    api.play(step)
    async with await trio.open_tcp_stream("127.0.0.1", api.port) as stream:
        await stream.send_all(request_bytes())
        request = await api.wait_scripted(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not request.finished.is_set()
        tracemalloc.start()
        received = await read_to_last_chunk(stream)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert received > len(step)
    assert peak < 4_000_000


async def read_to_last_chunk(stream: trio.SocketStream) -> int:
    received = 0
    tail = b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        piece = await stream.receive_some(65_536)
        assert piece, "the answer was cut"
        tail = (tail + piece)[-16:]
        received += len(piece)
    return received


def request_bytes() -> bytes:
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "tools": TOOLS}
    )
    return f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
