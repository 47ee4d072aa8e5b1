"""Workspaces of a batch: a folder for each try, made anew, used by one agent, and thrown away.

A copy of a folder, a git worktree without a branch, or an empty folder. A file beside it says that it is whole and set up: what a kill
left without that file is removed and made again; with it, it is gone on with. Unlike the worktrees of agents (`plan.workspaces`) nothing in
it is kept for its own sake.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from proctor.actors.batch.tasks import BatchTask
from proctor.actors.plan.worktrees import GitRefused, git, locked, repository_of
from proctor.runtime.processes import make_directory, remove_tree


class WorkspaceRefused(Exception):
    """A workspace cannot be made; the text says why."""


@attrs.frozen
class BatchWorkspace:
    """The workspace of one try at `place`, for `task`. An agent with a folder of its own works there (`own`) on tasks that bring none."""

    task: BatchTask
    place: Path
    own: Path | None = None

    @property
    def _shared(self) -> Path | None:
        return self.own if self.task.files is None and self.task.repository is None else None

    @property
    def _mark(self) -> Path:
        return self.place.with_name(f"{self.place.name}.ready")

    @property
    def is_ready(self) -> bool:
        """Whether it is whole and set up."""
        return self._mark.is_file() and self.place.is_dir()

    def mark_ready(self) -> None:
        """Note that it is whole and set up."""
        self._mark.touch()

    async def make(self) -> Path:
        """Make it, in place of what a kill left of it, and return the folder to work in. Raises `WorkspaceRefused`."""
        await self.remove()
        try:
            make_directory(self.place.parent, parents=True, exist_ok=True)
            if self.task.repository is not None:
                await self._add_worktree(_path(self.task.repository))
            elif self.task.files is not None:
                copy = partial(shutil.copytree, _path(self.task.files), self.place, symlinks=True)
                await trio.to_thread.run_sync(copy)
            else:
                make_directory(self.place)
            return await self.folder()
        except (OSError, shutil.Error, GitRefused) as error:
            text = " ".join(str(error).split())
            raise WorkspaceRefused(f"no workspace for task {self.task.id!r}: {text[:500]}") from error

    async def folder(self) -> Path:
        """The folder to work in: in a worktree the one that the task's repository names."""
        if self._shared is not None:
            return self._shared
        if self.task.repository is None:
            return self.place
        return self.place / (await repository_of(_path(self.task.repository))).prefix

    async def _add_worktree(self, source: Path) -> None:
        repository = await repository_of(source)
        make_directory(repository.lock.parent, exist_ok=True)
        # git locks too little: two of its processes that add worktrees at once can fail
        async with locked(repository):
            await git(source, "worktree", "add", "--quiet", "--detach", str(self.place), self.task.commit)

    async def remove(self) -> None:
        """Remove it, with all that is in it. Never raises."""
        # the mark first: what is left of a removal that is cut off must not pass for whole
        self._mark.unlink(missing_ok=True)
        if not self.place.exists():
            return
        if self.task.repository is not None:
            with suppress(GitRefused, OSError):  # what git does not know as a worktree is a folder
                repository = await repository_of(_path(self.task.repository))
                async with locked(repository):
                    # twice: once for a worktree with changes, once for one that a kill left locked
                    await git(repository.common, "worktree", "remove", "--force", "--force", str(self.place))
        if self.place.exists():
            await trio.to_thread.run_sync(remove_tree, self.place)


def _path(text: str | Path) -> Path:
    return Path(text).expanduser().absolute()
