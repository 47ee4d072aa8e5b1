"""A fake of a model's API on a loopback port, scripted by the test that owns it, in either of two dialects.

The steps are those of the fake Messages API, as far as they make sense here. Each streamed request that offers tools
eats one step, so each attempt of a retried one does; what comes after the last step is answered harmlessly and kept in
`unexpected`. Side requests (titles, counts, checks) offer no tools, get an answer of their own and eat no step.

Not checked: the key, the version, whether the conversation makes sense. Not handled: answers larger than memory.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import attrs
import trio
from trio_util import AsyncValue

from tests.fakes.steps import Answer, Drop, Hang, Repeat, Status, Text, Tool, as_message
from tests.fakes.wire import Connection, Head, listening

Json: TypeAlias = dict[str, Any]
SSE = {"content-type": "text/event-stream"}
INPUT, OUTPUT = 100, 20
"""Tokens of every answer."""


@attrs.frozen
class Unfinished:
    """An answer whose body ends in good order, but without a reason why the model stopped."""

    step: Answer


Plain: TypeAlias = Answer | Status | Drop | Hang | Unfinished
Step: TypeAlias = Plain | Repeat


@attrs.frozen
class Asked:
    """One request: where it went, and its body."""

    path: str
    body: Json

    @property
    def text(self) -> str:
        """The body as JSON, to look for what was said in it."""
        return json.dumps(self.body)


@attrs.frozen
class Tongue:
    """One API: which request is of the main conversation, its answer piece by piece, the last piece with the reason,
    the answer to a side request, and an error's body."""

    base: str
    is_main: Callable[[Asked], bool]
    pieces: Callable[[Answer], Iterator[Json]]
    end: Callable[[Answer], Json]
    side: Callable[[Asked], Json | None]
    fault: Callable[[Status], Json]
    last: bytes = b""


@attrs.define(eq=False)
class ModelApi:
    """The running fake: what it will say, and what it was asked."""

    port: int
    tongue: Tongue
    requests: list[Asked] = attrs.field(factory=list[Asked])
    unexpected: list[Asked] = attrs.field(factory=list[Asked])
    _steps: deque[Step] = attrs.field(factory=deque[Step])
    _asked: AsyncValue[int] = attrs.field(factory=lambda: AsyncValue(0))

    @property
    def url(self) -> str:
        """The base URL for a CLI."""
        return f"http://127.0.0.1:{self.port}{self.tongue.base}"

    @property
    def scripted(self) -> list[Asked]:
        """The requests of main conversations, in order of arrival."""
        return [asked for asked in self.requests if self.tongue.is_main(asked)]

    def play(self, *steps: Step) -> None:
        """Append steps to the script."""
        self._steps.extend(steps)

    def begin_anew(self) -> None:
        """Forget what is left of the script and what was asked: for the next scene of a process that goes on."""
        for kept in (self._steps, self.requests, self.unexpected):
            kept.clear()
        self._asked.value = 0

    async def wait_scripted(self, number: int) -> None:
        """Until so many requests of main conversations have come since the scene began."""
        await self._asked.wait_value(lambda asked: asked >= number)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one client until it leaves or a step breaks the connection."""
        connection = Connection(stream)
        try:
            while (received := await connection.receive()) is not None:
                if not await self._answer(connection, _asked_of(*received)):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            await connection.close()

    async def _answer(self, connection: Connection, asked: Asked) -> bool:
        self.requests.append(asked)
        if self.tongue.is_main(asked):
            self._asked.value += 1
            return await self._play(connection, self._next(asked))
        if (side := self.tongue.side(asked)) is not None:
            return await self._side(connection, asked, side)
        await connection.respond(404, b"{}")
        return True

    async def _side(self, connection: Connection, asked: Asked, side: Json) -> bool:
        if not (asked.body.get("stream") or "stream" in asked.path):
            await connection.respond(200, json.dumps(side).encode())
            return True
        return await self._play(connection, Text("ok"))

    def _next(self, asked: Asked) -> Plain:
        if not self._steps:
            self.unexpected.append(asked)
            return Text("The script of the fake API is over.")
        step = self._steps.popleft()
        if not isinstance(step, Repeat):
            return step
        self._steps.appendleft(step)
        assert isinstance(step.step, Status | Drop | Hang | Text | Tool)
        return step.step

    async def _play(self, connection: Connection, step: Plain) -> bool:
        match step:
            case Status():
                body = json.dumps(self.tongue.fault(step)).encode()
                await connection.respond(step.code, body, step.headers)
            case Hang(inner, after):
                await self._pieces(connection, inner, after)
                await connection.wait_gone()
                return False
            case Drop(inner, after, linger=linger):
                await self._pieces(connection, inner, after)
                await trio.sleep(linger)
                return False
            case Unfinished(inner):
                await self._pieces(connection, inner, None)
                await connection.end_chunks()
            case _:
                await self._pieces(connection, step, None)
                await connection.send_chunk(_event(self.tongue.end(step)) + self.tongue.last)
                await connection.end_chunks()
        return True

    async def _pieces(self, connection: Connection, answer: Answer | None, limit: int | None) -> None:
        await connection.start_chunks(SSE)
        for number, piece in enumerate(self.tongue.pieces(answer) if answer else ()):
            if limit is not None and number >= limit:
                return
            await connection.send_chunk(_event(piece))


def _asked_of(head: Head, body: bytes) -> Asked:
    found: Json = json.loads(body) if body else {}
    return Asked(head.path, found)


def _event(data: Json) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _texts(block: Text) -> Iterator[str]:
    return (block.part(start, start + block.chunk) for start in range(0, len(block), block.chunk))


def _choice(delta: Json, reason: str | None = None) -> Json:
    return {
        "id": "fake",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


def _completion_pieces(answer: Answer) -> Iterator[Json]:
    for index, block in enumerate(as_message(answer).blocks):
        match block:
            case Text():
                yield from (_choice({"role": "assistant", "content": text}) for text in _texts(block))
            case Tool(name, arguments, given):
                function = {"name": name, "arguments": json.dumps(dict(arguments))}
                call = {
                    "index": index,
                    "id": given or f"call_{index}",
                    "type": "function",
                    "function": function,
                }
                yield _choice({"role": "assistant", "tool_calls": [call]})
            case _:
                raise ValueError(f"expected text or a tool, got {block!r}")


def _calls(answer: Answer) -> bool:
    return any(isinstance(block, Tool) for block in as_message(answer).blocks)


def _completion_end(answer: Answer) -> Json:
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    return {**_choice({}, "tool_calls" if _calls(answer) else "stop"), "usage": usage}


def _completion_side(asked: Asked) -> Json | None:
    if not asked.path.endswith("/chat/completions"):
        return None
    message = {"role": "assistant", "content": "ok"}
    return {**_choice({}), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


COMPLETIONS = Tongue(
    base="/v1",
    is_main=lambda asked: asked.path.endswith("/chat/completions") and bool(asked.body.get("tools")),
    pieces=_completion_pieces,
    end=_completion_end,
    side=_completion_side,
    fault=lambda step: {"error": {"message": step.message, "type": step.kind, "code": step.kind}},
    last=b"data: [DONE]\n\n",
)
"""OpenAI's chat completions, which OpenCode speaks to any provider."""


def _candidate(parts: list[Json], reason: str | None = None) -> Json:
    candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate]}


def _content_pieces(answer: Answer) -> Iterator[Json]:
    for block in as_message(answer).blocks:
        match block:
            case Text():
                yield from (_candidate([{"text": text}]) for text in _texts(block))
            case Tool(name, arguments):
                yield _candidate([{"functionCall": {"name": name, "args": dict(arguments)}}])
            case _:
                raise ValueError(f"expected text or a tool, got {block!r}")


def _content_end(answer: Answer) -> Json:
    counts = {
        "promptTokenCount": INPUT,
        "candidatesTokenCount": OUTPUT,
        "totalTokenCount": INPUT + OUTPUT,
    }
    return {**_candidate([{"text": ""}], "STOP"), "usageMetadata": counts}


def _content_side(asked: Asked) -> Json | None:
    if asked.path.endswith(":countTokens"):
        return {"totalTokens": INPUT}
    return _candidate([{"text": "{}"}], "STOP") if "enerateContent" in asked.path else None


STATUS_NAMES: Mapping[int, str] = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}

CONTENT = Tongue(
    base="",
    is_main=lambda asked: asked.path.endswith(":streamGenerateContent") and bool(asked.body.get("tools")),
    pieces=_content_pieces,
    end=_content_end,
    side=_content_side,
    fault=lambda step: {
        "error": {
            "code": step.code,
            "message": step.message,
            "status": STATUS_NAMES.get(step.code, "INTERNAL"),
        }
    },
)
"""The Gemini API."""


@asynccontextmanager
async def open_model_api(tongue: Tongue, *steps: Step) -> AsyncGenerator[ModelApi]:
    """A fake that listens on 127.0.0.1, on a port of the system's choice, until the block ends."""
    async with listening(lambda port: ModelApi(port, tongue)) as api:
        api.play(*steps)
        yield api


def open_completions_api(*steps: Step) -> AbstractAsyncContextManager[ModelApi]:
    """A fake of chat completions."""
    return open_model_api(COMPLETIONS, *steps)
