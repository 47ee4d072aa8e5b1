"""The directory of one session on disk: made or found, locked, given a memory, and removed. `sessions` has the picture.

Guarantees: what is taken for a session is a directory of ours directly below the root, never a link. The system frees the
lock however its host died, so an unlocked one is nobody's. Nothing outside is touched by removing: links are removed, not
followed, and a directory that its owner had closed against himself is opened first.

Not here: which session goes and when.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

import attrs
import msgspec
import trio

GONE = ".gone-"
"""Begins the name of what is being removed."""
_OURS = re.compile(r"[0-9a-f]{40}")
_OURS_GONE = re.compile(rf"{re.escape(GONE)}[0-9a-f]{{32}}")
_LOG = "proctor"


@attrs.define(eq=False)
class Folder:
    """One session's, held under its lock. `memory` has the CLIs' ids of the conversation, by CLI."""

    path: Path
    keep: bool
    lock: int
    memory: dict[str, str] = attrs.field(factory=dict[str, str])

    @property
    def files(self) -> Path:
        """The working directory."""
        return self.path / "files"

    def renew(self) -> None:
        """The working directory as it has to be: its last user may have removed it, or put a link in its place.

        Raises OSError.
        """
        for path in (self.path, self.files):
            path.mkdir(mode=0o700, exist_ok=True)
            _must_be_ours(path)

    def remember(self, family: str, conversation: str | None) -> None:
        """Note the id for this CLI, or none; on disk too, where it is to be kept."""
        if conversation is None:
            self.memory.pop(family, None)
        else:
            self.memory[family] = conversation
        if self.keep:
            with suppress(OSError):  # the directory is more than the conversation
                fresh = self.path / "memory.new"
                fresh.write_bytes(msgspec.json.encode(self.memory))
                fresh.replace(self.path / "memory.json")

    def unname(self) -> None:
        """Nobody finds it any more; its lock stays."""
        gone = self.path.with_name(f"{GONE}{secrets.token_hex(16)}")
        with suppress(OSError):  # somebody has taken it away
            self.path.rename(gone)
            self.path = gone

    def close(self) -> None:
        """Give the lock back. A second call does nothing."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def own(path: Path, *, keep: bool) -> Folder:
    """The session at `path`, made if need be, under its lock. Raises BlockingIOError when another host has it, OSError."""
    lock = -1
    while lock < 0:
        path.mkdir(mode=0o700, exist_ok=True)
        _must_be_ours(path)
        lock = _locked(path)
    try:
        if keep:
            (path / "keep").touch(mode=0o600)
        folder = Folder(path, keep, lock, _recalled(path / "memory.json"))
        folder.renew()
        return folder
    except OSError:
        os.close(lock)
        raise


def _must_be_ours(path: Path) -> None:
    found = path.lstat()
    if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(13, "it is no directory of ours", str(path))


def _locked(path: Path) -> int:
    """-1 when somebody removed it meanwhile. Raises BlockingIOError when it is held."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path / "lock"), os.fstat(lock)):
            return lock
    except FileNotFoundError:
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return -1


def _recalled(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


async def sweep(root: Path, ttl: float) -> None:
    """Make the root ours and remove what no host holds: what was being removed, what was not to be kept, and what was kept
    and touched by nobody for `ttl` seconds. Raises OSError when the root cannot be had."""
    _make_ours(root)
    for folder in _left(root, ttl):  # one lock at a time, and none when this is given up
        folder.unname()
        await discard(folder)


def _make_ours(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.geteuid():
        raise PermissionError(13, "it belongs to another user", str(root))
    root.chmod(0o700)


def _left(root: Path, ttl: float) -> Iterator[Folder]:
    probe = root / f"{GONE}{secrets.token_hex(16)}"
    probe.mkdir(mode=0o700)
    now = probe.lstat().st_mtime  # by the clock that the others were written by
    probe.rmdir()
    for path in [*root.iterdir()]:
        folder: Folder | None = None
        with suppress(OSError):  # its host lives, or somebody else removes it
            folder = _taken(path, now - ttl)
        if folder is not None:
            yield folder


def _taken(path: Path, since: float) -> Folder | None:
    """What nobody holds and nobody wants: a kept one, if it was touched by nobody `since` then. Raises OSError."""
    if _OURS_GONE.fullmatch(path.name):
        return Folder(path, keep=False, lock=-1)
    if not _is_session(path) or (lock := _locked(path)) < 0:
        return None
    folder = Folder(path, keep=False, lock=lock)
    try:
        wanted = (path / "keep").exists() and _touched(path) >= since
    except OSError:
        folder.close()
        raise
    if wanted:
        folder.close()
    return None if wanted else folder


def _is_session(path: Path) -> bool:
    """A directory of ours that has our lock, by its name one that we made: nothing else below a root is touched."""
    if not _OURS.fullmatch(path.name):
        return False
    found, lock = path.lstat(), path / "lock"
    return S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and lock.exists()


def _touched(path: Path) -> float:
    found = (path, *([files] if os.path.lexists(files := path / "files") else []))
    return max(one.lstat().st_mtime for one in found)


async def discard(folder: Folder) -> None:
    """Remove it, in a thread, and give its lock back. What cannot be removed is told to the log and stays."""
    try:
        if not await trio.to_thread.run_sync(_remove, folder.path):
            logging.getLogger(_LOG).warning("the session directory %s cannot be removed", folder.path)
    finally:
        folder.close()


def _remove(path: Path) -> bool:
    """Whether nothing is left."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        _open_up(path)
        shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_up(path: Path) -> None:
    """Directories that their owner may not write in, as package caches have them, cannot be emptied."""
    with suppress(OSError):
        path.chmod(0o700)
    for where, names, _ in os.walk(path):
        for below in [Path(where, name) for name in names if not Path(where, name).is_symlink()]:
            with suppress(OSError):
                below.chmod(0o700)
