"""A disk that can be full: the calls of the operating system that write below a folder fail while it is."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest


@attrs.define
class Disk:
    """What lies below `folder`. `full` may be set and unset; `refused` counts the calls that failed. It becomes full by the
    call that needs room when `room` others have had some."""

    folder: Path
    full: bool = False
    room: int | None = None
    refused: int = 0
    errno: int = errno.ENOSPC

    def refuses(self, path: object) -> bool:
        """Whether a call that needs room at `path`, a name or a descriptor, fails now."""
        if not self.full and self.room is None:
            return False
        try:
            if isinstance(path, int):
                if not stat.S_ISREG(os.fstat(path).st_mode):
                    return False
                path = os.readlink(f"/proc/self/fd/{path}")
            inside = Path(str(path)).absolute().is_relative_to(self.folder)
        except OSError:
            return False
        if inside and self.room is not None:
            self.room -= 1
            self.full = self.full or self.room < 0
        refused = inside and self.full
        self.refused += refused
        return refused


def _call(
    disk: Disk, needs_room: Callable[..., bool], real: Callable[..., Any], *args: Any, **more: Any
) -> Any:
    if needs_room(*args, **more) and disk.refuses(args[0]):
        raise OSError(disk.errno, os.strerror(disk.errno), str(args[0]))
    return real(*args, **more)


def _always(*_: Any, **__: Any) -> bool:
    return True


def _creates(path: object, flags: int, *_: Any, **__: Any) -> bool:
    return bool(flags & os.O_CREAT) and not os.path.exists(str(path))


CALLS: dict[str, Callable[..., bool]] = {"write": _always, "mkdir": _always, "open": _creates}


@contextmanager
def disk_at(folder: Path) -> Generator[Disk]:
    """The block runs on a machine where `folder` is a disk of its own."""
    disk = Disk(folder.absolute())
    with pytest.MonkeyPatch.context() as patch:
        for name, needs_room in CALLS.items():
            patch.setattr(os, name, partial(_call, disk, needs_room, getattr(os, name)))
        yield disk
