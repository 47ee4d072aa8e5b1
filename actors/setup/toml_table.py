"""One table of a TOML text, put in and taken out by splicing: what is not ours keeps every byte.

The table goes to the end of the text, below a line of comment that says whose it is. Guaranteed: the result reads as
the same settings but for that table, or `Unsplicable` is raised; nothing is ever put into a table that the text has
already closed (an inline table, an array of tables). The comment also tells whether the line before had an end, and
whether the file was made for it, so that taking the table out gives the text of before, to the byte, wherever other
tables have come behind it.

A table of that name that somebody else wrote is found by its headers; it can be taken out, with what they head.

Not here: tables in tables of ours, and settings written as dotted keys, which only their writer can take out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from proctor.actors.setup.jsonc import Malformed, Unsplicable, spelled

MARK = '# added by "proctor setup"; "proctor setup --remove" takes it out'
_UNENDED = f"{MARK}, and the end of the line before"
_WHOLE = f"{MARK}, and this file"


def parse(text: str) -> dict[str, Any]:
    """The settings. Raises `Malformed`."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise Malformed(str(error).removeprefix("Invalid TOML: ")) from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def table_lines(path: Sequence[str], entry: Mapping[str, object]) -> list[str]:
    """The table as TOML."""
    header = f"[{'.'.join(map(_key, path))}]"
    return [header, *(f"{key} = {_quoted(value)}" for key, value in entry.items())]


def with_table(text: str | None, path: Sequence[str], entry: Mapping[str, object]) -> str:
    """The text with this table at its end, in the place of one of that name. Raises `Malformed`, `Unsplicable`."""
    if text is not None and _is_there(parse(text), path):
        text = without_table(text, path)
    before = parse(text or "")
    ended = not text or text.endswith("\n")
    mark = _WHOLE if text is None else MARK if ended else _UNENDED
    end = "\r\n" if "\r\n" in (text or "") else "\n"
    gap = ("" if ended else end) + (end if text else "")
    made = (text or "") + gap + "".join(f"{line}{end}" for line in (mark, *table_lines(path, entry)))
    if _reads(made) != _merged(before, path, dict(entry)):
        raise Unsplicable(f"{path[0]!r} is an inline table or an array there, which cannot be added to")
    return made


def without_table(text: str, path: Sequence[str]) -> str | None:
    """The text without the table, None when nothing is left of a file that was made for it.

    Raises `KeyError` when it is not there, and `Malformed`, `Unsplicable`.
    """
    wanted = _dropped(parse(text), path)
    bare = {key: inner for key, inner in wanted.items() if inner or key != path[0]}
    for made in (*_ours(text, path), _by_headers(text, path)):
        if _reads(made or "") in (wanted, bare):
            return made
    raise Unsplicable("it is not a table of its own there")


def _ours(text: str, path: Sequence[str]) -> Iterator[str | None]:
    """What is left without each table of ours that stands as it was written."""
    header = re.escape(f"[{'.'.join(map(_key, path))}]")
    lines = r"(?:[\w\"'-][^\r\n]*+\r?\n)*+"
    block = re.compile(rf"^({re.escape(MARK)}[^\r\n]*)\r?\n{header}\r?\n{lines}", re.MULTILINE)
    for match in block.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if match[1] == _WHOLE:
            yield (before + after) or None
        elif match[1] == _UNENDED:
            yield _less_a_line(_less_a_line(before)) + after
        else:
            yield _less_a_line(before) + after


def _less_a_line(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _by_headers(text: str, path: Sequence[str]) -> str:
    """What is left without every table of that name and those below it, and without our line above."""
    name = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    mine = re.compile(rf"\s*\[\[?\s*{name}\s*[\].]")
    kept, inside, waiting = list[str](), False, list[str]()
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = bool(mine.match(line))
        if line.startswith(MARK):
            continue
        if not inside:
            kept += [*waiting, line]
            waiting = []
        elif line.strip() and not line.lstrip().startswith("#"):
            waiting = []
        else:  # what stands above the next table is the next table's
            waiting.append(line)
    return "".join([*kept, *waiting])


def _is_there(settings: Mapping[str, Any], path: Sequence[str]) -> bool:
    inner = settings.get(path[0])
    if inner is None or len(path) == 1:
        return inner is not None
    return isinstance(inner, dict) and _is_there(cast("dict[str, Any]", inner), path[1:])


def _reads(text: str) -> dict[str, Any] | None:
    try:
        return parse(text)
    except Malformed:
        return None


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def _quoted(value: object) -> str:
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, object]", value)
        return f"{{ {', '.join(f'{_key(key)} = {_quoted(part)}' for key, part in inner.items())} }}"
    try:  # JSON's strings, numbers and arrays are TOML's, but for one character
        return spelled(value).replace("\x7f", "\\u007f")
    except TypeError:
        raise Unsplicable(f"it holds a value that cannot be written again: {value!r}") from None


def _merged(settings: Mapping[str, Any], path: Sequence[str], entry: dict[str, Any]) -> dict[str, Any]:
    table = settings.get(path[0], {})
    if len(path) == 1 or not isinstance(table, dict):
        return {**settings, path[0]: entry}
    return {**settings, path[0]: _merged(cast("dict[str, Any]", table), path[1:], entry)}


def _dropped(settings: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    if len(path) == 1:
        settings[path[0]]  # a KeyError says that there is nothing to take out
        return {key: inner for key, inner in settings.items() if key != path[0]}
    return {**settings, path[0]: _dropped(settings[path[0]], path[1:])}
