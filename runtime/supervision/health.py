"""A ready child under a watchdog and a liveness probe, and what follows when it fails them.

Guarantees: a child that did not beat for `watchdog` seconds, or failed its probe `failures` times in a row, is asked
to stop, killed when its `shutdown` time is over, and ends with that failure as its reason; its supervisor serves
meanwhile and treats the end as any exit. A child that is being stopped, or ends by itself, is marked as failed no more. One probe at a time per incarnation;
no probe outlives the request to stop by more than a shield of its own, and none holds it up.

A watchdog costs one alarm per child, put at the last beat's end and moved on when it rings; a probe costs a task.

Not here: waiting for the end, restarting (`loop`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from proctor.runtime.errors import ProbeFailed, WatchdogTimeout
from proctor.runtime.exits import Crash
from proctor.runtime.messaging import Timers
from proctor.runtime.spec import Probe
from proctor.runtime.supervision.child import Incarnation


class Watch:
    """The watch over one incarnation, from ready to the request to stop."""

    def __init__(self, incarnation: Incarnation, timers: Timers) -> None:
        self._incarnation, self._timers = incarnation, timers
        self._probing = trio.CancelScope()

    def begin(self, nursery: trio.Nursery) -> None:
        """Start watching; probes run in `nursery`."""
        spec = self._incarnation.spec
        if spec.watchdog is not None:
            self._at(self._incarnation.beaten_at + spec.watchdog, partial(self._look, spec.watchdog))
        if spec.probe is not None:
            nursery.start_soon(self._probe, spec.probe, name=f"{self._incarnation.endpoint.path}: probe")

    def end_probes(self) -> None:
        """The child is asked to stop, or has ended."""
        self._probing.cancel(reason="the child stops")

    @property
    def over(self) -> bool:
        """Whether nothing is left to watch."""
        return not self._incarnation.endpoint.accepting

    def _at(self, time: float, step: Callable[[], None]) -> None:
        self._timers.judge_at(time, Step(self, step))

    def _look(self, seconds: float) -> None:
        # The alarm is not moved at each beat, which would cost a heap operation: it looks at the last beat
        # when it rings.
        due = self._incarnation.beaten_at + seconds
        if due > trio.current_time():
            self._at(due, partial(self._look, seconds))
        else:
            self._fail(Crash(WatchdogTimeout(seconds)))

    def _fail(self, failure_reason: Crash) -> None:
        if self._incarnation.mark_failed(failure_reason):
            self._incarnation.shut_down(failure_reason)

    @trio.lowlevel.enable_ki_protection
    async def _probe(self, probe: Probe) -> None:
        # Outside the child's scopes: a probe must neither hold up a stop nor count as a task of the child.
        with self._probing:
            self._fail(Crash(await self._failed(probe)))

    async def _failed(self, probe: Probe) -> ProbeFailed:
        row, due = 0, trio.current_time()
        while True:
            await trio.sleep_until(due)
            error = await self._incarnation.check(probe.check, probe.timeout)
            row = 0 if error is None else row + 1
            if error is not None and row == probe.failures:
                return ProbeFailed(row, error)
            # A slow probe delays the next one; those that were missed are not made up for in a burst.
            due = max(due + probe.period, trio.current_time())


class Step:
    """A step that a watch takes at some time."""

    def __init__(self, watch: Watch, step: Callable[[], None]) -> None:
        self._watch, self._step = watch, step

    @property
    def over(self) -> bool:
        """Whether the watch is."""
        return self._watch.over

    def ring(self) -> None:
        """Take it."""
        self._step()
