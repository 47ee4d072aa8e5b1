"""JSON, with or without comments, changed by splicing: what is not ours keeps every byte.

`with_member` puts one member into an object of the text, `without_member` takes it out. Guaranteed: the result reads as
the same value but for that member, or `Unsplicable` is raised. Taking out what was put in gives the text of before, to
the byte: a member goes behind the last one in the hand of its neighbours, into an empty object between two blanks, and
so each text has one text that it can have come from; `without_member` looks for that one and tries it. Where somebody
rewrote the file in between, the member goes together with one comma.

A text of None is a file that is not there: it is made, and is gone when the member is.

Not here: more than one member at a time, and putting a member into an array.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import attrs

Value: TypeAlias = Any
DEEPEST = 200

_PLAIN = re.compile(r"[ \t\r\n]*+")
_COMMENTED = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_WORD = re.compile(r"[^\s{}\[\],:\"/]++")
_REST_OF_LINE = re.compile(r"(?:[ \t]|/\*[^\r\n]*?\*/)*+(?://[^\r\n]*+)?")
_INDENT = re.compile(r"[ \t]*")


class Malformed(ValueError):
    """The text cannot be read; the message says where and what was expected there."""


class Unsplicable(ValueError):
    """The change cannot be made without touching what is not ours; the message says why."""


@attrs.frozen
class Node:
    """A value and where it is. `members` are those of an object, `comma` the place of one behind its last member."""

    value: Value
    start: int
    end: int
    members: Mapping[str, Member] = attrs.field(factory=dict[str, "Member"])
    comma: int | None = None


@attrs.frozen
class Member:
    """`start` is the place of its key, `before` and `after` those of the commas around it."""

    start: int
    node: Node
    before: int | None
    after: int | None


def parse(text: str, *, comments: bool) -> Node:
    """The value of a text. `comments` lets comments and trailing commas pass. Raises `Malformed`."""
    return _Reader(text, comments).document()


def with_member(text: str | None, path: Sequence[str], value: Value, *, comments: bool) -> str:
    """The text with `value` at `path`: a new member, or a new value of the one there. Raises `Malformed`, `Unsplicable`."""
    if text is None:
        return f"{json.dumps(_nested(path, value), indent=2, ensure_ascii=False)}\n"
    root = parse(text, comments=comments)
    depth, node = _deepest(root, path)
    if depth == len(path):
        made = text[: node.start] + _in_the_hand_of(text, node, depth, value) + text[node.end :]
    else:
        made = _inserted(text, node, depth, path[depth], _nested(path[depth + 1 :], value))
    if parse(made, comments=comments).value != _merged(root.value, path, value):
        raise Unsplicable("the change would reach other settings")
    return made


def without_member(text: str, path: Sequence[str], *, comments: bool) -> str | None:
    """The text without the member at `path`, None when nothing is left of a file that was made for it.

    Raises `KeyError` when it is not there, and `Malformed`, `Unsplicable`.
    """
    root = parse(text, comments=comments)
    value = _at(root.value, path)
    if text == with_member(None, path, value, comments=comments):
        return None
    for length in range(1, len(path) + 1):
        for made in _cuts(text, root, path[:length]):
            if _leads_to(made, path, value, text, comments):
                return made
    wanted = _dropped(root.value, path)
    for made in _cuts(text, root, path):
        if _reads(made, comments) == (wanted,):
            return made
    raise Unsplicable("taking it out would reach other settings")


def spelled(value: Value) -> str:
    """A value as JSON, on one line."""
    return json.dumps(value, ensure_ascii=False)


# -- reading


class _Reader:
    def __init__(self, text: str, comments: bool) -> None:
        self._text, self._comments = text, comments
        self._blank = _COMMENTED if comments else _PLAIN
        self._at = 1 if text.startswith("\ufeff") else 0

    def document(self) -> Node:
        node = self._value(0)
        self._skip()
        if self._at != len(self._text):
            self._fail("the end")
        return node

    def _skip(self) -> None:
        match = self._blank.match(self._text, self._at)
        assert match is not None  # it may match nothing
        self._at = match.end()

    def _next(self, wanted: str) -> bool:
        """Is this what comes? Then it is passed."""
        self._skip()
        if not self._text.startswith(wanted, self._at):
            return False
        self._at += len(wanted)
        return True

    def _value(self, depth: int) -> Node:
        self._skip()
        start = self._at
        if depth > DEEPEST:
            self._fail(f"at most {DEEPEST} levels")
        if self._next("{"):
            return self._object(start, depth)
        if self._next("["):
            return self._array(start, depth)
        return Node(self._scalar(), start, self._at)

    def _scalar(self) -> Value:
        match = _STRING.match(self._text, self._at) or _WORD.match(self._text, self._at)
        try:
            value: Value = json.loads(match[0] if match else "", parse_constant=_refused)
        except ValueError:
            self._fail("a value")
        self._at += len(match[0]) if match else 0
        return value

    def _key(self) -> str:
        self._skip()
        if not self._text.startswith('"', self._at):
            self._fail("a key in double quotes")
        key: str = self._scalar()
        if not self._next(":"):
            self._fail("a colon")
        return key

    def _object(self, start: int, depth: int) -> Node:
        members: dict[str, Member] = {}
        comma: int | None = None
        while not self._next("}"):
            if members and comma is None:
                self._fail("a comma or }")
            self._skip()
            at = self._at
            key = self._key()
            node, before = self._value(depth + 1), comma
            comma = self._comma("}")
            members.pop(key, None)  # of two the last one counts, as everywhere
            members[key] = Member(at, node, before, comma)
        value = {key: member.node.value for key, member in members.items()}
        return Node(value, start, self._at, members, comma)

    def _array(self, start: int, depth: int) -> Node:
        items: list[Value] = []
        comma: int | None = None
        while not self._next("]"):
            if items and comma is None:
                self._fail("a comma or ]")
            items.append(self._value(depth + 1).value)
            comma = self._comma("]")
        return Node(items, start, self._at)

    def _comma(self, closing: str) -> int | None:
        if not self._next(","):
            return None
        at = self._at - 1
        self._skip()
        if not self._comments and self._text.startswith(closing, self._at):
            self._fail("no comma before the end")
        return at

    def _fail(self, wanted: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        raise Malformed(f"line {line}, column {column}: expected {wanted}")


def _refused(word: str) -> NoReturn:
    raise ValueError(word)


# -- putting in


def _deepest(root: Node, path: Sequence[str]) -> tuple[int, Node]:
    """How far the path is there, and the node where it ends."""
    node = root
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            owner = f"{'.'.join(path[:depth])!r}" if depth else "the file"
            raise Unsplicable(f"{owner} holds no object")
        member = node.members.get(key)
        if member is None:
            return depth, node
        node = member.node
    return len(path), node


def _inserted(text: str, node: Node, depth: int, key: str, value: Value) -> str:
    name = spelled(key)
    if not node.members:
        at = node.start + 1
        return f"{text[:at]} {name}: {spelled(value)} {text[at:]}"
    last = list(node.members.values())[-1]
    pad = _pad(text, node)
    at = last.node.end if node.comma is None else node.comma + 1
    if pad is None:
        body = f" {name}: {spelled(value)}"
        return f"{text[:at]},{body}{text[at:]}" if node.comma is None else f"{text[:at]}{body},{text[at:]}"
    body = f"{_newline(text)}{pad}{name}: {_dumped(value, text, pad, depth + 1)}"
    rest = _REST_OF_LINE.match(text, at)
    line = rest.end() if rest else at
    if node.comma is None:
        return f"{text[:at]},{text[at:line]}{body}{text[line:]}"
    return f"{text[:line]}{body},{text[line:]}"


def _pad(text: str, node: Node) -> str | None:
    """The indentation of an object's members, None where they begin on the line of its brace."""
    first = min(member.start for member in node.members.values())
    line = text.rfind("\n", node.start, first)
    found = _INDENT.match(text, line + 1)
    return None if line < 0 or found is None else found[0]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _dumped(value: Value, text: str, pad: str, depth: int) -> str:
    unit = "\t" if "\t" in pad else " " * (len(pad) // max(1, depth) or 2)
    lines = json.dumps(value, indent=unit, ensure_ascii=False)
    return lines.replace("\n", _newline(text) + pad)


def _in_the_hand_of(text: str, node: Node, depth: int, value: Value) -> str:
    if "\n" not in text[node.start : node.end]:
        return spelled(value)
    line = text.rfind("\n", 0, node.start) + 1
    found = _INDENT.match(text, line)
    return _dumped(value, text, found[0] if found else "", depth)


# -- taking out


def _cuts(text: str, root: Node, path: Sequence[str]) -> Iterator[str]:
    """The texts that are left without the member at `path`, the likeliest first."""
    _, parent = _deepest(root, path[:-1])
    member = parent.members[path[-1]]
    start, end = member.start, member.node.end
    if len(parent.members) == 1 and text[start - 1 : start] == text[end : end + 1] == " ":
        yield text[: start - 1] + text[end + 1 :]
    gap = _gap_before(text, start)
    if member.after is not None:
        yield text[:gap] + text[member.after + 1 :]
    elif member.before is not None:
        comma = member.before
        yield text[:comma] + text[comma + 1 : gap] + text[end:]
        yield text[:comma] + text[end:]
    elif not text[end : parent.end - 1].strip():
        yield text[:gap] + text[parent.end - 1 :]
    yield text[:start] + text[end:]


def _gap_before(text: str, start: int) -> int:
    """Where the line break and the blanks before `start` begin; on the same line as other things, the one blank."""
    line = text.rfind("\n", 0, start)
    if line < 0 or text[line + 1 : start].strip(" \t"):
        return start - 1 if text[start - 1 : start] == " " else start
    return line - 1 if text[line - 1 : line] == "\r" else line


def _leads_to(made: str, path: Sequence[str], value: Value, text: str, comments: bool) -> bool:
    try:
        return with_member(made, path, value, comments=comments) == text
    except (Malformed, Unsplicable):
        return False


def _reads(text: str, comments: bool) -> tuple[Value, ...]:
    try:
        return (parse(text, comments=comments).value,)
    except Malformed:
        return ()


# -- values


def _nested(path: Sequence[str], value: Value) -> Value:
    for key in reversed(path):
        value = {key: value}
    return value


def _at(value: Value, path: Sequence[str]) -> Value:
    for key in path:
        value = value[key]
    return value


def _merged(value: Value, path: Sequence[str], new: Value) -> Value:
    if not path:
        return new
    return {**value, path[0]: _merged(value.get(path[0], {}), path[1:], new)}


def _dropped(value: Value, path: Sequence[str]) -> Value:
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {**value, path[0]: _dropped(value[path[0]], path[1:])}
