"""A disk that is full and stays full: at which moment of an agent's life it may be, and what is left open."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

import proctor
from proctor.runtime.exits import DeliveryError
from tests.actors.far_end import Step, write_script
from tests.chaos.machine import full_disk
from tests.runtime.belongings import descriptors, descriptors_at_first

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

SCRIPT: Sequence[Step] = ({"say": "begun", "deltas": 20, "delay": 0.02}, {"reply": "done"})
FOREVER = 1_000_000


async def live(folder: Path, moment: str) -> str:
    """One life of an agent, whose disk becomes full at `moment`; how its request ended."""
    script = write_script(folder, SCRIPT)
    child = proctor.scripted("a", script, record=folder / "runs", env={"CLAUDE_CONFIG_DIR": str(folder)})
    with ExitStack() as stack:
        async with proctor.open_supervisor([child], intensity=FOREVER) as sup:
            agent = sup.agent("a")
            assert (await agent.ask("hello")).ok
            if moment == "idle":
                stack.enter_context(full_disk())
            try:
                with trio.move_on_after(3):
                    async with agent.stream("hello") as events:
                        async for _ in events:
                            if moment == "working":
                                moment = "struck"
                                stack.enter_context(full_disk())
            except (proctor.AgentError, DeliveryError) as error:
                return type(error).__name__
            if moment == "done":
                stack.enter_context(full_disk())
    return "ok"


async def test_a_start_for_which_there_is_no_room_is_no_mistake_of_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    child = proctor.scripted("a", write_script(tmp_path, SCRIPT), dialect="claude-oneshot")
    async with proctor.open_supervisor([child]) as sup:
        assert (await sup.agent("a").ask("hello")).ok
        for path in temporary.iterdir():  # a cleaner of temporary folders
            shutil.rmtree(path)
        with full_disk():
            answer = await sup.agent("a").ask("hello")
        assert (answer.outcome, "No space left on device" in str(answer.error)) == ("failed", True)
        assert (await sup.agent("a").ask("hello")).ok


@pytest.mark.parametrize("moment", ["idle", "working", "done"])
async def test_a_disk_that_stays_full_leaves_no_descriptor_open(tmp_path: Path, moment: str) -> None:
    before = descriptors_at_first()
    await live(tmp_path, moment)
    gc.collect()
    await trio.lowlevel.checkpoint()
    assert {n: what for n, what in descriptors().items() if before.get(n) != what} == {}
