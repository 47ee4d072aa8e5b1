from __future__ import annotations

import signal
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process_errors import ProcessGone, StdinClosed
from proctor.runtime.processes.stopping import DEFAULT_LADDER, Action, Sent, Step, judge, run_ladder
from tests.tables import each_row


@attrs.define
class Scripted:
    """A far end that ends, for a reason, some seconds after it was done to what it listens for."""

    listens_for: str | None = None
    after: float = 0.0
    reason: ExitReason = attrs.Factory(Normal)
    deaf_to_kills: int = 0
    refuses_data: bool = False
    stdin_closed_at: float | None = None
    kill_sent: bool = False
    exit: ExitReason | None = None
    did: list[tuple[float, str]] = attrs.Factory(list[tuple[float, str]])
    exited: trio.Event = attrs.Factory(trio.Event)
    nursery: trio.Nursery | None = None

    def note(self, what: str) -> None:
        self.did.append((trio.current_time(), what))

    async def wait(self) -> ExitReason:
        await self.exited.wait()
        assert self.exit is not None
        return self.exit

    async def send(self, data: bytes) -> None:
        if self.refuses_data:
            raise StdinClosed("closed", stage="stdin", argv0="x", pid=1, elapsed=0.0)
        self._hear("write")
        if self.listens_for == "never takes data":
            await trio.sleep_forever()

    def close_stdin(self) -> None:
        self.stdin_closed_at = trio.current_time()
        self._hear("close_stdin")

    def signal(self, signum: int) -> None:
        self._hear(signal.Signals(signum).name)

    def terminate(self) -> None:
        self._hear("terminate")

    def kill(self, *, guard_too: bool = False) -> None:
        self.kill_sent = True
        self.deaf_to_kills -= 1
        if guard_too:
            self.note("guard too")
        if self.deaf_to_kills < 0:
            self.end(Killed())

    def end(self, reason: ExitReason) -> None:
        self.exit = self.exit or reason
        self.exited.set()

    def _hear(self, what: str) -> None:
        if what == self.listens_for:
            assert self.nursery is not None
            self.nursery.start_soon(self._end_later)

    async def _end_later(self) -> None:
        await trio.sleep(self.after)
        self.end(self.reason)


async def climb(
    target: Scripted,
    *steps: Step,
    on_unresponsive: Callable[[float], None] | None = None,
) -> tuple[ExitReason, float]:
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        target.nursery = nursery
        reason = await run_ladder(target, steps or DEFAULT_LADDER, on_unresponsive=on_unresponsive)
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()
    return reason, took


@pytest.mark.covers("R034", "L27", "R033")
@pytest.mark.parametrize(
    ("listens_for", "after", "did", "took"),
    [
        ("close_stdin", 2.0, ["close_stdin"], 2.0),
        ("terminate", 1.0, ["close_stdin", "terminate"], 6.0),
        (None, 0.0, ["close_stdin", "terminate", "kill"], 10.0),
        ("close_stdin", 7.0, ["close_stdin", "terminate"], 7.0),
    ],
)
async def test_the_polite_ladder_goes_no_further_than_it_must(
    autojump_clock: MockClock, listens_for: str | None, after: float, did: list[str], took: float
) -> None:
    target = Scripted(listens_for, after)
    _, seconds = await climb(target)
    assert [what for _, what in target.did] == did
    assert seconds == pytest.approx(took)


async def test_each_step_acts_when_the_grace_of_the_one_before_is_over(autojump_clock: MockClock) -> None:
    target = Scripted()
    steps = (Step("write", 1, data=b"end\n"), Step("signal", 2, signal=signal.SIGINT), Step("terminate", 3))
    reason, _ = await climb(target, *steps)
    assert reason == Killed()
    assert target.did == [(0, "write"), (1, "SIGINT"), (3, "terminate"), (6, "kill")]


async def test_a_ladder_without_a_kill_kills_all_the_same(autojump_clock: MockClock) -> None:
    target = Scripted()
    assert await climb(target, Step("close_stdin", 1)) == (Killed(), 1)


async def test_a_process_that_is_dead_gets_no_step(autojump_clock: MockClock) -> None:
    target = Scripted(exit=ExitStatus(3))
    target.exited.set()
    assert await climb(target) == (ExitStatus(3), 0)
    assert target.did == []


async def test_after_a_kill_no_polite_step_follows_and_the_kill_is_not_repeated(
    autojump_clock: MockClock,
) -> None:
    target = Scripted(deaf_to_kills=1)
    target.kill()

    async def die() -> None:
        await trio.sleep(1)
        target.end(Killed())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(die)
        assert await climb(target) == (Killed(), 1)
    assert target.did == []


@pytest.mark.covers("L27")
async def test_the_grace_of_a_closed_stdin_counts_from_its_closing(autojump_clock: MockClock) -> None:
    target = Scripted()
    target.close_stdin()
    await trio.sleep(3)
    await climb(target)
    assert target.did == [(5, "terminate"), (10, "kill")]


@pytest.mark.parametrize(
    "target", [Scripted(refuses_data=True), Scripted(stdin_closed_at=-100.0)], ids=["refused", "closed"]
)
async def test_a_message_that_cannot_be_written_is_passed_over_at_once(
    autojump_clock: MockClock, target: Scripted
) -> None:
    target.exited = trio.Event()
    _, took = await climb(target, Step("write", 60, data=b"end\n"))
    assert took == 0


async def test_a_message_that_nobody_takes_costs_its_grace_and_no_more(autojump_clock: MockClock) -> None:
    target = Scripted(listens_for="never takes data")
    assert await climb(target, Step("write", 2, data=b"end\n")) == (Killed(), 2)


@pytest.mark.covers("T10")
async def test_a_kill_that_does_not_take_is_reported_and_repeated_with_the_guard(
    autojump_clock: MockClock,
) -> None:
    target = Scripted(deaf_to_kills=2)
    told: list[float] = []
    reason, took = await climb(target, Step("kill", 4), on_unresponsive=told.append)
    assert (reason, took, told) == (Killed(), 8, [4, 8])
    assert [what for _, what in target.did] == ["kill", "kill", "guard too", "kill", "guard too"]


async def test_a_cancelled_ladder_does_not_go_on(autojump_clock: MockClock) -> None:
    target = Scripted()
    with trio.move_on_after(2):
        await climb(target)
    assert target.did == [(0, "close_stdin")]


async def test_a_process_gone_while_it_is_written_to_ends_the_ladder(autojump_clock: MockClock) -> None:
    class Gone(Scripted):
        async def send(self, data: bytes) -> None:
            self.end(ExitStatus(1))
            raise ProcessGone(
                "gone", stage="stdin", argv0="x", pid=1, elapsed=0.0, reason=ExitStatus(1), stderr=b""
            )

    target = Gone()
    assert await climb(target, Step("write", 60, data=b"end\n")) == (ExitStatus(1), 0)


TERM, KILL, USR1, INT = (int(s) for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGINT))
NOTHING = Sent()
ASKED = Sent(signals=frozenset({TERM}), detail=Shutdown("asked"))
INTERRUPTED = Sent(signals=frozenset({INT}))
KILLED = Sent(killed=True)
KILLED_BY_GUARD = Sent(killed=True, guarded=True)
BOTH = Sent(signals=frozenset({TERM}), killed=True)


@pytest.mark.covers("T19", "L32")
@each_row(
    ("code", "signum", "sent", "reason"),
    [
        (0, None, NOTHING, Normal()),
        (0, None, ASKED, Normal()),
        (0, None, KILLED, Normal()),
        (7, None, NOTHING, Normal()),  # 7 is among the success codes below
        (1, None, NOTHING, ExitStatus(code=1)),
        (1, None, ASKED, ExitStatus(code=1)),
        (143, None, NOTHING, ExitStatus(code=143)),
        (143, None, ASKED, Shutdown("asked")),
        (None, TERM, NOTHING, ExitStatus(signal=TERM)),
        (None, TERM, ASKED, Shutdown("asked")),
        (130, None, ASKED, ExitStatus(code=130)),
        (130, None, INTERRUPTED, Shutdown()),
        (None, KILL, NOTHING, ExitStatus(signal=KILL)),  # the system's, not ours
        (None, KILL, ASKED, ExitStatus(signal=KILL)),
        (None, KILL, KILLED, Killed()),
        (None, KILL, BOTH, Killed()),
        (None, TERM, BOTH, Shutdown()),
        (137, None, KILLED, ExitStatus(code=137)),
        (137, None, KILLED_BY_GUARD, Killed()),
        (None, USR1, KILLED_BY_GUARD, Killed()),
        (None, USR1, KILLED, ExitStatus(signal=USR1)),
        (None, None, NOTHING, ExitStatus()),
    ],
)
def test_an_exit_is_judged_by_its_status_and_by_what_was_sent(
    code: int | None, signum: int | None, sent: Sent, reason: ExitReason
) -> None:
    assert judge(code, signum, sent, frozenset({7})) == reason


@pytest.mark.parametrize(
    ("action", "data", "sent", "text"),
    [
        ("write", b"", None, "data belongs to 'write'"),
        ("kill", b"x", None, "data belongs to 'write'"),
        ("signal", b"", None, "a signal belongs to 'signal'"),
        ("terminate", b"", signal.SIGINT, "a signal belongs to 'signal'"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(
    action: Action, data: bytes, sent: signal.Signals | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Step(action, data=data, signal=sent)


@pytest.mark.parametrize("grace", [-1.0, float("nan")])
def test_a_grace_below_zero_is_refused(grace: float) -> None:
    with pytest.raises(ValueError, match="give seconds, zero or more"):
        Step("kill", grace)
