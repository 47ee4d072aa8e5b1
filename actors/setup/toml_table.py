"""One table of a TOML text, added and removed by splicing: every byte outside the table stays.

The table goes to the end of the text, below a comment line that says who added it. The result reads as the same settings
but for that table, or `Unsplicable` is raised. Removing what was added gives the original text, to the byte, also when
other tables were added behind it. A table of that name without our comment is found by its headers.

Not here: tables inside of our table, and settings written as dotted keys or in inline tables.
"""

# Not tomlkit: deleting a table with it (0.15) also deletes the comment above the next table, leaves the blank line that it
# put before the table, writes LF into CRLF files, and refuses a byte order mark.

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from proctor.actors.setup.jsonc import Malformed, Unsplicable, merged, to_json, without

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
    return [_header(path), *(f"{key} = {_to_toml(value)}" for key, value in entry.items())]


def with_table(text: str | None, path: Sequence[str], entry: Mapping[str, object]) -> str:
    """The text with this table at its end; it replaces one of that name. Raises `Malformed`, `Unsplicable`."""
    if text is not None and _exists(parse(text), path):
        text = without_table(text, path)
    before = parse(text or "")
    ended = not text or text.endswith("\n")
    mark = _WHOLE if text is None else MARK if ended else _UNENDED
    end = "\r\n" if "\r\n" in (text or "") else "\n"
    gap = ("" if ended else end) + (end if text else "")
    edited = (text or "") + gap + "".join(f"{line}{end}" for line in (mark, *table_lines(path, entry)))
    if not _reads_as(edited, merged(before, path, dict(entry))):
        raise Unsplicable(f"{path[0]!r} is an inline table or an array there, which cannot be added to")
    return edited


def without_table(text: str, path: Sequence[str]) -> str | None:
    """The text without the table, None when nothing is left of a file that was created for it.

    Raises `KeyError` when it does not exist, and `Malformed`, `Unsplicable`.
    """
    rest = without(parse(text), path)
    bare = {key: inner for key, inner in rest.items() if inner or key != path[0]}
    for cut in (*_without_ours(text, path), _without_headers(text, path)):
        if _reads_as(cut or "", rest, bare):
            return cut
    raise Unsplicable("it is not a table of its own there")


def _without_ours(text: str, path: Sequence[str]) -> Iterator[str | None]:
    """The texts without one table of ours that was not edited since it was added."""
    lines = r"(?:[\w\"'-][^\r\n]*+\r?\n)*+"
    block = re.compile(
        rf"^({re.escape(MARK)}[^\r\n]*)\r?\n{re.escape(_header(path))}\r?\n{lines}", re.MULTILINE
    )
    for match in block.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if match[1] == _WHOLE:
            yield (before + after) or None
        elif match[1] == _UNENDED:
            yield _without_line_end(_without_line_end(before)) + after
        else:
            yield _without_line_end(before) + after


def _without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _without_headers(text: str, path: Sequence[str]) -> str:
    """The text without every table of that name, those below it, and our comment."""
    name = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    header = re.compile(rf"\s*\[\[?\s*{name}\s*[\].]")
    kept, inside, pending = list[str](), False, list[str]()
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = bool(header.match(line))
        if line.startswith(MARK):
            continue
        if not inside:
            kept += [*pending, line]
            pending = []
        elif line.strip() and not line.lstrip().startswith("#"):
            pending = []
        else:  # blanks and comments directly above the next table belong to that table
            pending.append(line)
    return "".join([*kept, *pending])


def _exists(settings: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return False
        settings = cast("dict[str, Any]", settings)[key]
    return True


def _reads_as(text: str, *settings: Mapping[str, Any]) -> bool:
    try:
        return parse(text) in settings
    except Malformed:
        return False


def _header(path: Sequence[str]) -> str:
    return f"[{'.'.join(map(_key, path))}]"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _to_toml(key)


def _to_toml(value: object) -> str:
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, object]", value)
        return f"{{ {', '.join(f'{_key(key)} = {_to_toml(part)}' for key, part in inner.items())} }}"
    try:  # JSON's strings, numbers and arrays are TOML's, but for one character
        return to_json(value).replace("\x7f", "\\u007f")
    except TypeError:
        raise Unsplicable(f"it holds a value that cannot be written again: {value!r}") from None
