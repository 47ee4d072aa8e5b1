"""Files and directories that only their owner can reach, under any umask.

A umask may take the owner's own rights away, too, and directories above one that is made have the mode that the umask
leaves. Both are set right here: what is made is 0700 or 0600 from its first moment on, and never more.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

_DIRECTORY = 0o700
_FILE = 0o600


def make_directory(path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """As `Path.mkdir`, but private; so are the parents that are made. One that is there keeps its mode. Raises OSError."""
    try:
        # tried first: a check before it could be overtaken by another process
        os.mkdir(path, _DIRECTORY)
    except FileNotFoundError:
        if not parents or path.parent == path:
            raise
        make_directory(path.parent, parents=True, exist_ok=True)
        make_directory(path, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
    else:
        _restore(path)


def make_temporary_directory(prefix: str, folder: Path | None = None) -> Path:
    """A new directory with a random name, in `folder` or where temporary ones are. Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    _restore(path)
    return path


def open_private(path: Path, flags: int) -> int:
    """Open a file, which is made if it is not there, and not passed on to programs. Raises OSError."""
    flags |= os.O_CREAT | os.O_CLOEXEC
    try:
        # O_EXCL tells a file that we made, whose mode is ours to set, from one that was there
        fd = os.open(path, flags | os.O_EXCL, _FILE)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, _FILE)
    try:
        if S_IMODE(os.fstat(fd).st_mode) != _FILE:
            # a umask such as 0277 would take the owner's own right to write
            os.fchmod(fd, _FILE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _restore(path: Path) -> None:
    # only where a umask took rights away: it is a call less for each folder
    if S_IMODE(path.lstat().st_mode) & _DIRECTORY == _DIRECTORY:
        return
    try:
        path.chmod(_DIRECTORY)
    except OSError:
        with suppress(OSError):
            # one that we cannot use would be found as "there already" by the next attempt
            path.rmdir()
        raise
