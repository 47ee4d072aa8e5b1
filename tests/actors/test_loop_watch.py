from __future__ import annotations

import gc
import logging
import re
import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.operations.loop_watch import Hold, LoopWatch, watch_loop
from proctor.actors.operations.metrics import LOOP_BOUND, Metrics

BOUND = 0.001


def spin(watch: LoopWatch) -> None:
    """Hold the loop until the watch has seen it here."""
    while not (watch.looks and "spin" in watch.looks[-1].stack):
        pass


def collect(watch: LoopWatch) -> None:
    while not watch.looks:
        gc.collect()


async def culprit(watch: LoopWatch, hold: Callable[[LoopWatch], None]) -> None:
    await trio.lowlevel.checkpoint()
    hold(watch)
    await trio.lowlevel.checkpoint()  # one that has ended is not found by its name


async def hold_of(hold: Callable[[LoopWatch], None]) -> Hold:
    """The longest that is reported of a task named `the culprit` that does `hold`."""
    holds: list[Hold] = []
    with watch_loop(BOUND, holds.append) as watch:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(culprit, watch, hold, name="the culprit")
        await trio.lowlevel.checkpoint()
    return max((hold for hold in holds if hold.task == "the culprit"), key=lambda hold: hold.seconds)


async def test_a_held_loop_names_the_task_and_the_code_that_held_it() -> None:
    hold = await hold_of(spin)
    assert re.search(r"test_loop_watch.py:\d+ culprit > test_loop_watch.py:\d+ spin$", hold.stack)
    assert hold.seconds > BOUND
    assert hold.computed > 0
    assert "by the culprit: test_loop_watch.py" in str(hold)


async def test_a_collection_of_garbage_that_holds_the_loop_is_told_apart() -> None:
    hold = await hold_of(collect)
    assert 0 < hold.collected <= hold.seconds


async def test_a_task_that_has_ended_is_named_by_its_function() -> None:
    holds: list[Hold] = []

    async def short(watch: LoopWatch) -> None:
        spin(watch)

    with watch_loop(BOUND, holds.append) as watch:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(short, watch, name="ended")
        await trio.lowlevel.checkpoint()
    assert [hold.task.rpartition(".")[2] for hold in holds if hold.stack.endswith("spin")] == ["short"]


async def test_no_thread_or_callback_is_left_after_the_watch(autojump_clock: MockClock) -> None:
    callbacks, threads = [*gc.callbacks], threading.active_count()
    with trio.move_on_after(1), watch_loop(60, print):
        await trio.sleep_forever()
    assert (gc.callbacks, threading.active_count()) == (callbacks, threads)


async def test_the_metrics_count_and_log_a_held_loop(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics({})
    with caplog.at_level(logging.WARNING, "proctor.loop"):
        async with trio.open_nursery() as nursery, proctor.open_supervisor([]) as sup:
            await nursery.start(metrics.follow, sup)
            while not metrics.held:
                hold_for(LOOP_BOUND)
                await trio.lowlevel.checkpoint()
    assert metrics.held > LOOP_BOUND
    record = caplog.records[0]
    assert (record.name, vars(record)["event"]) == ("proctor.loop", "loop_held")
    assert vars(record)["seconds"] > LOOP_BOUND


def hold_for(seconds: float) -> None:
    over = threading.Event()
    over.wait(seconds)
