"""The state folder of the command line: recordings and their retention, sockets, account books."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import trio

from proctor.actors.errors import BadOption, RecordingFailed
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.process.orphans import state_folder
from proctor.actors.recording.retention import PRUNE_INTERVAL, prune, prune_regularly, remove_old_files
from proctor.actors.web_server.listening import Endpoint
from proctor.cli.parameters import RunOptions, ServeOptions
from proctor.runtime.processes import is_own_directory, make_directory


def state_directory() -> Path:
    """The folder of recordings: `$XDG_STATE_HOME/proctor/runs`, with `~/.local/state` as the default.

    Without a home directory it is in the temporary folder. Raises `RecordingFailed`.
    """
    from platformdirs import user_state_path

    try:
        usual = user_state_path("proctor")
    except RuntimeError:  # no HOME, and a user whom the system does not know
        usual = None
    try:
        # a folder that the user named is taken as it is; only the default falls back to the temporary folder
        return (usual if usual and os.environ.get("XDG_STATE_HOME") else state_folder(usual)) / "runs"
    except OSError as error:
        raise RecordingFailed(None if error.filename is None else str(error.filename), error) from error


def record_folder(options: RunOptions | ServeOptions) -> Path | None:
    """The folder of recordings that a command's flags name; None: none are kept."""
    if options.no_record:
        return None
    return state_directory() if options.record is None else Path(options.record)


def own_socket(fleet: str) -> Endpoint:
    """The default Unix socket of a fleet: `FLEET.sock` in `$XDG_RUNTIME_DIR/proctor`, else in `run` beside the recordings.

    Creates the folder. Raises `BadOption` when that fails.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime, "proctor") if runtime else state_directory().parent / "run"
    try:
        make_directory(folder, parents=True, exist_ok=True)
        own = is_own_directory(folder)
    except OSError as error:
        raise BadOption(
            f"{folder} cannot be made: {error.strerror}; set XDG_RUNTIME_DIR to a folder of yours"
        ) from error
    # in a folder of another user our socket could be replaced by theirs, and get our clients' prompts
    if not own:
        raise BadOption(f"{folder} belongs to another user; set XDG_RUNTIME_DIR to a folder of yours")
    return Endpoint(path=str(folder.absolute() / f"{quote(fleet, safe=' ')}.sock"))


def account_book(fleet: str) -> AccountBook:
    """The account book of a fleet. Its file is beside the recordings, named after the fleet."""
    return AccountBook(state_directory().parent / "budgets" / f"{quote(fleet, safe=' ')}.json")


async def make_room(root: Path | None) -> None:
    """Remove the oldest recordings beyond the limits. A failure to remove is ignored."""
    if root is not None:
        with suppress(OSError):
            # in a thread: thousands of recordings take seconds to look through, and Ctrl-C need not wait for
            # them
            await trio.to_thread.run_sync(_make_room, root, abandon_on_cancel=True)


async def keep_room(root: Path | None) -> None:
    """Remove the oldest recordings now, and every hour while the command runs."""
    if root is not None:
        await make_room(root)
        await trio.sleep(PRUNE_INTERVAL)
        await prune_regularly(root)


def _make_room(root: Path) -> None:
    prune(root)
    remove_old_files(state_directory().parent / "scripted")
