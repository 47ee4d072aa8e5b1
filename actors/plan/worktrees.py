"""A git worktree of one agent's own: made, found again, and removed only when nothing in it could be lost.

Guarantees: nothing that exists is written over. A worktree is removed only while the repository's lock is held, and
only when git itself calls it clean, no operation is half done in it, and each of its commits is on another branch, of
a remote or of this repository; its branch goes with it only if it still points where it was looked at. Whatever git
refuses, stays.

Ours is what git lists at our place and has our tag in its git directory. One without it was made by somebody else, or by
a version before the tag: on a branch of ours it is gone on with and never removed, on another it is refused. A worktree
whose making was cut short, which git and a note of ours say of it, held no agent yet and is made anew.

Not here: who owns a worktree and when it ends (`workspaces`); submodules, which git does not remove; what is ignored by
git, which goes with the worktree.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from proctor.actors.disk import replace_file
from proctor.runtime.processes import is_tagged, make_directory, open_private, tag_folder

WORKTREE = "proctor-worktree"
"""The kind in the tag of a worktree's git directory."""
# what a hook or an alias leaves in the environment would point git at another repository
_MISLEADING = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
        *("GIT_NAMESPACE", "GIT_PREFIX", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES"),
    }
)
_HALF_DONE = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
_LOCK_POLL = 0.05


class GitRefused(Exception):
    """git is missing, failed, or found something else than what was asked for; the text says which and why."""


@attrs.frozen
class Repository:
    """`common` is the git directory that all its worktrees share, `prefix` the way from its top to where we stood."""

    common: Path
    prefix: str

    @property
    def lock(self) -> Path:
        """Held while worktrees are made, looked at and removed."""
        return self.common / "proctor" / "lock"

    def begun(self, place: Path) -> Path:
        """There while the worktree at `place` is being made: it holds that place."""
        return self.common / "proctor" / f"{place.name}.begun"


@attrs.frozen
class Entry:
    """One worktree as git lists it: where, on which branch (None: detached), and whether its making was cut short."""

    path: Path
    branch: str | None
    unfinished: bool


async def git(folder: Path, *words: str) -> str:
    """The output of `git WORDS` in `folder`, without the last newline. Raises `GitRefused` with the text of git."""
    env = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    try:
        done = await trio.run_process(
            ["git", *words],
            cwd=folder,
            # Its messages are read, so not in the user's language; and no prompt, or git would wait at a
            # terminal.
            env={**env, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    except OSError as error:
        raise GitRefused(f"git cannot be run: {error.strerror or error}") from error
    if done.returncode != 0:
        output = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise GitRefused(output or f"git {words[0]} ended with status {done.returncode}")
    return os.fsdecode(done.stdout).removesuffix("\n")


async def repository_of(folder: Path) -> Repository:
    """The repository that `folder` works in. Raises `GitRefused` where there is none, or none with a commit."""
    if await git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        raise GitRefused(f"{folder} is in a bare repository, or in the git directory of one")
    common = await git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    try:
        await git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitRefused:
        raise GitRefused(f"the repository of {folder} has no commit yet to begin at") from None
    return Repository(Path(common), await git(folder, "rev-parse", "--show-prefix"))


@asynccontextmanager
async def locked(repository: Repository) -> AsyncGenerator[None]:
    """The block has the repository's worktrees for itself, also before other hosts."""
    make_directory(repository.lock.parent, exist_ok=True)
    fd = open_private(repository.lock, os.O_RDWR)
    try:
        # Polled: a lock has no event for its end, and a blocking call in a thread could not be cancelled.
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(_LOCK_POLL)
        yield
    finally:
        os.close(fd)


async def list_worktrees(folder: Path) -> Mapping[Path, Entry]:
    """Every worktree of the repository that `folder` is in, by its place."""
    found: dict[Path, Entry] = {}
    for block in (await git(folder, "worktree", "list", "--porcelain", "-z")).split("\0\0"):
        facts: dict[str, str] = {}
        for line in block.split("\0"):
            word, _, rest = line.partition(" ")
            facts[word] = rest
        if "worktree" in facts:
            path, branch = Path(facts["worktree"]), facts.get("branch")
            name = None if branch is None else branch.removeprefix("refs/heads/")
            # git locks a worktree with this word while it makes it: a host was killed in the midst.
            found[path] = Entry(path, name, facts.get("locked") == "initializing")
    return found


async def make(repository: Repository, folder: Path, place: Path, branch: str) -> bool:
    """The worktree at `place`; the caller holds the lock. True when it was there already, and is ours as it is.

    A branch of this name that no worktree has is gone on with, else it begins at the HEAD of `folder`. Raises
    `GitRefused` when something else is there, and OSError.
    """
    begun = repository.begun(place)
    ours = begun.is_file() and begun.read_text() == str(place)
    entry = (await list_worktrees(folder)).get(place)
    if entry is not None and entry.unfinished:
        if not ours:
            raise GitRefused(f"the worktree {place} is not finished, and somebody else is making it")
        # Twice: once for a worktree with changes, once for a locked one.
        await git(folder, "worktree", "remove", "--force", "--force", str(place))
        entry = None
    there = await trio.Path(place).exists()
    if entry is not None and there:
        if ours:  # a host died between making and tagging it
            await _tag(place, begun)
        elif entry.branch != branch and not await _is_ours(place):
            raise GitRefused(f"{place} is a worktree that proctor did not make")
        return True
    if there:
        raise GitRefused(f"{place} is there and is no worktree of this repository")
    if entry is not None and entry.branch not in (branch, None):
        raise GitRefused(f"{place} is a worktree on {entry.branch}, its folder is gone: git worktree prune")
    # the note comes first: what is there after a kill is ours by it
    replace_file(begun, str(place).encode())
    try:
        await _add(folder, place, branch, again=entry is not None)
    except GitRefused:
        # Nothing was made: the note would claim the place of a worktree that another makes.
        begun.unlink(missing_ok=True)
        raise
    await _tag(place, begun)
    return False


async def _add(folder: Path, place: Path, branch: str, *, again: bool) -> None:
    """`again`: it is listed, but its folder was removed by hand."""
    known = await git(folder, "for-each-ref", "--format=%(refname)", f"refs/heads/{branch}")
    begin = (str(place), branch) if known else ("-b", branch, str(place), "HEAD")
    if again and any(e.branch == branch and p != place for p, e in (await list_worktrees(folder)).items()):
        raise GitRefused(f"branch {branch} is in use by another worktree")
    await git(folder, "worktree", "add", "--quiet", *(("--force",) if again else ()), *begin)


async def _tag(place: Path, begun: Path) -> None:
    tag_folder(await _git_directory(place), WORKTREE, str(place))
    await trio.Path(begun).unlink(missing_ok=True)


async def _is_ours(place: Path) -> bool:
    return is_tagged(await _git_directory(place), WORKTREE, str(place))


async def _git_directory(place: Path) -> Path:
    """The worktree's own: it goes with the worktree, and so does the tag in it."""
    return Path(await git(place, "rev-parse", "--path-format=absolute", "--git-dir"))


async def reason_to_stay(place: Path, branch: str) -> str | None:
    """The reason to keep the worktree: what would be lost with it; None when nothing would. Raises `GitRefused`."""
    changed = (await git(place, "status", "--porcelain", "--untracked-files=all")).splitlines()
    if changed:
        return f"{len(changed)} file{'s' if len(changed) > 1 else ''} changed or new and not committed"
    own = await _git_directory(place)
    if not is_tagged(own, WORKTREE, str(place)):
        return f"it has no tag of proctor; git worktree remove {place} removes it"
    for name in _HALF_DONE:
        if (own / name).exists():
            return f"an operation of git is half done ({name})"
    tips = [
        "HEAD",
        *(await git(place, "for-each-ref", "--format=%(refname)", f"refs/heads/{branch}")).split(),
    ]
    # The own branch goes with the worktree, so commits on it alone would be lost.
    others = ("--not", f"--exclude={branch}", "--branches", "--remotes")
    alone = (await git(place, "rev-list", *tips, *others)).split()
    if alone:
        return f"{len(alone)} commit{'s' if len(alone) > 1 else ''} on no other branch"
    return None


async def remove(repository: Repository, place: Path, branch: str) -> str | None:
    """Remove the worktree and its branch if nothing is lost; else why not. The caller holds the lock."""
    folder = repository.common
    try:
        if (await list_worktrees(folder)).get(place) is None:
            return f"git does not know {place} as a worktree any more"
        if reason := await reason_to_stay(place, branch):
            return reason
        # Read before the removal: the branch goes only if it still points there.
        tip = await git(folder, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
        await git(folder, "worktree", "remove", str(place))
        if tip:
            await git(folder, "update-ref", "-d", f"refs/heads/{branch}", tip)
    except GitRefused as error:
        return str(error)
    return None
