"""The update of a running fleet to another version of its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import proctor
from proctor.actors.errors import FleetFaults
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.fleet.reload import LATER, FleetUpdate, difference
from tests.tables import each_row

SERVER = '[[servers]]\nname = "files"\n'


def agent(name: str, *keys: str) -> str:
    return "\n".join(["[[agents]]", 'kind = "scripted"', 'script = "s.ndjson"', f'name = "{name}"', *keys])


def below(name: str, *agents: str, flags: str = "") -> str:
    parts = [part.replace("[[agents]]", "[[supervisors.agents]]") for part in agents]
    return "\n".join(["[[supervisors]]", f'name = "{name}"', flags, *parts])


def fleet(folder: Path, *parts: str) -> Fleet:
    (folder / "s.ndjson").write_text('{"reply": "{prompt}"}\n')
    (folder / "f.toml").write_text("\n".join(parts))
    return load_fleet(folder / "f.toml").degrading()


CHANGED = agent("a", "timeout = 5")


@each_row(
    ("old", "new", "found"),
    [
        ([agent("a")], [agent("a")], {"unchanged": ["a"]}),
        ([agent("a")], [agent("a"), agent("b")], {"unchanged": ["a"], "added": ["b"]}),
        ([agent("a"), agent("b")], [agent("b")], {"unchanged": ["b"], "removed": ["a"]}),
        ([agent("a")], [CHANGED], {"changed": ["a"]}),
        ([below("s", agent("a"))], [below("s", CHANGED)], {"changed": ["a"]}),
        ([agent("a")], [below("s", agent("a"))], {"added": ["a"], "removed": ["a"]}),
        (["stagger = 1", agent("a")], [agent("a")], {"unchanged": ["a"], "problems": [f"stagger: {LATER}"]}),
        (
            [SERVER, agent("a")],
            [SERVER, "port = 4000", agent("a")],
            {"unchanged": ["a"], "problems": [f"server 'files': {LATER}"]},
        ),
    ],
)
def test_what_another_version_of_a_file_changes(
    old: Sequence[str], new: Sequence[str], found: dict[str, Any], tmp_path: Path
) -> None:
    result = difference(fleet(tmp_path, *old), fleet(tmp_path, *new))
    shown = {name: getattr(result, name) for name in ("added", "changed", "removed", "unchanged", "problems")}
    assert {name: list(value) for name, value in shown.items() if value} == found


class Running:
    """A fleet that runs, and is updated."""

    def __init__(self, sup: proctor.Supervisor, fleet: Fleet) -> None:
        self.sup = sup
        self.fleet = fleet

    async def update(self, new: Fleet, *, restart: bool = False) -> FleetUpdate:
        update = FleetUpdate(self.sup, self.fleet, new, None, restart)
        await update.carry_out(self._follow)
        return update

    def _follow(self, fleet: Fleet) -> None:
        self.fleet = fleet

    async def pid(self, name: str) -> int | None:
        return (await self.sup.agent(name).status()).pid

    @property
    def places(self) -> dict[str, str]:
        """The state of each child that is no supervisor, by its path."""

        def leaves(node: Any) -> dict[str, str]:
            if node.type == "supervisor":
                return {path: state for child in node.children for path, state in leaves(child).items()}
            return {node.path.partition("/")[2]: node.state}

        return leaves(self.sup.tree())


async def test_a_fleet_is_updated_and_what_is_the_same_is_not_touched(tmp_path: Path) -> None:
    old = fleet(tmp_path, agent("a"), agent("moves"), agent("goes"), below("s", agent("c")))
    async with proctor.open_supervisor(old.specs(), name="f", **old.tree()) as sup:
        running, pids = Running(sup, old), {}
        for name in ("a", "c", "moves"):
            pids[name] = await running.pid(name)
        added = below("t", agent("d"))
        new = fleet(
            tmp_path, "intensity = 7", agent("new"), agent("a"), below("s", agent("c"), agent("moves")), added
        )
        update = await running.update(new)
        assert sorted(update.started) == ["/new", "/s/moves", "/t/d"]
        assert running.fleet == new
        assert running.places == dict.fromkeys(("new", "a", "s/c", "s/moves", "t/d"), "running")
        assert [await running.pid(name) for name in ("a", "c")] == [pids["a"], pids["c"]]
        assert await running.pid("moves") != pids["moves"]
        assert [node.id for node in sup.tree().children] == ["new", "a", "s", "t"]
        again = await running.update(new)
        assert (again.started, again.failed) == ([], [])


async def test_a_changed_agent_goes_on_until_it_is_idle_and_a_restart_was_asked_for(tmp_path: Path) -> None:
    old = fleet(tmp_path, agent("a"), agent("busy"), agent("down"))
    (tmp_path / "hangs.ndjson").write_text('{"say": "I begin."}\n{"sleep": 600}\n{"reply": "never"}\n')
    changed = [agent(name, 'model = "other"') for name in ("a", "busy", "down")]
    new = fleet(tmp_path, *changed, agent("broken", 'cwd = "/"').replace("s.ndjson", "hangs.ndjson"))
    busy = agent("busy").replace("s.ndjson", "hangs.ndjson")
    old = fleet(tmp_path, agent("a"), busy, agent("down"))
    async with proctor.open_supervisor(old.specs(), name="f", **old.tree()) as sup:
        running, pid = Running(sup, old), {}
        for name in ("a", "busy"):
            pid[name] = await running.pid(name)
        await sup.terminate_child("down")
        await sup.agent("busy").queue("work")
        first = await running.update(new)
        # the one that is down, and the new one
        assert sorted(first.started) == ["/broken", "/down"]
        assert difference(running.fleet, new).changed == ("a", "busy")
        second = await running.update(new, restart=True)
        assert second.started == ["/a"]
        assert difference(running.fleet, new).changed == ("busy",)
        assert (await running.pid("busy"), await running.pid("a") != pid["a"]) == (pid["busy"], True)
        await sup.agent("busy").interrupt()
        while (await sup.agent("busy").status()).state != "idle":  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert (await running.update(new, restart=True)).started == ["/busy"]
        assert difference(running.fleet, new).changed == ()


async def test_a_child_that_cannot_start_is_a_line_and_one_that_was_stopped_by_hand_stays_down(
    tmp_path: Path,
) -> None:
    old = fleet(tmp_path, agent("a"), agent("b"))
    async with proctor.open_supervisor(old.specs(), name="f", **old.tree()) as sup:
        running = Running(sup, old)
        await sup.overrides.stop("b")
        await sup.terminate_child("b")
        wrong = '[[agents]]\nkind = "acp"\nname = "c"\nargv = ["false"]\n'
        new = fleet(tmp_path, agent("a"), agent("b", 'model = "other"'), wrong)
        update = await running.update(new)
        assert update.started == []
        [line] = update.failed
        assert line.startswith("c: could not start: ")
        assert running.places == {"a": "running", "b": "down", "c": "down"}
        (tmp_path / "s.ndjson").unlink()
        with pytest.raises(FleetFaults, match=r"as it runs: .*cannot be read"):
            await running.update(new)
