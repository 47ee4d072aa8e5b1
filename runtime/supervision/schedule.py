"""A child that runs an async function at set times: `every` so many seconds, or `at` a time of the day.

Guarantees: one run at a time. A run begins when it is due, or not at all: what is due while the run before still goes
on, or while the child is down, is skipped, and a `run_skipped` event says so. A run that fails is a crash of the
child; the next one is due when it would have been, because the place of the child keeps that over restarts.

`every` counts in the run's clock from the first start, on a fixed grid: runs do not shift it. `at` means the wall
clock and the zone's own rules. Where summer time leaves the time out, the run comes as much later as the clock was put
forward; where it comes twice, the first one counts. The wall clock is looked at every `RECHECK` seconds: set forward
over the time, the job runs once, at most that late; set back by up to a day, it does not run again; set back by
more, the clock was wrong before, and the next time is computed afresh.

Not here: times that outlive the program. After a start of the program nothing is made up for.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from datetime import time as TimeOfDay  # beside the module `time`
from typing import Any, TypeAlias

import attrs
import trio

from proctor.runtime.errors import InvalidSpec
from proctor.runtime.events import RunSkipped
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.child import Incarnation

Clock: TypeAlias = Callable[[], float]

DAY = 86400.0
RECHECK = 300.0
"""Seconds after which a wait for a time of the day looks at the wall clock again."""

UNITS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_NEXT = "proctor.next_run"  # the key in what the child's place keeps


@attrs.frozen
class Interval:
    """Due every so many seconds of the run's clock."""

    seconds: float
    recheck: float = math.inf

    def after(self, now: float, due: float | None = None) -> float:
        """The first time after `now` on the grid of `due`; without one, of `now`."""
        if due is None:
            return now + self.seconds
        following = due + self.seconds * (math.floor((now - due) / self.seconds) + 1)
        # The division can round to `now` itself, and the job would run twice.
        return following if following > now else following + self.seconds


@attrs.frozen
class DailyTime:
    """Due at a time of some days of the week, in `zone`; `None` is the machine's."""

    at: TimeOfDay
    days: frozenset[int]
    zone: tzinfo | None
    recheck: float = RECHECK

    def after(self, now: float, due: float | None = None) -> float:
        """The first such time after `now`, both in seconds since 1970."""
        today = datetime.fromtimestamp(now, self.zone).date()
        dates = (today + timedelta(days=ahead) for ahead in range(9))
        return next(
            moment
            for date in dates
            if date.weekday() in self.days and (moment := self._moment_on(date.toordinal())) > now
        )

    def _moment_on(self, day: int) -> float:
        # fold=0 is the first of two equal times, and the later reading of one that is left out
        return datetime.combine(datetime.fromordinal(day), self.at, tzinfo=self.zone).timestamp()


@attrs.frozen
class Scheduled:
    """The `start` of a scheduled child."""

    job: Callable[..., Awaitable[object]]
    args: tuple[Any, ...]
    timetable: Interval | DailyTime
    clock: Clock

    async def __call__(self, *, task_status: Incarnation) -> None:
        """Run the job whenever it is due, in the child's task."""
        kept = task_status.context.kept
        task_status.started()
        now = self.clock()
        due, as_of = kept.get(_NEXT) or (self.timetable.after(now), now)
        while True:
            due = self._unless_past(due, task_status)
            due = await self._wait(due, as_of)
            as_of = self.clock()
            following = self.timetable.after(due, due)
            if following <= as_of:
                following = self._skip(following, as_of, task_status)
            # before the run: when that crashes, the next incarnation waits for the next time
            kept[_NEXT] = following, as_of
            await self.job(*self.args)
            due = following

    async def _wait(self, due: float, as_of: float) -> float:
        """Wait until `due`, which was computed when the clock showed `as_of`; returns what was waited for in the end."""
        while (now := self.clock()) < due:
            # The clock was wrong before, so what was computed by it is void.
            if now < as_of - DAY:
                due, as_of = self.timetable.after(now), now
            await trio.sleep(min(due - now, self.timetable.recheck))
        # A job that is due all the time must still let others run.
        await trio.lowlevel.checkpoint()
        return due

    def _unless_past(self, due: float, status: Incarnation) -> float:
        now = self.clock()
        return due if due > now else self._skip(due, now, status)

    def _skip(self, due: float, now: float, status: Incarnation) -> float:
        following = self.timetable.after(now, due)
        skipped = RunSkipped(path=status.endpoint.path, due=due, next=following)
        status.endpoint.system.events.emit(skipped)
        return following


def scheduled(
    id: str,
    job: Callable[..., Awaitable[object]],
    args: Iterable[Any] = (),
    *,
    every: float | str | None = None,
    at: str | None = None,
    days: Iterable[str] | None = None,
    zone: tzinfo | None = None,
    clock: Clock = time.time,
    **spec: Any,
) -> ChildSpec:
    """A child that awaits `job(*args)` at set times, with further `ChildSpec` fields. Raises `InvalidSpec`.

    `every` is a period: seconds, or a number with a unit as in `"10m"` (s, m, h, d); the first run is one period after
    the start. `at` is a time of the day, `"03:00"` or `"03:00:30"`, on the `days` of the week given (`"mon"` to
    `"sun"`; all, if left out), in `zone`, left out: the machine's. `clock` is the wall clock for `at`, in seconds
    since 1970. One run at a time: what is due during a run, or while the child is down, is skipped (`run_skipped`).
    """
    if at is None:
        if days is not None:
            raise InvalidSpec("days", days, "None where `at` is not given", of=id)
        start = Scheduled(job, tuple(args), Interval(_seconds(every, id)), trio.current_time)
    elif every is not None:
        raise InvalidSpec("at", at, "None where `every` is given", of=id)
    else:
        start = Scheduled(job, tuple(args), daily_time(at, days, zone, id), clock)
    return ChildSpec(id, start, **spec)


def _seconds(every: float | str | None, id: str) -> float:
    if every is None:
        raise InvalidSpec("every", every, "a period, or a time of the day in `at`", of=id)
    seconds = _parsed(every) if isinstance(every, str) else every
    if isinstance(every, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidSpec("every", every, "seconds > 0, or a number with a unit as in '10m'", of=id)
    return float(seconds)


def _parsed(period: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", period)
    return None if match is None else float(match[1]) * UNITS[match[2]]


def daily_time(at: str, days: Iterable[str] | None, zone: tzinfo | None, id: str) -> DailyTime:
    """The timetable of a time of the day, for the child `id`. Raises `InvalidSpec`."""
    if not isinstance(at, str) or re.fullmatch(r"([01]\d|2[0-3])(:[0-5]\d){1,2}", at) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSpec("at", at, "'HH:MM' or 'HH:MM:SS'", of=id)
    chosen = WEEKDAYS if days is None else tuple(days)
    if not chosen or not set(chosen) <= set(WEEKDAYS):
        raise InvalidSpec("days", chosen, "some of " + ", ".join(map(repr, WEEKDAYS)), of=id)
    return DailyTime(TimeOfDay.fromisoformat(at), frozenset(map(WEEKDAYS.index, chosen)), zone)
