from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from proctor.actors.plan.options import Clocks
from proctor.actors.process.liveness import ACTIVE_CPU, ACTIVE_IO, READ_GRACE, Activity, Liveness
from proctor.protocols import vocabulary as v
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.runtime.processes.condition import Condition
from proctor.runtime.processes.procfs import Sample
from tests.tables import each_row


class Turn:
    """A turn as the clock sees it: whether it runs, and the condition of the peer."""

    def __init__(self) -> None:
        self.conversation = Conversation(CLAUDE)
        self.conversation.phase = "working"
        self.condition = Condition()

    def liveness(self, silence: float = 10.0, final: float = 2.0) -> Liveness:
        made = Liveness(
            self.conversation,
            Clocks(silence=silence, final=final),
            excused=lambda: False,
            condition=lambda: self.condition,
        )
        made.last_output = trio.current_time()
        return made


@pytest.fixture
async def turn() -> Turn:
    return Turn()


@pytest.fixture
async def silence(turn: Turn) -> Liveness:
    return turn.liveness()


async def test_it_rings_when_nothing_is_heard_for_its_patience(
    silence: Liveness, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(10.0 + READ_GRACE)


@pytest.mark.covers("R046")
async def test_each_sign_of_life_starts_it_anew(
    silence: Liveness, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    start = trio.current_time()

    async def speak() -> None:
        for _ in range(60):
            await trio.sleep(1)
            silence.last_output = trio.current_time()

    nursery.start_soon(speak)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(70.0 + READ_GRACE)


async def test_it_does_not_run_while_silence_is_legitimate(
    silence: Liveness, turn: Turn, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    turn.conversation.phase = "idle"

    async def finish_the_tool() -> None:
        await trio.sleep(3600)
        turn.conversation.phase = "working"
        silence.last_output = trio.current_time()
        silence.reschedule()

    nursery.start_soon(finish_the_tool)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(3610.0 + READ_GRACE)


async def test_an_announced_retry_holds_it(silence: Liveness, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    silence.observe(v.Retrying(1, None, 1, delay=30.0))
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(40.0 + READ_GRACE)


@pytest.mark.covers("L30")
async def test_after_a_reported_error_its_patience_is_short(
    silence: Liveness, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    start = trio.current_time()

    async def report() -> None:
        await trio.sleep(4)
        silence.error = "API Error"
        silence.last_output = trio.current_time()
        silence.reschedule()

    nursery.start_soon(report)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(6.0 + READ_GRACE)


async def test_what_is_in_the_pipe_when_the_time_is_up_is_let_in_first(
    silence: Liveness, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:  # Q13
    start = trio.current_time()

    async def read_late() -> None:
        await trio.sleep(10.0 + READ_GRACE / 2)
        silence.last_output = trio.current_time()

    nursery.start_soon(read_late)
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(20.0 + READ_GRACE / 2 + READ_GRACE)


async def test_without_a_limit_it_never_rings(turn: Turn, autojump_clock: MockClock) -> None:
    silence = turn.liveness(silence=math.inf, final=5.0)
    silence.last_output = trio.current_time()
    with trio.move_on_after(10**5) as waiting:
        await silence.wait()
    assert waiting.cancelled_caught


async def test_a_short_patience_is_not_lengthened_by_an_error(turn: Turn, autojump_clock: MockClock) -> None:
    silence = turn.liveness(silence=1.0, final=5.0)
    silence.last_output = trio.current_time()
    silence.error = "API Error"
    start = trio.current_time()
    await silence.wait()
    assert trio.current_time() - start == pytest.approx(1.0 + READ_GRACE)
    assert silence.silent_for == pytest.approx(1.0 + READ_GRACE)


@each_row(
    ("cpu", "io", "pids", "moved"),
    [
        (0.0, 0, (1, 2), False),
        (ACTIVE_CPU / 2 - 0.01, ACTIVE_IO // 2 - 1, (1, 2), False),
        (ACTIVE_CPU / 2, 0, (1, 2), True),
        (0.0, ACTIVE_IO // 2, (1, 2), True),
        (0.0, 0, (1, 2, 3), True),
        (0.0, 0, (1,), False),
    ],
)
def test_a_tree_has_moved_when_all_of_it_used_enough_or_started_a_process(
    cpu: float, io: int, pids: tuple[int, ...], moved: bool
) -> None:
    before = Activity(tuple(Sample(pid, "x", "S", 7.0, 7) for pid in (1, 2)))
    after = Activity(
        tuple(
            Sample(pid, "x", "S", 7.0 + cpu, 7 + io) if pid < 3 else Sample(pid, "x", "S", 0.0, 0)
            for pid in pids
        )
    )
    assert after.has_worked_since(before) is moved


def test_activity_names_who_is_stopped_and_what_was_used() -> None:
    before = Activity((Sample(1, "guard", "S", 0.1, 10), Sample(2, "node", "S", 1.0, 100)), at=5.0)
    after = Activity((Sample(1, "guard", "S", 0.1, 10), Sample(2, "node", "T", 1.5, 150)), at=15.0)
    assert after.describe(before) == (
        "2 processes, stopped: node (2), the last is node (2, state T), CPU 0.50 s and I/O 50 bytes in 10 s"
    )
    assert after.describe().endswith("CPU 1.60 s and I/O 160 bytes in all")
    assert Activity().describe() == "no process found"
