from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from proctor.runtime import Backoff, ChildSpec, SupervisorEvent, open_supervisor
from proctor.testing import SimulationOverran, simulate


async def runner(number: int, *, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.sleep(1 + number)
    raise ValueError(number)


async def race() -> list[str]:
    """Ten children crash in pairs, again and again: who is first within an instant is chance."""
    children = [ChildSpec(f"c{number}", runner, (number // 2,)) for number in range(10)]
    told: list[str] = []
    async with open_supervisor(children, intensity=30, period=0.5) as sup:
        with sup.events() as events, trio.move_on_after(10.5):
            async for event in events:
                told.append(told_as(event))
    return told


async def put_off_race(delays: int) -> list[str]:
    """The same with restarts that are put off: their delays are chance too, that of the tree."""
    backoff = Backoff(min_delay=0.5, max_delay=2.0, jitter=1.0)
    children = [ChildSpec(f"c{number}", runner, (number // 2,), backoff=backoff) for number in range(10)]
    told: list[str] = []
    async with open_supervisor(children, intensity=1000, period=0.5, seed=delays) as sup:
        with sup.events() as events, trio.move_on_after(30.5):
            async for event in events:
                told.append(f"{told_as(event)} {getattr(event, 'delay', '')}")
    return told


def told_as(event: SupervisorEvent) -> str:
    return f"{event.seq} {event.time} {event.kind} {event.path} {getattr(event, 'reason', '')}"


@pytest.mark.covers("X16")
def test_the_same_seed_gives_the_same_log() -> None:
    first = simulate(race, seed=7)
    assert len(first) > 100
    assert all(simulate(race, seed=7) == first for _ in range(20))


@pytest.mark.covers("X16")
def test_another_seed_gives_another_log() -> None:
    logs = {tuple(simulate(race, seed=seed)) for seed in range(10)}
    assert len(logs) == 10
    assert len({tuple(sorted(line.partition(" ")[2] for line in log)) for log in logs}) == 1


@pytest.mark.covers("X1", "X16")
def test_the_same_seeds_give_the_same_log_with_delays_by_chance() -> None:
    first = simulate(put_off_race, 1, seed=7)
    assert len({line.rpartition(" ")[2] for line in first}) > 50
    assert simulate(put_off_race, 1, seed=7) == first


@pytest.mark.covers("X1", "X16")
def test_another_seed_of_the_tree_or_of_the_ties_gives_another_log() -> None:
    seeds = [(1, 7), (2, 7), (3, 7), (1, 8), (1, 9)]
    logs = {tuple(simulate(put_off_race, delays, seed=ties)) for delays, ties in seeds}
    assert len(logs) == len(seeds)


@pytest.mark.covers("X16")
def test_what_ran_before_changes_nothing() -> None:
    first = simulate(race, seed=7)
    trio.run(trio.sleep, 0)
    simulate(race, seed=8)
    assert simulate(race, seed=7) == first


@pytest.mark.covers("X16")
def test_time_starts_at_zero_and_costs_nothing() -> None:
    async def main(seconds: float) -> float:
        await trio.sleep(seconds)
        return trio.current_time()

    assert simulate(main, 86_400.0) == 86_400.0


def test_what_the_program_raises_comes_out_as_it_is() -> None:
    async def main() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        simulate(main)


@pytest.mark.covers("X16")
def test_a_program_that_waits_for_nothing_is_cut_in_virtual_time() -> None:
    with pytest.raises(SimulationOverran, match="cut after 60 virtual seconds") as caught:
        simulate(trio.sleep_forever, seconds=60)
    assert caught.value.seconds == 60


@pytest.mark.covers("X16")
def test_a_program_that_turns_for_ever_within_one_instant_is_cut() -> None:
    async def main() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(SimulationOverran, match="cut after 0 virtual seconds and") as caught:
        simulate(main, turns=1000)
    assert caught.value.turns >= 1000


def test_a_program_that_ends_at_the_last_moment_is_not_cut() -> None:
    async def main() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return "done"

    assert simulate(main, seconds=59) == "done"


@pytest.mark.covers("X16")
def test_the_chance_of_other_runs_is_put_back() -> None:
    scheduler = importlib.import_module("trio._core._run")
    before = scheduler._r.getstate(), scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    simulate(race, seed=7)
    assert (scheduler._r.getstate(), scheduler._ALLOW_DETERMINISTIC_SCHEDULING) == before


@contextmanager
def without(module: Any, name: str) -> Generator[None]:
    held = getattr(module, name)
    delattr(module, name)
    try:
        yield
    finally:
        setattr(module, name, held)


@pytest.mark.parametrize("name", ["_r", "_ALLOW_DETERMINISTIC_SCHEDULING"])
def test_a_trio_that_cannot_be_seeded_is_refused_by_name_and_version(name: str) -> None:
    refused = pytest.raises(RuntimeError, match=f"trio {trio.__version__} does not have the random source")
    with without(importlib.import_module("trio._core._run"), name), refused:
        simulate(race)
