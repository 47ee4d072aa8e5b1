"""Tables of a fleet: the live table for a terminal, and the closing table as plain text.

Pure: the tree, the status of the agents and the last lines go in, something that rich can draw comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import localtime, strftime
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.actors.agent.states import Status
from proctor.cli.ui.fleet_log import AgentSummary, Line, Tone
from proctor.cli.ui.need import need, style_of, word_of
from proctor.cli.ui.renderers import answer_record
from proctor.cli.ui.text import aligned, money, one_line, printable
from proctor.cli.ui.verdict import PHRASES
from proctor.runtime.messaging import TreeNode

Row: TypeAlias = tuple[str | Text, ...]
STYLES: Mapping[Tone, str] = {"plain": "", "good": "green", "bad": "red", "faint": "dim"}

TITLES = ("", "state", "why", "start", "turns", "cost", "last words")
DROP_ORDER = ("last words", "why", "cost", "turns", "start")
"""Columns in the order in which a narrow terminal drops them; the state always stays."""
MIN_WORDS = 12
"""The least width of the column `last words`."""
MIN_LINES = 3
"""The least number of lines below the table."""
PAGE = 4.0
"""Seconds that each page of a table longer than the terminal is shown."""


def format_line(at: float, line: Line, width: int) -> str:
    """Format a line: `14:05:09  phoenix  killed by SIGKILL in mid-turn`. `at` in Unix seconds, `width` of the longest name."""
    return f"{strftime('%H:%M:%S', localtime(at))}  {line.who:<{width}}  {line.text}"


def live_table(
    tree: TreeNode,
    statuses: Mapping[str, Status],
    agents: Mapping[str, AgentSummary],
    lines: Sequence[tuple[float, Line]],
    size: ConsoleDimensions,
    now: float = 0.0,
) -> RenderableType:
    """The table and the last lines for a terminal of this size. A longer table is shown page by page, by `now` (seconds)."""
    rows, page = _page(list(_rows(tree, statuses, agents)), size.height, now)
    room = max(1, size.height - len(rows) - 4)
    width = max((len(line.who) for _, line in lines), default=0)
    tail = [
        Text(format_line(at, line, width), STYLES[line.tone], no_wrap=True, overflow="ellipsis")
        for at, line in lines[-room:]
    ]
    return Group(_table(rows, size.width), Text(page, "dim"), *tail, Text("Ctrl-C stops the fleet", "dim"))


def _page(rows: Sequence[Row], height: int, now: float) -> tuple[Sequence[Row], str]:
    room = max(1, height - MIN_LINES - 4)
    if len(rows) <= room:
        return rows, ""
    first = int(now / PAGE) % -(-len(rows) // room) * room
    shown = rows[first : first + room]
    return shown, f"rows {first + 1} to {first + len(shown)} of {len(rows)}"


def _table(rows: Sequence[Row], width: int) -> Table:
    needed = [max(cell_len(str(cell)) for cell in column) for column in zip(TITLES, *rows, strict=True)]
    shown = list(range(len(TITLES)))
    needed[-1] = MIN_WORDS
    for title in DROP_ORDER:
        if sum(needed[n] + 1 for n in shown) - 1 <= width:
            break
        shown.remove(TITLES.index(title))
    rest = width - sum(needed[n] + 1 for n in shown if n != 0)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for n in shown:
        most = max(1, rest) if n == 0 else None
        ratio = 1 if n == len(TITLES) - 1 else None
        table.add_column(TITLES[n], no_wrap=True, overflow="ellipsis", max_width=most, ratio=ratio)
    for row in rows:
        table.add_row(*(row[n] for n in shown))
    return table


def _rows(
    node: TreeNode, statuses: Mapping[str, Status], agents: Mapping[str, AgentSummary], depth: int = 0
) -> Iterator[Row]:
    name = f"{'  ' * depth}{node.id}"
    if node.path in agents:
        yield _agent_row(name, node, statuses.get(node.path), agents[node.path])
    else:
        yield Text(name, "bold"), Text(node.state, "dim"), "", "", "", "", ""
    for child in sorted(node.children, key=partial(_need, statuses)):
        yield from _rows(child, statuses, agents, depth + 1)


def _need(statuses: Mapping[str, Status], node: TreeNode) -> int:
    """The place of a child among its siblings: that of the agent below it that needs somebody most."""
    below = min((_need(statuses, child) for child in node.children), default=None)
    return need(state_of(node, statuses.get(node.path))[0]) if below is None else below


def _agent_row(name: str, node: TreeNode, status: Status | None, watched: AgentSummary) -> Row:
    state, why = state_of(node, status)
    plural = "s" if node.restarts > 1 else ""
    restarts = f" ({node.restarts} restart{plural})" if node.restarts else ""
    return (
        name,
        Text(word_of(state), style_of(state)),
        one_line(why, 40),
        f"{node.incarnation}{restarts}",
        str(watched.turns),
        money(watched.cost_usd),
        Text(watched.words),
    )


def state_of(node: TreeNode, status: Status | None) -> tuple[str, str]:
    """The state of an agent and its evidence: its own while it runs, else that of its supervisor."""
    if status is not None and node.state == "running":
        return status.state, status.evidence
    words = {"restarting": "backoff", "down": "stopped", "running": "idle"}
    return words.get(node.state, node.state), "" if node.exit is None else str(node.exit)


def summary(agents: Mapping[str, AgentSummary], root: str) -> list[str]:
    """The closing table: titles, then a line for each agent."""
    rows = [("agent", "result", "starts", "turns", "cost", "last words")]
    for path, watched in agents.items():
        starts = str(watched.incarnation)
        cost = money(watched.cost_usd)
        name = path.removeprefix(f"{root}/")
        rows.append((name, result(watched), starts, str(watched.turns), cost, watched.words))
    return aligned(rows)


def answers(agents: Mapping[str, AgentSummary], root: str) -> list[str]:
    """For each agent its result and cost, its last answer, whole, its session and the folders that stay."""
    lines: list[str] = []
    for path, watched in agents.items():
        text = "" if watched.answer is None else watched.answer.text.strip()
        places = {
            "session": session_of(watched),
            "recording": watched.recording,
            "worktree": watched.worktree,
        }
        known = [f"  {what}: {printable(place)}" for what, place in places.items() if place is not None]
        if text or known:
            facts = ", ".join(filter(None, (result(watched), money(watched.cost_usd))))
            lines += ["", f"{path.removeprefix(f'{root}/')} ({facts}):"]
            lines += [f"  {printable(line)}" for line in text.splitlines()]
            lines += known
    return lines


def result_record(agent: str, path: str, watched: AgentSummary) -> dict[str, Any]:
    """The last record about an agent in `--json`: how its prompt ended, what it cost, its session and the folders that stay."""
    answer = watched.answer
    return {
        "type": "result",
        "agent": agent,
        "path": path,
        "ok": answer is not None and answer.ok,
        "outcome": None if answer is None else answer.outcome,
        "failure": watched.failure,
        "starts": watched.incarnation,
        "restarts": watched.restarts,
        "turns": watched.turns,
        "cost_usd": watched.cost_usd,
        "session_id": session_of(watched),
        "recording": watched.recording,
        "worktree": watched.worktree,
        "answer": None if answer is None else answer_record(answer, watched.recording),
    }


def session_of(watched: AgentSummary) -> str | None:
    """The session that a later run can resume."""
    return (watched.answer.session_id if watched.answer is not None else None) or watched.session


def result(watched: AgentSummary) -> str:
    """The result of an agent's prompt in a word or two."""
    if watched.answer is not None:
        return PHRASES[watched.answer.outcome]
    return "no answer" if watched.failure is not None else "-"
