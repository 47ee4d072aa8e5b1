"""The tag of a folder: a file by which a folder that proctor made is recognised, whatever else lies beside it.

    FOLDER/.proctor-tag     0600, one line: KIND 1 UID NAME

Guarantees: a folder counts as ours only when it is a directory of this user, not a link, and its tag is a regular file
of this user that states the kind, the user and the name. Where NAME is the folder's own name, a copy or a renamed
folder is no longer ours, so renaming one keeps it. What has no tag is never removed by anything that removes.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from proctor.runtime.processes.private import make_directory, open_private

TAG = ".proctor-tag"
_VERSION = 1
_LONGEST = 4096


def tag_folder(folder: Path, kind: str, name: str) -> None:
    """Write the tag into `folder`, which this process has made. Raises OSError; then there is no tag."""
    path = folder / TAG
    line = _line(kind, name)
    try:
        # O_NOFOLLOW: somebody who can write in the folder must not lead us to another file
        fd = open_private(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            write_all(fd, line)
        finally:
            os.close(fd)
    except OSError:
        # half a tag would never be recognised, so the folder would never be removed
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in as many parts as the system wants. Raises OSError; then a part may have been written."""
    written = 0
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def restore_directory(path: Path, *, parents: bool = True) -> None:
    """Make a directory of this user again that something has removed.

    Raises OSError, also where another user's is in its place.
    """
    with suppress(FileExistsError):
        # made first and checked afterwards: between a check and the making another user could put a link
        # there
        make_directory(path, parents=parents)
    if not is_own_directory(path):
        raise PermissionError(errno.EACCES, "it is no directory of ours", str(path))


def is_tagged(folder: Path, kind: str, name: str) -> bool:
    """Whether `folder` is a directory of this user with a tag of this kind and name. Never raises."""
    return tag_of(folder, kind) == name


def tag_of(folder: Path, kind: str) -> str | None:
    """The name in the tag of a directory of this user, None where it has no tag of this kind. Never raises."""
    try:
        return read_tag(folder, kind)
    except OSError:
        return None


def read_tag(folder: Path, kind: str) -> str | None:
    """As `tag_of`, but a tag that cannot be read is an OSError: it may be there."""
    try:
        line = _read(folder / TAG) if is_own_directory(folder) else b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    head, end = _line(kind, "")[:-1], line[-1:]
    return os.fsdecode(line[len(head) : -1]) if line.startswith(head) and end == b"\n" else None


def is_own_directory(path: Path) -> bool:
    """Whether `path` is a directory of this user, not a link to one. Raises OSError."""
    found = path.lstat()
    return S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_tree(path: Path, *, behind: str = "") -> bool:
    """Remove a folder with all that is in it, its tag last and the file `behind` just before; whether nothing is left.
    Never raises.

    Links are removed, not followed; what its owner had closed against himself, as package caches are, is opened first.
    """
    with suppress(OSError):
        # checked before anything is emptied: the loop below would follow the link and empty its target
        if path.is_symlink():
            path.unlink(missing_ok=True)
    _empty(path, behind)
    if os.path.lexists(path):
        _open_up(path)
        _empty(path, behind)
    return not os.path.lexists(path)


def _empty(path: Path, behind: str) -> None:
    with suppress(OSError):
        for inner in sorted(path.iterdir(), key=lambda inner: inner.name == behind):
            _remove_inner(inner)
        # the tag goes last: a folder that is half removed must still be known as ours by the next sweep
        if all(inner.name == TAG for inner in path.iterdir()):
            shutil.rmtree(path, ignore_errors=True)


def _remove_inner(inner: Path) -> None:
    if inner.is_dir() and not inner.is_symlink():
        shutil.rmtree(inner, ignore_errors=True)
    elif inner.name != TAG:
        inner.unlink(missing_ok=True)


def _open_up(path: Path) -> None:
    """Directories that their owner may not write in cannot be emptied."""
    with suppress(OSError):
        path.chmod(0o700)
    for where, names, _ in os.walk(path):
        for below in [Path(where, name) for name in names if not Path(where, name).is_symlink()]:
            with suppress(OSError):
                below.chmod(0o700)


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        ours = S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        return os.read(fd, _LONGEST) if ours else b""
    finally:
        os.close(fd)


def _line(kind: str, name: str) -> bytes:
    return os.fsencode(f"{kind} {_VERSION} {os.geteuid()} {name}\n")
