from __future__ import annotations

from pathlib import Path

import attrs
import trio
from trio.testing import MockClock

from proctor.actors.specs import agent_spec, open_supervisor
from tests.actors.spoken import spoken_plan

AGENTS = 8


class NewFolders(trio.abc.Instrument):
    """The most folders that came into `root` in one pass of the loop."""

    def __init__(self, root: Path) -> None:
        self.most = self.count = 0
        self._root = root

    def before_io_wait(self, timeout: float) -> None:
        del timeout
        count = len([*self._root.iterdir()])
        self.most, self.count = max(self.most, count - self.count), count


async def test_the_agents_of_a_tree_open_their_files_in_passes_of_their_own(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan = spoken_plan()
    plan = attrs.evolve(plan, workplace=attrs.evolve(plan.workplace, record=tmp_path))
    folders = NewFolders(tmp_path)
    trio.lowlevel.add_instrument(folders)
    specs = [agent_spec(f"a{number}", plan, {}) for number in range(AGENTS)]
    async with open_supervisor(specs):
        pass
    trio.lowlevel.remove_instrument(folders)
    assert (folders.most, folders.count) == (1, AGENTS)
