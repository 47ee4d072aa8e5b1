"""The clock of an incarnation's end: its `shutdown` runs from the moment at which the end begins, whatever began it.

Guarantees: one that has not ended when its grace is over is killed, and one that has not ended 5 seconds after a
kill is reported. Both are events that say where its tasks were waiting. The stop of that part of the tree returns
them too: `LateStops` keeps them while the child lives, so a stop that comes later knows of it as well. There is one
clock for an incarnation: a supervisor that stops a child whose end has begun grants it no second grace.

A child that its supervisor kills without asking, or without waiting, has no such time only from that moment: where its
end begins in another way it has the time that a child has by default.

Not here: what ends an incarnation (`child`), and what its supervisor does afterwards (`loop`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import trio

from proctor.runtime.events import ChildOverdue, ChildUnresponsive, LateStop
from proctor.runtime.messaging import Endpoint, Timers

if TYPE_CHECKING:
    from types import FrameType

KILL_PATIENCE = 5.0
"""Seconds after which a child that was killed and lives is reported."""
TASKS_SHOWN = 10
"""Tasks of a child that a report names at most."""
FRAMES_SHOWN = 5
"""Calls of each that it names at most, the innermost."""


class Ending(Protocol):
    """An incarnation whose end has begun."""

    endpoint: Endpoint

    @property
    def is_killed(self) -> bool:
        """Whether it was killed, though it may live."""
        ...

    def kill_overdue(self) -> None:
        """Its time to end in is over: kill it."""


class EndClock:
    """The time that one incarnation has left, from the beginning of its end."""

    __slots__ = ("_grace", "_incarnation", "_late", "_timers")

    def __init__(self, incarnation: Ending, grace: float, late: LateStops, timers: Timers) -> None:
        self._incarnation: Ending | None = incarnation
        self._grace, self._late, self._timers = grace, late, timers
        if self._grace < math.inf:
            self._timers.judge_at(trio.current_time() + self._grace, _Alarm(self, self._expire))

    def begin_kill(self) -> None:
        """It is killed: from here it has 5 seconds until that is reported as without effect."""
        if self._incarnation is not None:
            self._timers.judge_at(trio.current_time() + KILL_PATIENCE, _Alarm(self, self._report))

    def stop(self) -> None:
        """It has ended. What is left of its alarms holds nothing of it."""
        self._late.forget(self)
        self._incarnation = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._incarnation is None

    def _expire(self) -> None:
        child = self._incarnation
        # Killed meanwhile: it has the clock of `begin_kill` now, and is not overdue.
        if child is None or child.is_killed:
            return
        path, ref = child.endpoint.path, child.endpoint.ref
        overdue = ChildOverdue(path=path, ref=ref, grace=self._grace, doing=_doing(child.endpoint.task))
        # Before the kill: afterwards its tasks would show their clean-up, not the call in which they hung.
        self._publish(child, overdue)
        child.kill_overdue()

    def _report(self) -> None:
        child = self._incarnation
        if child is not None:
            path, ref = child.endpoint.path, child.endpoint.ref
            self._publish(child, ChildUnresponsive(path=path, ref=ref, doing=_doing(child.endpoint.task)))

    def _publish(self, child: Ending, event: LateStop) -> None:
        numbered = child.endpoint.system.events.number(event)
        child.endpoint.system.events.publish(numbered)
        self._late.add(self, numbered)


class _Alarm:
    """A step of a clock at some time."""

    __slots__ = ("_clock", "_step")

    def __init__(self, clock: EndClock, step: Callable[[], None]) -> None:
        self._clock, self._step = clock, step

    @property
    def over(self) -> bool:
        return self._clock.over

    def ring(self) -> None:
        self._step()


class LateStops:
    """The tasks of one tree that did not end in time, and the reports that collect those of a part of the tree."""

    def __init__(self) -> None:
        self._living: dict[EndClock, list[LateStop]] = {}
        self._reports: dict[StopReport, None] = {}

    def add(self, clock: EndClock, event: LateStop) -> None:
        """Add an event to the open reports."""
        self._living.setdefault(clock, []).append(event)
        for report in self._reports:
            report.add(event)

    def forget(self, clock: EndClock) -> None:
        """It has ended: a stop that begins later has nothing to wait for."""
        self._living.pop(clock, None)

    def report(self, path: str) -> StopReport:
        """A report on the stop of what stands at `path` and below it, which begins now."""
        report = StopReport(path, self._reports)
        # These were late before this stop began, but it waits for them as well.
        for events in self._living.values():
            for event in events:
                report.add(event)
        return report


class StopReport:
    """Collects what does not end in time during one stop, until it is closed."""

    def __init__(self, path: str, reports: dict[StopReport, None]) -> None:
        self.events: tuple[LateStop, ...] = ()
        self._path, self._reports = path, reports
        reports[self] = None

    def add(self, event: LateStop) -> None:
        """Take it, if it is of this part of the tree."""
        if event.path == self._path or event.path.startswith(f"{self._path}/"):
            self.events += (event,)

    def close(self) -> None:
        """The stop is over."""
        self._reports.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _doing(task: trio.lowlevel.Task | None) -> tuple[str, ...]:
    """The calls in which `task` and the tasks below it are waiting, a line each."""
    lines: list[str] = []
    for one in _tasks(task):
        if len(lines) == TASKS_SHOWN:
            break
        calls = [_call(frame, line) for frame, line in one.iter_await_frames()]
        # The program's own frames say most; those of Trio and of the runtime are shown only where there are
        # no others.
        own = [call for call, is_own in calls if is_own] or [call for call, _ in calls]
        lines.append(f"{one.name}: {' > '.join(own[-FRAMES_SHOWN:])}")
    return tuple(lines)


def _tasks(task: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    if task is None:
        return
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child)


def _call(frame: FrameType, line: int | None) -> tuple[str, bool]:
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    is_own = not module.startswith(("trio.", "proctor.runtime."))
    file = code.co_filename.rpartition("/")[2]
    return f"{code.co_name} ({file}:{line})", is_own
