"""Bytes onto the disk, whole, or an error that names the file."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.actors.errors import RecordingFailed


def write_whole(fd: int, data: bytes, path: Path | None) -> None:
    """Write all of `data` to an open file. `path` is its name for the error, None where it has none.

    Raises `RecordingFailed`.
    """
    try:
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])
    except OSError as error:
        raise RecordingFailed(str(path or "(temporary)"), error) from error
