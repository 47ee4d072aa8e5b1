from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    Crash,
    Exit,
    ExitReason,
    InvalidSpec,
    Killed,
    Normal,
    Shutdown,
    Supervisor,
    current_actor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.errors import ProbeFailed, WatchdogTimeout
from proctor.runtime.events import ChildReady, ChildTerminated
from proctor.runtime.spec import Probe, Restart
from proctor.runtime.supervision.dynamic import dynamic_supervisor_spec
from proctor.runtime.supervision.partition import partition_supervisor_spec
from proctor.runtime.supervision.tasks import task_supervisor_spec
from proctor.runtime.task_status import ChildStatus
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    end,
    forever,
    heard,
    kinds,
    picture,
    player,
    ready_after,
    settled,
    shielded,
)


class Beating(Player):
    """Beats at the given times after its start, takes `seconds` to terminate."""

    async def init(self, notes: Notes, beats: tuple[float, ...] = (), seconds: float = 0.0) -> None:  # type: ignore[override]  # pyright: ignore
        self.notes, self.seconds = notes, seconds
        notes.append(f"+{self.id}")
        self.nursery.start_soon(self.keep_beating, beats)

    async def keep_beating(self, beats: tuple[float, ...]) -> None:
        begun = trio.current_time()
        for at in beats:
            await trio.sleep_until(begun + at)
            self.beat()

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"-{self.id} {reason}")
        await trio.sleep(self.seconds)


def beating(notes: Notes, *beats: float, seconds: float = 0.0, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "a", "watchdog": 2, "restart": "temporary"}
    return ChildSpec("a", Beating, (notes, beats, seconds), **(fields | spec))


async def ended(sup: Supervisor) -> tuple[float, object]:
    """When and why `a` ended."""
    with sup.name("a").monitor() as monitor:
        down = await monitor
        return trio.current_time(), down.reason


@pytest.mark.covers("X6")
@pytest.mark.parametrize(
    ("beats", "at"), [((), 2), ((1,), 3), ((1.9, 3.8), 5.8), ((0.1, 0.2, 0.3), 2.3), ((3,), 2)]
)
async def test_a_child_that_does_not_beat_in_time_is_stopped_and_crashed(
    beats: tuple[float, ...], at: float, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, *beats)]) as sup:
        when, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, WatchdogTimeout)
        assert (reason.error.seconds, str(reason.error)) == (2, "no beat within 2 s")
        assert when == pytest.approx(at)
        assert notes == ["+a", "-a crash: WatchdogTimeout('no beat within 2 s')"]


@pytest.mark.covers("X6")
async def test_a_child_that_beats_lives(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, *range(1, 500))]) as sup:
        await trio.sleep(499)
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("X6", "S14", "S15", "S16")
@pytest.mark.parametrize(
    ("restart", "after"), [("permanent", {"a": 2}), ("transient", {"a": 2}), ("temporary", {})]
)
async def test_a_miss_is_followed_by_a_restart_by_type(
    restart: Restart, after: dict[str, int], autojump_clock: MockClock
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, restart=restart)]) as sup:
        with sup.events() as events:
            await trio.sleep(2.5)
            assert await picture(sup) == after
            terminated = [event for event in heard(events) if isinstance(event, ChildTerminated)]
            assert [type(getattr(event.reason, "error", None)) for event in terminated] == [WatchdogTimeout]


@pytest.mark.covers("X6", "S30")
async def test_misses_are_counted_as_restarts(autojump_clock: MockClock) -> None:
    notes: Notes = []
    begun = trio.current_time()
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor([beating(notes, restart="permanent")], intensity=2, period=60):
            await trio.sleep_forever()
    assert [type(error) for error in caught.value.exceptions] == [WatchdogTimeout] * 3
    assert trio.current_time() - begun == 6


@pytest.mark.covers("X6")
async def test_the_watchdog_waits_for_ready(autojump_clock: MockClock) -> None:
    async with open_supervisor(
        [ChildSpec("a", ready_after(50), watchdog=2, name="a", restart="temporary")]
    ) as sup:
        assert (await ended(sup))[0] == 52


@pytest.mark.covers("X6")
async def test_a_function_child_beats_by_its_status_or_by_its_context(autojump_clock: MockClock) -> None:
    async def by_status(*, task_status: ChildStatus) -> None:
        task_status.started()
        while True:
            await trio.sleep(1)
            task_status.beat()

    async def by_context(*, task_status: ChildStatus) -> None:
        task_status.started()
        while True:
            await trio.sleep(1)
            current_actor().beat()

    children = [ChildSpec("a", by_status, watchdog=2), ChildSpec("b", by_context, watchdog=2)]
    async with open_supervisor(children) as sup:
        await trio.sleep(100)
        assert await picture(sup) == {"a": 1, "b": 1}


@pytest.mark.covers("X6", "S37", "S38")
@pytest.mark.parametrize(
    ("grace", "seconds", "took", "terminates"),
    [
        (5, 3, 3, True),
        (5, 9, 5, True),
        (0, 9, 0, False),
        ("brutal_kill", 9, 0, False),
        (math.inf, 900, 900, True),
    ],
)
async def test_a_miss_stops_by_the_childs_shutdown_and_keeps_its_reason(
    grace: Any, seconds: float, took: float, terminates: bool, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, seconds=seconds, shutdown=grace)]) as sup:
        when, reason = await ended(sup)
        assert when == 2 + took
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, WatchdogTimeout)
        assert (len(notes) == 2) == terminates


@pytest.mark.covers("X6", "S55")
async def test_the_supervisor_serves_while_a_condemned_child_takes_its_time(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, seconds=4), player("b", notes)]) as sup:
        await trio.sleep(3)
        assert sup.tree().children[0].state == "stopping"
        await end(sup.name("b"), Killed())
        assert await picture(sup) == {"a": "stopping", "b": 2}
        assert trio.current_time() == 3
        assert [child.ref is None for child in await sup.which_children()] == [False, False]


@pytest.mark.covers("X6")
async def test_a_beat_of_a_condemned_child_comes_too_late(autojump_clock: MockClock) -> None:
    class Late(Beating):
        async def terminate(self, reason: ExitReason) -> None:
            self.beat()

    notes: Notes = []
    async with open_supervisor(
        [ChildSpec("a", Late, (notes,), watchdog=2, name="a", restart="temporary")]
    ) as sup:
        _, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, WatchdogTimeout)


@pytest.mark.covers("X6")
async def test_a_crash_while_a_condemned_child_cleans_up_is_the_context_of_its_reason(
    autojump_clock: MockClock,
) -> None:
    class Messy(Beating):
        async def terminate(self, reason: ExitReason) -> None:
            raise Boom("in cleanup")

    notes: Notes = []
    async with open_supervisor(
        [ChildSpec("a", Messy, (notes,), watchdog=2, name="a", restart="temporary")]
    ) as sup:
        _, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, WatchdogTimeout)
        assert isinstance(reason.error.__context__, Boom)


@pytest.mark.covers("X6", "S18")
async def test_a_child_being_stopped_need_not_beat(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, 1, seconds=4, restart="permanent")]) as sup:
        ref = sup.name("a").ref()
        await trio.sleep(1.5)
        await sup.terminate_child("a")
        assert ref.exit_reason == Shutdown()
        assert trio.current_time() == 5.5
        assert notes == ["+a", "-a shutdown"]


@pytest.mark.covers("X6")
async def test_a_child_that_ends_by_itself_need_not_beat(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, seconds=4)]) as sup:
        down = await end(sup.name("a"), Normal())
        assert (down.reason, trio.current_time()) == (Normal(), 4)


@pytest.mark.covers("X6", "S49")
async def test_terminate_of_a_condemned_child_grants_it_no_second_grace(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, seconds=90, restart="permanent")]) as sup:
        with sup.events() as events:
            await trio.sleep(3)
            await sup.terminate_child("a")
            assert trio.current_time() == 2 + 5
            assert await picture(sup) == {"a": "down"}
            assert kinds(events) == ["child_overdue root/a", "child_exited root/a", "shutdown_error root/a"]


@pytest.mark.covers("X6", "S36")
async def test_a_stop_takes_a_condemned_child_over(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, seconds=4, restart="permanent")]):
        await trio.sleep(3)
    assert trio.current_time() == 6
    assert notes == ["+a", "-a crash: WatchdogTimeout('no beat within 2 s')"]


@pytest.mark.covers("X6", "S22", "S29")
async def test_a_group_restart_takes_a_condemned_child_with_it(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [beating(notes, seconds=4, restart="permanent"), player("b", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
        await trio.sleep(3)
        await end(sup.name("b"), Killed())
        await trio.sleep(4)
        assert await picture(sup) == {"a": 2, "b": 2}


@pytest.mark.covers("X6", "T10")
async def test_a_condemned_child_that_cannot_be_killed_is_reported_once_and_has_no_successor(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([ChildSpec("a", shielded, watchdog=2, shutdown=3, name="a")]) as sup:
        with sup.events() as events:
            await trio.sleep(59)
            assert await picture(sup) == {"a": "stopping"}
            assert [(event.kind, event.time) for event in heard(events)] == [
                ("child_overdue", 2 + 3),
                ("child_unresponsive", 2 + 3 + 5),
            ]
            await trio.sleep(2)
            assert await picture(sup) == {"a": 2}


@pytest.mark.covers("X6")
async def test_a_stall_of_the_whole_program_is_no_miss(mock_clock: MockClock) -> None:
    class Punctual(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.keep_beating)

        async def keep_beating(self) -> None:
            while True:
                await trio.sleep(1)
                self.beat()

    async with open_supervisor([ChildSpec("a", Punctual, watchdog=2)]) as sup:
        for _ in range(30):
            mock_clock.jump(50)
            await settled()
            assert await picture(sup) == {"a": 1}


@pytest.mark.covers("X6")
async def test_a_new_incarnation_is_watched_anew_and_the_old_watch_is_over(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([beating(notes, 1, 2, 3, restart="permanent")], intensity=5) as sup:
        await trio.sleep(1.5)
        await end(sup.name("a"), Killed())
        begun = trio.current_time()
        await settled()
        when, _ = await ended(sup)
        assert when == begun + 3 + 2


@pytest.mark.covers("X6")
async def test_many_watchdogs_need_no_task_each(autojump_clock: MockClock) -> None:
    notes: Notes = []

    def tasks() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    async def living(watchdog: float | None) -> int:
        async with open_supervisor([ChildSpec(f"a{n}", forever, watchdog=watchdog) for n in range(50)]):
            return tasks()

    assert await living(5) == await living(None) + 1
    assert notes == []


@pytest.mark.covers("X6", "S2")
@pytest.mark.parametrize(
    "made",
    [
        supervisor_spec,
        dynamic_supervisor_spec,
        task_supervisor_spec,
        partial(partition_supervisor_spec, spec=ChildSpec("w", forever)),
    ],
)
def test_a_watchdog_on_a_nested_supervisor_of_any_kind_is_refused(made: Callable[..., object]) -> None:
    with pytest.raises(InvalidSpec, match="watchdog of 's' is 3"):
        made("s", watchdog=3)


def failing(*outcomes: object) -> tuple[Callable[[], Awaitable[object]], list[float]]:
    """A check with these outcomes, one after the other, then well; and when it was made."""
    times: list[float] = []
    left = list(outcomes)

    async def check() -> object:
        times.append(trio.current_time())
        outcome = left.pop(0) if left else None
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, float):
            await trio.sleep(outcome)
        return outcome

    return check, times


def probed(
    notes: Notes,
    check: Callable[[], Awaitable[object]],
    *,
    timeout: float = 1,
    failures: int = 3,
    restart: Restart = "temporary",
) -> ChildSpec:
    probe = Probe(check=check, period=10, timeout=timeout, failures=failures)
    return player("a", notes, probe=probe, restart=restart)


@pytest.mark.covers("X7")
async def test_probes_start_when_ready_and_come_every_period(autojump_clock: MockClock) -> None:
    check, times = failing()
    async with open_supervisor([ChildSpec("a", ready_after(50), probe=Probe(check=check, period=10))]) as sup:
        await trio.sleep(35)
        assert times == [50, 60, 70, 80]
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("X7")
@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Boom("sick"), "Boom('sick')"),
        (False, "RuntimeFault('the check returned False')"),
        (5.0, "TooSlowError('no answer within 1 s')"),
        (Exit(Normal()), "Exit(Normal())"),
        (ExceptionGroup("two", [Boom("1"), Boom("2")]), "ExceptionGroup('two', [Boom('1'), Boom('2')])"),
    ],
    ids=repr,
)
async def test_failures_in_a_row_are_a_crash_with_the_last_error(
    outcome: object, text: str, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    check, times = failing(Boom("first"), Boom("second"), outcome)
    async with open_supervisor([probed(notes, check)]) as sup:
        when, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, ProbeFailed)
        assert str(reason.error) == f"the liveness probe failed, 3 in a row: {text}"
        assert reason.error.__cause__ is reason.error.error
        assert reason.error.failures == 3
        assert times == [0, 10, 20]
        assert when == (21 if outcome == 5.0 else 20)
        assert notes == ["+a", "-a"]


@pytest.mark.covers("X7")
async def test_a_probe_that_succeeds_ends_a_row_of_failures(autojump_clock: MockClock) -> None:
    notes: Notes = []
    check, times = failing(Boom(), False, None, 5.0, Boom(), True, 0, "")
    async with open_supervisor([probed(notes, check)]) as sup:
        await trio.sleep(95)
        assert len(times) == 10
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("X7")
async def test_a_probes_own_bug_is_a_failed_probe(autojump_clock: MockClock) -> None:
    def no_coroutine() -> Any:
        return 7

    notes: Notes = []
    async with open_supervisor([probed(notes, no_coroutine, failures=2)]) as sup:
        _, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error.__cause__, TypeError)
        assert sup.ref.is_alive()


@pytest.mark.covers("X7")
async def test_there_are_never_two_probes_at_once(autojump_clock: MockClock) -> None:
    notes: Notes = []
    running: list[int] = [0, 0]

    async def check() -> None:
        running[0] += 1
        running[1] = max(running)
        await trio.sleep(25)
        running[0] -= 1
        times.append(trio.current_time())

    times: list[float] = []
    async with open_supervisor([probed(notes, check, timeout=30)]) as sup:
        await trio.sleep(110)
        assert (running[1], times) == (1, [25, 50, 75, 100])
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("X7")
async def test_a_check_knows_whom_it_checks_and_may_call_it(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    async def check() -> None:
        me = current_actor()
        seen.append((me.id, me.incarnation, await me.ref.call("pong")))

    notes: Notes = []
    async with open_supervisor([probed(notes, check, restart="permanent")]) as sup:
        await trio.sleep(1)
        await end(sup.name("a"), Killed())
        await settled()
        assert seen == [("a", 1, "pong"), ("a", 2, "pong")]


@pytest.mark.covers("X7")
async def test_probes_end_with_the_incarnation_and_never_delay_its_stop(autojump_clock: MockClock) -> None:
    notes: Notes = []

    async def check() -> None:
        try:
            await trio.sleep_forever()
        finally:
            notes.append("check over")
            with trio.CancelScope(shield=True):
                await trio.sleep(30)

    async with open_supervisor([probed(notes, check, timeout=1000)]) as sup:
        await trio.sleep(5)
        await sup.terminate_child("a")
        assert trio.current_time() == 5
        assert notes == ["+a", "check over", "-a"] or notes == ["+a", "-a", "check over"]


@pytest.mark.covers("X7")
@pytest.mark.parametrize("reason", [Normal(), Killed(), Crash(Boom("crash"))], ids=str)
async def test_no_probe_follows_an_end(reason: ExitReason, autojump_clock: MockClock) -> None:
    notes: Notes = []
    check, times = failing()
    async with open_supervisor([probed(notes, check)]) as sup:
        await trio.sleep(15)
        await end(sup.name("a"), reason)
        await trio.sleep(100)
        assert times == [0, 10]


@pytest.mark.covers("X7")
async def test_a_failed_probe_restarts_by_type_and_the_new_one_is_probed(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    check, times = failing(False, False)
    async with open_supervisor([probed(notes, check, failures=2, restart="transient")]) as sup:
        await trio.sleep(25)
        assert await picture(sup) == {"a": 2}
        assert times == [0, 10, 10, 20]


@pytest.mark.covers("X7", "S72")
async def test_a_nested_supervisor_may_be_probed(autojump_clock: MockClock) -> None:
    notes: Notes = []
    check, _ = failing(False)
    inner = supervisor_spec("s", [player("a", notes)], probe=Probe(check=check, failures=1))
    async with open_supervisor([inner]) as sup:
        await trio.sleep(1)
        assert isinstance(getattr(sup.tree().children[0].exit, "error", None), ProbeFailed)
        assert await picture(sup) == {"s": 2}
        assert notes == ["+a", "-a", "+a"]


@pytest.mark.covers("X6", "X7")
async def test_probe_and_watchdog_together_condemn_once(autojump_clock: MockClock) -> None:
    notes: Notes = []
    check, _ = failing(False)
    spec = beating(notes, seconds=4, probe=Probe(check=check, failures=1))
    async with open_supervisor([spec]) as sup:
        when, reason = await ended(sup)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, ProbeFailed)
        assert when == 4


@pytest.mark.covers("X7", "T5")
async def test_an_interrupt_in_a_check_stops_the_tree() -> None:
    notes: Notes = []
    check, _ = failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        async with open_supervisor([probed(notes, check)]):
            await trio.sleep_forever()
    assert notes == ["+a", "-a"]


@pytest.mark.covers("X4")
async def test_a_start_can_be_extended(autojump_clock: MockClock) -> None:
    async def slow(seconds: float, *, task_status: ChildStatus) -> None:
        await trio.sleep(2)
        task_status.extend(5)
        task_status.extend(1)  # never shortens
        await trio.sleep(seconds)
        task_status.started()
        task_status.extend(1)
        await trio.sleep_forever()

    async with open_supervisor([ChildSpec("a", slow, (4.9,), start_timeout=3)]) as sup:
        assert trio.current_time() == 6.9
        with pytest.raises(Exception, match="not ready within 7 s"):
            await sup.start_child(ChildSpec("b", slow, (5.1,), start_timeout=3))
        await sup.start_child(ChildSpec("c", slow, (100.0,)))
        await trio.sleep(100)
        assert await picture(sup) == {"a": 1, "c": 1}


@pytest.mark.covers("X4")
async def test_an_actor_can_extend_its_start(autojump_clock: MockClock) -> None:
    class Slow(Actor):
        async def init(self) -> None:
            for _ in range(5):
                self.extend_start(2)
                await trio.sleep(1.5)
            current_actor().extend_start(2)

    async with open_supervisor([ChildSpec("a", Slow, start_timeout=1)]) as sup:
        assert await picture(sup) == {"a": 1}
        assert trio.current_time() == 7.5


@pytest.mark.covers("X4", "S43")
async def test_a_stop_ends_an_extended_start_at_once(autojump_clock: MockClock) -> None:
    async def slow(*, task_status: ChildStatus) -> None:
        task_status.extend(1000)
        await trio.sleep_forever()

    with trio.move_on_after(5):
        async with open_supervisor([ChildSpec("a", slow, start_timeout=3)]):
            raise AssertionError("not reached")
    assert trio.current_time() == 5


@pytest.mark.covers("X5")
async def test_a_later_ready_only_marks(autojump_clock: MockClock) -> None:
    class Marks(Player):
        async def handle_cast(self, msg: Any) -> None:
            self.ready(msg)

    notes: Notes = []
    async with open_supervisor([ChildSpec("a", Marks, (notes,), name="a")], intensity=0) as sup:
        ref = sup.name("a").ref()
        with sup.events() as events:
            for mark in (False, False, True, False):
                await sup.name("a").cast(mark)
                await settled()
                node = sup.tree().children[0]
                assert (node.ready, node.state) == (mark, "running")
            told = [event for event in heard(events) if isinstance(event, ChildReady)]
            assert [(event.path, event.ref, event.ready) for event in told] == [
                ("root/a", ref, mark) for mark in (False, True, False)
            ]
        await sup.terminate_child("a")
        assert not sup.tree().children[0].ready
        await sup.restart_child("a")
        assert sup.tree().children[0].ready
        assert sup.tree().ready


@pytest.mark.covers("X5")
async def test_a_function_child_marks_itself_after_it_started() -> None:
    async def body(*, task_status: ChildStatus) -> None:
        with pytest.raises(RuntimeError, match="root/a has not started yet"):
            task_status.ready()
        task_status.started()
        task_status.ready(False)
        await go.wait()
        current_actor().ready()
        await trio.sleep_forever()

    go = trio.Event()
    async with open_supervisor([ChildSpec("a", body)]) as sup:
        await settled()
        assert not sup.tree().children[0].ready
        go.set()
        await settled()
        assert sup.tree().children[0].ready


@pytest.mark.covers("X5")
async def test_a_mark_after_the_end_changes_nothing() -> None:
    class Leaves(Actor):
        async def init(self) -> None:
            kept.append(self)

    kept: list[Actor] = []
    async with open_supervisor([ChildSpec("a", Leaves, restart="temporary")]) as sup:
        sup.child("a").kill()
        await settled()
        with sup.events() as events:
            kept[0].ready(False)
            kept[0].beat()
            assert heard(events) == []
