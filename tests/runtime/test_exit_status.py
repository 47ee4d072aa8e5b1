from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
import trio

from proctor.runtime import Actor, ChildSpec, ExitReason, open_supervisor, run, supervisor_spec
from tests.runtime.stage import Boom, Notes, forever, player

PROGRAM = """
import os, signal, sys, trio
from proctor.runtime import Actor, ChildSpec, open_supervisor, run, supervisor_spec

what, times = sys.argv[1], int(sys.argv[2])
number = signal.SIGTERM if what == "term" else signal.SIGINT

class Polite(Actor):
    async def terminate(self, reason):
        print("stopped", self.id, flush=True)

class Busy(Actor):
    async def terminate(self, reason):
        print("busy", flush=True)
        compute()

def compute():
    for _ in range(times):
        try:
            os.kill(os.getpid(), number)  # as from outside, at this instant
        except KeyboardInterrupt:
            if what != "deaf":
                raise
    while True:
        pass

async def spin(*, task_status):
    task_status.started()
    compute()

async def leave(*, task_status):
    task_status.started()
    await trio.sleep(0)
    if what == "exit":
        sys.exit(3)
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "words":
        sys.exit("these are the reasons")
    os.kill(os.getpid(), number)
    await trio.sleep_forever()

KINDS = {"term": spin, "spin": spin, "deaf": spin}
START = Busy if what == "terminate" else KINDS.get(what, leave)

async def main():
    low = supervisor_spec("low", [ChildSpec("b", Polite), ChildSpec("odd", START)])
    async with open_supervisor([ChildSpec("a", Polite), low]):
        if what == "terminate":
            os.kill(os.getpid(), number)
        await trio.sleep_forever()

run(main)
"""


def ended(what: str, times: int = 0) -> tuple[list[str], int, str]:
    """Lines, status and standard error of the program."""
    argv = [sys.executable, "-c", PROGRAM, what, str(times)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines(), done.returncode, done.stderr


INTERRUPTED = (130, -signal.SIGINT)


@pytest.mark.covers("T5")
def test_a_child_that_calls_sys_exit_gives_the_program_its_status() -> None:
    assert ended("exit") == (["stopped b", "stopped a"], 3, "")


@pytest.mark.covers("T5")
def test_a_child_that_exits_with_words_leaves_them_alone_on_stderr() -> None:
    assert ended("words") == (["stopped b", "stopped a"], 1, "these are the reasons\n")


@pytest.mark.covers("T5")
def test_a_child_that_raises_keyboard_interrupt_ends_the_program_as_ctrl_c_does() -> None:
    lines, status, errors = ended("interrupt")
    assert (lines, status in INTERRUPTED) == (["stopped b", "stopped a"], True)
    assert errors.rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert "Group" not in errors


async def exits(status: object, *, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.lowlevel.checkpoint()
    raise SystemExit(status)


@pytest.mark.covers("T5")
def test_an_exit_of_one_of_several_roots_stops_all_and_comes_out_bare() -> None:
    notes: Notes = []

    async def tree(*children: ChildSpec) -> None:
        async with open_supervisor(children):
            await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree, player("a", notes))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(tree, player("b", notes), ChildSpec("exits", exits, (3,)))

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 3
    assert caught.value.__cause__ is None
    assert notes == ["+a", "+b", "-b", "-a"]


@pytest.mark.covers("T5")
def test_what_fails_beside_an_exit_is_its_cause() -> None:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("beside")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            async with open_supervisor([ChildSpec("exits", exits, (3,))]):
                await trio.sleep_forever()

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 3
    group: Any = caught.value.__cause__
    assert [str(error) for error in group.exceptions] == ["beside"]


@pytest.mark.covers("T5")
def test_an_exit_of_the_program_itself_comes_out_bare_from_any_depth() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery, open_supervisor([ChildSpec("a", forever)]):
            nursery.start_soon(trio.sleep_forever)
            raise SystemExit(4)

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 4


@pytest.mark.covers("T5")
def test_a_signal_decides_the_status_though_a_child_exits_while_it_is_stopped() -> None:
    class Leaves(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            raise SystemExit(9)

    async def main() -> None:
        async with open_supervisor([supervisor_spec("low", [ChildSpec("a", Leaves)])]):
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 128 + signal.SIGTERM


def test_an_error_of_the_programs_own_is_raised_though_a_signal_came() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("clean-up")

    with pytest.raises(Boom, match="clean-up"):
        run(main)


@pytest.mark.covers("T5")
def test_a_signal_that_comes_while_a_child_computes_stops_the_children_in_order() -> None:
    lines, status, _ = ended("signal")
    assert (lines, status in INTERRUPTED) == (["stopped b", "stopped a"], True)


@pytest.mark.covers("T5")
def test_a_second_ctrl_c_ends_a_child_that_never_comes_to_a_checkpoint() -> None:
    lines, status, errors = ended("spin", 2)
    assert (lines, status in INTERRUPTED) == ([], True)
    assert errors.rstrip().splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.covers("T5")
def test_a_second_sigterm_ends_a_child_that_never_comes_to_a_checkpoint() -> None:
    assert ended("term", 2) == ([], 128 + signal.SIGTERM, "")


@pytest.mark.covers("T5")
def test_a_second_signal_ends_a_terminate_that_never_comes_to_a_checkpoint() -> None:
    lines, status, _ = ended("terminate", 1)
    assert (lines, status in INTERRUPTED) == (["busy"], True)


@pytest.mark.covers("T5")
def test_a_third_ctrl_c_ends_the_process_though_a_child_swallows_the_second() -> None:
    assert ended("deaf", 3) == ([], -signal.SIGINT, "")


def test_the_handlers_of_before_are_back_when_the_program_has_ended() -> None:
    def own(*_: object) -> None: ...

    async def main() -> None:
        assert signal.getsignal(signal.SIGTERM) is not own
        raise Boom("out")

    before = signal.getsignal(signal.SIGINT)
    previous = signal.signal(signal.SIGTERM, own)
    try:
        with pytest.raises(Boom):
            run(main)
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGTERM, previous)


async def test_a_run_outside_the_main_thread_is_refused() -> None:
    with pytest.raises(RuntimeError, match="main thread"):
        await trio.to_thread.run_sync(run, trio.sleep, 0)
