"""A lock for each session id, so that no two agents of this machine use one session.

    FOLDER/                 0700, beside the ledgers of the hosts
        KEY.lock            locked with flock while a session is in use; names its owner

The system frees the lock however its owner died. Without a writable state folder agents run without locks, and `proctor doctor`
says why. Not handled: a CLI that a user started by hand; homes that two machines share.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from proctor.actors.errors import SessionOwned
from proctor.actors.plan.account_id import session_key
from proctor.actors.plan.plan import Plan
from proctor.actors.process.orphans import hosts_folder
from proctor.runtime.processes import make_directory, open_private


def sessions_folder() -> Path:
    """Beside the hosts' ledgers. Raises FileNotFoundError where there is no home."""
    return hosts_folder().parent / "sessions"


class SessionLock:
    """At most one session, for `agent`. `key` makes a file's name of an id."""

    def __init__(
        self, agent: str, key: Callable[[str], str], folder: Callable[[], Path] = sessions_folder
    ) -> None:
        self.session: str | None = None
        self._agent = agent
        self._key = key
        self._folder = folder
        self._fd = -1
        self._path: Path | None = None

    def acquire(self, session: str) -> None:
        """Own this session, and no other any more. Raises `SessionOwned`, and keeps what it had."""
        if session == self.session:
            return
        try:
            path = self._folder() / f"{self._key(session)}.lock"
            make_directory(path.parent, parents=True, exist_ok=True)
            fd = self._acquire_file(path, session)
        except OSError:
            # Without a folder there are no locks, and an agent works all the same.
            path, fd = None, -1
        # Only now: a refusal above leaves it what it had.
        self.release()
        self.session, self._path, self._fd = session, path, fd

    def release(self) -> None:
        """Own nothing. A second call does nothing."""
        if self._fd >= 0:
            try:
                # Unlinked while it is locked: afterwards the name may be the next owner's file.
                if self._path is not None:
                    self._path.unlink(missing_ok=True)
            except OSError:  # it stays, unlocked, and is the next owner's
                pass
            os.close(self._fd)
        self.session, self._path, self._fd = None, None, -1

    def _acquire_file(self, path: Path, session: str) -> int:
        while True:
            fd = open_private(path, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner may have unlinked the file between our open and our lock: that lock would
                # keep out no one.
                if os.fstat(fd).st_nlink:
                    self._write_owner(fd)
                    return fd
                os.close(fd)
            except BlockingIOError:
                owner = _owner(fd)
                os.close(fd)
                raise SessionOwned(self._agent, session, *owner) from None
            except OSError:
                os.close(fd)
                raise

    def _write_owner(self, fd: int) -> None:
        # A shorter entry would leave the end of the last owner's behind it.
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(_Owner(os.getpid(), self._agent)), 0)


@asynccontextmanager
async def hold_session(plan: Plan) -> AsyncGenerator[None]:
    """Own the session that this plan goes on with, if any, for the length of the block. Raises `SessionOwned`."""
    lock = SessionLock(plan.name, partial(session_key, plan))
    if plan.launch.resume is not None and not plan.launch.fork:
        lock.acquire(plan.launch.resume)
    try:
        yield
    finally:
        lock.release()


class _Owner(msgspec.Struct, frozen=True):
    pid: int = 0
    agent: str = ""


def _owner(fd: int) -> tuple[int | None, str | None]:
    """The owner's pid and agent as it wrote them, None each while it has not written yet."""
    try:
        owner = msgspec.json.decode(os.pread(fd, 4096, 0), type=_Owner)
    except (OSError, msgspec.DecodeError):
        # locking and writing are two steps of the owner, and this may be read between them
        return None, None
    return owner.pid, owner.agent
