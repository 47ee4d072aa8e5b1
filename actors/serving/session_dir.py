"""Session directories on disk: made or found, locked, tagged and removed. `sessions` shows their layout.

Only a real directory directly below the root with our tag is a session; a link never is. The kernel frees the lock when its host
dies, so an unlocked one has no owner.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import attrs
import msgspec
import trio

from proctor.actors.disk import replace_file
from proctor.runtime.processes import (
    is_own_directory,
    is_tagged,
    make_directory,
    open_private,
    remove_tree,
    tag_folder,
    tag_of,
)

SESSION = "proctor-session"
"""The kind in the tag of a session's directory."""
KEPT_TTL = 30 * 86400.0
"""Seconds for which a kept session stays by default after its last use."""
GONE = ".gone-"
"""The beginning of the name of a directory that is being removed."""
_OURS = re.compile(r"[0-9a-f]{40}")
_OURS_GONE = re.compile(rf"{re.escape(GONE)}[0-9a-f]{{32}}")
_LOG = "proctor"


T = TypeVar("T")


@attrs.define(eq=False)
class SessionDir:
    """The directory of one session, under its lock. `keep`: seconds for which it stays after its last use, None if it ends with
    its host. `memory` has the ids of the conversation, by CLI; `costs` the cost of each conversation so far (US dollars)."""

    path: Path
    keep: float | None
    lock: int
    memory: dict[str, str] = attrs.field(factory=dict[str, str])
    costs: dict[str, float] = attrs.field(factory=dict[str, float])

    @property
    def files(self) -> Path:
        """The working directory."""
        return self.path / "files"

    def renew(self) -> None:
        """Make the working directory again: its last user may have removed it, or put a link in its place. Raises OSError."""
        for path in (self.path, self.files):
            make_directory(path, exist_ok=True)
            _must_be_ours(path)

    def remember(self, family: str, conversation: str | None, total_usd: float | None = None) -> None:
        """Record the id for this CLI, or none, and its cost so far if that is known; also on disk if it is kept."""
        if conversation is None:
            self.memory.pop(family, None)
        else:
            self.memory[family] = conversation
            if total_usd is not None:
                self.costs[conversation] = total_usd
        self.costs = {id: usd for id, usd in self.costs.items() if id in self.memory.values()}
        if self.keep is not None:
            with suppress(OSError):  # the files in the directory are still of use
                replace_file(self.path / "memory.json", msgspec.json.encode(self.memory))
                replace_file(self.path / "costs.json", msgspec.json.encode(self.costs))

    def unname(self) -> None:
        """Rename it, so that it is not found any more; its lock stays."""
        gone = self.path.with_name(f"{GONE}{secrets.token_hex(16)}")
        with suppress(OSError):  # it was removed meanwhile
            self.path.rename(gone)
            self.path = gone

    def close(self) -> None:
        """Release the lock; the time to live of a kept session begins now. A second call does nothing."""
        if self.lock >= 0:
            # Before the lock is free: a sweep judges by this time.
            if self.keep is not None:
                with suppress(OSError):
                    os.utime(self.path)
            os.close(self.lock)
            self.lock = -1


def own(path: Path, *, keep: float | None) -> SessionDir:
    """Lock the session at `path`, and make it if necessary. Raises BlockingIOError when another host has it, OSError."""
    lock = -1
    # A sweep may remove the directory between its making and its lock; then it is made again.
    while lock < 0:
        make_directory(path, exist_ok=True)
        _must_be_ours(path)
        lock = _locked(path)
    try:
        # under the lock: a sweep may remove a directory that has a tag and a free lock
        if not is_tagged(path, SESSION, path.name):
            tag_folder(path, SESSION, path.name)
        if keep is not None:
            replace_file(path / "keep", str(keep).encode())
        memory = _recalled(path / "memory.json", dict[str, str])
        folder = SessionDir(path, keep, lock, memory, _recalled(path / "costs.json", dict[str, float]))
        folder.renew()
        return folder
    except OSError:
        os.close(lock)
        raise


def _must_be_ours(path: Path) -> None:
    if not is_own_directory(path):
        raise PermissionError(13, "it is no directory of ours", str(path))


def _locked(path: Path) -> int:
    """The descriptor of its lock, -1 when it was removed meanwhile. Raises BlockingIOError when it is held."""
    try:
        lock = open_private(path / "lock", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The file may have been replaced since it was opened: only the lock on the present one keeps others
        # out.
        if os.path.samestat(os.stat(path / "lock"), os.fstat(lock)):
            return lock
    except FileNotFoundError:
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return -1


def _recalled(path: Path, kind: type[dict[str, T]]) -> dict[str, T]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return {}


async def sweep(root: Path, ttl: float | None = None) -> None:
    """Make the root and remove the sessions without a host: rests of a removal, those that are not kept, and those that were not
    used for `ttl` seconds (None: for their own time). Raises OSError when the root cannot be used."""
    _make_ours(root)
    for folder in _left(root, ttl):  # one lock at a time, and none when this is cancelled
        folder.unname()
        await discard(folder)


def _make_ours(root: Path) -> None:
    make_directory(root, parents=True, exist_ok=True)
    if root.stat().st_uid != os.geteuid():
        raise PermissionError(13, "it belongs to another user", str(root))
    root.chmod(0o700)


def _left(root: Path, ttl: float | None) -> Iterator[SessionDir]:
    probe = root / f"{GONE}{secrets.token_hex(16)}"
    make_directory(probe)
    now = probe.lstat().st_mtime  # by the clock of the file system, as the times of the others
    probe.rmdir()
    for path in [*root.iterdir()]:
        folder: SessionDir | None = None
        with suppress(OSError):  # its host lives, or another host removes it
            folder = _taken(path, now, ttl)
        if folder is not None:
            yield folder


def _taken(path: Path, now: float, ttl: float | None) -> SessionDir | None:
    """Lock a directory that is to be removed: unused, and if kept, older than its time. Raises OSError."""
    if _OURS_GONE.fullmatch(path.name):
        return SessionDir(path, keep=None, lock=-1) if _is_remainder(path) else None
    if not _is_session(path) or (lock := _locked(path)) < 0:
        return None
    folder = SessionDir(path, keep=None, lock=lock)
    try:
        in_time = now - _touched(path) <= _time_to_live(path, ttl)
    except OSError:
        folder.close()
        raise
    if in_time:
        folder.close()
    return None if in_time else folder


def _is_session(path: Path) -> bool:
    """Whether it is a session by its name, its tag and its lock: nothing else below a root is touched."""
    return (
        bool(_OURS.fullmatch(path.name)) and is_tagged(path, SESSION, path.name) and (path / "lock").exists()
    )


def _is_remainder(path: Path) -> bool:
    """Whether it is the rest of a removal that was cut short: the tag is removed last, then the directory is empty."""
    if path.is_symlink() or tag_of(path, SESSION) is not None:
        return True
    return is_own_directory(path) and not any(path.iterdir())


def _time_to_live(path: Path, ttl: float | None) -> float:
    """Its time to live in seconds, -inf if it is not kept."""
    try:
        kept = (path / "keep").read_text()
    except FileNotFoundError:
        return -math.inf
    if ttl is not None:
        return ttl
    try:
        return float(kept)
    except ValueError:  # an older version wrote an empty file
        return KEPT_TTL


def _touched(path: Path) -> float:
    found = (path, *([files] if os.path.lexists(files := path / "files") else []))
    return max(one.lstat().st_mtime for one in found)


async def discard(folder: SessionDir) -> None:
    """Remove it, in a thread, and release its lock. A directory that cannot be removed is logged and stays."""
    try:
        if not await trio.to_thread.run_sync(remove_tree, folder.path):
            logging.getLogger(_LOG).warning("the session directory %s cannot be removed", folder.path)
    finally:
        # The lock last: until then no other host takes a directory that is half removed.
        folder.close()
