"""Folders that callers from outside may name: those that were allowed, and what is below them.

Guarantees: a folder that is given out has no `..` and no symbolic link in its path, and lies in an allowed one. That
is where an agent begins to work; what it may then do is its permission's and its sandbox's to bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from proctor.actors.errors import BadOption


class Roots:
    """The allowed folders; the first is where a caller works that names none. Raises `BadOption` for what is no
    folder."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self.folders = tuple(_real("root", Path(os.path.expanduser(folder)).absolute()) for folder in folders)
        if not self.folders:
            raise BadOption("at least one root is needed")

    def folder(self, wanted: str | None = None) -> Path:
        """The folder that a caller names, relative to the first one or absolute. Raises `BadOption`."""
        found = _real("cwd", self.folders[0] / (wanted or "."))
        if not any(found.is_relative_to(folder) for folder in self.folders):
            raise BadOption(
                f"cwd {wanted!r} is outside of what is allowed; allowed: {self} and what is below"
            )
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
