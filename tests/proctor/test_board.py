from __future__ import annotations

import io

from rich.console import Console, ConsoleDimensions

from proctor.actors.agent.states import Status
from proctor.cli.ui.fleet_log import AgentSummary, Line
from proctor.cli.ui.fleet_table import PAGE, live_table
from proctor.runtime.messaging.supervisor_handle import TreeNode
from tests.tables import each_row

NAMES = [f"agent-with-a-long-name-{n}" for n in range(40)]


def node(name: str) -> TreeNode:
    return TreeNode(path=f"team/{name}", id=name, type="worker", state="running")


TREE = TreeNode(
    path="team", id="team", type="supervisor", state="running", children=tuple(node(name) for name in NAMES)
)
STATUSES = {
    f"team/{name}": Status(name=name, state="working", evidence="12 characters: asked") for name in NAMES
}
AGENTS = {f"team/{name}": AgentSummary(turns=3, cost_usd=0.25, words="nearly done") for name in NAMES}


def drawn(width: int, height: int, now: float = 0.0) -> list[str]:
    size = ConsoleDimensions(width, height)
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(live_table(TREE, STATUSES, AGENTS, [(0.0, Line("a", "started"))] * 50, size, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@each_row("width", [200, 120, 100, 80, 60, 50, 40, 30, 20])
def test_the_state_is_the_last_to_be_cut(width: int) -> None:
    lines = drawn(width, 20)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= 20
    assert sum(" working" in line for line in lines) > 5
    assert ("nearly done" in lines[2]) == (width >= 100)


def test_a_wide_terminal_shows_all_columns_whole() -> None:
    lines = drawn(200, 60)
    assert lines[2].split() == [
        *(NAMES[0], "working", "12", "characters:", "asked", "0", "3", "$0.2500", "nearly", "done"),
    ]


def test_a_table_that_is_longer_than_the_terminal_is_shown_in_pages() -> None:
    pages = [drawn(100, 20, now=PAGE * n) for n in range(5)]
    shown = [{name for name in NAMES if any(f"{name} " in line for line in page)} for page in pages]
    assert {name for names in shown[:4] for name in names} == {*NAMES}
    assert shown[0] != shown[1]
    assert any("rows 1 to 13 of 41" in line for line in pages[0])
    assert all("Ctrl-C stops the fleet" in page[-1] for page in pages)
