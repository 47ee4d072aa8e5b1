from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
import trio

from proctor.runtime.processes.ledger import open_ledger
from proctor.runtime.processes.orphans import find_marked
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.process_errors import SpawnFailed
from proctor.runtime.processes.stopping import Step
from tests.runtime.belongings import belongings, belongings_at_first
from tests.runtime.programs import sh
from tests.runtime.stage import Boom

LADDER = (Step("close_stdin", 0.05), Step("terminate", 0.05), Step("kill"))
PROGRAMS = {
    "polite": sh("read x"),
    "deaf": sh("trap '' TERM; exec 0<&-; sleep 600"),
    "quick": sh("exit 3"),
    "family": sh("sleep 600 & setsid sleep 600 & (setsid sleep 600 &); wait"),
    "leaving": sh("setsid sleep 600 & exit 0"),
    "talkative": sh("yes"),
    "missing": Command(("no-such-program",), {}),
}
ENDS = ("leave", "stop", "kill", "kill -9", "kill -9 the leader", "raise", "wait", "cancel")
AT_ONCE, EARLY, LATE = 0.0, 0.03, 0.3


async def act(process: Process, end: str) -> None:
    match end:
        case "stop":
            await process.stop()
        case "kill":
            process.kill()
        case "kill -9":
            os.kill(process.leader_pid, signal.SIGKILL)
        case "kill -9 the leader":
            os.kill(process.pid, signal.SIGKILL)
        case "raise":
            raise Boom(end)
        case "wait":
            with trio.move_on_after(0.05):
                await process.wait()
        case "cancel":
            await trio.sleep_forever()
        case _:
            await trio.lowlevel.checkpoint()


async def live_once(chance: random.Random, seen: Counter[str]) -> None:
    """Start a program and end it, in some way; the ends of a cancelled one are cut short wherever they are."""
    name, end, guard = chance.choice(sorted(PROGRAMS)), chance.choice(ENDS), chance.random() < 0.5
    delay = chance.choice((AT_ONCE, EARLY, LATE)) * chance.random() if chance.random() < 0.5 else None
    deadline = 1.0 if delay is None and end == "cancel" else delay
    outcome = "left"
    with trio.move_on_after(float("inf") if deadline is None else deadline) as scope:
        try:
            async with open_process(PROGRAMS[name], guard=guard, ladder=LADDER, drain=0.05) as process:
                await trio.sleep(chance.choice((AT_ONCE, EARLY)))
                await act(process, end)
        except SpawnFailed:
            outcome = "not started"
        except Boom:
            outcome = "raised"
        except ProcessLookupError:
            outcome = "dead before"
    seen["cancelled" if scope.cancelled_caught else outcome] += 1
    seen[f"guarded {guard}"] += 1


@pytest.mark.covers("R037", "T19")
@pytest.mark.parametrize("seed", [1])
async def test_two_hundred_lives_of_processes_leave_no_process_descriptor_or_task(
    tmp_path: Path, seed: int
) -> None:
    chance, seen = random.Random(seed), Counter[str]()
    async with open_ledger(tmp_path / "warm"):  # what is made once and kept is no leak
        await trio.to_thread.run_sync(int)
    before = belongings_at_first()
    ledger = open_ledger(tmp_path / "hosts")
    with trio.fail_after(240):
        async with ledger, trio.open_nursery() as nursery:
            room = trio.CapacityLimiter(8)
            for _ in range(200):
                await room.acquire_on_behalf_of(own := random.Random(chance.random()))
                nursery.start_soon(_released, room, own, seen)
    after = belongings()
    assert after == before
    assert find_marked({ledger.key}) == ()
    assert seen.total() == 400
    assert min(seen.values()) > 0
    assert {"left", "cancelled", "raised", "not started", "guarded True", "guarded False"} <= set(seen)


async def _released(room: trio.CapacityLimiter, own: random.Random, seen: Counter[str]) -> None:
    try:
        await live_once(own, seen)
    finally:
        room.release_on_behalf_of(own)


@pytest.mark.covers("T6", "T7")
@pytest.mark.parametrize("guard", [False, True], ids=["bare", "guarded"])
async def test_a_fleet_cancelled_as_it_starts_leaves_nothing_at_all(tmp_path: Path, guard: bool) -> None:
    async def start() -> None:
        async with open_process(PROGRAMS["family"], guard=guard, ladder=LADDER, drain=0.05):
            await trio.sleep_forever()

    before = belongings_at_first()
    ledger = open_ledger(tmp_path)
    async with ledger:
        for wait in (0.0, 0.01, 0.05, 0.2):
            with trio.move_on_after(wait):
                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(start)
    assert find_marked({ledger.key}) == ()
    assert belongings() == before
