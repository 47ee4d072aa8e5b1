"""The workspace of an agent: a directory that it may share with others, or a git worktree of its own.

A worktree is made at the agent's first start, on branch `proctor/NAME`, below the repository's git directory or in the
folder its owner names. It is kept over restarts. At the end it is removed if nothing is lost with it, and stays
otherwise, which a `Notice` tells with the place and the reason; the next agent of this name goes on in it.

One owner a name, also between hosts: a lock beside the worktree, held from the first start to the end. A host that was
killed has lost its locks, so what it left behind is found and gone on with.

When an agent's spec is dropped no code may wait, so the end of its worktree is pending: until the block around all agents of
a host (`clean_up_workspaces`) ends, or the next agent needs a worktree in it. Without such a
block the worktree stays. Not here: what may be removed (`worktrees`).
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, Protocol

import attrs
import trio

from proctor.actors.errors import BadOption, StartRefused
from proctor.actors.plan.worktrees import (
    GitRefused,
    Repository,
    locked,
    make,
    reason_to_stay,
    remove,
    repository_of,
)
from proctor.protocols.vocabulary import HOST, Notice
from proctor.runtime.processes import make_directory, open_private

WorkspaceKind = Literal["shared", "worktree"]
_NAME = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9_][A-Za-z0-9._-]*(?<!\.)")
CLEANUP_TIMEOUT = 30.0
"""Seconds at the end of a block for what its agents still owe; what is not settled then stays."""


def check_name(name: str) -> None:
    """Raises `BadOption` for an agent's name that no branch and no folder can have."""
    if not _NAME.fullmatch(name):
        raise BadOption(
            f"workspace 'worktree' needs a name of letters, digits, '.', '_' and '-' (it becomes the branch "
            f"proctor/NAME), got {name!r}"
        )


@attrs.define
class Workspace:
    """One agent's worktree. `cwd` is where the agent was to work; `folder` where worktrees are made, None: below the
    git directory. `place` is where it is, None before the first start."""

    name: str
    cwd: Path
    folder: Path | None = None
    place: Path | None = None
    _repository: Repository | None = None
    _lock: int = -1

    @property
    def branch(self) -> str:
        """The branch that is made with the worktree."""
        return f"proctor/{self.name}"

    async def enter(self) -> tuple[Path, Notice | None]:
        """The folder to work in, made now or found again, and a notice of that. A second call finds the same.

        Raises `StartRefused` when git, the repository, or somebody else stands in the way.
        """
        # The last agent of this name holds its lock until it is settled.
        await _settle(_pending.get())
        try:
            found, inner = await self._enter()
        except (GitRefused, OSError) as error:
            self._let_go()
            raise StartRefused(self.name, f"no worktree: {error}") from error
        if not found:
            return inner, None
        return inner, _notice("workspace_found", f"goes on in the worktree {self.place}", self)

    async def _enter(self) -> tuple[bool, Path]:
        repository = self._repository = self._repository or await repository_of(self.cwd)
        held = self._lock >= 0
        place = self._own(repository)
        async with locked(repository):
            found = await make(repository, self.cwd, place, self.branch)
        inner = place / repository.prefix
        if not await trio.Path(inner).is_dir():
            raise GitRefused(f"{self.cwd} is in no commit of its repository, so it is not in {place}")
        return found and not held, inner

    def _own(self, repository: Repository) -> Path:
        """Take the lock of this name, which is where the worktree will be."""
        folder = self.folder or repository.common / "proctor" / "worktrees"
        make_directory(folder, parents=True, exist_ok=True)
        self.place = folder.resolve() / self.name
        if self._lock < 0:
            lock = repository.common / "proctor" / f"{self.name}.lock"
            make_directory(lock.parent, exist_ok=True)
            self._lock = open_private(lock, os.O_RDWR)
            try:
                # held while the agent lives: two processes in one worktree would overwrite each other's files
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(self._lock, 20, 0).decode("ascii", "replace")
                raise GitRefused(f"an agent {self.name!r} of process {owner} works in it") from None
            # only under the lock: before it the pid in there is the owner's
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        return self.place

    async def look(self) -> Notice | None:
        """Why the worktree would stay if the agent ended now, as a notice; None when it would go."""
        if self.place is None or self._lock < 0:
            return None
        try:
            reason = await reason_to_stay(self.place, self.branch)
        except (GitRefused, OSError) as error:
            reason = str(error)
        return None if reason is None else self._stays(reason)

    def _stays(self, reason: str) -> Notice:
        return _notice("workspace_kept", f"the worktree {self.place} stays: {reason}", self)

    async def close(self) -> Notice | None:
        """The agent has ended for good: remove the worktree if nothing is lost, and say why not. Never raises."""
        if self.place is None or self._repository is None or self._lock < 0:
            return None
        try:
            async with locked(self._repository):
                reason = await remove(self._repository, self.place, self.branch)
        except OSError as error:
            reason = str(error)
        finally:
            # After the removal: until then no other agent may begin in it.
            self._let_go()
        return None if reason is None else self._stays(reason)

    def leave(self) -> None:
        """As `close`, without waiting: the block around all agents does it."""
        pending = _pending.get()
        if pending is None:
            # Without a block that waits git cannot be asked, so the worktree stays.
            self._let_go()
        elif self._lock >= 0:
            pending.append(self)

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class WorkspaceOptions(Protocol):
    """The part of a plan's workplace that is used here."""

    @property
    def cwd(self) -> Path | None: ...
    @property
    def workspace(self) -> WorkspaceKind: ...
    @property
    def worktrees(self) -> Path | None: ...


def workspace_of(name: str, where: WorkspaceOptions) -> Workspace | None:
    """The worktree of an agent that is to have one, not made yet; None for one that shares its folder."""
    if where.workspace == "shared":
        return None
    return Workspace(name, where.cwd or Path.cwd(), where.worktrees)


_pending: ContextVar[list[Workspace] | None] = ContextVar("proctor.workspaces", default=None)


@asynccontextmanager
async def clean_up_workspaces() -> AsyncGenerator[None]:
    """Settle what agents of the block leave behind when it ends. Within another such block nothing happens."""
    if _pending.get() is not None:
        yield
        return
    pending: list[Workspace] = []
    token = _pending.set(pending)
    try:
        yield
    finally:
        with suppress(ValueError):  # left in another context than it was entered in
            _pending.reset(token)
        # Shielded and bounded: what is not settled in this time stays for the next host.
        with trio.move_on_after(CLEANUP_TIMEOUT, shield=True):
            await _settle(pending)
        # Out of time: the locks go back, the worktrees stay.
        for workspace in pending:
            workspace.leave()


async def _settle(pending: list[Workspace] | None) -> None:
    while pending:
        # Taken out first: a cancellation in the midst must not settle it twice.
        workspace = pending.pop()
        await workspace.close()


def _notice(code: str, text: str, workspace: Workspace) -> Notice:
    return Notice(HOST, None, code, text, {"path": str(workspace.place), "branch": workspace.branch})
