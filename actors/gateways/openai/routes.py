"""The routes of the chat API.

A client that disconnects ends its run, streamed or not. An error before the first chunk has its own status, a later one is
the last chunk; both name their causes. A stream without news is kept open by comments. The joined content of a stream that
ends well is the agent's answer, whatever its command line retracted; where that is impossible, the stream ends with an error
that has the whole completion. A stream with a schema has one content chunk, the value as JSON. When the server stops, requests in
flight are waited for, and those that are cut short end with an error.

Not here: authentication, and the server. `routes` is for any Starlette application.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import attrs
import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from proctor.actors.errors import AgentError, NoSuchProvider, NotExecuted
from proctor.actors.gateways.openai.content import Content
from proctor.actors.gateways.openai.requests import ChatRequest, InvalidRequest, parse_request
from proctor.actors.gateways.openai.responses import (
    CLIENT_CLOSED,
    Body,
    Fault,
    chunk_of,
    content_of,
    fault_of,
    head_of,
    output_of,
    response_of,
    tool_of,
    usage_of,
)
from proctor.actors.serving.chunks import (
    BETWEEN,
    Chunk,
    Complete,
    Failed,
    TextChunk,
    ThinkingChunk,
    ToolOutput,
    ToolUse,
    Void,
)
from proctor.actors.serving.completion import CompletionStream, Model
from proctor.actors.serving.in_flight import InFlight
from proctor.actors.web_server.exchange import body_of, while_connected

LARGEST = 32 * 2**20
"""The largest request body, in bytes."""

HEARTBEAT = 15.0
"""Seconds without a chunk after which a comment is sent."""

STOPPING = "stopping"
"""The `code` of a request that was refused or cut short because the server stops."""

RETRACTED = "retracted"
"""The `code` of a stream with text that was retracted after it was sent."""

STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))
DONE = b"data: [DONE]\n\n"


class CutShort(AgentError):
    """The server stopped before the answer; the agent may have done part of the work."""


class Retracted(AgentError):
    """The stream contains retracted text, and the answer is different."""

    def __init__(self) -> None:
        super().__init__(
            "a model call broke after part of its text was sent, and the new answer is different; "
            "the whole answer is in `completion`, and a request without `stream` never has this error"
        )


def routes(models: Mapping[str, Model], visits: InFlight | None = None) -> list[Route]:
    """`POST /v1/chat/completions`, `GET /v1/models` and `GET /v1/models/{id}` for these models, by name.

    The mapping may change while it is served. `visits` counts the requests in flight, for the end of the server.
    """
    endpoints = _Endpoints(models, InFlight() if visits is None else visits)
    return [
        Route("/v1/chat/completions", endpoints.complete, methods=["POST"]),
        Route("/v1/models", endpoints.list_models, methods=["GET"]),
        Route("/v1/models/{name:path}", endpoints.show_model, methods=["GET"]),
    ]


@attrs.frozen
class _Endpoints:
    models: Mapping[str, Model]
    visits: InFlight

    async def list_models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [_model(name) for name in sorted(self.models)]})

    async def show_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        return _json(_model(name)) if name in self.models else self._unknown(name)

    async def complete(self, request: Request) -> Response:
        try:
            parsed = parse_request(await _body(request))
        except InvalidRequest as error:
            return _failed(fault_of(error, status=413 if error.param == "body" else None))
        except ClientDisconnect:
            # the client has gone, so this reaches no one; the server still needs a response to end the
            # request
            return Response(status_code=CLIENT_CLOSED)
        if parsed.model not in self.models:
            return self._unknown(parsed.model)
        if self.visits.closed is not None:
            return _failed(fault_of(NotExecuted(parsed.model, self.visits.closed), code=STOPPING))
        return _ChatResponse(parsed, self.models[parsed.model], self.visits)

    def _unknown(self, name: str) -> Response:
        return _failed(fault_of(NoSuchProvider(name, [*self.models]), code="model_not_found"))


async def _body(request: Request) -> bytes:
    if (body := await body_of(request.stream(), LARGEST)) is None:
        raise InvalidRequest("body", f"the body is larger than {LARGEST} bytes")
    return body


def _model(name: str) -> Body:
    return {"id": name, "object": "model", "created": 0, "owned_by": "proctor"}


def _json(body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def _failed(fault: Fault) -> Response:
    return _json(fault.body, fault.status, fault.headers)


class _ChatResponse(Response):
    """The response to one request; it ends when the client disconnects."""

    def __init__(self, parsed: ChatRequest, model: Model, visits: InFlight) -> None:
        super().__init__()
        self._parsed = parsed
        self._model = model
        self._visits = visits
        self._head = head_of(parsed.model)
        self._content = Content()
        self._thinks_again = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = _Sender(send)
        with self._visits.visit():
            await self._answer(scope, receive, sender)
        # The signal has swallowed its cancellation, and the client has still to get its error.
        if (why := self._visits.ended.why) is not None and not sender.over:
            fault = attrs.evolve(fault_of(CutShort(why), status=503, code=STOPPING), retry_after=None)
            if sender.begun:
                await _send_body(sender, _event(fault.body) + DONE, more=False)
            else:
                await _failed(fault)(scope, receive, sender)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected(receive), self._model.stream(self._parsed.request) as stream:
            if self._parsed.stream:
                await self._stream(stream, scope, receive, send)
            else:
                response = await self._whole_response(stream)
                await response(scope, receive, send)

    async def _whole_response(self, stream: CompletionStream) -> Response:
        chunks = [chunk async for chunk in stream if isinstance(chunk, Complete | Failed)]
        last = chunks[-1]
        if isinstance(last, Failed):
            return _failed(fault_of(last.error))
        return _json(
            response_of(self._head, stream.response, last.metadata, structured=self._parsed.structured)
        )

    async def _stream(self, stream: CompletionStream, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(_with_heartbeats(stream, self._content)) as chunks:
            # A failure before the first chunk still has a status of its own.
            first = await anext(chunks, None)
            if isinstance(first, Failed):
                await _failed(fault_of(first.error))(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            await _send_body(send, _event(chunk_of(self._head, {"role": "assistant", "content": ""})))
            await _send_body(send, self._encode(first, stream))
            async for chunk in chunks:
                await _send_body(send, self._encode(chunk, stream))
            await _send_body(send, DONE, more=False)

    def _encode(self, chunk: Chunk | None, stream: CompletionStream) -> bytes:
        now = trio.current_time()
        match chunk:
            case None:
                return self._content_event(self._content.flush()) or b": still at work\n\n"
            case TextChunk(text=text):
                return b"" if self._parsed.structured else self._content_event(self._content.add(text, now))
            case ThinkingChunk(text=text):
                return self._thinking_event(text)
            case Void(text=text, thinking=thinking):
                self._retract(text, thinking)
                return b""
            case _:
                content = self._content_event(self._content.flush())
                self._content.pause()
                return content + self._other_event(chunk, stream)

    def _other_event(
        self, chunk: ToolUse | ToolOutput | Complete | Failed, stream: CompletionStream
    ) -> bytes:
        match chunk:
            case ToolUse():
                return _event(chunk_of(self._head, {"executed_tools": [tool_of(chunk)]}))
            case ToolOutput():
                return _event(chunk_of(self._head, {}, proctor={"tool_results": [output_of(chunk)]}))
            case Failed(error=error):
                return _event(fault_of(error).body)
            case Complete():
                return self._end(chunk, stream)

    def _content_event(self, text: str) -> bytes:
        return _event(chunk_of(self._head, {"content": text})) if text else b""

    def _thinking_event(self, text: str) -> bytes:
        if self._thinks_again:  # thinking is not part of the answer, so it may be repeated
            text = BETWEEN + text.removeprefix(BETWEEN)
        self._thinks_again = False
        return _event(chunk_of(self._head, {"reasoning_content": text}))

    def _retract(self, text: str, thinking: str) -> None:
        if text and not self._parsed.structured:
            self._content.retract(text)
        self._thinks_again = self._thinks_again or bool(thinking)

    def _end(self, end: Complete, stream: CompletionStream) -> bytes:
        data = b""
        if self._parsed.structured:
            value = content_of(stream.response, structured=True)
            data = _event(chunk_of(self._head, {"content": value}))
        elif not self._content.complete:
            body = response_of(self._head, stream.response, end.metadata, structured=False)
            fault = fault_of(Retracted(), code=RETRACTED)
            return _event({"error": {**fault.body["error"], "completion": body}})
        data += _event(chunk_of(self._head, {}, last=True, proctor=dict(end.metadata)))
        if self._parsed.include_usage:
            counted: Body = {**chunk_of(self._head, {}), "choices": [], "usage": usage_of(end.usage)}
            data += _event(counted)
        return data


class _Sender:
    """The `send` of ASGI, which records what was sent. A message is sent whole, or not at all."""

    def __init__(self, send: Send) -> None:
        self.begun = self.over = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        with trio.CancelScope(shield=True):  # the web server ends a write that blocks
            await self._send(message)
        self.begun = True
        self.over = message["type"] == "http.response.body" and not message.get("more_body", False)


async def _with_heartbeats(stream: CompletionStream, content: Content) -> AsyncGenerator[Chunk | None]:
    """The chunks, and None after `HEARTBEAT` seconds without one and when held content is due."""
    over = False
    while not over:
        chunk: Chunk | None = None
        with trio.move_on_at(min(trio.current_time() + HEARTBEAT, content.due)) as clock:
            # Cancelled by a heartbeat, this loses nothing: the stream keeps its place.
            chunk = await anext(stream, None)
        over = chunk is None and not clock.cancelled_caught
        if not over:
            yield chunk


def _event(body: Body) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def _send_body(send: Send, data: bytes, *, more: bool = True) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": more})
