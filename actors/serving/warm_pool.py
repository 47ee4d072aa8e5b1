"""Processes that are started and greeted before anybody asks, each for one request (R126, L14).

    starting ─ready→ idle ─taken→ at work ─given back→ gone        an idle one that dies, or makes room, is gone too

Guarantees: each is handed out once, and only while it is alive as far as can be seen; one that dies unseen takes no prompt
and is known by that. Each holds a place from before its start until its processes are gone. There are never more than asked
for; a gap is filled one process after the other, when a place is free that nobody waits for. Nothing is started on the way
from the asking to the prompt: one that is handed out leaves its gap when it has had its prompt for `BEGINNING`, because a
start takes a core, and for some milliseconds this one.

What fails in a row is put off, from 0.1 s up to 30 s, and after ten failures told to the log once (L13). A process that died
idle has failed too, one that was put to use ends the row. They end with the task that serves them.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import AbstractAsyncContextManager

import trio
from trio_util import RepeatedEvent, wait_any

from proctor.actors.errors import AgentError
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import Run, open_run
from proctor.actors.serving.slots import Place, Places
from proctor.runtime.processes.process_errors import ProcessError
from proctor.runtime.spec import Backoff
from proctor.runtime.supervision.backoff import delay

BACKOFF = Backoff(min_delay=0.1, max_delay=30.0, jitter=0.0)
ROW = 10
"""Failures in a row after which somebody is told."""
BEGINNING = 0.1
"""Seconds that one has for itself after its prompt."""
LOG = "proctor"


class Ready:
    """A process for one request; `gone` when its processes are."""

    def __init__(self, live: Run) -> None:
        self.live = live
        self.taken = False
        self.dismissed = trio.Event()
        self.gone = trio.Event()

    def dismiss(self) -> None:
        """It is not needed any more: it goes down its ladder."""
        self.live.leave()
        self.dismissed.set()

    async def give_back(self) -> None:
        """Its user is done: wait until it is gone, also when cancelled."""
        self.dismiss()
        with trio.CancelScope(shield=True):
            await self.gone.wait()


class Stock:
    """`count` processes of `plan` kept ready in `places`; each starts within a block of `starts`."""

    def __init__(
        self, plan: Plan, count: int, places: Places, starts: AbstractAsyncContextManager[object]
    ) -> None:
        self.plan = plan
        self.count = count
        self.idle: deque[Ready] = deque()
        self._handed: set[Ready] = set()
        self._places = places
        self._starts = starts
        self._row = 0
        self._changed = RepeatedEvent()

    def take(self) -> Ready | None:
        """A process that is alive, handed out; those found dead are put aside. None when there is none."""
        while self.idle:
            ready = self.idle.popleft()
            if ready.live.is_fit():
                ready.taken = ready.live.lent = True
                self._handed.add(ready)
                self._row = 0
                return ready
            self._changed.set()
            ready.dismiss()
        return None

    def make_room(self) -> bool:
        """Let one go whose place somebody else needs. False when there is none."""
        if not self.idle:
            return False
        self._changed.set()
        self.idle.popleft().dismiss()
        return True

    async def serve(self) -> None:
        """Fill the gaps, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                while len(self.idle) + len(self._handed) >= self.count:
                    await self._changed.wait()
                if self._row:
                    await trio.sleep(delay(BACKOFF, self._row - 1, 1.0))
                place, begun = await self._places.spare(), trio.Event()
                nursery.start_soon(self._one, place, begun)
                await begun.wait()

    async def _one(self, place: Place, begun: trio.Event) -> None:
        ready: Ready | None = None
        try:
            async with open_run(self.plan, starts=self._starts) as live:
                ready = Ready(live)
                await live.ready.wait()
                why = await self._life(ready, begun)
        except (AgentError, ProcessError) as error:
            why = str(error)
        finally:
            if ready is not None:
                ready.gone.set()
            place.release()
            begun.set()
        if why is not None:
            self._failed(why)
        self._changed.set()  # not before the failure is counted, or the gap is filled without a delay

    async def _life(self, ready: Ready, begun: trio.Event) -> str | None:
        """Why it failed, None if it did not."""
        live, since = ready.live, trio.current_time()
        if live.is_fit():
            self.idle.append(ready)
            begun.set()
            if self._places.waiting:  # they came while it started, when there was none to let go
                self.make_room()
            try:
                await wait_any(live.over.wait, ready.dismissed.wait, live.taken)
                if ready.taken:
                    await self._begin(ready)
            finally:
                self._forget(ready)
        if ready.dismissed.is_set():
            return None
        if trio.current_time() - since >= BACKOFF.max_delay:
            self._row = 0
        return str(live.failure or f"its process ended ({live.incarnation.exit}) before it was used")

    async def _begin(self, ready: Ready) -> None:
        with trio.move_on_after(BEGINNING):
            await ready.dismissed.wait()
        self._forget(ready)
        self._changed.set()
        await ready.dismissed.wait()

    def _forget(self, ready: Ready) -> None:
        if ready in self.idle:
            self.idle.remove(ready)
        self._handed.discard(ready)

    def _failed(self, why: str) -> None:
        self._row += 1
        log = logging.getLogger(LOG)
        if self._row == 1:
            log.info("no process of %s could be kept ready, trying again: %s", self.plan.name, why)
        elif self._row == ROW:
            text = "no process of %s could be kept ready, %d times in a row; tried every %g s from now on: %s"
            log.error(text, self.plan.name, ROW, BACKOFF.max_delay, why)
