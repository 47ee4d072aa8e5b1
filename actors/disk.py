"""Bytes onto the disk, whole, or an error."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.actors.errors import RecordingFailed
from proctor.runtime.tags import write_all


def write_whole(fd: int, data: bytes, path: Path | None) -> None:
    """Write all of `data` to an open file. `path` is its name for the error, None where it has none.

    Raises `RecordingFailed`.
    """
    try:
        write_all(fd, data)
    except OSError as error:
        raise RecordingFailed(str(path or "(temporary)"), error) from error


def encoded_loosely(value: object, *, indent: int | None = None) -> bytes:
    """JSON of what msgspec refuses because a text in it is not UTF-8, as a path may be: `?` for each such byte."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    return json.dumps(plain, ensure_ascii=False, indent=indent).encode("utf-8", "replace")


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of a small file in one instant: a reader sees the old text or the new one. Raises OSError."""
    fresh = path.with_name(f"{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    os.rename(fresh, path)
