from __future__ import annotations

import errno
import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from proctor.runtime import (
    IGNORE,
    ChildSpec,
    Crash,
    ExitReason,
    Killed,
    MaxRestartsExceeded,
    Normal,
    NotFound,
    Restarting,
    Shutdown,
    StartError,
    Subscription,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.events import ChildRestarting
from proctor.runtime.spec import Backoff, Strategy
from proctor.runtime.supervision.backoff import delay, ends_row, is_too_long, waits_out
from tests.runtime.stage import (
    Boom,
    Notes,
    end,
    fails_at,
    heard,
    kinds,
    picture,
    player,
    ready_after,
    settled,
)
from tests.tables import each_row

SECOND = Backoff(min_delay=1, max_delay=8, jitter=0)
"""1, 2, 4, 8, 8 … seconds; a row ends after 8 seconds of readiness."""


FULL = OSError(errno.ENOSPC, "no space left on device")


@each_row(
    ("backoff", "reason", "result"),
    [
        (SECOND, Crash(FULL), True),
        (None, Crash(FULL), False),  # nothing would wait: it must count, or the restarts never end
        (SECOND, Crash(Boom()), False),
        (SECOND, Crash(OSError(errno.EACCES, "permission denied")), False),
        (SECOND, Shutdown(), False),
        (SECOND, Killed(), False),
    ],
)
def test_only_a_restart_that_waits_for_what_the_machine_lacked_is_not_counted(
    backoff: Backoff | None, reason: ExitReason, result: bool
) -> None:
    assert waits_out(backoff, reason) is result


LONG = Backoff(min_delay=100, max_delay=100, jitter=0)


@pytest.mark.covers("X1")
@each_row(("k", "expected"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 8), (5000, 8)])
def test_the_delay_grows_to_its_limit(k: int, expected: float) -> None:
    assert delay(SECOND, k, 0.5) == expected


@pytest.mark.covers("X1")
def test_a_delay_of_a_long_row_does_not_overflow() -> None:
    assert delay(Backoff(max_delay=60, jitter=0), 10**6, 0) == 60
    assert delay(Backoff(factor=1, jitter=0), 10**6, 0) == 1


@pytest.mark.covers("X1")
@given(
    k=st.integers(0, 10**4),
    chance=st.floats(0, 1),
    jitter=st.floats(0, 1),
    factor=st.floats(1, 100),
    min_delay=st.floats(0.001, 60),
)
def test_a_delay_lies_between_its_bounds_and_never_above_the_limit(
    k: int, chance: float, jitter: float, factor: float, min_delay: float
) -> None:
    backoff = Backoff(min_delay=min_delay, max_delay=60, factor=factor, jitter=jitter)
    longest = delay(backoff, k, 0)
    assert longest <= 60
    assert longest * (1 - jitter) * (1 - 1e-9) <= delay(backoff, k, chance) <= longest


@pytest.mark.covers("X2")
@pytest.mark.parametrize(
    ("backoff", "ready_for", "ends"),
    [
        (None, 0.0, True),
        (SECOND, 7.9, False),
        (SECOND, 8.0, True),
        (Backoff(reset_after=3), 2.9, False),
        (Backoff(reset_after=3), 3.0, True),
    ],
)
def test_a_row_ends_with_long_readiness(backoff: Backoff | None, ready_for: float, ends: bool) -> None:
    assert ends_row(backoff, ready_for) == ends


@pytest.mark.covers("X3")
def test_a_row_may_be_limited() -> None:
    assert not is_too_long(Backoff(), 10**6)
    assert not is_too_long(Backoff(max_in_row=2), 2)
    assert is_too_long(Backoff(max_in_row=2), 3)
    assert is_too_long(Backoff(max_in_row=0), 1)


def restarts(events: Subscription) -> list[tuple[str, int, float]]:
    """The restarts told of: who, the attempt, the delay."""
    told = [event for event in heard(events) if isinstance(event, ChildRestarting)]
    return [(event.path.rpartition("/")[2], event.attempt, event.delay) for event in told]


async def crash_at_once(sup: Supervisor, name: str, times: int) -> None:
    """Crash a child as soon as it is back, over and over."""
    for _ in range(times):
        await end(await sup.name(name).wait(), Crash(Boom("crash")))
        await settled()


@pytest.mark.covers("X1")
async def test_every_restart_is_put_off_the_first_too(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=SECOND)], intensity=10) as sup:
        with sup.events() as events:
            begun = trio.current_time()
            await crash_at_once(sup, "a", 5)
            await sup.name("a").wait()
            assert trio.current_time() - begun == 1 + 2 + 4 + 8 + 8
            assert restarts(events) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 4), ("a", 4, 8), ("a", 5, 8)]


@pytest.mark.covers("X1", "X11")
async def test_a_restart_put_off_is_decided_told_and_shown_at_once(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)]) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Killed())
            assert await picture(sup) == {"a": "restarting"}
            assert (await sup.which_children())[0].ref == "restarting"  # S52
            assert (await sup.count_children()).active == 0  # S53
            assert kinds(events) == [
                "child_exited root/a",
                "child_terminated root/a",
                "child_restarting root/a",
            ]
            await trio.sleep(100)
            assert await picture(sup) == {"a": 2}


@pytest.mark.covers("X1", "S55")
async def test_a_supervisor_serves_during_a_backoff_and_siblings_run_on(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes, backoff=LONG), player("b", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        begun = trio.current_time()
        await end(sup.name("a"), Killed())
        await settled()
        await sup.start_child(player("c", notes))
        assert await sup.name("b").call("incarnation") == 1
        assert trio.current_time() == begun
        assert notes == ["+a", "+b", "+c"]  # the strategy is applied when the wait is over


@pytest.mark.covers("X1", "S21", "S22", "S23")
@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        ("one_for_one", ["+b"]),
        ("one_for_all", ["-c", "-a", "+a", "+b", "+c"]),
        ("rest_for_one", ["-c", "+b", "+c"]),
    ],
)
async def test_the_strategy_is_applied_after_the_wait(
    strategy: Strategy, after: Notes, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, backoff=SECOND), player("c", notes)]
    async with open_supervisor(children, strategy=strategy) as sup:
        await end(sup.name("b"), Killed())
        await trio.sleep(0.9)
        assert notes == ["+a", "+b", "+c"]
        await trio.sleep(0.2)
        assert notes[3:] == after


@pytest.mark.covers("X1", "X16")
async def test_the_same_seed_gives_the_same_delays(autojump_clock: MockClock) -> None:
    async def delays(seed: int | None) -> list[float]:
        notes: Notes = []
        shaky = Backoff(min_delay=1, max_delay=8, jitter=0.5)
        async with open_supervisor([player("a", notes, backoff=shaky)], intensity=50, seed=seed) as sup:
            with sup.events() as events:
                await crash_at_once(sup, "a", 6)
                return [seconds for _, _, seconds in restarts(events)]

    first = await delays(7)
    assert first == await delays(7)
    assert first != await delays(8)
    assert await delays(None) != await delays(None)
    for seconds, longest in zip(first, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= seconds <= longest


@pytest.mark.covers("X2")
async def test_a_row_begins_anew_after_long_readiness(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=SECOND)], intensity=10) as sup:
        with sup.events() as events:
            await crash_at_once(sup, "a", 3)
            await sup.name("a").wait()
            await trio.sleep(7.5)
            await crash_at_once(sup, "a", 1)
            await sup.name("a").wait()
            await trio.sleep(8)
            await crash_at_once(sup, "a", 1)
            assert [seconds for _, _, seconds in restarts(events)] == [1, 2, 4, 8, 1]


@pytest.mark.covers("X2")
async def test_readiness_counts_to_the_exit_and_not_to_when_it_is_seen(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=SECOND)], intensity=10) as sup:
        await crash_at_once(sup, "a", 1)
        await sup.name("a").wait()
        await settled()
        with sup.events() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sup.start_child, ChildSpec("slow", ready_after(50)))
                await settled()
                await end(sup.name("a"), Killed())
            await settled()
            assert restarts(events) == [("a", 2, 2)]


@pytest.mark.covers("S28", "D10", "X1")
async def test_a_start_that_fails_does_not_end_a_row_and_its_retry_is_put_off_too(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, fails_at(2, 3), backoff=SECOND)], intensity=3) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Killed())
            await trio.sleep(1 + 2 + 3.9)
            assert await picture(sup) == {"a": "restarting"}
            await trio.sleep(0.2)
            assert kinds(events) == [
                "child_exited root/a",
                "child_terminated root/a",
                "child_restarting root/a",
                "start_error root/a",
                "child_restarting root/a",
                "start_error root/a",
                "child_restarting root/a",
                "child_started root/a",
            ]
            assert await picture(sup) == {"a": 4}


@pytest.mark.covers("S30", "S31", "X1")
async def test_each_restart_put_off_is_counted_once_when_it_is_decided(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    short = Backoff(min_delay=0.1, max_delay=0.1, jitter=0)
    text = "supervisor 'root' gave up: more than 3 restarts in 5 s"
    with pytest.raises(MaxRestartsExceeded, match=text) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes, fails_at(3), backoff=short)], intensity=3) as sup:
            await crash_at_once(sup, "a", 4)
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 4
    assert notes.count("+a") == 4


@pytest.mark.covers("X3", "S33", "S35")
async def test_too_many_restarts_in_a_row_give_up_though_no_window_is_full(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    slow = Backoff(min_delay=10, max_delay=10, jitter=0, max_in_row=2)
    seen: list[Subscription] = []
    text = "supervisor 'root' gave up: more than 2 restarts of 'a' in a row"
    with pytest.raises(MaxRestartsExceeded, match=text) as caught:  # noqa: PT012
        async with open_supervisor(
            [player("a", notes, backoff=slow), player("b", notes)], intensity=1
        ) as sup:
            seen.append(sup.events())
            await crash_at_once(sup, "a", 3)
            await trio.sleep_forever()
    assert [type(error) for error in caught.value.exceptions] == [Boom]
    assert notes == ["+a", "+b", "-a", "+a", "-a", "+a", "-a", "-b"]
    assert kinds(seen[0])[-4:] == [
        "child_terminated root/a",
        "max_restarts root",
        "child_exited root/b",
        "supervisor_stopped root",
    ]


@pytest.mark.covers("X3")
async def test_no_restart_at_all_may_be_allowed_in_a_row() -> None:
    notes: Notes = []
    never = Backoff(max_in_row=0)
    with pytest.raises(MaxRestartsExceeded):  # noqa: PT012
        async with open_supervisor([player("a", notes, backoff=never)], intensity=9) as sup:
            await end(sup.name("a"), Killed())
            await trio.sleep_forever()
    assert notes == ["+a"]


@pytest.mark.covers("X2", "X3")
async def test_a_reset_allows_as_many_restarts_again(autojump_clock: MockClock) -> None:
    notes: Notes = []
    limited = Backoff(min_delay=1, max_delay=1, jitter=0, reset_after=20, max_in_row=1)
    async with open_supervisor([player("a", notes, backoff=limited)], intensity=1) as sup:
        for _ in range(4):
            await crash_at_once(sup, "a", 1)
            await sup.name("a").wait()
            await trio.sleep(20)
        assert await picture(sup) == {"a": 5}


@pytest.mark.covers("X3", "S34")
async def test_a_nested_supervisor_that_gives_up_by_a_row_is_an_exit_for_its_parent(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    limited = Backoff(min_delay=10, max_delay=10, jitter=0, max_in_row=0)
    inner = supervisor_spec("s", [player("a", notes, backoff=limited)], intensity=9)
    async with open_supervisor([inner]) as sup:
        await end(sup.name("a"), Killed())
        assert await picture(sup) == {"s": 2}
        assert await sup.name("a").call("incarnation") == 1


@pytest.mark.covers("X1", "S34")
async def test_a_nested_supervisor_is_put_off_like_any_child(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], intensity=0, backoff=SECOND)
    async with open_supervisor([inner]) as sup:
        begun = trio.current_time()
        await end(sup.name("a"), Killed())
        assert await picture(sup) == {"s": "restarting"}
        await sup.name("a").wait()
        assert trio.current_time() - begun == 1


@pytest.mark.covers("S41", "S43", "X1")
@pytest.mark.parametrize("how", ["stop", "leave", "cancel", "kill"])
async def test_a_stop_during_a_backoff_is_immediate_and_final(how: str, autojump_clock: MockClock) -> None:
    notes: Notes = []
    begun = trio.current_time()
    with trio.CancelScope() as scope:
        async with open_supervisor([player("a", notes, backoff=LONG), player("b", notes)]) as sup:
            await end(sup.name("a"), Killed())
            await settled()
            if how == "stop":
                await sup.stop()
            elif how == "cancel":
                scope.cancel()
            elif how == "kill":
                sup.ref.kill()
    assert trio.current_time() == begun
    await trio.sleep(1000)
    assert notes == (["+a", "+b"] if how == "kill" else ["+a", "+b", "-b"])


@pytest.mark.covers("S43", "S72", "X1")
async def test_a_parents_stop_ends_a_nested_backoff_at_once(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([supervisor_spec("s", [player("a", notes, backoff=LONG)])]) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        begun = trio.current_time()
    assert trio.current_time() == begun


@pytest.mark.covers("S49", "S50", "S51", "X1")
async def test_terminate_cancels_a_restart_put_off_and_frees_for_the_rest(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)]) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        for request in (sup.restart_child, sup.delete_child):
            with pytest.raises(Restarting):
                await request("a")
        await sup.terminate_child("a")
        assert await picture(sup) == {"a": "down"}
        await trio.sleep(200)
        assert await picture(sup) == {"a": "down"}
        await sup.restart_child("a")
        await sup.terminate_child("a")
        await sup.delete_child("a")
        await trio.sleep(200)
    assert notes == ["+a", "+a", "-a"]


async def test_restarts_that_are_forgotten_are_counted_anew_and_one_that_waits_is_carried_out(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)], give_up="child") as sup:
        for _ in range(3):
            await end(sup.name("a"), Killed())
            await settled()
            begun = trio.current_time()
            await sup.forget_restarts("a")
            await sup.name("a").wait()
            assert trio.current_time() == begun
            assert sup.tree().children[0].restarts == 0
        await sup.terminate_child("a")
        await sup.forget_restarts("a")
        assert await picture(sup) == {"a": "down"}
        with pytest.raises(NotFound):
            await sup.forget_restarts("b")
    assert notes == ["+a", "+a", "+a", "+a", "-a"]


@pytest.mark.covers("S17", "X1")
async def test_an_old_wait_does_not_restart_a_child_that_was_started_meanwhile(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)], intensity=5) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Killed())
            await settled()
            await sup.terminate_child("a")
            await trio.sleep(60)
            await sup.restart_child("a")
            await end(sup.name("a"), Killed())
            await settled()
            begun = trio.current_time()
            await sup.name("a").wait()
            assert trio.current_time() - begun == 100
            await trio.sleep(200)
            assert await picture(sup) == {"a": 3}
            assert len(restarts(events)) == 2


@pytest.mark.covers("S51", "X1")
async def test_a_deleted_child_leaves_its_wait_behind_and_its_id_to_another(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)], intensity=5) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await sup.terminate_child("a")
        await sup.delete_child("a")
        await sup.start_child(player("a", notes, backoff=LONG))
        await trio.sleep(50)
        await end(sup.name("a"), Killed())
        await settled()
        await trio.sleep(75)  # the first wait is over, the second is not
        assert await picture(sup) == {"a": "restarting"}


@pytest.mark.covers("S22", "X1")
async def test_a_group_restart_starts_a_waiting_child_at_once(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [player("a", notes, backoff=LONG), player("b", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Killed())
            await trio.sleep(10)
            await end(sup.name("b"), Killed())
            assert await picture(sup) == {"a": 2, "b": 2}
            await trio.sleep(500)
            assert await picture(sup) == {"a": 2, "b": 2}  # its own wait is over
            assert restarts(events) == [("a", 1, 100), ("b", 1, 0)]


@pytest.mark.covers("S23", "X1")
async def test_a_child_before_the_group_goes_on_waiting(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [player("a", notes, backoff=LONG), player("b", notes)]
    async with open_supervisor(children, strategy="rest_for_one", intensity=5) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await end(sup.name("b"), Killed())
        assert await picture(sup) == {"a": "restarting", "b": 2}
        await trio.sleep(100)
        assert await picture(sup) == {"a": 2, "b": 3}


@pytest.mark.covers("S22", "S31", "X1")
async def test_two_waits_of_one_group_are_over_with_the_first(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [
        player("a", notes, backoff=LONG),
        player("b", notes, backoff=Backoff(min_delay=30, max_delay=30, jitter=0)),
    ]
    async with open_supervisor(children, strategy="one_for_all", intensity=2, period=1000) as sup:
        for id in "ab":
            await end(sup.name(id), Killed())
        assert await picture(sup) == {"a": "restarting", "b": "restarting"}
        await trio.sleep(30)
        assert await picture(sup) == {"a": 2, "b": 2}
        await trio.sleep(500)
        assert await picture(sup) == {"a": 2, "b": 2}


@pytest.mark.covers("S33", "X1")
async def test_a_waiting_child_goes_down_with_a_supervisor_that_gives_up(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    inner = supervisor_spec(
        "s", [player("a", notes, backoff=LONG), player("b", notes)], intensity=1, restart="temporary"
    )
    async with open_supervisor([inner]) as sup:
        ref = sup.supervisor("s").ref
        await end(sup.name("a"), Killed())
        await settled()
        await end(sup.name("b"), Killed())
        await settled()
        assert ref.exit_reason == Shutdown("max_restarts")
        await trio.sleep(500)
        assert notes == ["+a", "+b"]


@pytest.mark.covers("S28", "X1")
async def test_a_failed_group_restart_waits_for_the_one_that_failed_and_then_starts_all(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, fails_at(2), backoff=LONG), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        await end(sup.name("c"), Killed())
        assert await picture(sup) == {"a": 2, "b": "restarting", "c": "down"}
        await trio.sleep(100)
        assert await picture(sup) == {"a": 3, "b": 3, "c": 2}


@pytest.mark.covers("S22", "S28", "X1")
async def test_a_sibling_that_dies_while_a_retry_waits_restarts_the_group(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, fails_at(2), backoff=LONG), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        await end(sup.name("c"), Killed())
        await settled()
        await end(sup.name("a"), Killed())
        assert await picture(sup) == {"a": 3, "b": 3, "c": 2}
        await trio.sleep(500)
        assert await picture(sup) == {"a": 3, "b": 3, "c": 2}


@pytest.mark.covers("S9", "X1")
async def test_a_restart_after_a_wait_may_be_ignored(autojump_clock: MockClock) -> None:
    notes: Notes = []
    ignores = player("a", notes, lambda n: IGNORE if n > 1 else None, backoff=SECOND)
    async with open_supervisor([ignores]) as sup:
        await end(sup.name("a"), Killed())
        await trio.sleep(2)
        assert await picture(sup) == {"a": "down"}


@pytest.mark.covers("S15", "S16", "X1")
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_an_end_that_is_not_followed_by_a_restart_waits_for_nothing(restart: str) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart=restart, backoff=LONG)]) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Normal())
            assert await picture(sup) == ({"a": "down"} if restart == "transient" else {})
            assert restarts(events) == []


@pytest.mark.covers("S60", "X1")
async def test_a_significant_child_that_waits_is_active(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [
        player("a", notes, restart="transient", significant=True, backoff=LONG),
        player("b", notes, restart="transient", significant=True),
    ]
    async with open_supervisor(children, auto_shutdown="all_significant") as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await end(sup.name("b"), Normal())
        await trio.sleep(100)
        assert await picture(sup) == {"a": 2, "b": "down"}
        await end(sup.name("a"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S61", "X1")
async def test_a_waiting_significant_child_that_is_terminated_ends_nothing(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes, restart="transient", significant=True, backoff=LONG)]
    async with open_supervisor(children, auto_shutdown="any_significant") as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await sup.terminate_child("a")
        await trio.sleep(200)
        assert sup.ref.is_alive()


@pytest.mark.covers("T12", "X1")
async def test_a_request_in_the_tick_in_which_a_wait_ends_is_served_and_the_restart_follows(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    for _ in range(20):
        async with open_supervisor([player("a", notes, backoff=SECOND)]) as sup:
            await end(sup.name("a"), Killed())
            await trio.sleep(1)
            await sup.terminate_child("a")
            assert await picture(sup) == {"a": "down"}
            with pytest.raises(NotFound):
                await sup.terminate_child("z")


@pytest.mark.covers("T12", "S41", "X1")
async def test_a_stop_in_the_tick_in_which_a_wait_ends_starts_nobody_it_does_not_stop(
    autojump_clock: MockClock,
) -> None:
    for _ in range(20):
        notes: Notes = []
        async with open_supervisor([player("a", notes, backoff=SECOND)]) as sup:
            await end(sup.name("a"), Killed())
            await trio.sleep(1)
        assert notes in (["+a"], ["+a", "+a"], ["+a", "+a", "-a"])


@pytest.mark.covers("S50", "X1")
async def test_a_failed_start_by_hand_is_not_put_off(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, fails_at(2), backoff=LONG)]) as sup:
        begun = trio.current_time()
        await sup.terminate_child("a")
        with pytest.raises(StartError):
            await sup.restart_child("a")
        await sup.restart_child("a")
        assert trio.current_time() == begun


@pytest.mark.covers("X1")
async def test_many_waits_need_no_task_each(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [player(f"a{n}", notes, backoff=LONG) for n in range(50)]

    def tasks() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    async with open_supervisor(intensity=100) as sup:
        before = tasks()
        for spec in children:
            await sup.start_child(spec)
        for spec in children:
            sup.name(spec.id).kill()
        await settled()
        assert tasks() == before + 1
        await trio.sleep(100)
        assert set((await picture(sup)).values()) == {2}


@pytest.mark.covers("X1")
def test_nothing_is_infinite_about_a_delay() -> None:
    assert math.isfinite(delay(Backoff(min_delay=1e300, max_delay=1e308, factor=1e300), 9, 0))


@pytest.mark.covers("S49", "S28", "X17")
async def test_terminating_a_child_whose_retry_waits_leaves_the_rest_of_its_group_down_and_at_rest(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, fails_at(2), backoff=LONG), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        await end(sup.name("c"), Killed())
        await settled()
        assert sup.name("c").is_due()
        await sup.terminate_child("b")
        assert await picture(sup) == {"a": 2, "b": "down", "c": "down"}
        assert not sup.name("c").is_due()
        await sup.restart_child("c")
        assert await picture(sup) == {"a": 2, "b": "down", "c": 2}
