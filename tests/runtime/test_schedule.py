from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Backoff,
    ChildExited,
    ChildSpec,
    ChildStarted,
    InvalidSpec,
    RunSkipped,
    Supervisor,
    current_actor,
    open_supervisor,
    scheduled,
)
from proctor.runtime.supervision.schedule import DailyTime, Interval, Scheduled, daily_time
from tests.runtime.stage import Boom, heard, picture, settled
from tests.tables import each_row

HOUR, DAY = 3600.0, 86400.0


class Berlin(tzinfo):
    """Central Europe in 2026: summer time from 29 March 02:00 to 25 October 03:00."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        local = moment.replace(tzinfo=None)
        begin, end = datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 3)
        gap = begin <= local < begin + timedelta(hours=1)
        twice = end - timedelta(hours=1) <= local < end
        summer = (begin <= local < end) if not (gap or twice) else (moment.fold == (1 if gap else 0))
        return timedelta(hours=2 if summer else 1)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) - timedelta(hours=1)

    def tzname(self, moment: datetime | None) -> str:
        return "CET"

    def fromutc(self, moment: datetime) -> datetime:
        begin, end = datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1)
        utc = moment.replace(tzinfo=None)
        local = (utc + timedelta(hours=2 if begin <= utc < end else 1)).replace(tzinfo=self)
        return local.replace(fold=int(end <= utc < end + timedelta(hours=1)))


BERLIN = Berlin()


def stamp(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def shown(moment: float) -> str:
    return datetime.fromtimestamp(moment, BERLIN).strftime("%a %m-%d %H:%M")


@attrs.define
class WallClock:
    """A wall clock that goes with the run's clock from `start`, and can be set."""

    now: float
    _last: float = attrs.field(factory=trio.current_time)

    def __call__(self) -> float:
        time = trio.current_time()
        self.now, self._last = self.now + time - self._last, time
        return self.now


async def elapse(seconds: float) -> None:
    await trio.sleep(seconds)
    await settled()


def noting(runs: list[float], clock: Callable[[], float] = trio.current_time, takes: float = 0) -> Any:
    async def job() -> None:
        runs.append(clock())
        await trio.sleep(takes)

    return job


# `every`


async def test_a_job_runs_every_so_often_on_a_grid_that_its_own_time_does_not_shift(
    autojump_clock: MockClock,
) -> None:
    runs: list[float] = []
    begun = trio.current_time()
    async with open_supervisor([scheduled("sweep", noting(runs, takes=20), every="1m")]):
        await trio.sleep(301)
    assert [round(run - begun, 3) for run in runs] == [60, 120, 180, 240, 300]


async def test_a_job_is_ready_before_its_first_run(autojump_clock: MockClock) -> None:
    runs: list[float] = []
    async with open_supervisor([scheduled("sweep", noting(runs), every=1)]) as sup:
        assert await picture(sup) == {"sweep": 1}
        assert runs == []


async def test_a_run_that_is_due_while_the_last_one_goes_on_is_skipped_and_said(
    autojump_clock: MockClock,
) -> None:
    runs: list[float] = []
    begun = trio.current_time()
    async with open_supervisor([scheduled("sweep", noting(runs, takes=25), every=10)]) as sup:
        with sup.events() as events:
            await trio.sleep(75)
            skipped = [event for event in heard(events) if isinstance(event, RunSkipped)]
    assert [round(run - begun) for run in runs] == [10, 40, 70]
    assert [(e.path, round(e.due - begun), round(e.next - begun)) for e in skipped] == [
        ("root/sweep", 20, 40),
        ("root/sweep", 50, 70),
    ]


async def test_a_run_that_fails_is_a_crash_and_the_next_is_due_when_it_was(autojump_clock: MockClock) -> None:
    runs: list[float] = []
    begun = trio.current_time()

    async def job(word: str) -> None:
        runs.append(trio.current_time())
        await trio.sleep(4)
        raise Boom(word)

    async with open_supervisor([scheduled("sweep", job, ("x",), every=10)], intensity=9) as sup:
        with sup.events() as events:
            await trio.sleep(35)
            assert await picture(sup) == {"sweep": 4}
            told = [type(event) for event in heard(events)]
    assert [round(run - begun) for run in runs] == [10, 20, 30]
    assert told.count(ChildExited) == told.count(ChildStarted) == 3


async def test_what_was_due_while_the_child_was_down_is_skipped(autojump_clock: MockClock) -> None:
    runs: list[float] = []
    begun = trio.current_time()

    async def job() -> None:
        runs.append(trio.current_time())
        if len(runs) == 1:
            raise Boom

    backoff = Backoff(min_delay=25, max_delay=25, jitter=0)
    async with open_supervisor([scheduled("sweep", job, every=10, backoff=backoff)]) as sup:
        with sup.events() as events:
            await trio.sleep(45)
            skipped = [e.due - begun for e in heard(events) if isinstance(e, RunSkipped)]
    assert [round(run - begun) for run in runs] == [10, 40]
    assert [round(due) for due in skipped] == [20]


async def test_a_stop_ends_a_run_and_a_wait(autojump_clock: MockClock) -> None:
    runs: list[float] = []
    specs = [
        scheduled("waits", noting(runs), every="1h"),
        scheduled("runs", noting(runs, takes=1000), every=1),
    ]
    async with open_supervisor(specs) as sup:
        await trio.sleep(2)
        with sup.events() as events:
            begun = trio.current_time()
            await sup.terminate_child("runs")
            await sup.terminate_child("waits")
            assert trio.current_time() == begun
            assert [str(e.reason) for e in heard(events) if isinstance(e, ChildExited)] == ["shutdown"] * 2
    assert len(runs) == 1


async def test_a_job_is_a_child_like_any_other(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def job() -> None:
        seen.append(current_actor().path)

    async with open_supervisor([scheduled("sweep", job, every=1, name="s", restart="transient")]) as sup:
        await trio.sleep(1.5)
        assert seen == ["root/sweep"]
        assert (await sup.get_childspec("sweep")).restart == "transient"
        sup.name("s").kill()
        await trio.sleep(1)
        assert seen == ["root/sweep"] * 2


@each_row(("every", "seconds"), [("10m", 600), ("30s", 30), ("1.5h", 5400), ("1d", DAY), (2, 2), (0.5, 0.5)])
def test_a_period_is_seconds_or_a_number_with_a_unit(every: float | str, seconds: float) -> None:
    start = scheduled("x", settled, every=every).start
    assert isinstance(start, Scheduled)
    assert start.timetable == Interval(seconds)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "every of 'x' is None: expected a period, or a time of the day in `at`"),
        ({"every": 1, "at": "03:00"}, "at of 'x' is '03:00': expected None where `every` is given"),
        ({"every": "10 minutes"}, "every of 'x' is '10 minutes'"),
        ({"every": 0}, "every of 'x' is 0"),
        ({"every": "0s"}, "every of 'x' is '0s'"),
        ({"every": True}, "every of 'x' is True"),
        ({"at": "3 o'clock"}, "at of 'x' is"),
        ({"at": "24:00"}, "at of 'x' is '24:00': expected 'HH:MM' or 'HH:MM:SS'"),
        ({"at": "03:00", "days": ("monday",)}, "days of 'x' is"),
        ({"at": "03:00", "days": ()}, "days of 'x' is"),
        ({"every": 1, "days": ("mon",)}, "days of 'x' is"),
        ({"every": 1, "restart": "often"}, "restart of 'x' is 'often'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        scheduled("x", settled, **fields)
    assert str(refused.value).startswith(text)


# `at`


@pytest.mark.parametrize(
    ("after", "days", "expected"),
    [
        ("2026-01-05 02:59", None, "Mon 01-05 03:00"),
        ("2026-01-05 03:00", None, "Tue 01-06 03:00"),
        ("2026-01-05 03:00", ("mon",), "Mon 01-12 03:00"),
        ("2026-01-05 12:00", ("sat", "sun"), "Sat 01-10 03:00"),
        ("2026-12-31 12:00", None, "Fri 01-01 03:00"),
    ],
)
def test_the_next_time_of_the_day(after: str, days: tuple[str, ...] | None, expected: str) -> None:
    table = daily_time("03:00", days, BERLIN, "x")
    assert shown(table.after(stamp(after))) == expected


def due_times(table: DailyTime, begin: float, end: float) -> Iterator[float]:
    while (begin := table.after(begin)) <= end:
        yield begin


def test_a_time_that_a_change_to_summer_time_leaves_out_comes_an_hour_later_that_day() -> None:
    table = daily_time("02:30", None, BERLIN, "x")
    days = due_times(table, stamp("2026-03-28 00:00"), stamp("2026-03-31 00:00"))
    assert list(map(shown, days)) == ["Sat 03-28 02:30", "Sun 03-29 03:30", "Mon 03-30 02:30"]


def test_a_time_that_comes_twice_when_summer_time_ends_is_met_the_first_time_only() -> None:
    table = daily_time("02:30", None, BERLIN, "x")
    due = list(due_times(table, stamp("2026-10-24 00:00"), stamp("2026-10-27 00:00")))
    assert due == [
        stamp("2026-10-24 02:30"),
        stamp("2026-10-25 02:30", fold=0),
        stamp("2026-10-26 02:30"),
    ]
    assert table.after(stamp("2026-10-25 02:15", fold=1)) == due[-1]


def test_the_zone_of_the_machine_is_used_where_none_is_given() -> None:
    table = daily_time("03:00", None, None, "x")
    noon = datetime(2026, 1, 5, 12).timestamp()
    assert datetime.fromtimestamp(table.after(noon)).strftime("%d %H:%M") == "06 03:00"


def daily(job: Any, clock: Callable[[], float], at: str = "03:00", **fields: Any) -> ChildSpec:
    return scheduled("nightly", job, at=at, zone=BERLIN, clock=clock, **fields)


async def test_a_week_of_nights_and_of_ten_minutes(autojump_clock: MockClock) -> None:
    clock = WallClock(stamp("2026-03-25 12:00"))
    nights: list[float] = []
    sweeps: list[float] = []
    specs = [
        daily(noting(nights, clock), clock, at="02:30"),
        scheduled("sweep", noting(sweeps), every="10m"),
    ]
    async with open_supervisor(specs):
        await trio.sleep(7 * DAY + 1)
    assert list(map(shown, nights)) == [
        "Thu 03-26 02:30",
        "Fri 03-27 02:30",
        "Sat 03-28 02:30",
        "Sun 03-29 03:30",
        "Mon 03-30 02:30",
        "Tue 03-31 02:30",
        "Wed 04-01 02:30",
    ]
    assert len(sweeps) == 7 * 24 * 6


async def watched(sup: Supervisor, *moves: Callable[[], object] | float) -> list[RunSkipped]:
    with sup.events() as events:
        for move in moves:
            if callable(move):
                move()
            else:
                await elapse(move)
        return [event for event in heard(events) if isinstance(event, RunSkipped)]


async def test_a_wall_clock_that_is_set_forward_over_the_time_runs_the_job_once(
    autojump_clock: MockClock,
) -> None:
    clock = WallClock(stamp("2026-01-05 12:00"))
    runs: list[float] = []

    def three_days_on() -> None:
        clock.now += 3 * DAY

    async with open_supervisor([daily(noting(runs, clock), clock)]) as sup:
        skipped = await watched(sup, HOUR, three_days_on, HOUR, DAY)
    assert [shown(run) for run in runs] == ["Thu 01-08 13:05", "Fri 01-09 03:00"]
    assert [(shown(e.due), shown(e.next)) for e in skipped] == [("Wed 01-07 03:00", "Fri 01-09 03:00")]


async def test_a_wall_clock_that_is_set_back_over_the_time_does_not_run_the_job_again(
    autojump_clock: MockClock,
) -> None:
    clock = WallClock(stamp("2026-01-05 02:50"))
    runs: list[float] = []

    def an_hour_back() -> None:
        clock.now -= HOUR

    async with open_supervisor([daily(noting(runs, clock), clock)]) as sup:
        await watched(sup, 1000.0, an_hour_back, 2 * HOUR, DAY)
    assert [shown(run) for run in runs] == ["Mon 01-05 03:00", "Tue 01-06 03:00"]


async def test_a_wall_clock_that_was_years_ahead_and_is_set_right_is_followed(
    autojump_clock: MockClock,
) -> None:
    clock = WallClock(stamp("2030-01-05 02:50"))
    runs: list[float] = []

    def set_right() -> None:
        clock.now = stamp("2026-01-05 12:00")

    async with open_supervisor([daily(noting(runs, clock), clock)]) as sup:
        await watched(sup, HOUR, set_right, DAY)
    assert [shown(run) for run in runs] == ["Sat 01-05 03:00", "Tue 01-06 03:00"]


async def test_a_nightly_run_that_crashes_is_not_repeated_before_the_next_night(
    autojump_clock: MockClock,
) -> None:
    clock = WallClock(stamp("2026-01-05 02:00"))
    runs: list[float] = []

    async def job() -> None:
        runs.append(clock())
        raise Boom

    async with open_supervisor([daily(job, clock, days=("mon", "wed"))], intensity=9) as sup:
        await elapse(3 * DAY)
        assert await picture(sup) == {"nightly": 3}
    assert [shown(run) for run in runs] == ["Mon 01-05 03:00", "Wed 01-07 03:00"]
