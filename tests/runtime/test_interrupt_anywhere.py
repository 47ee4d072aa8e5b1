"""A SIGINT under plain `trio.run`, at each instant of one program in turn: nothing here depends on luck."""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.runtime import (
    Actor,
    Backoff,
    ChildSpec,
    Continue,
    DynamicSupervisor,
    ExitReason,
    dynamic_supervisor_spec,
    open_supervisor,
)
from tests.runtime.stage import Notes
from tests.simulation.search import ALONE, SEED

SHARES = 4
APART = SHARES if ALONE else 5 * SHARES
"""`make simulate` tries each instant; `make test` one of five, others in each run."""
OURS = tuple(str(path.resolve()) for path in Path(proctor.__file__).parent.iterdir() if path.is_dir())
RESUME = dis.opmap["RESUME"]


class Member(Actor):
    """Notes `+it` when it is ready and `-it` when it terminates."""

    async def init(self, notes: Notes) -> Continue:
        self.notes, self.me = notes, f"{self.id}{self.incarnation}"
        return Continue("ready")

    async def handle_continue(self, arg: object) -> None:
        self.notes.append(f"+{self.me}")

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return msg

    async def handle_cast(self, msg: object) -> None:
        self.beat()

    async def handle_stream(self, msg: Any, sink: Any) -> None:
        for number in range(msg):
            await sink.send(number)

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"-{self.me}")
        await trio.lowlevel.checkpoint()


async def main(notes: Notes) -> None:
    children = [
        ChildSpec("a", Member, (notes,), name="a", watchdog=100),
        dynamic_supervisor_spec("pool"),
        ChildSpec("b", Member, (notes,), name="b", backoff=Backoff()),
    ]
    async with open_supervisor(children) as sup:
        a, b = sup.name("a"), sup.name("b")
        assert await a.call(1, timeout=1) == 1
        await a.cast("beat")
        await sup.supervisor("pool", DynamicSupervisor).start_child(ChildSpec("c", Member, (notes,)))
        async with a.stream(2) as items:
            assert [item async for item in items] == [0, 1]
        notes.append("-b1")
        b.kill()
        await b.wait_out()
        await trio.sleep(5)


def interrupted(notes: Notes, *instruments: trio.abc.Instrument) -> BaseException | None:
    """What comes out of the program."""
    try:
        trio.run(main, notes, clock=MockClock(autojump_threshold=0), instruments=instruments)
    except BaseException as error:  # noqa: BLE001  # what it came to is judged
        return error
    return None


def judge(at: object, notes: Notes, error: BaseException | None) -> list[str]:
    """What is wrong with the program's end after a SIGINT."""
    wrong = [] if type(error) is KeyboardInterrupt else [f"{error!r} came out"]
    ready = [note[1:] for note in notes if note.startswith("+")]
    wrong += [f"{one} did not terminate" for one in ready if f"-{one}" not in notes]
    return [f"{at}: {what}" for what in wrong]


class InterruptAt(trio.abc.Instrument):
    """A SIGINT before the step of that number of any task."""

    def __init__(self, number: int) -> None:
        self.left, self.task = number, ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.task = task.name
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.covers("T5")
@pytest.mark.usefixtures("default_handler")
def test_a_sigint_before_any_step_of_any_task_comes_out_bare_after_each_terminate() -> None:
    wrong: list[str] = []
    number, interrupt = 1, InterruptAt(1)
    error = interrupted(notes := Notes(), interrupt)
    while interrupt.left <= 0:
        wrong += judge((number, interrupt.task), notes, error)
        number, interrupt = number + 1, InterruptAt(number + 1)
        error = interrupted(notes := Notes(), interrupt)
    assert number > 50
    assert wrong == []


def is_interruptible(frame: FrameType, event: str) -> bool:
    """Whether Python looks for signals at this event, in code of ours or called by it that is not protected."""
    at, code = frame.f_lasti, frame.f_code.co_code
    if event != "c_return" and not (event == "call" and code[at] == RESUME and code[at + 1] < 2):
        return False
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith((*BELOW, "<")):
        caller = caller.f_back
    ours = caller is not None and caller.f_code.co_filename.startswith(SOURCES)
    return ours and trio.lowlevel.in_trio_task() and not trio.lowlevel.currently_ki_protected()


BELOW = (str(Path(trio.__file__).parent), str(Path(dis.__file__).parent))
SOURCES = (str(Path(proctor.__file__).parent), *OURS)


class InterruptInside:
    """A `KeyboardInterrupt`, as Trio's handler raises it, at the instant of that number in unprotected code."""

    def __init__(self, number: int) -> None:
        self.left, self.place = number, ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not is_interruptible(frame, event):
            return
        self.left -= 1
        if self.left == 0:
            self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            raise KeyboardInterrupt


def profiled(profile: Callable[[FrameType, str, Any], None]) -> tuple[Notes, BaseException | None]:
    """The program's notes and what came out of it, with `profile` looking at it."""
    notes: Notes = []
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        return notes, interrupted(notes)
    finally:
        sys.setprofile(before)


@pytest.mark.covers("T5")
@pytest.mark.parametrize("share", range(SHARES))
def test_a_sigint_at_any_call_in_unprotected_code_comes_out_bare_after_each_terminate(
    share: int,
) -> None:
    wrong: list[str] = []
    number = share + 1 + SEED % (APART // SHARES) * SHARES
    interrupt = InterruptInside(number)
    notes, error = profiled(interrupt)
    while interrupt.left <= 0:
        wrong += judge((number, interrupt.place), notes, error)
        number, interrupt = number + APART, InterruptInside(number + APART)
        notes, error = profiled(interrupt)
    assert number > 100
    assert wrong == [], f"SIMULATE_SEED={SEED}"


if sys.version_info >= (3, 12):  # from there on, profile events do not tell when Python looks for signals
    del test_a_sigint_at_any_call_in_unprotected_code_comes_out_bare_after_each_terminate
