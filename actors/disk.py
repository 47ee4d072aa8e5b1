"""Atomic replacement of small files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from proctor.runtime.processes import open_private, write_all


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of a small file in one instant: a reader sees the old text or the new one. Raises OSError."""
    fresh = path.with_name(f"{path.name}.new")
    fd = open_private(fresh, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        write_all(fd, data)
    except OSError:
        with suppress(OSError):
            # on a full disk the half-written file is the first thing that has to go
            fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    # only after all is written: a kill before it leaves the old text, never half of the new one
    os.rename(fresh, path)
