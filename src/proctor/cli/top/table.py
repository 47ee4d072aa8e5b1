"""The table of agents as a widget: it draws the lines that are on the screen and no others."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from proctor.cli.top.board import Row
from proctor.cli.top.cells import GAP, Layout, layout
from proctor.cli.ui.need import style_of
from proctor.cli.ui.text import one_line

MARK = 3
"""Cells before a name: whether it is selected, and whether its process lives."""
PLAIN, DIM, BOLD = Style(), Style(dim=True), Style(bold=True)


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many cells."""
    flat = one_line(text, 4 * width)
    if (missing := width - cell_len(flat)) >= 0:
        return " " * missing + flat if right else flat + " " * missing
    return set_cell_size(flat, width - 1) + "…" if width > 1 else set_cell_size(flat, width)


class AgentTable(ScrollView):
    """The rows of a fleet with a cursor, which stays with its agent when the order changes."""

    can_focus = False
    DEFAULT_CSS = "AgentTable { scrollbar-size: 0 0; height: 1fr; }"

    class Opened(Message):
        """An agent was chosen by the mouse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Sequence[Row] = ()
        self.name_of_cursor = ""
        self._cursor: int = 0
        self._now = 0.0
        self._layout = Layout(5, ())
        self._laid_out: tuple[int, int, int] | None = None

    # -- what is shown

    def show(self, rows: Sequence[Row], now: float) -> None:
        """Show these rows; only lines that differ are drawn again."""
        old, self.rows, self._now = self.rows, rows, now
        is_anew = False
        # once a second: the longest texts of 500 rows are not looked for at each redraw
        if (laid_out := (self.size.width, int(now), len(rows))) != self._laid_out:
            is_anew, self._laid_out = True, laid_out
            self._layout = layout(self.size.width - MARK, [row for row in rows if row.record], now)
        self.virtual_size = Size(self.size.width, len(rows))
        names = [row.name if row.record else "" for row in rows]
        if self.name_of_cursor in names:
            moved = names.index(self.name_of_cursor)
        else:
            moved = min(self._cursor, len(rows) - 1)
        self._set_cursor(moved, 1, follow=moved != self._cursor)
        if is_anew or len(old) != len(rows):
            self.refresh()
            return
        top = self.scroll_offset.y
        for y in range(top, min(top + self.size.height, len(rows))):
            if old[y] != rows[y]:
                self.refresh_line(y)

    @property
    def titles(self) -> str:
        """The titles of the columns."""
        cells = [(column.title, width, column.right) for column, width in self._layout.columns]
        return " " * MARK + _joined([("AGENT", self._layout.name, False), *cells])

    @property
    def selected(self) -> Row | None:
        """The agent at the cursor."""
        row = self.rows[self._cursor] if 0 <= self._cursor < len(self.rows) else None
        return row if row is not None and row.record else None

    @property
    def below(self) -> Sequence[Row]:
        """The agents below the last line of the screen."""
        return [row for row in self.rows[self.scroll_offset.y + self.size.height :] if row.record]

    @property
    def above(self) -> Sequence[Row]:
        """The agents above the first line of the screen."""
        return [row for row in self.rows[: self.scroll_offset.y] if row.record]

    # -- the cursor

    def move(self, step: int) -> None:
        """Move the cursor by so many rows."""
        self._set_cursor(max(0, min(self._cursor + step, len(self.rows) - 1)), 1 if step > 0 else -1)

    def _set_cursor(self, at: int, step: int, *, follow: bool = True) -> None:
        """Set the cursor to the next agent from there on: a supervisor cannot be selected."""
        agents = [n for n, row in enumerate(self.rows) if row.record]
        onward = [n for n in agents if (n >= at if step > 0 else n <= at)]
        nearest = (
            (onward[0] if step > 0 else onward[-1])
            if onward
            else (agents[-1 if step > 0 else 0] if agents else 0)
        )
        if nearest != self._cursor:
            self.refresh_line(self._cursor)
            self.refresh_line(nearest)
        self._cursor = nearest
        self.name_of_cursor = self.rows[nearest].name if agents else ""
        if follow:
            self._show_cursor()

    def _show_cursor(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        # the first agent is shown with the supervisors above it
        first = self._cursor if any(row.record for row in self.rows[: self._cursor]) else 0
        if first < top:
            self.scroll_to(y=first, animate=False, immediate=True)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False, immediate=True)

    def on_click(self, event: Click) -> None:
        """Select the agent that is clicked; a second click opens it."""
        at = self.scroll_offset.y + event.y
        if at < len(self.rows) and self.rows[at].record:
            self._set_cursor(at, 1)
            if event.chain > 1:
                self.post_message(self.Opened())

    # -- lines

    def render_line(self, y: int) -> Strip:
        """A line of the screen."""
        at = self.scroll_offset.y + y
        if at >= len(self.rows):
            return Strip.blank(self.size.width)
        strip = Strip(self._segments(self.rows[at], at == self._cursor))
        strip = strip.adjust_cell_length(self.size.width)
        return (
            strip.apply_style(Style(reverse=True)) if at == self._cursor and self.rows[at].record else strip
        )

    def _segments(self, row: Row, is_selected: bool) -> list[Segment]:
        name = f"{'  ' * row.depth}{row.name}"
        if not row.record:
            return [Segment(f"{' ' * MARK}{fitted(name, max(self._layout.name, cell_len(name)))}", DIM)]
        style = Style.parse(style_of(row.state))
        mark = "●" if row.record["pid"] else "○"
        parts = [
            Segment("▸" if is_selected else " "),
            Segment(f"{mark} ", style),
            Segment(fitted(name, self._layout.name), BOLD if row.state == "blocked" else PLAIN),
        ]
        for column, width in self._layout.columns:
            text = fitted(column.text(row, self._now), width, right=column.right)
            parts.append(Segment(f"{' ' * GAP}{text}", style if column.title == "STATE" else PLAIN))
        return parts


def _joined(cells: Sequence[tuple[str, int, bool]]) -> str:
    return (" " * GAP).join(fitted(text, width, right=right) for text, width, right in cells)
