"""Lenient decoding: of lines that a typed decoder refused, and of lines that were too long to keep.

Nothing here raises on any bytes. Half surrogate pairs, which JavaScript writes, are repaired; a frame in which a field
changed its type is decoded field by field, and the bad field is reported by its path. A truncated line allows and runs
nothing: its question is denied, its tool call fails, its hook blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from proctor.protocols.dialect import Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    AnyEvent,
    ApprovalRequested,
    Decision,
    Garbled,
    HookCalled,
    HookVerdict,
    Notice,
    ToolRequested,
    ToolReturn,
    Unrecognized,
)

HEAD = 100
"""Characters of a bad line that are shown."""

UNREAD = (ApprovalRequested, ToolRequested, HookCalled)
"""The events that wait for an answer of the host."""

WHY = "the tool's input is too large to check"
UNKEPT = "the answer, or a part of it, was in a line that was too long and was not kept"

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
D = TypeVar("D")

Refusal = (msgspec.DecodeError, ValueError, RecursionError)
"""What msgspec and json raise on bytes that they cannot decode."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def head(line: bytes) -> str:
    """The first characters of a line, whatever its bytes are."""
    return line[: 4 * HEAD].decode("utf-8", "replace")[:HEAD]


def garbled(memo: Memo, line: bytes) -> Garbled | None:
    """The event for a line that is not a JSON object in UTF-8; None for one that is."""
    try:
        # Decoded here: given bytes, `json` would guess their encoding.
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Garbled(memo.frame, memo.turn, "not_utf8", head(line), len(line), error=str(error))
    except Refusal as error:
        return Garbled(memo.frame, memo.turn, "not_json", head(line), len(line), error=str(error))
    if not isinstance(value, dict):
        return Garbled(memo.frame, memo.turn, "not_object", head(line), len(line))
    return None


def repaired(line: bytes) -> bytes:
    """A JSON line written anew, with `?` for each half of a surrogate pair."""
    return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")


def encoded_loosely(value: object, *, indent: int | None = None) -> bytes:
    """JSON of what msgspec refuses because a text in it is not UTF-8, as a path may be: `?` for each such byte."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    return json.dumps(plain, ensure_ascii=False, indent=indent).encode("utf-8", "replace")


def decoded(memo: Memo, kind: type[S], raw: bytes, path: str) -> tuple[S, list[AnyEvent]]:
    """Decode an object as well as it can be; the events name what was lost."""
    try:
        return msgspec.json.decode(raw, type=kind), []
    except Refusal:
        pass
    try:
        # Half surrogate pairs are valid JSON to JavaScript, and refused by msgspec.
        return msgspec.json.decode(repaired(raw), type=kind), []
    except Refusal:
        value, bad = loosely(kind, raw, path)
        return value, unrecognized(memo, bad)


def recovered(memo: Memo, kind: type[S], line: bytes) -> tuple[S, list[AnyEvent]] | Garbled:
    """A line that a typed decoder refused, as well as it can be decoded; `Garbled` where it is no object of JSON."""
    return garbled(memo, line) or decoded(memo, kind, line, "frame")


def decoded_or(default: D, kind: type[T], raw: bytes | msgspec.Raw) -> T | D:
    """The value of this type, `default` where the bytes hold none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except Refusal:
        return default


def value(raw: msgspec.Raw) -> Any:
    """JSON without a type of ours; None where there is none or it cannot be decoded."""
    return decoded_or(None, object, raw)


def member(node: Any, *path: str) -> Any:
    """The member of an untyped value that the path leads to, None where it leads nowhere."""
    for name in path:
        if not isinstance(node, dict):
            return None
        node = cast("dict[str, Any]", node).get(name)
    return node


def unrecognized(memo: Memo, bad: list[tuple[str, str]]) -> list[AnyEvent]:
    """The events for the paths that could not be decoded."""
    return [Unrecognized(memo.frame, memo.turn, path, error) for path, error in bad]


def loosely(kind: type[S], raw: bytes | msgspec.Raw, path: str) -> tuple[S, list[tuple[str, str]]]:
    """Decode an object field by field: what fits, with defaults for the rest, and (path, error) of what did not."""
    values: dict[str, Any] = {}
    bad: list[tuple[str, str]] = []
    members = _object(raw, path, bad)
    for field in msgspec.structs.fields(kind):
        if (member := members.get(field.encode_name)) is None:
            continue
        try:
            values[field.name] = msgspec.json.decode(member, type=field.type)
        except Refusal as error:
            place = f"{path}.{field.encode_name}"
            # Deeper, so that one bad field does not cost its whole record.
            if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                values[field.name], deeper = loosely(field.type, member, place)
                bad += deeper
            else:
                bad.append((place, str(error)))
    return kind(**values), bad


def _object(raw: bytes | msgspec.Raw, path: str, bad: list[tuple[str, str]]) -> dict[str, msgspec.Raw]:
    try:
        return _members(raw)
    except Refusal as error:
        bad.append((path, str(error)))
        return {}


def refuse_unread(
    write: Callable[[Memo, Any], bytes], memo: Memo, event: ApprovalRequested | ToolRequested | HookCalled
) -> tuple[bytes, Notice]:
    """The bytes that answer the request, by a dialect's `write`, and the notice in its place; the memo holds it no more."""
    match event:
        case ApprovalRequested(id=request, tool=what):
            code, data = "approval_refused", write(memo, Decision(request, allow=False, message=WHY))
            # `Conversation.send` would do this; the answer here goes out past it.
            del memo.approvals[request]
        case ToolRequested(id=request, tool=what):
            code, data = "tool_refused", write(memo, ToolReturn(request, WHY, is_error=True))
            del memo.calls[request]
        case HookCalled(id=request, hook=what):
            code, data = "hook_refused", _blocked(write, memo, request)
            del memo.calls[request]
    return data, Notice(event.frame, event.turn, code, WHY, {"id": request, "tool": what})


def _blocked(write: Callable[[Memo, Any], bytes], memo: Memo, request: str) -> bytes:
    try:
        return write(memo, HookVerdict(request, allow=False, reason=WHY))
    except Misuse:
        # Nothing can be blocked at this point, so the only answer is the empty one.
        return write(memo, HookVerdict(request))
