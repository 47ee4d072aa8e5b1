"""A fake of the OpenAI Responses API on a loopback port, scripted by the test that owns it.

It plays the same steps as the fake of the Messages API, rendered as this API streams them: each request for a response
eats one step, so each attempt of a retried one does. What comes after the last step is answered harmlessly and kept
in `unexpected`. Any other path (lists of models) is answered 404 and eats nothing. A client that leaves ends only its
own answer. Steps are eaten in the order in which requests arrive.

Not played: `StreamError`, `Malformed`, thinking. Not checked: the key, and whether the conversation makes sense.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import attrs
import msgspec
import trio
from trio_util import AsyncValue

from tests.fakes.steps import (
    Block,
    Drop,
    Hang,
    Held,
    Message,
    Plain,
    Status,
    Step,
    Text,
    Thinking,
    Tool,
    as_message,
    eaten,
)
from tests.fakes.wire import Connection, listening

OVER = Text("The script of the fake API is over.")
SSE = {"content-type": "text/event-stream", "cache-control": "no-cache"}
INPUT_TOKENS = 100
OUTPUT_TOKENS = 20

KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}


@attrs.define(eq=False)
class ResponseRequest:
    """One request for a response, with its whole body."""

    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model", ""))

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools offered to the model, or their type where they have no name."""
        return tuple(str(tool.get("name") or tool.get("type")) for tool in self.body.get("tools", []))

    @property
    def text(self) -> str:
        """The body as JSON, to look for what was said in it."""
        return json.dumps(self.body)

    @property
    def user_texts(self) -> tuple[str, ...]:
        """All texts of user messages, oldest first; the CLI's own are among them."""
        messages = [item for item in self._input() if item.get("role") == "user"]
        return tuple(part["text"] for item in messages for part in item["content"] if "text" in part)

    @property
    def tool_outputs(self) -> tuple[str, ...]:
        """What the tools gave back, oldest first, as JSON where it is no text."""
        outputs = [item["output"] for item in self._input() if item["type"] == "function_call_output"]
        return tuple(each if isinstance(each, str) else json.dumps(each) for each in outputs)

    def _input(self) -> list[dict[str, Any]]:
        return list(self.body["input"])


@attrs.define(eq=False)
class ResponsesApi:
    """The running fake: what it will say, and what it was asked. With `model`, other models have an answer of their own
    and eat nothing: a CLI asks them for titles and the like."""

    port: int
    model: str | None = None
    requests: list[ResponseRequest] = attrs.field(factory=list[ResponseRequest])
    unexpected: list[ResponseRequest] = attrs.field(factory=list[ResponseRequest])
    _steps: deque[Step] = attrs.field(factory=deque[Step])
    _arrived: AsyncValue[int] = attrs.field(factory=lambda: AsyncValue(0))
    _numbers: count[int] = attrs.field(factory=lambda: count(1))

    @property
    def url(self) -> str:
        """The base URL of the provider: `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def play(self, *steps: Step) -> None:
        """Append steps to the script."""
        self._steps.extend(steps)

    @property
    def scripted(self) -> list[ResponseRequest]:
        """The requests since the scene began, in order of arrival."""
        return self.requests

    def begin_anew(self) -> None:
        """Forget what is left of the script and what was asked: for the next scene of a process that goes on."""
        for kept in (self._steps, self.requests, self.unexpected):
            kept.clear()
        self._arrived.value = 0

    async def wait_requests(self, number: int) -> ResponseRequest:
        """The `number`th request, counted from 1, once it has arrived."""
        await self._arrived.wait_value(lambda arrived: arrived >= number)
        return self.requests[number - 1]

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one client until it leaves or a step breaks the connection."""
        connection = Connection(stream)
        try:
            while (received := await connection.receive()) is not None:
                head, body = received
                if head.method != "POST" or not head.path.endswith("/responses"):
                    await connection.respond(404, b'{"error": {"message": "no such path"}}')
                elif not await self._play(connection, self._next(body, head.headers)):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            await connection.close()

    def _next(self, body: bytes, headers: Mapping[str, str]) -> Plain | Held:
        request = ResponseRequest(msgspec.json.decode(body, type=dict[str, Any]), headers)
        if self.model not in (None, request.model):
            return OVER
        self.requests.append(request)
        self._arrived.value += 1
        if not self._steps:
            self.unexpected.append(request)
            return OVER
        return eaten(self._steps)

    async def _play(self, connection: Connection, step: Plain | Held) -> bool:
        """Play one step; is the connection good for another request?"""
        match step:
            case Held(inner, until):
                await until.wait()
                return await self._play(connection, inner)
            case Status():
                await connection.respond(step.code, _refusal(step), step.headers)
                return True
            case Drop(inner, after, linger=linger):
                await self._stream(connection, as_message(inner), after)
                await trio.sleep(linger)
                return False
            case Hang(inner, after):
                if inner is not None:
                    await self._stream(connection, as_message(inner), after)
                await connection.wait_gone()
                return False
            case Text() | Tool() | Message() | Thinking():
                await self._stream(connection, as_message(step), None)
                await connection.end_chunks()
                return True
            case _:
                raise NotImplementedError(f"this fake does not play {step!r}")

    async def _stream(self, connection: Connection, message: Message, limit: int | None) -> None:
        await connection.start_chunks(SSE)
        sent = 0
        for kind, pause, data in _events(message, f"fake_{next(self._numbers):06d}"):
            if kind == "response.output_text.delta":
                if sent == limit:
                    return
                sent += 1
            elif limit is not None and kind not in ("response.created", "response.output_item.added"):
                return
            await trio.sleep(pause)
            await connection.send_chunk(data)


@asynccontextmanager
async def open_responses_api(*steps: Step, model: str | None = None) -> AsyncGenerator[ResponsesApi]:
    """A fake that listens on 127.0.0.1, on a port of the system's choice, until the block ends."""
    async with listening(lambda port: ResponsesApi(port, model)) as api:
        api.play(*steps)
        yield api


def call(command: str, **more: object) -> Tool:
    """The model calls the shell."""
    return Tool("exec_command", {"cmd": command, **more})


def escalated(command: str) -> Tool:
    """A command that asks to run outside of the sandbox."""
    return call(command, sandbox_permissions="require_escalated", justification="it must")


def _refusal(step: Status) -> bytes:
    kind = step.kind or KINDS.get(step.code, "server_error")
    return json.dumps(
        {"error": {"type": kind, "code": kind, "message": step.message, "param": None}}
    ).encode()


def _events(message: Message, identity: str) -> Iterator[tuple[str, float, bytes]]:
    """(name, seconds to wait before it, bytes) of each server-sent event of an answer."""
    yield _event("response.created", response={"id": f"resp_{identity}"})
    for index, block in enumerate(message.blocks):
        item = f"{identity}_{index}"
        yield _event("response.output_item.added", output_index=index, item=_item(block, item, empty=True))
        if isinstance(block, Text):
            for start in range(0, len(block), block.chunk):
                yield _event(
                    "response.output_text.delta",
                    block.delay,
                    item_id=f"msg_{item}",
                    output_index=index,
                    content_index=0,
                    delta=block.part(start, start + block.chunk),
                )
        yield _event("response.output_item.done", output_index=index, item=_item(block, item))
    usage = {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    yield _event("response.completed", response={"id": f"resp_{identity}", "usage": usage})


def _event(kind: str, pause: float = 0.0, **fields: object) -> tuple[str, float, bytes]:
    return kind, pause, f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _item(block: Block, identity: str, *, empty: bool = False) -> dict[str, object]:
    match block:
        case Text():
            text = [] if empty else [{"type": "output_text", "text": block.whole()}]
            return {"type": "message", "role": "assistant", "id": f"msg_{identity}", "content": text}
        case Thinking(text):
            summary = [] if empty else [{"type": "summary_text", "text": text}]
            return {"type": "reasoning", "id": f"rs_{identity}", "summary": summary}
        case Tool(name, arguments, given):
            space, found, short = name.rpartition(
                "__"
            )  # tools of MCP servers have the server as their namespace
            return {
                "type": "function_call",
                "id": f"fc_{identity}",
                "call_id": given or f"call_{identity}",
                **({"namespace": space, "name": short} if found else {"name": name}),
                "arguments": json.dumps(dict(arguments)),
            }
