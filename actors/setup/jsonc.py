"""JSON, with or without comments, edited by splicing text: every byte outside the edited member stays.

`with_member` adds one member to an object of the text, `without_member` removes it. The result reads as the same value but
for that member, or `Unsplicable` is raised. Removing what was added gives the original text, to the byte. A text of
None is a file that does not exist: adding creates it, and removing deletes it.

Not here: more than one member at a time, and members of arrays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, cast

import attrs

Value: TypeAlias = Any

_STRING = r'"(?:\\.|[^"\\])*+"'
_COMMENT = re.compile(rf"{_STRING}|(//[^\r\n]*+|/\*.*?\*/)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf'({_STRING}|[^\s"\[{{,:])(\s*+),(?=\s*+[}}\]])|{_STRING}', re.DOTALL)
_CONSTANT = re.compile(rf"{_STRING}|(-?Infinity|NaN)", re.DOTALL)
_REST_OF_LINE = re.compile(r"(?:[ \t]|/\*[^\r\n]*?\*/)*+(?://[^\r\n]*+)?")
_BLANKS = re.compile(r"[ \t\r\n]*+")
_INDENT = re.compile(r"[ \t]*+")
_scan = json.JSONDecoder().raw_decode


class Malformed(ValueError):
    """The text cannot be read; the message says where and why."""


class Unsplicable(ValueError):
    """The edit is not possible without changing other settings; the message says why."""


@attrs.frozen
class _Source:
    """A text, the same with blanks for its comments, and that with blanks for its trailing commas, which is JSON.

    All three have the same length, so a position in one is the same place in the others.
    """

    text: str
    bare: str
    plain: str
    value: Value


@attrs.frozen
class _Member:
    """Positions: of its key, of its value, behind its value, and of the commas on both sides."""

    start: int
    value: int
    end: int
    before: int | None
    after: int | None


@attrs.frozen
class _Object:
    """An object that starts at `start` and ends before `end`. `comma` is the position of a trailing comma."""

    start: int
    end: int
    members: Mapping[str, _Member]
    comma: int | None


def parse(text: str, *, comments: bool) -> Value:
    """The value of a text. `comments` permits comments and trailing commas. Raises `Malformed`."""
    return _source(text, comments).value


def with_member(text: str | None, path: Sequence[str], value: Value, *, comments: bool) -> str:
    """The text with `value` at `path`: a new member, or a new value of an existing one. Raises `Malformed`, `Unsplicable`."""
    if text is None:
        return f"{json.dumps(_nested(path, value), indent=2, ensure_ascii=False)}\n"
    source = _source(text, comments)
    owner, depth = _owner(source, path)
    old = owner.members.get(path[depth])
    if old is None:
        edited = _inserted(text, owner, depth, path[depth], _nested(path[depth + 1 :], value))
    else:
        edited = text[: old.value] + _formatted_like(text, old, depth + 1, value) + text[old.end :]
    # The last word: what reads otherwise than intended is not written.
    if parse(edited, comments=comments) != merged(source.value, path, value):
        raise Unsplicable("the edit would change other settings")
    return edited


def without_member(text: str, path: Sequence[str], *, comments: bool) -> str | None:
    """The text without the member at `path`, None when nothing is left of a file that was created for it.

    Raises `KeyError` when it does not exist, and `Malformed`, `Unsplicable`.
    """
    source = _source(text, comments)
    value = source.value
    for key in path:
        value = value[key]
    if text == with_member(None, path, value, comments=comments):
        return None
    # The parents may have been added together with the member: the first cut from which adding gives this text is right.
    for length in range(1, len(path) + 1):
        for cut in _cuts(source, path[:length]):
            if _adding_gives(text, cut, path, value, comments):
                return cut
    rest = without(source.value, path)
    for cut in _cuts(source, path):
        if _reads_as(cut, rest, comments):
            return cut
    raise Unsplicable("removing it would change other settings")


def to_json(value: Value) -> str:
    """A value as JSON, on one line."""
    return json.dumps(value, ensure_ascii=False)


def merged(settings: Mapping[str, Any], path: Sequence[str], value: Value) -> dict[str, Any]:
    """The settings with `value` at `path`."""
    if len(path) == 1:
        return {**settings, path[0]: value}
    inner: Any = settings.get(path[0], {})
    if not isinstance(inner, dict):
        return {**settings, path[0]: value}
    return {**settings, path[0]: merged(cast("dict[str, Any]", inner), path[1:], value)}


def without(settings: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The settings without what is at `path`. Raises `KeyError` when nothing is."""
    inner = settings[path[0]]
    if len(path) > 1:
        return {**settings, path[0]: without(inner, path[1:])}
    return {key: value for key, value in settings.items() if key != path[0]}


# -- reading


def _source(text: str, comments: bool) -> _Source:
    # A byte order mark is blanked, not cut, so that positions stay the same.
    bare = plain = " " + text[1:] if text.startswith("\ufeff") else text
    if comments:
        bare = _COMMENT.sub(lambda m: re.sub(r"[^\r\n]", " ", m[0]) if m[1] else m[0], bare)
        plain = _TRAILING_COMMA.sub(lambda m: m[0] if m[1] is None else f"{m[1]}{m[2]} ", bare)

    def refuse(constant: str) -> NoReturn:  # Python reads NaN and Infinity, which are not JSON
        at = next(match.start(1) for match in _CONSTANT.finditer(plain) if match[1])
        raise json.JSONDecodeError(f"{constant} is not JSON", plain, at)

    try:
        return _Source(text, bare, plain, json.loads(plain, parse_constant=refuse))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Malformed(f"{where}: expected JSON ({error.msg.lower()})") from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def _skip(text: str, at: int) -> int:
    """The position of the next character that is not blank."""
    return cast("re.Match[str]", _BLANKS.match(text, at)).end()


def _object_at(source: _Source, start: int) -> _Object:
    plain, members, comma = source.plain, dict[str, _Member](), None
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        key, end = _scan(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        _, end = _scan(plain, value)
        after = _skip(source.bare, end)
        before, comma = comma, after if source.bare[after] == "," else None
        members.pop(key, None)  # of two members with one key the last one counts
        members[key] = _Member(at, value, end, before, comma)
        at = _skip(plain, end if comma is None else comma + 1)
    return _Object(start, at + 1, members, comma)


def _owner(source: _Source, path: Sequence[str]) -> tuple[_Object, int]:
    """The innermost object on the path, and the index of the key that is, or would be, its member."""
    start, depth = _skip(source.plain, 0), 0
    while True:
        if source.plain[start] != "{":
            where = f"{'.'.join(path[:depth])!r}" if depth else "the file"
            raise Unsplicable(f"{where} holds no object")
        owner = _object_at(source, start)
        if depth == len(path) - 1 or path[depth] not in owner.members:
            return owner, depth
        start = owner.members[path[depth]].value
        depth += 1


# -- adding


def _inserted(text: str, owner: _Object, depth: int, key: str, value: Value) -> str:
    """A new last member in the format of its neighbours; in an empty object between two blanks."""
    name = to_json(key)
    if not owner.members:
        at = owner.start + 1
        return f"{text[:at]} {name}: {to_json(value)} {text[at:]}"
    at = list(owner.members.values())[-1].end if owner.comma is None else owner.comma + 1
    pad = _padding(text, owner)
    if pad is None:
        body = f" {name}: {to_json(value)}"
        return f"{text[:at]},{body}{text[at:]}" if owner.comma is None else f"{text[:at]}{body},{text[at:]}"
    body = f"{_newline(text)}{pad}{name}: {_indented(value, text, pad, depth + 1)}"
    rest = _REST_OF_LINE.match(text, at)  # a comment behind the last member stays on its line
    line = rest.end() if rest else at
    if owner.comma is None:
        return f"{text[:at]},{text[at:line]}{body}{text[line:]}"
    return f"{text[:line]}{body},{text[line:]}"


def _padding(text: str, owner: _Object) -> str | None:
    """The indentation of an object's members, None where they begin on the line of its brace."""
    first = min(member.start for member in owner.members.values())
    line = text.rfind("\n", owner.start, first)
    return None if line < 0 else _indent_of(text, line + 1)


def _indent_of(text: str, line: int) -> str:
    return cast("re.Match[str]", _INDENT.match(text, line))[0]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indented(value: Value, text: str, pad: str, depth: int) -> str:
    unit = "\t" if "\t" in pad else " " * (len(pad) // max(1, depth) or 2)
    lines = json.dumps(value, indent=unit, ensure_ascii=False)
    return lines.replace("\n", _newline(text) + pad)


def _formatted_like(text: str, old: _Member, depth: int, value: Value) -> str:
    if "\n" not in text[old.value : old.end]:
        return to_json(value)
    return _indented(value, text, _indent_of(text, text.rfind("\n", 0, old.value) + 1), depth)


# -- removing


def _cuts(source: _Source, path: Sequence[str]) -> Iterator[str]:
    """The texts without the member at `path`, the likeliest first: with its comma, its line break, or neither."""
    text, owner = source.text, _owner(source, path)[0]
    member = owner.members[path[-1]]
    start, end = member.start, member.end
    if len(owner.members) == 1 and text[start - 1 : start] == text[end : end + 1] == " ":
        yield text[: start - 1] + text[end + 1 :]
    gap = _gap_before(text, start)
    if member.after is not None:
        yield text[:gap] + text[member.after + 1 :]
    elif (comma := member.before) is not None:
        yield text[:comma] + text[comma + 1 : gap] + text[end:]
        yield text[:comma] + text[end:]
    elif not text[end : owner.end - 1].strip():
        yield text[:gap] + text[owner.end - 1 :]
    yield text[:start] + text[end:]


def _gap_before(text: str, start: int) -> int:
    """The start of the line break and the blanks before `start`; of the one blank behind other things on its line."""
    line = text.rfind("\n", 0, start)
    if line < 0 or text[line + 1 : start].strip(" \t"):
        return start - 1 if text[start - 1 : start] == " " else start
    return line - 1 if text[line - 1 : line] == "\r" else line


def _adding_gives(text: str, cut: str, path: Sequence[str], value: Value, comments: bool) -> bool:
    try:
        return with_member(cut, path, value, comments=comments) == text
    except (Malformed, Unsplicable):
        return False


def _reads_as(text: str, value: Value, comments: bool) -> bool:
    try:
        return bool(parse(text, comments=comments) == value)
    except Malformed:
        return False


def _nested(path: Sequence[str], value: Value) -> Value:
    for key in reversed(path):
        value = {key: value}
    return value
