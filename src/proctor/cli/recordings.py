"""Where runs are recorded unless told otherwise, and making room there and beside."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import trio

from proctor.actors.recording import forget, prune


def state_directory() -> Path:
    """`$XDG_STATE_HOME/proctor/runs` on Linux, `~/.local/state` where that is not set."""
    from platformdirs import user_state_path

    return user_state_path("proctor") / "runs"


async def make_room(root: Path | None) -> None:
    """Remove the oldest recordings beyond the bounds; a failure to is no reason to fail."""
    if root is not None:
        with suppress(OSError):
            await trio.to_thread.run_sync(_make_room, root, abandon_on_cancel=True)


def _make_room(root: Path) -> None:
    prune(root)
    forget(state_directory().parent / "scripted")
