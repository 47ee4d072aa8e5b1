"""What one agent costs the host beside its events."""

from __future__ import annotations

import select
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.recording import RunDirectory
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Command, Launch
from tests.runtime.programs import sh


def sleeping(launch: Launch) -> Command:
    return Command(argv=sh("exec sleep 1000").argv)


class Tasks(trio.abc.Instrument):
    """The tasks that have been spawned since and live, by name."""

    def __init__(self) -> None:
        self.alive: Counter[str] = Counter()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.alive[task.name.rpartition(".")[2]] += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.alive[task.name.rpartition(".")[2]] -= 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
async def test_an_agent_at_rest_has_a_task_for_its_life_its_output_its_clocks_and_its_exit(
    tmp_path: Path,
) -> None:
    assert hasattr(select, "epoll")
    quiet = attrs.evolve(CLAUDE, name="quiet", launch=sleeping)
    plan = Plan(name="quiet", dialect=quiet, launch=Launch(executable=(), mode="oneshot"))
    directory, tasks = RunDirectory(tmp_path, "quiet"), Tasks()
    log = directory.open_log()
    async with trio.open_nursery() as nursery:
        trio.lowlevel.add_instrument(tasks)
        await nursery.start(AgentProcess(plan, log, directory).serve)
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(tasks)
        alive = +tasks.alive
        nursery.cancel_scope.cancel()
    # nothing for what it writes, and nothing for stderr and the end of stdout, before there is something to do
    assert alive == {"the hub of pipes": 1, "serve": 1, "_read_output": 1, "_watch": 1, "_shielded": 1}
    log.release()
    directory.close()
