from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from proctor.runtime import MaxRestartsExceeded, Subscription, Supervisor, open_supervisor
from proctor.runtime.processes.process import Process
from proctor.runtime.supervision.program import process
from tests.runtime.programs import ENV

COUNT = 1000


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@attrs.frozen
class Held:
    """What the runtime holds at a moment."""

    descriptors: int
    tasks: int
    processes: int
    children: int
    zombies: int


def held() -> Held:
    gc.collect()
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
    return Held(
        descriptors=len(os.listdir("/proc/self/fd")),
        tasks=trio.lowlevel.current_statistics().tasks_living,
        processes=sum(isinstance(thing, Process) for thing in gc.get_objects()),
        children=len(pids),
        zombies=states.count("Z"),
    )


def pids(sup: Supervisor) -> set[int]:
    found: set[int] = set()
    for node in sup.tree().children:
        assert node.ref is not None
        assert isinstance(node.ref.info, Process)
        found.add(node.ref.info.pid)
    return found


async def hear(events: Subscription, kind: str, count: int) -> None:
    async for event in events:
        count -= event.kind == kind
        if count == 0:
            return


async def kill_all_until_they_are_back_and_then_one_more(sup: Supervisor) -> None:
    before, first = held(), pids(sup)
    assert (before.processes, before.children, before.zombies) == (COUNT, COUNT, 0)
    with sup.events(buffer=10 * COUNT) as events, trio.fail_after(120):
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        await hear(events, "child_started", COUNT)
        assert events.dropped == 0
    assert held() == before
    assert pids(sup).isdisjoint(first)
    os.kill(next(iter(pids(sup))), signal.SIGKILL)
    await trio.sleep_forever()


@pytest.mark.covers("S14", "S31", "T19")
async def test_a_thousand_processes_killed_at_once_all_come_back_and_leave_nothing() -> None:
    descriptors = held().descriptors
    specs = [process(("sleep", "1000"), id=f"p{number}", env=ENV, stderr="null") for number in range(COUNT)]
    with pytest.raises(MaxRestartsExceeded, match=f"more than {COUNT} restarts"):
        async with open_supervisor(specs, intensity=COUNT, period=1000) as sup:
            await kill_all_until_they_are_back_and_then_one_more(sup)
    assert (held().children, held().descriptors) == (0, descriptors)
