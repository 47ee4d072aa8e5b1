"""What a tool that writes a file would change, as lines of a unified diff.

Nothing is changed here, and what cannot be read is no reason to fail: then the diff is of what the tool says itself.
"""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

LARGEST = 1 << 20
"""Bytes of a file that is compared; a larger one counts as one that cannot be read."""

_PATHS = ("file_path", "filePath", "path", "notebook_path")
_OLD = ("old_string", "oldString")
_NEW = ("new_string", "newString")


def changes(tool: str, given: Mapping[str, Any], cwd: Path) -> list[str] | None:
    """The diff of what this tool would do with its input; None for a tool that is not known to write a file."""
    maker = _MAKERS.get(tool.lower())
    return None if maker is None else maker(given, cwd)


def _written(given: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name, text = _first(given, _PATHS), given.get("content")
    if name is None or not isinstance(text, str):
        return None
    return _diff(_content(cwd / name) or "", text, name)


def _edited(given: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name = _first(given, _PATHS)
    edits = [edit for edit in _edits(given) if edit[1] is not None]
    if name is None or not edits:
        return None
    before = _content(cwd / name)
    if before is None or any((old or "") not in before for old, _, _ in edits):
        return [line for old, new, _ in edits for line in _diff(old or "", new or "", name)]
    after = before
    for old, new, everywhere in edits:
        after = after.replace(old or "", new or "", -1 if everywhere else 1) if old else (new or "")
    return _diff(before, after, name)


def _edits(given: Mapping[str, Any]) -> Iterable[tuple[str | None, str | None, bool]]:
    several = given.get("edits")
    for edit in cast("list[object]", several) if isinstance(several, list) else [given]:
        if isinstance(edit, Mapping):
            one = cast("Mapping[str, Any]", edit)
            yield _first(one, _OLD), _first(one, _NEW), bool(one.get("replace_all") or one.get("replaceAll"))


def _cell(given: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name, source = _first(given, _PATHS), given.get("new_source")
    if name is None or not isinstance(source, str):
        return None
    where = f"{name}: {given.get('edit_mode') or 'replace'} cell {given.get('cell_id') or ''}".rstrip()
    return [where, *(f"+{line}" for line in source.splitlines())]


def _patched(given: Mapping[str, Any], cwd: Path) -> list[str] | None:
    """Codex says what it changes as a diff of its own, for each file."""
    found = given.get("changes")
    listed = cast("list[object]", found) if isinstance(found, list) else []
    lines = list[str]()
    for one in listed:
        if isinstance(one, Mapping):
            change = cast("Mapping[str, Any]", one)
            lines += [
                f"{_kind(change.get('kind'))} {change.get('path')}",
                *str(change.get("diff") or "").splitlines(),
            ]
    return lines or None


def _kind(kind: object) -> str:
    return str(cast("Mapping[str, Any]", kind).get("type") if isinstance(kind, Mapping) else kind or "change")


def _first(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((value for name in names if isinstance(value := given.get(name), str)), None)


def _content(path: Path) -> str | None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:  # a pipe would never end
            return None
        return path.read_text("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _diff(before: str, after: str, name: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=2, lineterm="")
    return list(lines) or [f"{name}: no line changes"]


_MAKERS: Mapping[str, Callable[[Mapping[str, Any], Path], list[str] | None]] = {
    "write": _written,
    "edit": _edited,
    "multiedit": _edited,
    "notebookedit": _cell,
    "apply_patch": _patched,
}
