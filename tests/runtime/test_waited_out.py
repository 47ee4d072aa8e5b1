"""A shortage is waited out by children with back-off, and a child may be given up alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Literal, cast

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Backoff,
    Crash,
    InvalidSpec,
    MaxRestartsExceeded,
    StartError,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.events import MaxRestarts
from proctor.runtime.processes.shortage import SHORTAGES, shortage_of
from proctor.runtime.spec import GiveUp
from tests.runtime.stage import Boom, Notes, crash, end, heard, picture, player, settled

STEADY = Backoff(min_delay=1, max_delay=1, jitter=0)


def lacking(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def lacks_at(number: int, *incarnations: int) -> Callable[[int], object]:
    """A start that the machine has not enough for at the given incarnations."""

    def start(incarnation: int) -> None:
        if incarnation in incarnations:
            raise lacking(number)

    return start


@pytest.mark.parametrize("number", sorted(SHORTAGES), ids=errno.errorcode.get)
async def test_a_shortage_is_waited_out_and_never_counted(number: int, autojump_clock: MockClock) -> None:
    notes: Notes = []
    short = player("a", notes, lacks_at(number, *range(2, 20)), backoff=STEADY)
    async with open_supervisor([short], intensity=1, period=60) as sup:
        await end(sup.name("a"), Crash(Boom("crash")))
        await trio.sleep(18.5)
        assert await picture(sup) == {"a": "restarting"}
        await trio.sleep(1)
        assert await picture(sup) == {"a": 20}


async def test_a_shortage_in_a_group_of_errors_is_one_too(autojump_clock: MockClock) -> None:
    group = ExceptionGroup("", [lacking(errno.ENOSPC), ExceptionGroup("", [lacking(errno.EMFILE)])])
    assert shortage_of(group) is SHORTAGES[errno.ENOSPC]
    assert shortage_of(ExceptionGroup("", [lacking(errno.ENOSPC), Boom("another")])) is None


async def test_a_shortage_of_a_child_without_back_off_is_counted(autojump_clock: MockClock) -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded):  # noqa: PT012
        async with open_supervisor([player("a", notes, lacks_at(errno.EMFILE, 2, 3, 4))], intensity=2) as sup:
            await end(sup.name("a"), Crash(Boom("crash")))
            await trio.sleep_forever()
    assert notes.count("+a") == 3


async def test_a_row_that_may_not_be_longer_bounds_the_wait_for_a_shortage(autojump_clock: MockClock) -> None:
    notes: Notes = []
    limited = Backoff(min_delay=1, max_delay=1, jitter=0, max_in_row=4)
    short = player("a", notes, lacks_at(errno.ENOMEM, *range(2, 20)), backoff=limited)
    with pytest.raises(MaxRestartsExceeded, match="more than 4 restarts of 'a' in a row"):  # noqa: PT012
        async with open_supervisor([short], intensity=1, period=60) as sup:
            await end(sup.name("a"), Crash(Boom("crash")))
            await trio.sleep_forever()


async def test_a_first_start_that_lacks_something_fails_at_once() -> None:
    notes: Notes = []
    with pytest.raises(StartError, match="Too many open files"):
        async with open_supervisor([player("a", notes, lacks_at(errno.EMFILE, 1), backoff=STEADY)]):
            pass


# one child is given up, the others go on


async def test_a_child_that_crashes_too_often_is_left_down_alone() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes)]
    async with open_supervisor(children, intensity=2, period=60, give_up="child") as sup:
        with sup.events() as events:
            await crash(sup, "a", "a", "a")
            [given_up] = [event for event in heard(events) if isinstance(event, MaxRestarts)]
        assert (given_up.path, given_up.id, given_up.child_only) == ("root", "a", True)
        assert given_up.limit == "more than 2 restarts in 60 s"
        assert await picture(sup) == {"a": "down", "b": 1}
        assert isinstance(sup.tree().children[0].exit, Crash)
        await sup.restart_child("a")  # its count begins anew
        await crash(sup, "a", "a")
        assert await picture(sup) == {"a": 6, "b": 1}


async def test_the_restarts_of_siblings_are_counted_apart_where_a_child_is_given_up_alone() -> None:
    notes: Notes = []
    names = "abcd"
    children = [player(name, notes) for name in names]
    async with open_supervisor(children, intensity=1, period=60, give_up="child") as sup:
        await crash(sup, *names)
        assert await picture(sup) == dict.fromkeys(names, 2)


async def test_what_a_child_kept_comes_to_rest_when_it_is_given_up(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], intensity=0, give_up="child") as sup:
        with sup.name("a").monitor() as monitor:
            await crash(sup, "a")
            await monitor
        await settled()
        with trio.move_on_after(100) as clock:
            await sup.name("a").wait()
        assert clock.cancelled_caught


async def test_a_significant_child_that_is_given_up_ends_its_supervisor() -> None:
    notes: Notes = []
    child = player("a", notes, restart="transient", significant=True)
    async with open_supervisor([child], intensity=0, give_up="child", auto_shutdown="any_significant") as sup:
        await crash(sup, "a")
        await sup.wait_stopped()


async def test_a_nested_supervisor_gives_up_a_child_alone(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes), player("b", notes)], intensity=0, give_up="child")
    async with open_supervisor([inner], intensity=0) as sup:
        await crash(sup, "a")
        assert await sup.name("b").call("incarnation") == 1
        assert sup.tree().children[0].children[0].state == "down"


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_children_that_depend_on_each_other_are_not_given_up_alone(
    strategy: Literal["one_for_all", "rest_for_one"],
) -> None:
    with pytest.raises(InvalidSpec, match="give_up is 'child': expected 'supervisor'"):
        open_supervisor([], strategy=strategy, give_up="child")


def test_what_is_given_up_is_one_of_two() -> None:
    with pytest.raises(InvalidSpec, match="give_up is 'all'"):
        open_supervisor([], give_up=cast("GiveUp", "all"))
