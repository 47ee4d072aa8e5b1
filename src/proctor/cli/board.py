"""The fleet as a table: one row per supervisor and agent, and under it what happened last.

Pure: the tree, the agents' status and the story in, something for rich to draw out. `summary` is the closing table,
as plain text for any terminal, pipe or file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.actors.states import Status
from proctor.cli.story import Line, Tone, Watched
from proctor.cli.verdicts import OUTCOMES
from proctor.cli.wording import money, one_line, printable
from proctor.runtime.slots import TreeNode

STYLES: Mapping[Tone, str] = {"plain": "", "good": "green", "bad": "red", "faint": "dim"}
STATES: Mapping[str, str] = {
    "working": "green",
    "idle": "green",
    "blocked": "yellow",
    "parked": "yellow",
    "stalled": "red",
    "backoff": "yellow",
    "failed": "red",
}


def told_line(seconds: float, line: Line, width: int) -> str:
    """`  1.2s  phoenix  killed by SIGKILL in mid-turn`; `width` is that of the longest name."""
    return f"{seconds:6.1f}s  {line.who:<{width}}  {line.text}"


def board(
    tree: TreeNode,
    statuses: Mapping[str, Status],
    agents: Mapping[str, Watched],
    lines: Sequence[tuple[float, Line]],
    height: int,
) -> RenderableType:
    """What a terminal of `height` lines shows."""
    rows = list(_rows(tree, statuses, agents))
    table = Table(box=None, pad_edge=False, expand=True)
    for title in ("", "state", "why", "start", "turns", "cost"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    table.add_column("last words", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    room = max(1, height - len(rows) - 4)
    width = max((len(line.who) for _, line in lines), default=0)
    tail = [
        Text(told_line(at, line, width), STYLES[line.tone], no_wrap=True, overflow="ellipsis")
        for at, line in lines[-room:]
    ]
    return Group(table, Text(), *tail, Text("Ctrl-C stops the fleet", "dim"))


def _rows(
    node: TreeNode, statuses: Mapping[str, Status], agents: Mapping[str, Watched], depth: int = 0
) -> Iterator[tuple[str | Text, ...]]:
    name = f"{'  ' * depth}{node.id}"
    if node.path in agents:
        yield _agent_row(name, node, statuses.get(node.path), agents[node.path])
    else:
        yield Text(name, "bold"), Text(node.state, "dim"), "", "", "", "", ""
    for child in node.children:
        yield from _rows(child, statuses, agents, depth + 1)


def _agent_row(name: str, node: TreeNode, status: Status | None, watched: Watched) -> tuple[str | Text, ...]:
    state, why = word_of(node, status)
    plural = "s" if node.restarts > 1 else ""
    restarts = f" ({node.restarts} restart{plural})" if node.restarts else ""
    return (
        name,
        Text(state, STATES.get(state, "dim")),
        one_line(why, 40),
        f"{node.incarnation}{restarts}",
        str(watched.turns),
        money(watched.cost_usd),
        Text(watched.words),
    )


def word_of(node: TreeNode, status: Status | None) -> tuple[str, str]:
    """An agent's state and its evidence: its own word while it runs, else its supervisor's."""
    if status is not None and node.state == "running":
        return status.state, status.evidence
    words = {"restarting": "backoff", "down": "stopped", "running": "idle"}
    return words.get(node.state, node.state), "" if node.exit is None else str(node.exit)


def summary(agents: Mapping[str, Watched], root: str) -> list[str]:
    """The closing table, one line per agent below a line of titles."""
    rows = [("agent", "result", "starts", "turns", "cost", "last words")]
    for path, watched in agents.items():
        starts = str(watched.incarnation)
        cost = money(watched.cost_usd)
        name = path.removeprefix(f"{root}/")
        rows.append((name, result(watched), starts, str(watched.turns), cost, watched.words))
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    return [
        "  ".join((*(f"{cell:<{widths[n]}}" for n, cell in enumerate(row[:5])), row[5])).rstrip()
        for row in rows
    ]


def answers(agents: Mapping[str, Watched], root: str) -> list[str]:
    """The last answer of each agent that gave one, whole, with its session to go on with."""
    lines: list[str] = []
    for path, watched in agents.items():
        if watched.answer is not None and watched.answer.text.strip():
            session = watched.answer.session_id or watched.session
            lines += ["", f"{path.removeprefix(f'{root}/')}{f' (session {session})' if session else ''}:"]
            lines += [f"  {printable(line)}" for line in watched.answer.text.strip().splitlines()]
    return lines


def result(watched: Watched) -> str:
    """How an agent's prompt ended, in a word or two."""
    if watched.answer is not None:
        return OUTCOMES[watched.answer.outcome][1]
    return "no answer" if watched.failure is not None else "-"
