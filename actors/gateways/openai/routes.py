"""The routes of the chat API. What is asked is in `asking`, what is told in `telling`; here is who waits for whom.

Guarantees: a client that leaves ends its run, streamed or not (R142); an error before the first piece has its own status,
one behind it is the last piece, and in both the causes are named; a stream that has nothing to tell yet is kept open by
comments. The content of a stream that ends well, joined, is what the agent said, whatever its CLI took back on the way
(`content`); where that is not possible any more, the stream ends with an error that has the completion whole. A stream's
answer to a schema is one piece, the value as JSON: the agent's words on the way are not it. Who has closed the `visits` waits for those that are here; one that is cut short is told so, as an error of either kind.

Not here: who may ask, and the server. `routes` is for whatever Starlette application its owner makes.
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
from proctor.actors.gateways.openai.requests import Asked, Refused, asked_of
from proctor.actors.gateways.openai.responses import (
    LEFT,
    Body,
    Fault,
    content_of,
    fault_of,
    head_of,
    output_of,
    piece,
    tool_of,
    usage_of,
    whole,
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

LARGEST = 32 * 2**20
"""Bytes that the body of a request may have."""

PATIENCE = 15.0
"""Seconds without a piece after which a stream says that it lives."""

STOPPING = "stopping"
"""The `code` of what was not taken, or cut short, because the server ends."""

RETRACTED = "retracted"
"""The `code` of a stream whose text was sent, and then taken back and said otherwise."""

STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))
DONE = b"data: [DONE]\n\n"


class CutShort(AgentError):
    """The server ended before the answer: what the agent did until then is unknown."""


class Retracted(AgentError):
    """The stream has text in it that does not count, and the answer is another."""

    def __init__(self) -> None:
        super().__init__(
            "text that was sent was taken back when a call of the model broke, and its answer is another; "
            "the whole answer is in `completion`, and a request without `stream` never has this error"
        )


def routes(models: Mapping[str, Model], visits: InFlight | None = None) -> list[Route]:
    """`POST /v1/chat/completions`, `GET /v1/models` and `GET /v1/models/{id}` for these models, by name.

    The mapping is looked at for each request: its owner may change it. `visits` are those of the server, for its end.
    """
    served = _Served(models, InFlight() if visits is None else visits)
    return [
        Route("/v1/chat/completions", served.complete, methods=["POST"]),
        Route("/v1/models", served.all_models, methods=["GET"]),
        Route("/v1/models/{name:path}", served.one_model, methods=["GET"]),
    ]


@attrs.frozen
class _Served:
    models: Mapping[str, Model]
    visits: InFlight

    async def all_models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [_model(name) for name in sorted(self.models)]})

    async def one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        return _json(_model(name)) if name in self.models else self._unknown(name)

    async def complete(self, request: Request) -> Response:
        try:
            asked = asked_of(await _body(request))
        except Refused as error:
            return _failed(fault_of(error, status=413 if error.param == "body" else None))
        except ClientDisconnect:
            return Response(status_code=LEFT)
        if asked.model not in self.models:
            return self._unknown(asked.model)
        if self.visits.closed is not None:
            return _failed(fault_of(NotExecuted(asked.model, self.visits.closed), code=STOPPING))
        return _Answering(asked, self.models[asked.model], self.visits)

    def _unknown(self, name: str) -> Response:
        return _failed(fault_of(NoSuchProvider(name, [*self.models]), code="model_not_found"))


async def _body(request: Request) -> bytes:
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > LARGEST:
            raise Refused("body", f"the body is larger than {LARGEST} bytes")
    return bytes(read)


def _model(name: str) -> Body:
    return {"id": name, "object": "model", "created": 0, "owned_by": "proctor"}


def _json(body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def _failed(fault: Fault) -> Response:
    after = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    return _json(fault.body, fault.status, after)


class _Answering(Response):
    """The answer to one request, made while the client is there."""

    def __init__(self, asked: Asked, model: Model, visits: InFlight) -> None:
        super().__init__()
        self._asked = asked
        self._model = model
        self._visits = visits
        self._head = head_of(asked.model)
        self._content = Content()
        self._rethinks = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = _Sent(send)
        with self._visits.visit() as visit:
            await self._answer(scope, receive, sent)
        if visit.ended is not None and not sent.over:
            await self._tell_end(visit.ended, sent)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            async with self._model.stream(self._asked.request) as stream:
                if self._asked.stream:
                    await self._stream(stream, send)
                else:
                    response = await self._whole(stream)
                    await response(scope, receive, send)
            nursery.cancel_scope.cancel("the request is answered")

    async def _tell_end(self, why: str, sent: _Sent) -> None:
        fault = attrs.evolve(fault_of(CutShort(why), status=503, code=STOPPING), retry_after=None)
        if sent.begun:
            await _tell(sent, _event(fault.body) + DONE, more=False)
        else:
            await _tell_whole(_failed(fault), sent)

    async def _whole(self, stream: CompletionStream) -> Response:
        chunks = [chunk async for chunk in stream if isinstance(chunk, Complete | Failed)]
        last = chunks[-1]
        if isinstance(last, Failed):
            return _failed(fault_of(last.error))
        return _json(whole(self._head, stream.response, last.metadata, structured=self._asked.structured))

    async def _stream(self, stream: CompletionStream, send: Send) -> None:
        async with aclosing(_kept_alive(stream, self._content)) as chunks:
            first = await anext(chunks, None)
            if isinstance(first, Failed):
                await _tell_whole(_failed(fault_of(first.error)), send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            await _tell(send, _event(piece(self._head, {"role": "assistant", "content": ""})))
            await _tell(send, self._told(first, stream))
            async for chunk in chunks:
                await _tell(send, self._told(chunk, stream))
            await _tell(send, DONE, more=False)

    def _told(self, chunk: Chunk | None, stream: CompletionStream) -> bytes:
        now = trio.current_time()
        match chunk:
            case None:
                return self._said(self._content.flush()) or b": still at work\n\n"
            case TextChunk(text=text):
                return b"" if self._asked.structured else self._said(self._content.add(text, now))
            case ThinkingChunk(text=text):
                return self._thought(text)
            case Void(text=text, thinking=thinking):
                self._take_back(text, thinking)
                return b""
            case _:
                said = self._said(self._content.flush())
                self._content.pause()
                return said + self._beside(chunk, stream)

    def _beside(self, chunk: ToolUse | ToolOutput | Complete | Failed, stream: CompletionStream) -> bytes:
        match chunk:
            case ToolUse():
                return _event(piece(self._head, {"executed_tools": [tool_of(chunk)]}))
            case ToolOutput():
                return _event(piece(self._head, {}, proctor={"tool_results": [output_of(chunk)]}))
            case Failed(error=error):
                return _event(fault_of(error).body)
            case Complete():
                return self._end(chunk, stream)

    def _said(self, text: str) -> bytes:
        return _event(piece(self._head, {"content": text})) if text else b""

    def _thought(self, text: str) -> bytes:
        if self._rethinks:  # unlike text, thoughts may stand there twice: they are no part of the answer
            text = BETWEEN + text.removeprefix(BETWEEN)
        self._rethinks = False
        return _event(piece(self._head, {"reasoning_content": text}))

    def _take_back(self, text: str, thinking: str) -> None:
        if text and not self._asked.structured:
            self._content.take_back(text)
        self._rethinks = self._rethinks or bool(thinking)

    def _end(self, end: Complete, stream: CompletionStream) -> bytes:
        told = b""
        if self._asked.structured:
            value = content_of(stream.response, structured=True)
            told = _event(piece(self._head, {"content": value}))
        elif not self._content.whole:
            body = whole(self._head, stream.response, end.metadata, structured=False)
            fault = fault_of(Retracted(), code=RETRACTED)
            return _event({"error": {**fault.body["error"], "completion": body}})
        told += _event(piece(self._head, {}, last=True, proctor=dict(end.metadata)))
        if self._asked.include_usage:
            counted: Body = {**piece(self._head, {}), "choices": [], "usage": usage_of(end.usage)}
            told += _event(counted)
        return told


class _Sent:
    """What a client was sent so far. A message goes out whole, or not at all."""

    def __init__(self, send: Send) -> None:
        self.begun = self.over = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        with trio.CancelScope(shield=True):  # the web server gives up on a client that does not read
            await self._send(message)
        self.begun = True
        self.over = message["type"] == "http.response.body" and not message.get("more_body", False)


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel("the client is gone")


async def _kept_alive(stream: CompletionStream, content: Content) -> AsyncGenerator[Chunk | None]:
    """The chunks, and None for each stretch of patience without one, and when what is held is due."""
    over = False
    while not over:
        chunk: Chunk | None = None
        with trio.move_on_at(min(trio.current_time() + PATIENCE, content.due)) as clock:
            chunk = await anext(stream, None)
        over = chunk is None and not clock.cancelled_caught
        if not over:
            yield chunk


def _event(body: Body) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def _tell(send: Send, data: bytes, *, more: bool = True) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": more})


async def _tell_whole(response: Response, send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await _tell(send, bytes(response.body), more=False)
