"""Diffs of tool calls that write files, as lines of a unified diff.

A file that cannot be read is no error: the diff then shows the texts in the tool call alone.
"""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

LARGEST = 1 << 20
"""Largest file that is compared, in bytes."""

_PATHS = ("file_path", "filePath", "path", "notebook_path")
_OLD = ("old_string", "oldString")
_NEW = ("new_string", "newString")


def changes(tool: str, call: Mapping[str, Any], cwd: Path) -> list[str] | None:
    """The diff of this tool call; None for a tool that is not known to write files."""
    if isinstance(shown := call.get("diff"), str) and shown:  # OpenCode sends it
        return shown.splitlines()
    maker = _MAKERS.get(tool.lower())
    return None if maker is None else maker(call, cwd)


def writes_files(tool: str, call: Mapping[str, Any]) -> bool:
    """Whether `changes` may have a diff of this tool call."""
    return tool.lower() in _MAKERS or "diff" in call


def changes_shown(parts: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """The diff of file changes as an agent of the Agent Client Protocol shows them; None without any."""
    lines = [
        line
        for part in parts
        if isinstance(name := part.get("path"), str)
        for line in _diff(str(part.get("oldText") or ""), str(part.get("newText") or ""), name)
    ]
    return lines or None


def _written(call: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name, text = _first(call, _PATHS), call.get("content")
    if name is None or not isinstance(text, str):
        return None
    return _diff(_content(cwd / name) or "", text, name)


def _edited(call: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name = _first(call, _PATHS)
    edits = [edit for edit in _edits(call) if edit[1] is not None]
    if name is None or not edits:
        return None
    before = _content(cwd / name)
    if before is None or any((old or "") not in before for old, _, _ in edits):
        return [line for old, new, _ in edits for line in _diff(old or "", new or "", name)]
    after = before
    for old, new, everywhere in edits:
        after = after.replace(old or "", new or "", -1 if everywhere else 1) if old else (new or "")
    return _diff(before, after, name)


def _edits(call: Mapping[str, Any]) -> Iterable[tuple[str | None, str | None, bool]]:
    several = call.get("edits")
    for edit in cast("list[object]", several) if isinstance(several, list) else [call]:
        if isinstance(edit, Mapping):
            one = cast("Mapping[str, Any]", edit)
            yield _first(one, _OLD), _first(one, _NEW), bool(one.get("replace_all") or one.get("replaceAll"))


def _cell(call: Mapping[str, Any], cwd: Path) -> list[str] | None:
    name, source = _first(call, _PATHS), call.get("new_source")
    if name is None or not isinstance(source, str):
        return None
    where = f"{name}: {call.get('edit_mode') or 'replace'} cell {call.get('cell_id') or ''}".rstrip()
    return [where, *(f"+{line}" for line in source.splitlines())]


def _patched(call: Mapping[str, Any], cwd: Path) -> list[str] | None:
    """Codex sends a diff for each file."""
    value = call.get("changes")
    changes_of = cast("list[object]", value) if isinstance(value, list) else []
    lines = list[str]()
    for one in changes_of:
        if isinstance(one, Mapping):
            change = cast("Mapping[str, Any]", one)
            lines += [
                f"{_kind(change.get('kind'))} {change.get('path')}",
                *str(change.get("diff") or "").splitlines(),
            ]
    return lines or None


def _kind(kind: object) -> str:
    return str(cast("Mapping[str, Any]", kind).get("type") if isinstance(kind, Mapping) else kind or "change")


def _first(call: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((value for name in names if isinstance(value := call.get(name), str)), None)


def _content(path: Path) -> str | None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:  # a pipe would never end
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
