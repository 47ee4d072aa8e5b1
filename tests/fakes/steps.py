"""What the fake of the Messages API is told to answer: frozen steps, rendered without I/O.

A step is a message (or one bare block of it) or a way to fail. `frames` renders a message as server-sent events, one at
a time, so that an answer of any size takes constant memory; `document` renders it as the one JSON object that a
request without `stream` gets. A `Text` with a `size` is filled up with numbered lines, so that a lost, doubled or
exchanged piece of a long answer shows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import attrs
import trio

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "stop_sequence", "pause_turn"]

REST = " 0123456789abcdef0123456789abcdef0123456789abcdef0123\n"
LINE = 10 + len(REST)  # 64
MOST_OUTPUT_TOKENS = 32_000  # what a model may write; a 60 MB answer must not cost the budget of its test
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBmYWtl"

KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def filler(start: int, stop: int) -> str:
    """Characters `start` to `stop` of an endless text of 64-character lines, each beginning with its number."""
    first = start // LINE
    lines = "".join([f"{number:010d}{REST}" for number in range(first, -(-stop // LINE))])
    return lines[start - first * LINE : stop - first * LINE]


@attrs.frozen
class Text:
    """A text block: `text`, filled up to `size` characters, in deltas of `chunk` with `delay` seconds before each."""

    text: str = "Hello from the fake."
    size: int | None = None
    chunk: int = 4096
    delay: float = 0.0

    def __len__(self) -> int:
        return max(len(self.text), self.size or 0)

    def part(self, start: int, stop: int) -> str:
        """Characters `start` to `stop`, without building the rest."""
        stop = min(stop, len(self))
        known = len(self.text)
        return self.text[start:stop] + filler(max(start - known, 0), max(stop - known, 0))

    def whole(self) -> str:
        """All of it, as the CLI must report it."""
        return self.part(0, len(self))


@attrs.frozen
class Thinking:
    """A thinking block with a signature that no real API would accept."""

    text: str = "Let me think."


@attrs.frozen
class Tool:
    """A tool call. `id` is made up by the fake when not given."""

    name: str
    input: Mapping[str, object]
    id: str | None = None


Block: TypeAlias = Text | Thinking | Tool


@attrs.frozen
class Usage:
    """Token counts of one answer; what the fake makes up by size when not given."""

    input_tokens: int = 100
    output_tokens: int = 10
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


@attrs.frozen
class Message:
    """One answer of several blocks. The stop reason is `tool_use` or `end_turn` by the blocks when not given."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason | None = None
    usage: Usage | None = None


Answer: TypeAlias = Block | Message


@attrs.frozen
class Status:
    """An HTTP error with the API's error body; `kind` is looked up by the code when not given."""

    code: int
    message: str = "the fake says no"
    kind: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class Drop:
    """The connection ends `linger` seconds after `after` deltas: in mid-body (FIN), or with a reset (RST)."""

    step: Answer
    after: int = 4
    reset: bool = False
    linger: float = 0.0


@attrs.frozen
class Hang:
    """Silence after `after` deltas until the client leaves; with `pings`, a ping event every so many seconds.

    Without a step not even the headers are sent.
    """

    step: Answer | None = None
    after: int = 0
    pings: float | None = None


@attrs.frozen
class StreamError:
    """An `error` event after `after` deltas, and the end of the body. Without streaming: HTTP 529."""

    step: Answer
    after: int = 0
    kind: str = "overloaded_error"
    message: str = "Overloaded"


@attrs.frozen
class Malformed:
    """A 200 whose body is not what the API would send."""

    body: bytes = b"event: message_start\ndata: {not json\n\n"
    content_type: str = "text/event-stream"


Plain: TypeAlias = Answer | Status | Drop | Hang | StreamError | Malformed


@attrs.frozen
class Held:
    """Nothing of the step is sent before the event is set."""

    step: Plain
    until: trio.Event = attrs.field(factory=trio.Event)


@attrs.frozen
class Repeat:
    """The same step for `times` requests, by default for all that follow."""

    step: Plain | Held
    times: int | None = None


Step: TypeAlias = Plain | Held | Repeat


def eaten(steps: deque[Step]) -> Plain | Held:
    """The first of these steps, which it takes from them, or once less of one that is repeated."""
    step = steps.popleft()
    if not isinstance(step, Repeat):
        return step
    if step.times is None:
        steps.appendleft(step)
    elif step.times > 1:
        steps.appendleft(attrs.evolve(step, times=step.times - 1))
    return step.step


@attrs.frozen
class Frame:
    """One server-sent event, whether it is a delta, and the seconds to wait before it."""

    data: bytes
    is_delta: bool = False
    pause: float = 0.0


def as_message(answer: Answer) -> Message:
    """A bare block as a message of one block."""
    return answer if isinstance(answer, Message) else Message((answer,))


def event(name: str, **fields: object) -> bytes:
    """One server-sent event of the API: the name is also the `type` of its data."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def frames(message: Message, identity: str, model: str) -> Iterator[Frame]:
    """The message as the API streams it; ids derive from `identity`, which must be new for each answer."""
    blank: dict[str, object] = {"content": (), "stop_reason": None}
    start = _envelope(message, identity, model) | blank
    yield Frame(event("message_start", message=start))
    yield Frame(event("ping"))
    for index, block in enumerate(message.blocks):
        opening = _content(block, identity, index, empty=True)
        yield Frame(event("content_block_start", index=index, content_block=opening))
        for delta in _deltas(block):
            pause = block.delay if isinstance(block, Text) else 0.0
            yield Frame(event("content_block_delta", index=index, delta=delta), is_delta=True, pause=pause)
        yield Frame(event("content_block_stop", index=index))
    end = {"stop_reason": _stop_reason(message), "stop_sequence": None}
    yield Frame(event("message_delta", delta=end, usage=attrs.asdict(_usage(message))))
    yield Frame(event("message_stop"))


def document(message: Message, identity: str, model: str) -> bytes:
    """The message as one JSON object, for a request that does not stream."""
    blocks = [_content(block, identity, index) for index, block in enumerate(message.blocks)]
    return json.dumps(_envelope(message, identity, model) | {"content": blocks}).encode()


def error_document(kind: str, message: str, identity: str) -> bytes:
    """The API's error body."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{identity}"}
    return json.dumps(body).encode()


def _envelope(message: Message, identity: str, model: str) -> dict[str, object]:
    return {
        "id": f"msg_{identity}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_reason": _stop_reason(message),
        "stop_sequence": None,
        "usage": attrs.asdict(_usage(message)),
    }


def _content(block: Block, identity: str, index: int, *, empty: bool = False) -> dict[str, object]:
    match block:
        case Text():
            return {"type": "text", "text": "" if empty else block.whole()}
        case Thinking(text):
            return {
                "type": "thinking",
                "thinking": "" if empty else text,
                "signature": "" if empty else SIGNATURE,
            }
        case Tool(name, arguments, given):
            identifier = given or f"toolu_{identity}_{index}"
            return {
                "type": "tool_use",
                "id": identifier,
                "name": name,
                "input": {} if empty else dict(arguments),
            }


def _deltas(block: Block) -> Iterator[dict[str, str]]:
    match block:
        case Text(chunk=chunk):
            for start in range(0, len(block), chunk):
                yield {"type": "text_delta", "text": block.part(start, start + chunk)}
        case Thinking(text):
            yield {"type": "thinking_delta", "thinking": text}
            yield {"type": "signature_delta", "signature": SIGNATURE}
        case Tool(input=arguments):
            written = json.dumps(dict(arguments))
            for start in range(0, len(written), 4096):
                yield {"type": "input_json_delta", "partial_json": written[start : start + 4096]}


def _stop_reason(message: Message) -> StopReason:
    calls = any(isinstance(block, Tool) for block in message.blocks)
    return message.stop_reason or ("tool_use" if calls else "end_turn")


def _usage(message: Message) -> Usage:
    written = sum(len(block) for block in message.blocks if isinstance(block, Text))
    return message.usage or Usage(output_tokens=min(10 + written // 4, MOST_OUTPUT_TOKENS))
