"""Warm processes: started and greeted before a request comes, each for one request.

    starting ─ready→ idle ─taken→ at work ─given back→ gone        an idle one that dies or makes room is gone, too

Each is handed out once, while it is alive as far as can be seen, and holds a slot from before its start until its processes are gone.
Gaps are filled one at a time, from slots that no request waits for. Failures in a row back off from 0.1 s to 30 s.
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
from proctor.actors.serving.slots import Slot, Slots
from proctor.runtime.processes import ProcessError
from proctor.runtime.spec import Backoff
from proctor.runtime.supervision import delay

BACKOFF = Backoff(min_delay=0.1, max_delay=30.0, jitter=0.0)
ROW = 10
"""Failures in a row after which the log has an error."""
BEGINNING = 0.1
"""Seconds after its prompt before its gap is filled: a start takes a core, which the one at work needs first."""
LOG = "proctor"


class WarmProcess:
    """A warm process for one request; `gone` is set when its processes have ended."""

    def __init__(self, live: Run) -> None:
        self.live = live
        self.taken = False
        self.dismissed = trio.Event()
        self.gone = trio.Event()

    def dismiss(self) -> None:
        """Stop it: it is not needed any more."""
        self.live.leave()
        self.dismissed.set()

    async def give_back(self) -> None:
        """Stop it and wait until it is gone, also when cancelled."""
        self.dismiss()
        with trio.CancelScope(shield=True):  # its slot must not be used while its processes run
            await self.gone.wait()


class WarmPool:
    """`count` processes of `plan` kept ready in `slots`; each starts within a block of `starts`."""

    def __init__(
        self, plan: Plan, count: int, slots: Slots, starts: AbstractAsyncContextManager[object]
    ) -> None:
        self.plan = plan
        self.count = count
        self.idle: deque[WarmProcess] = deque()
        self._handed: set[WarmProcess] = set()
        self._slots = slots
        self._starts = starts
        self._row = 0
        self._changed = RepeatedEvent()

    def take(self) -> WarmProcess | None:
        """Hand out a process that is alive; dead ones are dismissed. None when there is none."""
        while self.idle:
            ready = self.idle.popleft()
            if ready.live.is_fit():
                # In the step in which it is handed out: no two requests get one process.
                ready.taken = ready.live.lent = True
                self._handed.add(ready)
                self._row = 0
                return ready
            self._changed.set()
            ready.dismiss()
        return None

    def make_room(self) -> bool:
        """Dismiss an idle one whose slot a request needs. False when there is none."""
        if not self.idle:
            return False
        self._changed.set()
        self.idle.popleft().dismiss()
        return True

    async def serve(self) -> None:
        """Fill the gaps until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while len(self.idle) + len(self._handed) >= self.count:
                    await self._changed.wait()
                if self._row:
                    await trio.sleep(delay(BACKOFF, self._row - 1, 1.0))
                slot, begun = await self._slots.spare(), trio.Event()
                nursery.start_soon(self._one, slot, begun)
                # One start at a time: each takes a core.
                await begun.wait()

    async def _one(self, slot: Slot, begun: trio.Event) -> None:
        ready: WarmProcess | None = None
        try:
            async with open_run(self.plan, starts=self._starts) as live:
                ready = WarmProcess(live)
                await live.ready.wait()
                why = await self._life(ready, begun)
        except (AgentError, ProcessError) as error:
            why = str(error)
        finally:
            if ready is not None:
                ready.gone.set()
            slot.release()  # only now: its processes are gone
            begun.set()
        if why is not None:
            self._failed(why)
        self._changed.set()  # not before the failure is counted, or the gap is filled without a delay

    async def _life(self, ready: WarmProcess, begun: trio.Event) -> str | None:
        """Why it failed, None if it did not."""
        live, since = ready.live, trio.current_time()
        if live.is_fit():
            self.idle.append(ready)
            begun.set()
            if self._slots.waiting:  # they came while it started, when there was none to let go
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

    async def _begin(self, ready: WarmProcess) -> None:
        with trio.move_on_after(BEGINNING):
            await ready.dismissed.wait()
        self._forget(ready)
        self._changed.set()
        await ready.dismissed.wait()

    def _forget(self, ready: WarmProcess) -> None:
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
