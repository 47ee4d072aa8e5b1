"""The columns of the table of agents: their texts, and which of them a terminal of some width shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import attrs

from proctor.cli.top.board import Record, Row
from proctor.cli.ui.need import word_of
from proctor.cli.ui.text import one_line, tool_use

DAY = 86400.0
LONGEST_NAME = 28
"""Cells of the longest name that is shown whole on a wide terminal."""
GAP = 2
"""Cells between two columns."""
BUSY = ("working", "starting", "stopping")
"""States in which it says more what an agent does than why it is in them."""
_SIZES = ("", "k", "M", "G", "T")


def short_time(seconds: float, now: float) -> str:
    """A length of time in six cells at most: `45s`, `12m`, `2h05`; beyond a day the date of its beginning."""
    if seconds >= DAY:
        return date(now - seconds, now)
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02}"
    return f"{minutes}m" if minutes else f"{left}s"


def date(at: float, now: float) -> str:
    """A day, with its year where that is another."""
    then = datetime.fromtimestamp(at)
    return f"{then:%b %d}" if then.year == datetime.fromtimestamp(now).year else f"{then:%b %Y}"


def short_count(number: float, base: int = 1000) -> str:
    """A number in five cells at most: `950`, `9.5k`, `126k`, `1.2M`."""
    size = 0
    while number >= base and size < len(_SIZES) - 1:
        number, size = number / base, size + 1
    return f"{number:.1f}{_SIZES[size]}" if size and number < 9.95 else f"{number:.0f}{_SIZES[size]}"


def dollars(amount: float | None) -> str:
    """An amount for a person, in cents."""
    return "" if amount is None else f"${amount:,.2f}"


def context(agent: Record) -> str:
    """How full the window of its model is."""
    used, window = agent.get("context_tokens"), agent.get("context_window")
    return f"{100 * used / window:.0f}%" if used is not None and window else ""


def spent(agent: Record) -> float | None:
    """The cost of today, or of the run where its host says no other."""
    today: float | None = agent.get("cost_today_usd", agent["cost_usd"])
    return today


def reason(row: Row) -> str:
    """Why an agent is in its state: what it asks for, else what its host knows."""
    if row.asks is not None and row.asks.get("question"):
        return str(row.asks["question"]["text"])
    if row.asks is not None:
        return tool_use(row.asks["tool"], row.asks["input"])
    return str(row.record["unresponsive"] or row.record["evidence"])


def doing(row: Row) -> str:
    """What an agent does now, or why it does nothing."""
    activity = row.record.get("activity") if row.state in BUSY else ""
    why = "" if row.state == "idle" else reason(row)
    return str(row.record["unresponsive"] or activity or why)


def _cli(row: Row, now: float) -> str:
    agent = row.record
    kind = agent.get("kind") or ""
    return f"{kind} {(agent['model'] or '').removeprefix(f'{kind}-')}".strip()


def _since(field: str) -> Callable[[Row, float], str]:
    """The time since a moment that the record has."""

    def cell(row: Row, now: float) -> str:
        at = row.record.get(field)
        return "" if at is None else short_time(now - at, now)

    return cell


def _number(field: str, base: int = 1000) -> Callable[[Row, float], str]:
    """A number that the record has, nothing for none."""

    def cell(row: Row, now: float) -> str:
        number = row.record.get(field)
        return short_count(number, base) if number else ""

    return cell


def _silence(row: Row, now: float) -> str:
    # of an agent that has nothing to do it says nothing
    return _since("last_event")(row, now) if row.state in ("working", "stalled") else ""


def _restarts(row: Row, now: float) -> str:
    agent = row.record
    return f"{agent['restarts']} {agent['last_exit'] or ''}".strip() if agent["restarts"] else ""


@attrs.frozen
class Column:
    """A column: its text for an agent, its least width in cells, and its part of the cells that are left, 0 for none."""

    title: str
    text: Callable[[Row, float], str]
    width: int
    share: int = 0
    right: bool = True


COLUMNS = (
    Column("STATE", lambda row, now: word_of(row.state), 10, right=False),
    Column("CLI", _cli, 16, right=False),
    Column("DOING", lambda row, now: doing(row), 20, share=5, right=False),
    Column("CTX", lambda row, now: context(row.record), 4),
    Column("TOKENS", _number("tokens"), 6),
    Column("TODAY", lambda row, now: dollars(spent(row.record)), 8),
    Column("QUEUE", _number("queued"), 5),
    Column("SILENT", _silence, 6),
    Column("MEM", _number("memory", 1024), 5),
    Column("AGE", _since("started"), 6),
    Column("RESTARTS", _restarts, 8, share=2, right=False),
)
"""The columns behind the name, in their order."""
DROP_ORDER = ("MEM", "AGE", "TOKENS", "RESTARTS", "QUEUE", "CTX", "CLI", "SILENT", "TODAY", "DOING")
"""Columns in the order in which a narrow terminal drops them; name and state always stay."""


@attrs.frozen
class Layout:
    """The columns that a width has room for, each with its cells."""

    name: int
    columns: tuple[tuple[Column, int], ...]


def layout(width: int, rows: Sequence[Row], now: float) -> Layout:
    """Choose the columns for `width` cells: those without a text go first, then those of `DROP_ORDER`."""
    names = max((2 * row.depth + len(row.name) for row in rows), default=5)
    shown = [column for column in COLUMNS if column.title == "STATE" or _has_text(column, rows, now)]
    name = max(5, min(names, LONGEST_NAME, width // 3))
    for title in DROP_ORDER:
        if name + _needed(shown) <= width:
            break
        shown = [column for column in shown if column.title != title]
    name = max(1, min(name, width - _needed(shown)))
    return Layout(name, tuple(zip(shown, _shared(shown, width - name - _needed(shown)), strict=True)))


def _has_text(column: Column, rows: Sequence[Row], now: float) -> bool:
    return any(column.text(row, now) for row in rows)


def _needed(columns: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in columns)


def _shared(columns: Sequence[Column], left: int) -> list[int]:
    """The widths of the columns, with what is left shared out."""
    widths = list[int]()
    shares = sum(column.share for column in columns)
    for column in columns:
        more = left * column.share // shares if column.share else 0
        left, shares = left - more, shares - column.share
        widths.append(column.width + more)
    return widths


def head(fleet: Record, now: float) -> str:
    """What a fleet is: its host, its process, since when."""
    since = fleet.get("since")
    began = None if since is None else datetime.fromisoformat(since).timestamp()
    parts = (
        fleet.get("host") or "",
        f"process {fleet['pid']}" if fleet.get("pid") else "",
        "" if began is None else f"up {short_time(now - began, now)}" if now - began < DAY else f"up since {date(began, now)}",
    )  # fmt: skip
    return " · ".join(part for part in parts if part)


def limits(fleet: Record, now: float) -> Sequence[str]:
    """The usage limits that hold, each with its reset."""
    return [one_line(f"{each['name']} limit{_until(each, now)}") for each in fleet.get("limits") or ()]


def _until(limit: Mapping[str, float | None], now: float) -> str:
    if (until := limit["until"]) is None:
        return ""
    then = datetime.fromtimestamp(until)
    return f" until {then:%H:%M}" if abs(until - now) < DAY else f" until {date(until, now)}"
