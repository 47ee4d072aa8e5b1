"""The ledger of this host in the user's state folder, and the removal of what earlier hosts left: processes and temporary folders.

Each entry point that starts agents opens it: a command, `open_supervisor`, a run without a tree; a nested call does nothing. A
ledger that cannot be written does not keep agents from starting: `proctor doctor` says why.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from proctor.actors.plan.workspaces import clean_up_workspaces
from proctor.runtime.processes import Orphan, Swept, current_ledger, is_own_directory, open_ledger

Report = Callable[[str], Awaitable[None]]
SWEEP_TIMEOUT = 5.0
"""Seconds a start waits for what does not die."""
_MAX_LISTED = 5


async def _no_report(text: str) -> None: ...


def hosts_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`hosts` in the state folder; a relative `XDG_STATE_HOME` is no value, as its standard has it. Raises OSError as
    `state_folder`."""
    environ = os.environ if environ is None else environ
    if os.path.isabs(named := environ.get("XDG_STATE_HOME", "")):
        return Path(named, "proctor", "hosts")
    return state_folder(Path(os.path.expanduser("~/.local/state")) / "proctor") / "hosts"


def state_folder(usual: Path | None) -> Path:
    """The `usual` state folder; where there is no home, or none that can be written, one of this user's own among the
    temporary folders, which is made. Raises OSError when that is not ours."""
    if usual is not None and usual.is_absolute() and _can_be_written(usual):
        return usual
    folder = Path(tempfile.gettempdir(), f"proctor-{os.getuid()}")
    # its name can be guessed and the temporary folder is everybody's, hence the check of the owner behind it
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_own_directory(folder):
        raise PermissionError(errno.EPERM, "it belongs to another user; set XDG_STATE_HOME", str(folder))
    return folder


def _can_be_written(folder: Path) -> bool:
    """Or made, in the nearest folder above that is there."""
    there = next(above for above in (folder, *folder.parents) if os.path.lexists(above))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


@asynccontextmanager
async def track_processes(report: Report = _no_report) -> AsyncGenerator[None]:
    """Kill what earlier hosts have left; then note every process that is opened in the block. `report` gets a line when
    something was found."""
    async with AsyncExitStack() as stack:
        # entered first, so left last: until then a worktree may still be in use
        await stack.enter_async_context(clean_up_workspaces())
        for line in await _opened(stack):
            await report(line)
        yield


async def _opened(stack: AsyncExitStack) -> Sequence[str]:
    # A nested call: the ledger around this one notes all that is started here.
    if current_ledger() is not None:
        return []
    try:
        ledger = await stack.enter_async_context(open_ledger(hosts_folder()))
        return list(describe_sweep(await ledger.sweep(limit=SWEEP_TIMEOUT)))
    except OSError:
        # Not fatal: agents run without a ledger, and `proctor doctor` says why there is none.
        return []


def describe_sweep(swept: Swept) -> Iterator[str]:
    """A sweep in lines for a person; none when nothing was found."""
    if swept.killed:
        yield f"killed {_several(swept.killed)} that an earlier run had left: {_names(swept.killed)}"
    if swept.left:
        yield f"an earlier run has left {_several(swept.left)} that could not be killed: {_names(swept.left)}"
    if swept.folders:
        yield f"removed {_folders(swept.folders)} that an earlier run had left: {_paths(swept.folders)}"
    if swept.folders_left:
        kept = _folders(swept.folders_left)
        yield f"an earlier run has left {kept} that could not be removed: {_paths(swept.folders_left)}"
    if not swept.sure:
        why = "" if swept.cause is None else f" ({swept.cause})"
        yield f"could not check everything that an earlier run left{why}; the next start checks again"


def _several(orphans: Sequence[Orphan]) -> str:
    return "a process" if len(orphans) == 1 else f"{len(orphans)} processes"


def _names(orphans: Sequence[Orphan]) -> str:
    more = f", and {len(orphans) - _MAX_LISTED} more" if len(orphans) > _MAX_LISTED else ""
    return ", ".join(map(str, orphans[:_MAX_LISTED])) + more


def _folders(paths: Sequence[Path]) -> str:
    return "a temporary folder" if len(paths) == 1 else f"{len(paths)} temporary folders"


def _paths(paths: Sequence[Path]) -> str:
    more = f", and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
    return ", ".join(map(str, paths[:_MAX_LISTED])) + more
