"""Allowed directories: where callers from outside may let an agent work.

A directory that is handed out has no `..` and no symbolic link in its path and lies in an allowed one. What the agent may do there is
bounded by its permissions and its sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from proctor.actors.errors import BadOption


class AllowedDirs:
    """The allowed directories; the first is the default of a call. Raises `BadOption` for what is no directory."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self.folders = tuple(_real("root", Path(os.path.expanduser(folder)).absolute()) for folder in folders)
        if not self.folders:
            raise BadOption("at least one root is needed")

    def folder(self, name: str | None = None) -> Path:
        """Resolve the directory that a caller names, relative to the first one or absolute. Raises `BadOption`."""
        found = _real("cwd", self.folders[0] / (name or "."))
        if not any(found.is_relative_to(folder) for folder in self.folders):
            raise BadOption(f"cwd {name!r} is outside of the allowed directories: {self}")
        return found

    def __str__(self) -> str:
        return ", ".join(map(str, self.folders))


def _real(what: str, path: Path) -> Path:
    try:
        found = path.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:  # not there, a NUL in it, a circle of links
        raise BadOption(f"{what} {str(path)!r} cannot be used: {_why(error)}") from None
    if not found.is_dir():
        raise BadOption(f"{what} {str(path)!r} is not a directory")
    return found


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
