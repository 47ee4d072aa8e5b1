"""JSON-RPC 2.0 as the CLIs speak it: one object a line, both sides may ask, with or without the `jsonrpc` member.

Guarantees: `read` raises on no bytes. What has a method and an id is the peer's request, what has a method alone a
notification, what has an id alone the reply to a request of ours. The two sides count their ids independently, so
they collide; ours are numbers, kept with what was asked, and a peer's id is kept as it was written, number or text.
A reply without a request is `Misplaced`. Of a frame whose known fields changed their shape, the rest survives.

Not here: what a method means. A dialect brings its tables; `params` and `result` stay bytes until it decodes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import attrs
import msgspec

from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import Refusal, decoded, decoded_or, recovered
from proctor.protocols.vocabulary import AnyEvent, Garbled, Misplaced, Unrecognized

METHOD_NOT_FOUND = -32601

S = TypeVar("S", bound=msgspec.Struct)
Kind = Literal["request", "notification", "reply"]


class Fault(msgspec.Struct, frozen=True, gc=False):
    """The `error` of a reply: `data` is the peer's own, as it came."""

    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A line as it came. `id` is empty where there was none; `params` and `result` are bytes of JSON."""

    id: msgspec.Raw = msgspec.Raw()
    method: str = ""
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: Fault | None = None

    @property
    def kind(self) -> Kind:
        """The kind, by its members. An id of null stands for none in what has a method."""
        if not self.method:
            return "reply"
        return "request" if bytes(self.id) not in (b"", b"null") else "notification"

    @property
    def key(self) -> str:
        """The peer's id as text, which `answer` and `refuse` write again as it was."""
        return bytes(self.id).decode("utf-8", "replace")


@attrs.frozen
class PendingRequest:
    """A request of ours on its way: its `kind`, a dialect's own word, and the host's `request` id ("" for none)."""

    kind: str
    request: str = ""
    note: Any = None


@attrs.define
class PendingRequests:
    """Our requests that wait for a reply, by number."""

    next: int = 1
    open: dict[int, PendingRequest] = attrs.field(factory=dict[int, PendingRequest])


_decode = msgspec.json.Decoder(Message).decode


def read(memo: Memo, line: bytes) -> Message | Garbled:
    """One line. What is not an object of JSON is `Garbled`."""
    try:
        return _decode(line)
    except Refusal:
        read = recovered(memo, Message, line)
        return read if isinstance(read, Garbled) else read[0]


def params(memo: Memo, kind: type[S], message: Message) -> tuple[S, list[AnyEvent]]:
    """The parameters of a request or notification as a record; the events name what could not be decoded."""
    return decoded(memo, kind, bytes(message.params) or b"{}", message.method)


def result(memo: Memo, kind: type[S], message: Message, path: str) -> tuple[S, list[AnyEvent]]:
    """The result of a reply as a record; `path` names it where it could not be decoded."""
    return decoded(memo, kind, bytes(message.result) or b"{}", path)


def pending_requests(memo: Memo) -> PendingRequests:
    """The requests of a conversation that wait, made at their first use."""
    state = memo.own.get("jsonrpc")
    if not isinstance(state, PendingRequests):
        state = memo.own["jsonrpc"] = PendingRequests()
    return state


def ask(
    memo: Memo,
    kind: str,
    method: str,
    params: object,
    *,
    request: str = "",
    note: Any = None,
    tag: bool = True,
) -> bytes:
    """A request of ours. `request` is the host's id of it, if a host waits for the reply; `note` is kept until then.
    `tag` writes the `jsonrpc` member."""
    own = pending_requests(memo)
    number, own.next = own.next, own.next + 1
    data = line({"id": number, "method": method, "params": params}, tag=tag)
    # After the line was made: what cannot be encoded must not be waited for.
    own.open[number] = PendingRequest(kind, request, note)
    if request:
        memo.pending[request] = kind
    return data


def notify(method: str, params: object = None, *, tag: bool = True) -> bytes:
    """A notification of ours."""
    frame = {"method": method} if params is None else {"method": method, "params": params}
    return line(frame, tag=tag)


def answer(key: str, result: object, *, tag: bool = True) -> bytes:
    """The reply to a request of the peer's, by `Message.key`."""
    # As it came, number or text: in another form a peer may not find its request.
    return line({"id": msgspec.Raw(key.encode()), "result": result}, tag=tag)


def refuse(key: str, text: str, *, code: int = METHOD_NOT_FOUND, tag: bool = True) -> Send:
    """The refusal of a request of the peer's that no host serves; the peer may wait for it without a clock."""
    return Send(line({"id": msgspec.Raw(key.encode()), "error": {"code": code, "message": text}}, tag=tag))


def settle(memo: Memo, message: Message) -> PendingRequest | Misplaced:
    """Take the request of a reply out of the pending ones."""
    # Our ids begin at 1, so an id that is no number finds nothing.
    pending = pending_requests(memo).open.pop(decoded_or(0, int, message.id), None)
    if pending is None:
        return Misplaced(memo.frame, memo.turn, "reply", "")
    memo.pending.pop(pending.request, None)
    return pending


ReplyReader = Callable[[Memo, Message, PendingRequest], Out]


def read_reply(memo: Memo, message: Message, readers: Mapping[str, ReplyReader], other: ReplyReader) -> Out:
    """A reply, read by the reader for the kind of its request, by `other` where the kind has none."""
    pending = settle(memo, message)
    if isinstance(pending, Misplaced):
        return (pending,)
    return readers.get(pending.kind, other)(memo, message, pending)


def unknown(memo: Memo, message: Message, *, tag: bool = True) -> tuple[AnyEvent | Send, ...]:
    """For a method that a dialect does not model; a request is refused as well."""
    odd = Unrecognized(memo.frame, memo.turn, message.method or "untyped")
    if message.kind == "request":
        return (refuse(message.key, f"{message.method!r} is not supported by this host", tag=tag), odd)
    return (odd,)


def line(frame: dict[str, Any], *, tag: bool) -> bytes:
    """A frame as a line."""
    whole = {"jsonrpc": "2.0", **frame} if tag else frame
    try:
        return msgspec.json.encode(whole) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 has no bytes for
        return json.dumps(_plain(whole), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _plain(frame: dict[str, Any]) -> dict[str, Any]:
    return {k: json.loads(bytes(v)) if isinstance(v, msgspec.Raw) else v for k, v in frame.items()}
