from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import openai
import pytest
import trio
from openai import OpenAI
from starlette.applications import Starlette

from proctor.actors import errors as e
from proctor.actors.delivery import Delivery
from proctor.actors.gateways.openai import routes
from proctor.actors.gateways.openai.requests import InvalidRequest, parse_request
from proctor.actors.gateways.openai.responses import fault_of, status_of
from proctor.actors.serving.completion import CompletionModel, CompletionRequest
from proctor.actors.structured.payloads import BinaryPayload, FilePayload
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.protocols.prompt import Called, Message
from tests.actors.spoken import COUNTED, GOOD, TALK, saying, spec_of
from tests.protocols.lines import INIT, assistant, delta, ended, line, reply, text
from tests.tables import each_row

T = TypeVar("T")
USER = {"role": "user", "content": "hi"}
PICTURE = "data:image/png;base64," + base64.b64encode(b"a picture").decode()


@attrs.frozen
class Chat:
    client: OpenAI

    async def ask(self, do: Callable[[OpenAI], T]) -> T:
        return await trio.to_thread.run_sync(do, self.client)

    async def create(self, **asked: Any) -> Any:
        return await self.ask(partial(_made, {"model": "agent", "messages": [USER], **asked}))

    async def pieces(self, **asked: Any) -> list[Any]:
        return await self.ask(
            partial(_pieces, {"model": "agent", "messages": [USER], "stream": True, **asked})
        )


def _made(asked: dict[str, Any], client: OpenAI) -> Any:
    create: Any = client.chat.completions.create
    return create(**asked)


def _pieces(asked: dict[str, Any], client: OpenAI) -> list[Any]:
    create: Any = client.chat.completions.create
    return [*create(**asked)]


@asynccontextmanager
async def serving(agent: Peer, **others: Peer) -> AsyncGenerator[Chat]:
    models = {
        name: CompletionModel.make(spec_of(far_end)) for name, far_end in {"agent": agent, **others}.items()
    }
    application = Starlette(routes=routes(models))
    with bound(Endpoint()) as opened:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, application, opened, shutdown=trio.Event()))
            with OpenAI(base_url=base_of(opened), api_key="none", max_retries=0, timeout=20) as client:
                yield Chat(client)
            nursery.cancel_scope.cancel()


def base_of(opened: Any) -> str:
    return f"http://127.0.0.1:{endpoint_of(opened).port}/v1"


@pytest.mark.covers("R140")
async def test_a_chat_has_its_answer_its_usage_and_the_tools_that_were_used() -> None:
    async with serving(TALK) as chat:
        made = await chat.create()
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("It is 4.", "stop")
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (3, 5, 8)
    assert made.choices[0].message.tool_calls is None
    [used] = made.choices[0].message.executed_tools
    assert (used["function"]["name"], json.loads(used["function"]["arguments"])) == ("Read", {"path": "a"})
    assert made.proctor["session_id"] == "s"


@pytest.mark.covers("R141", "R084")
async def test_a_streamed_chat_comes_in_order_and_counts_at_its_end() -> None:
    async with serving(TALK) as chat:
        pieces = await chat.pieces(stream_options={"include_usage": True})
    texts = [piece.choices[0].delta.content for piece in pieces if piece.choices]
    assert "".join(text or "" for text in texts) == "Let me see.\n\nIt is 4."
    tools = [
        p.choices[0].delta.executed_tools for p in pieces if p.choices and p.choices[0].delta.model_extra
    ]
    assert [tool[0]["id"] for tool in tools] == ["c1"]
    assert [p.choices[0].finish_reason for p in pieces if p.choices][-1] == "stop"
    assert (pieces[-1].choices, pieces[-1].usage.total_tokens) == ([], 8)


STRUCTURED = saying(delta("thinking aloud"), **GOOD, structured_output={"sum": 4})
SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SHAPE, "strict": True}}


@pytest.mark.covers("R139")
@pytest.mark.parametrize("wanted", [FORMAT, {"type": "json_object"}])
async def test_a_response_format_gives_the_value_as_json(wanted: dict[str, Any]) -> None:
    async with serving(STRUCTURED) as chat:
        made = await chat.create(response_format=wanted)
        pieces = await chat.pieces(response_format=wanted)
    assert json.loads(made.choices[0].message.content) == {"sum": 4}
    said = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert json.loads(said) == {"sum": 4}


LOOK = "Hello, wor"
CUT_OFF = line(type="stream_event", event={"type": "message_stop"}, parent_tool_use_id=None)
BEGUN = line(
    type="stream_event", event={"type": "message_start", "message": {"id": "m1"}}, parent_tool_use_id=None
)


def broken(retry: str, *, wait: float = 0.0) -> Peer:
    """A far end whose first attempt breaks `wait` seconds after its pieces; the next says `retry`, which is its answer."""

    async def live(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                continue
            for out in (INIT, BEGUN, *(delta(LOOK[n : n + 3]) for n in range(0, len(LOOK), 3))):
                await side.send_all(out)
            await trio.sleep(wait)
            result = ended(subtype="success", is_error=False, result=retry, usage=COUNTED)
            for out in (CUT_OFF, delta(retry[:7]), assistant(text(retry)), result):
                await side.send_all(out)
        return None

    return live


@pytest.mark.parametrize(
    ("retry", "wait"), [("Hello, world.", 1.5), ("Hello, world.", 0.0), ("Good day.", 0.0)]
)
async def test_what_a_client_joins_of_a_stream_that_broke_is_the_answer(retry: str, wait: float) -> None:
    async with serving(broken(retry, wait=wait)) as chat:
        pieces = await chat.pieces()
        made = await chat.create()
    joined = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert joined == made.choices[0].message.content == retry
    assert pieces[-1].choices[0].finish_reason == "stop"


async def test_a_stream_that_cannot_be_the_answer_any_more_ends_with_an_error_that_has_it() -> None:
    seen = list[str]()
    async with serving(broken("Good day.", wait=1.5)) as chat:

        def read(client: OpenAI) -> None:
            create: Any = client.chat.completions.create
            for piece in create(model="agent", messages=[USER], stream=True):
                seen.append(piece.choices[0].delta.content or "")

        with pytest.raises(
            openai.APIError, match="a model call broke after part of its text was sent"
        ) as caught:
            await chat.ask(read)
    body: Any = caught.value.body
    assert "".join(seen) == LOOK
    assert (body["code"], body["completion"]["choices"][0]["message"]["content"]) == (
        "retracted",
        "Good day.",
    )


async def test_text_is_sent_while_the_agent_still_says_it() -> None:
    first, rest = trio.Event(), trio.Event()

    async def far_end(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                continue
            for out in (INIT, delta("It ")):
                await side.send_all(out)
            await rest.wait()
            for out in (delta("is 4."), assistant(text("It is 4.")), ended(**GOOD)):
                await side.send_all(out)
        return None

    texts = list[str]()
    async with serving(far_end) as chat:

        def read(client: OpenAI) -> None:
            create: Any = client.chat.completions.create
            for piece in create(model="agent", messages=[USER], stream=True):
                texts.append(piece.choices[0].delta.content or "")
                if texts[-1]:
                    trio.from_thread.run_sync(first.set)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat.ask, read)
            with trio.fail_after(10):
                await first.wait()
            assert texts == ["", "It "]
            rest.set()
    assert "".join(texts) == "It is 4."


THINKING = saying(
    assistant({"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}),
    line(
        type="user",
        message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "4", "is_error": True}]},
        tool_use_result={"durationMs": 250},
    ),
    assistant(text("It is 4.")),
    **GOOD,
)  # fmt: skip


async def test_thoughts_and_what_came_of_tools_are_told_beside_the_content() -> None:
    async with serving(THINKING) as chat:
        made = await chat.create()
        pieces = await chat.pieces()
    message = made.choices[0].message
    assert (message.content, message.reasoning_content) == ("It is 4.", "hm")
    [result] = made.proctor["tool_results"]
    assert result == {
        "tool_call_id": "c1",
        "name": "Read",
        "content": "4",
        "is_error": True,
        "duration": 0.25,
    }
    thoughts = [getattr(piece.choices[0].delta, "reasoning_content", "") for piece in pieces]
    assert "".join(thoughts) == "hm"
    [told] = [
        piece.proctor["tool_results"] for piece in pieces if "tool_results" in getattr(piece, "proctor", {})
    ]
    assert told == [result]


@pytest.mark.covers("R105")
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_before_the_first_piece_has_its_status_and_names_its_cause(stream: bool) -> None:
    async with serving(saying(status=3)) as chat:
        with pytest.raises(openai.InternalServerError, match=r"crashed \(exit status 3\)") as caught:
            await chat.create(stream=stream)
    body: Any = caught.value.body
    assert (caught.value.status_code, caught.value.code) == (500, "crashed")
    assert [cause["type"] for cause in body["causes"]] == ["CompletionError", "ProviderError"]


@pytest.mark.covers("R114")
async def test_an_error_behind_the_first_piece_is_the_last_that_comes() -> None:
    async with serving(saying(delta("so far"), status=3)) as chat:
        seen = list[str]()

        def read(client: OpenAI) -> None:
            for piece in client.chat.completions.create(
                model="agent", messages=[{"role": "user", "content": "hi"}], stream=True
            ):
                seen.append(piece.choices[0].delta.content or "")

        with pytest.raises(openai.APIError, match="provider 'agent': crashed"):
            await chat.ask(read)
    assert "".join(seen) == "so far"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_retries_by_itself_does_not_repeat_what_may_have_been_carried_out(
    stream: bool,
) -> None:
    prompts = list[Any]()
    async with serving(saying(status=3, heard=prompts)) as chat:
        with pytest.raises(openai.InternalServerError, match="crashed") as caught:
            await attrs.evolve(chat, client=chat.client.with_options(max_retries=2)).create(stream=stream)
    assert len(prompts) == 1
    assert caught.value.response.headers["x-should-retry"] == "false"


@each_row(
    ("error", "repeats"),
    [
        (e.NotExecuted("a", "its queue is full"), "true"),
        (e.AskNotSent("a", 1.0, delivery=Delivery(sent="no", stage="queued", elapsed=1.0)), "true"),
        (e.NotInstalled("a", ["/b"], "npm"), "false"),
        (
            e.AskInterrupted(
                "a", 1.0, acknowledged=True, delivery=Delivery(sent="yes", stage="tool", elapsed=1.0)
            ),
            "false",
        ),
        (e.MaybeExecuted("a", "killed", "gone"), "false"),
        (e.BadOption("no such option"), "false"),
    ],
)
def test_a_client_may_repeat_by_itself_only_what_never_reached_an_agent(
    error: Exception, repeats: str
) -> None:
    assert fault_of(error).headers["x-should-retry"] == repeats


async def test_a_usage_limit_says_when_to_come_again() -> None:
    resets = int(time.time()) + 500
    limit = line(
        type="rate_limit_event",
        session_id="s",
        rate_limit_info={"status": "rejected", "resetsAt": resets, "rateLimitType": "five_hour"},
    )
    ended: dict[str, Any] = {
        "subtype": "success",
        "is_error": True,
        "api_error_status": 429,
        "result": "You've hit your limit",
    }
    async with serving(saying(limit, **ended)) as chat:
        with pytest.raises(openai.RateLimitError) as caught:
            await chat.create()
    assert 490 <= int(caught.value.response.headers["retry-after"]) <= 500


@each_row(
    ("error", "status"),
    [
        (e.ProviderError("p", "x", outcome="authentication", ending="authentication"), 401),
        (e.ProviderError("p", "x", outcome="configuration", ending="model_not_found"), 404),
        (e.ProviderError("p", "x", outcome="deadline"), 408),
        (e.AskTimeout("a", 1.0), 408),
        (e.ProviderError("p", "x", outcome="limited", ending="limit"), 429),
        (e.BudgetExceeded("a", "x"), 429),
        (e.ProviderError("p", "x", outcome="interrupted", ending="interrupted"), 499),
        (e.ProviderError("p", "x", outcome="failed", ending="overloaded"), 503),
        (e.NotExecuted("a", "x"), 503),
        (e.UnsupportedPayload("a", "binary", "x/y", "x"), 400),
        (e.ProviderError("p", "x", outcome="crashed"), 500),
        (e.NotInstalled("a", ["/b"], "npm"), 500),
    ],
)
def test_each_cause_has_its_status(error: Exception, status: int) -> None:
    whole = e.CompletionError("no")
    whole.__cause__ = e.ProviderError("p", "no")
    whole.__cause__.__cause__ = error
    assert fault_of(whole).status == status


async def test_models_are_listed_and_an_unknown_one_is_not_found() -> None:
    async with serving(agent=TALK, other=TALK) as chat:
        listed = await chat.ask(lambda client: [model.id for model in client.models.list()])
        one = await chat.ask(lambda client: client.models.retrieve("other"))
        with pytest.raises(openai.NotFoundError, match=r"no provider 'none'; registered: agent, other"):
            await chat.create(model="none")
        with pytest.raises(openai.NotFoundError):
            await chat.ask(lambda client: client.models.retrieve("none"))
    assert (listed, one.id) == (["agent", "other"], "other")


@pytest.mark.covers("R142")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_run(stream: bool) -> None:
    begun, ended = trio.Event(), trio.Event()

    async def far_end(side: PeerStreams) -> int | None:
        begun.set()
        try:
            return await saying(delta("so far"))(side)
        finally:
            ended.set()

    async with serving(far_end) as chat:
        asked = json.dumps({"model": "agent", "messages": [USER], "stream": stream}).encode()
        port = chat.client.base_url.port
        assert port is not None
        connection = await trio.open_tcp_stream("127.0.0.1", port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\ncontent-length: {len(asked)}\r\n\r\n"
        await connection.send_all(head.encode() + asked)
        await begun.wait()
        assert not ended.is_set()
        await connection.aclose()
        with trio.fail_after(10):
            await ended.wait()


# -- what is asked


def body(**given: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **given}).encode()


@pytest.mark.covers("R136", "R138")
def test_a_conversation_becomes_a_request_with_all_of_it() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
    ]
    request = parse_request(body(messages=messages)).request
    assert (request.preamble, request.prompt) == ("Be short.\n\nBe kind.", ("two",))
    assert request.history == (
        Message("user", "one"),
        Message("assistant", "", calls=(Called("c1", "add", {"a": 1}),)),
        Message("tool", "2", name="add"),
    )


@pytest.mark.covers("R143")
def test_pictures_and_files_of_a_message_become_payloads() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    ]
    request = parse_request(body(messages=[{"role": "user", "content": parts}])).request
    assert request.prompt == ("look", "[image-1]", "[a.txt]", "[audio-3]")
    assert request.payloads == (
        BinaryPayload(b"a picture", "image/png", "image-1"),
        FilePayload("a.txt", b"hi", "text/plain"),
        BinaryPayload(b"hi", "audio/wav", "audio-3"),
    )


def with_part(part: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("given", "param", "why"),
    [
        ({"n": 2}, "n", "an agent gives one answer"),
        ({"temperature": 0.2}, "temperature", "no command line has this option"),
        ({"max_tokens": 5}, "max_tokens", "unsupported parameter"),
        ({"tools": [{"type": "function"}]}, "tools", "the agent runs its own tools"),
        ({"stop": ["x"]}, "stop", "unsupported parameter"),
        ({"made_up": 1}, "made_up", "unknown parameter"),
        ({"model": None}, "model", "missing"),
        ({"model": 5}, "model", "must be of the type str"),
        ({"messages": []}, "messages", "empty"),
        ({"messages": ["hi"]}, "messages[0]", "one of the roles"),
        ({"messages": [{"role": "function"}]}, "messages[0]", "one of the roles"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "a text or a list of parts"),
        (with_part({"type": "image_url", "image_url": {"url": "http://x/y"}}), "messages[0].content[0]", "nothing is fetched"),
        (with_part({"type": "image_url", "image_url": {"url": "data:a/b;base64,?"}}), "messages[0].content[0]", "base64"),
        (with_part({"type": "video"}), "messages[0].content[0]", "'video'"),
        ({"response_format": {"type": "grammar"}}, "response_format", "json_schema"),
        ({"stream": "yes"}, "stream", "must be of the type bool"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_its_name(given: dict[str, Any], param: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        parse_request(body(**given))
    assert caught.value.param == param
    assert status_of(caught.value) == 400


def test_what_asks_for_nothing_is_taken() -> None:
    asked = parse_request(
        body(n=1, temperature=1, top_p=1, tools=[], stop=None, seed=None, user="u", metadata={"a": "b"})
    )
    assert asked.request == CompletionRequest(prompt="hi", timeout=None)


def test_a_body_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a JSON object"):
        parse_request(b"[1]")
