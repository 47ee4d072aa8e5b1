from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from proctor.actors.process.memory import memory_of
from proctor.actors.serving.capacity import MOST, default_limit, total_memory
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.runtime.processes.process import Command, open_process
from proctor.runtime.processes.procfs import children_of, resident_of
from tests.actors.far_end import plan_of
from tests.actors.spoken import spoken_plan
from tests.runtime.programs import ENV
from tests.tables import each_row

GIB = 2**30
FAMILY = """
import os, subprocess, sys
held = b'x' * 30_000_000
below = subprocess.Popen([sys.executable, '-c', "import sys; held = b'x' * 60_000_000; print('up', flush=True); sys.stdin.read()"],
    stdout=1, start_new_session=True)
below.wait()
"""


@pytest.mark.covers("R049")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
async def test_a_tree_is_counted_with_what_hides_in_a_session_of_its_own() -> None:
    command = Command((sys.executable, "-c", FAMILY), ENV)
    async with open_process(command, guard=True) as process:
        assert await process.receive() == b"up\n"
        found = memory_of(process.pid)
        assert found is not None
        assert found.processes == 3  # the guard, the program, and what it started
        assert found.largest > 60_000_000
        assert found.resident > found.largest + 30_000_000
        process.kill()
        await process.wait()
    assert memory_of(process.pid) is None


@pytest.mark.covers("R049")
async def test_what_has_vanished_is_no_error() -> None:
    gone = 2**22 + 1
    assert (children_of(gone), resident_of(gone)) == ([], None)
    assert memory_of(gone, None) is None
    assert memory_of() is None


@pytest.mark.covers("R049")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
async def test_an_agent_tells_what_its_processes_hold(tmp_path: Path) -> None:
    async with open_supervisor([agent_spec("agent", plan_of(tmp_path), {})]) as sup:
        found = await sup.agent("agent").memory()
        assert found is not None
        assert found.processes >= 2
        assert 5_000_000 < found.resident < GIB


async def test_an_agent_without_a_process_holds_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([agent_spec("agent", spoken_plan(), {})]) as sup:
        assert await sup.agent("agent").memory() is None


@pytest.mark.covers("R049", "R121")
@each_row(
    ("memory", "cores", "limit"),
    [
        (64 * GIB, 16, MOST),
        (64 * GIB, 2, 8),
        (8 * GIB, 8, 8),
        (4 * GIB, 8, 4),
        (GIB // 2, 8, 1),
        (0, 1, 1),
    ],
)
def test_the_default_size_of_a_pool_follows_memory_and_cores(memory: int, cores: int, limit: int) -> None:
    assert default_limit(memory, cores) == limit


@pytest.mark.covers("R049")
@pytest.mark.parametrize(("text", "counts"), [("1048576\n", True), ("max\n", False), (None, False)])
def test_a_container_may_have_less_than_the_machine(text: str | None, counts: bool, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    if text is not None:
        limit.write_text(text)
    assert (total_memory(limit) == 1048576) == counts
    assert 1 <= default_limit() <= MOST
