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
"""Seconds that a kept session is kept by default after its last use."""
GONE = ".gone-"
"""Begins the name of what is being removed."""
_OURS = re.compile(r"[0-9a-f]{40}")
_OURS_GONE = re.compile(rf"{re.escape(GONE)}[0-9a-f]{{32}}")
_LOG = "proctor"


T = TypeVar("T")


@attrs.define(eq=False)
class SessionDir:
    """One session's, held under its lock. `keep`: seconds that it stays after its last use, None where it goes with its
    host. `memory` has the CLIs' ids of the conversation, by CLI; `costs` what each conversation has cost (US dollars)."""

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
        """The working directory as it has to be: its last user may have removed it, or put a link in its place.

        Raises OSError.
        """
        for path in (self.path, self.files):
            make_directory(path, exist_ok=True)
            _must_be_ours(path)

    def remember(self, family: str, conversation: str | None, total_usd: float | None = None) -> None:
        """Note the id for this CLI, or none, and what it has cost so far, where that is known; on disk too, where it is to be
        kept."""
        if conversation is None:
            self.memory.pop(family, None)
        else:
            self.memory[family] = conversation
            if total_usd is not None:
                self.costs[conversation] = total_usd
        self.costs = {id: usd for id, usd in self.costs.items() if id in self.memory.values()}
        if self.keep is not None:
            with suppress(OSError):  # the directory is more than the conversation
                replace_file(self.path / "memory.json", msgspec.json.encode(self.memory))
                replace_file(self.path / "costs.json", msgspec.json.encode(self.costs))

    def unname(self) -> None:
        """Nobody finds it any more; its lock stays."""
        gone = self.path.with_name(f"{GONE}{secrets.token_hex(16)}")
        with suppress(OSError):  # somebody has taken it away
            self.path.rename(gone)
            self.path = gone

    def close(self) -> None:
        """Give the lock back; the time to live of a kept one begins now. A second call does nothing."""
        if self.lock >= 0:
            if self.keep is not None:
                with suppress(OSError):
                    os.utime(self.path)
            os.close(self.lock)
            self.lock = -1


def own(path: Path, *, keep: float | None) -> SessionDir:
    """The session at `path`, made if need be, under its lock. Raises BlockingIOError when another host has it, OSError."""
    lock = -1
    while lock < 0:
        make_directory(path, exist_ok=True)
        _must_be_ours(path)
        lock = _locked(path)
    try:
        # under the lock: what has a tag and a free lock may be removed by a sweep
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
    """-1 when somebody removed it meanwhile. Raises BlockingIOError when it is held."""
    try:
        lock = open_private(path / "lock", os.O_RDWR | os.O_NOFOLLOW)
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


def _recalled(path: Path, kind: type[dict[str, T]]) -> dict[str, T]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return {}


async def sweep(root: Path, ttl: float | None = None) -> None:
    """Make the root ours and remove what no host holds: what was being removed, what was not to be kept, and what was kept
    and not used for `ttl` seconds (None: for the time that it was kept with). Raises OSError when the root cannot be had."""
    _make_ours(root)
    for folder in _left(root, ttl):  # one lock at a time, and none when this is given up
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
    now = probe.lstat().st_mtime  # by the clock that the others were written by
    probe.rmdir()
    for path in [*root.iterdir()]:
        folder: SessionDir | None = None
        with suppress(OSError):  # its host lives, or somebody else removes it
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
    """A directory of ours by its name, its tag and its lock: nothing else below a root is touched."""
    return (
        bool(_OURS.fullmatch(path.name)) and is_tagged(path, SESSION, path.name) and (path / "lock").exists()
    )


def _is_remainder(path: Path) -> bool:
    """What a removal has left that was cut short: the tag goes last, then nothing is in it."""
    if path.is_symlink() or tag_of(path, SESSION) is not None:
        return True
    return is_own_directory(path) and not any(path.iterdir())


def _time_to_live(path: Path, ttl: float | None) -> float:
    """-inf where it is not to be kept."""
    try:
        kept = (path / "keep").read_text()
    except FileNotFoundError:
        return -math.inf
    if ttl is not None:
        return ttl
    try:
        return float(kept)
    except ValueError:  # of a version that wrote nothing in it
        return KEPT_TTL


def _touched(path: Path) -> float:
    found = (path, *([files] if os.path.lexists(files := path / "files") else []))
    return max(one.lstat().st_mtime for one in found)


async def discard(folder: SessionDir) -> None:
    """Remove it, in a thread, and give its lock back. What cannot be removed is logged and stays."""
    try:
        if not await trio.to_thread.run_sync(remove_tree, folder.path):
            logging.getLogger(_LOG).warning("the session directory %s cannot be removed", folder.path)
    finally:
        folder.close()
