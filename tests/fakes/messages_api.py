"""A fake of the Anthropic Messages API on a loopback port, scripted by the test that owns it.

- Each messages request of the main conversation eats one step of the script, so each attempt of a retried one does.
  What comes after the last step is answered harmlessly and kept in `unexpected`.
- Side requests (titles, topic checks, token counts, probes) get an answer of their own and never eat a step.
- An answer is rendered while it is sent: a client that does not read holds the fake up, not its memory.
- A client that leaves ends only its own answer; a request the fake can not decode ends the test with the decoder's error.

Steps are eaten in the order in which requests arrive: two agents at once need `answer_with` and a function that tells
them apart, by `session_id` for example. Not checked: the key, the version headers, whether the conversation makes sense.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

import attrs
import msgspec
import trio
from trio_util import AsyncValue

from tests.fakes.requests import Outcome, Request, decoded
from tests.fakes.steps import (
    KINDS,
    Answer,
    Drop,
    Frame,
    Hang,
    Held,
    Malformed,
    Message,
    Plain,
    Status,
    Step,
    StreamError,
    Text,
    as_message,
    document,
    eaten,
    error_document,
    event,
    frames,
)
from tests.fakes.wire import Connection, listening

BATCH = 64 * 1024
SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
OVER = Text("The script of the fake API is over.")
SIDE = Text("ok")


@attrs.define(eq=False)
class MessagesApi:
    """The running fake: what it will say, and what it was asked."""

    port: int
    requests: list[Request] = attrs.field(factory=list[Request])
    unexpected: list[Request] = attrs.field(factory=list[Request])
    _steps: deque[Step] = attrs.field(factory=deque[Step])
    _function: Callable[[Request], Plain | Held] | None = None
    _arrived: AsyncValue[int] = attrs.field(factory=lambda: AsyncValue(0))
    _numbers: count[int] = attrs.field(factory=lambda: count(1))

    @property
    def url(self) -> str:
        """The base URL for a CLI: `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def scripted(self) -> list[Request]:
        """The requests of main conversations, in order of arrival, those in `unexpected` included."""
        return [request for request in self.requests if request.kind == "scripted"]

    @property
    def steps_left(self) -> int:
        """How many steps of the script have not been asked for; one `Repeat` counts once."""
        return len(self._steps)

    def play(self, *steps: Step) -> None:
        """Append steps to the script."""
        self._steps.extend(steps)

    def answer_with(self, function: Callable[[Request], Plain | Held]) -> None:
        """Ask `function` for the step of each request whenever the list is used up."""
        self._function = function

    async def wait_scripted(self, number: int) -> Request:
        """The `number`th request of the main conversations, counted from 1, once it has arrived."""
        await self._arrived.wait_value(lambda arrived: arrived >= number)
        return self.scripted[number - 1]

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one client until it leaves or a step breaks the connection."""
        connection = Connection(stream)
        try:
            while (received := await connection.receive()) is not None:
                request = decoded(*received, at=trio.current_time())
                if await self._finish(connection, request) != "answered":
                    return
        except trio.BrokenResourceError:
            return
        finally:
            await connection.close()

    async def _finish(self, connection: Connection, request: Request) -> Outcome:
        self.requests.append(request)
        outcome: Outcome = "cancelled"
        try:
            outcome = await self._route(connection, request)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            outcome = "client gone"
        finally:
            request.outcome = outcome
            request.finished.set()
        return outcome

    async def _route(self, connection: Connection, request: Request) -> Outcome:
        match request.kind:
            case "scripted":
                step = self._next(request)
                self._arrived.value += 1
                return await self._play(connection, request, step)
            case "side":
                return await self._play(connection, request, SIDE)
            case "count_tokens":
                await connection.respond(200, msgspec.json.encode({"input_tokens": request.size // 4}))
            case "other":
                await self._other(connection, request)
        return "answered"

    async def _other(self, connection: Connection, request: Request) -> None:
        if request.path == "/":
            await connection.respond_to_head()
        else:
            await self._refuse(connection, Status(404, f"no such path: {request.path}"))

    def _next(self, request: Request) -> Plain | Held:
        if self._steps:
            return eaten(self._steps)
        if self._function is not None:
            return self._function(request)
        self.unexpected.append(request)
        return OVER

    async def _play(self, connection: Connection, request: Request, step: Plain | Held) -> Outcome:
        match step:
            case Held(inner, until):
                if not await _held(connection, until):
                    return "client gone"
                return await self._play(connection, request, inner)
            case Status():
                await self._refuse(connection, step)
            case Malformed(body, content_type):
                await connection.respond(200, body, {"content-type": content_type})
            case Drop() | Hang() | StreamError():
                return await self._break(connection, request, step)
            case _:
                await self._answer(connection, request, as_message(step))
        return "answered"

    async def _refuse(self, connection: Connection, step: Status) -> None:
        kind = step.kind or KINDS.get(step.code, "api_error")
        body = error_document(kind, step.message, self._identity())
        await connection.respond(step.code, body, step.headers)

    async def _answer(self, connection: Connection, request: Request, message: Message) -> None:
        if not request.stream:
            await connection.respond(200, document(message, self._identity(), request.model))
            return
        await self._deltas(connection, request, message, None)
        await connection.end_chunks()

    async def _break(
        self, connection: Connection, request: Request, step: Drop | Hang | StreamError
    ) -> Outcome:
        if request.stream and step.step is not None:
            await self._deltas(connection, request, as_message(step.step), step.after)
        if isinstance(step, Drop):
            await trio.sleep(step.linger)
        match step:
            case Drop(reset=True):
                await connection.reset()
            case Drop(inner):
                if not request.stream:
                    await connection.respond(200, self._document(request, inner), cut=20)
            case Hang(pings=pings):
                await _stay_silent(connection, pings if request.stream else None)
                return "client gone"
            case StreamError(_, _, kind, message):
                return await self._fail(connection, request, kind, message)
        return "cut"

    async def _fail(self, connection: Connection, request: Request, kind: str, message: str) -> Outcome:
        if not request.stream:
            await self._refuse(connection, Status(529, message, kind))
            return "answered"
        await connection.send_chunk(event("error", error={"type": kind, "message": message}))
        await connection.end_chunks()
        return "answered"

    async def _deltas(
        self, connection: Connection, request: Request, message: Message, limit: int | None
    ) -> None:
        await connection.start_chunks({**SSE, "request-id": f"req_{next(self._numbers):06d}"})
        batch = bytearray()
        sent = 0
        for frame in frames(message, self._identity(), request.model):
            if sent == limit and (sent or frame.is_delta):
                break
            batch = await _flushed(connection, batch, frame)
            batch += frame.data
            sent += frame.is_delta
        else:
            if limit is not None:
                raise ValueError(f"expected a step of at least {max(limit, 1)} deltas to break, got {sent}")
        await connection.send_chunk(bytes(batch))

    def _document(self, request: Request, answer: Answer) -> bytes:
        return document(as_message(answer), self._identity(), request.model)

    def _identity(self) -> str:
        return f"fake_{next(self._numbers):06d}"


@asynccontextmanager
async def open_messages_api(*steps: Step) -> AsyncGenerator[MessagesApi]:
    """A fake that listens on 127.0.0.1, on a port of the system's choice, until the block ends."""
    async with listening(MessagesApi) as api:
        api.play(*steps)
        yield api


async def _flushed(connection: Connection, batch: bytearray, frame: Frame) -> bytearray:
    if len(batch) < BATCH and not frame.pause:
        return batch
    await connection.send_chunk(bytes(batch))
    await trio.sleep(frame.pause)
    return bytearray()


async def _held(connection: Connection, until: trio.Event) -> bool:
    async with trio.open_nursery() as nursery:

        async def release() -> None:
            await until.wait()
            nursery.cancel_scope.cancel("released")

        nursery.start_soon(release)
        await connection.wait_gone()
        nursery.cancel_scope.cancel("the client is gone")
    return until.is_set()


async def _stay_silent(connection: Connection, pings: float | None) -> None:
    if pings is None:
        await connection.wait_gone()
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ping, connection, pings)
        await connection.wait_gone()
        nursery.cancel_scope.cancel("the client is gone")


async def _ping(connection: Connection, every: float) -> None:
    with suppress(trio.BrokenResourceError):  # seen by the wait beside it
        while True:
            await trio.sleep(every)
            await connection.send_chunk(event("ping"))
