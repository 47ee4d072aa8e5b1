"""The run of a fleet in its store: what a command continues, and what it begins anew.

A run begins with the prompts of the fleet file, and is over when its command ends by itself or by Ctrl-C; the next command begins a new
one. A host that is killed, or stopped by SIGTERM or SIGHUP as when its machine shuts down, leaves its run open, and the next
command continues it: no prompt that was sent is sent again, and each agent goes on in its conversation.
"""

from __future__ import annotations

import hashlib
import signal
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import attrs

from proctor.actors.agent.stored_requests import SESSION, TOTAL, cut_off, not_sent
from proctor.actors.limits.overrides import HOLD, STOPPED
from proctor.actors.recording.periodic import run_periodically
from proctor.actors.recording.retention import KEEP_SECONDS, PRUNE_INTERVAL
from proctor.actors.store.backend import StoreBackend, StoreError, StoreInUse, opened
from proctor.actors.store.ends import end_with_error
from proctor.actors.store.records import StoredRequest
from proctor.cli.recordings import state_directory

RUN = "run"
"""The fact, of no agent, that is the run that goes on."""
OF_A_RUN = frozenset((SESSION, TOTAL, HOLD, STOPPED))
"""The facts of agents that the next run begins without."""
_PROMPT = "prompt:"
"""What the keys of the prompts of a file begin with."""


@attrs.frozen
class FleetRun:
    """A run in `store`. `begun` is the local time at which it began, and its name; `is_continued`: another host has begun it."""

    store: StoreBackend
    begun: str
    is_continued: bool

    def key(self, prompt: str) -> str:
        """The key of a prompt of the file."""
        return f"{_PROMPT}{self.begun}:{hashlib.sha256(prompt.encode()).hexdigest()[:16]}"

    async def has_ended(self, agent: str, prompt: str) -> bool:
        """Whether the prompt had its end before. For a store that is open. Raises `StoreError`."""
        if not self.is_continued:  # then its key is new
            return False
        kept = await self.store.requests(agent=agent, key=self.key(prompt))
        return any(request.end is not None and request.holds_key for request in kept)

    async def prune_regularly(self) -> None:
        """Remove requests that ended longer ago than recordings are kept, now and every hour. For a store that is open."""

        async def look(now: float) -> None:
            with suppress(StoreError):  # a full disk is reported by what cannot be kept
                await self.store.prune(now - KEEP_SECONDS)

        await run_periodically(look, every=PRUNE_INTERVAL, wall=time.time)

    async def finish(self, first: signal.Signals | None) -> None:
        """End the run, so that the next command begins a new one, unless it was cut short: `first` is the signal that stopped its command,
        None for one that ended by itself. For a store that is closed. Raises `StoreError`."""
        if first in (None, signal.SIGINT):
            async with opened(self.store):
                await self.store.put("", RUN, None)


def store_path(fleet: str, file: Path) -> Path:
    """The store of a fleet, in `fleets` beside the recordings. Fleets of one name in two files have a store each."""
    place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]
    return state_directory().parent / "fleets" / f"{quote(fleet, safe=' ')}-{place}.db"


async def open_run(store: StoreBackend, *, fresh: bool) -> FleetRun:
    """Continue the run that an earlier host has left in `store`, or, with `fresh` or where there is none, begin one. The store is closed
    before and after. Raises `StoreError`."""
    async with opened(store):
        facts = await store.facts()
        left = None if fresh else facts.get("", {}).get(RUN)
        if left is None:
            # First, so that a host that dies in the midst of this leaves a run that is over.
            await store.put("", RUN, None)
            over = [(agent, name) for agent, named in facts.items() for name in OF_A_RUN & named.keys()]
            for agent, name in over:
                await store.put(agent, name, None)
        for request in await store.requests(open_only=True):
            # What was not sent of a run that goes on is asked again in it, with the whole of its time.
            is_over = request.key.startswith(_PROMPT) and (left is None or request.sent is None)
            if fresh or is_over:
                await store.end(request.id, end_with_error(_given_up(request)))
        begun = left or datetime.now().isoformat(" ", "milliseconds")  # as its user reads it
        await store.put("", RUN, begun)
    return FleetRun(store, begun, is_continued=left is not None)


def already_running(fleet: str, error: StoreError) -> str:
    """The line for a store that cannot be used, most often because another host has it."""
    if not isinstance(error, StoreInUse):
        return str(error)
    by = "" if error.pid is None else f" (process {error.pid})"
    return f"{fleet} is running already{by}: stop it first"


def _given_up(request: StoredRequest) -> Exception:
    if request.sent is not None:
        return cut_off(request, None)
    return not_sent(request, "its run was over before it was sent")
