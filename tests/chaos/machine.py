"""What a machine runs out of for a moment, while a storm blows: space on the disk, descriptors, memory for processes.

Each acts on this process alone, and undoes itself: the operating system's own functions fail, or its own limits are lowered.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest


@contextmanager
def full_disk() -> Generator[None]:
    """No file takes another byte in the block, and no folder another file. Pipes and sockets go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", partial(_write, os.write))
        patch.setattr(os, "mkdir", _refuse)
        patch.setattr(os, "open", partial(_open, os.open))
        yield


def _write(real: Callable[[int, Any], int], fd: int, data: Any) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(fd, data)


def _open(real: Callable[..., int], path: Any, flags: int, *args: Any, **options: Any) -> int:
    if flags & os.O_CREAT and not os.path.exists(path):
        _refuse(path)
    return real(path, flags, *args, **options)


def _refuse(path: Any, *_args: Any, **_options: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@contextmanager
def no_descriptors(spare: int = 2) -> Generator[None]:
    """This process can open `spare` descriptors more in the block, and then none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 1 + spare, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
