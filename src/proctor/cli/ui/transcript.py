"""The text form of a run: the answer as it is written, and a short line for each other event.

Pure: events in, text out. `Transcript` keeps what was shown, so that a block whose chunks were shown is not shown again.
A note never lands in the middle of a line of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from proctor.actors.durations import format_duration
from proctor.cli.ui.text import WHOLE, one_line, printable, tool_use
from proctor.protocols import vocabulary as v

VOID = "attempt_void"
SILENT_NOTICES = frozenset({"sent", "background_tasks", "parked", "resumed"})


def _started(event: v.Started) -> str:
    facts = (
        f"model {event.model}" if event.model else "",
        f"version {event.version}" if event.version else "",
    )
    return one_line(", ".join(fact for fact in (f"session {event.session_id}", *facts) if fact))


def _retrying(event: v.Retrying) -> str:
    of = f" of {event.max_attempts}" if event.max_attempts is not None else ""
    status = f" ({event.status})" if event.status is not None else ""
    why = f": {event.error}{status}" if event.error or status else ""
    return one_line(f"retrying in {format_duration(event.delay)}, attempt {event.attempt}{of}{why}")


def _tool_result(event: v.ToolResult) -> str | None:
    return one_line(f"the tool failed: {event.text}") if event.is_error else None


def _notice(event: v.Notice) -> str | None:
    if event.code in SILENT_NOTICES:
        return None
    return one_line(event.text or event.code.replace("_", " "), WHOLE)


_LINES: Mapping[type, Callable[[Any], str | None]] = {
    v.Started: _started,
    v.ToolCall: lambda event: tool_use(event.name, event.input),
    v.ToolResult: _tool_result,
    v.Retrying: _retrying,
    v.LimitReached: lambda event: one_line(f"usage limit reached{f' ({event.kind})' if event.kind else ''}"),
    v.Notice: _notice,
    v.Garbled: lambda event: one_line(
        f"a line that is not a frame ({event.reason}, {event.size} bytes): {event.head}"
    ),
}


def line_of(event: v.AnyEvent) -> str | None:
    """The short line about an event, None for an event that is not shown."""
    tell = _LINES.get(type(event))
    line = tell(event) if tell is not None else None
    return f"  {line}" if line and getattr(event, "parent", None) else line


@attrs.frozen
class Shown:
    """Text that a batch of events adds to stdout and stderr."""

    out: str
    err: str


@attrs.define
class Transcript:
    """The text of one run so far. `safe`: make control characters visible. `shared`: stdout and stderr are one terminal.
    `dim`: set notes in faint type. `quiet`: write no notes."""

    safe: bool = False
    shared: bool = False
    dim: bool = False
    quiet: bool = False
    _streamed: int = 0
    _mid_line: bool = False
    _shown: bool = False
    _out: list[str] = attrs.field(factory=list[str])
    _err: list[str] = attrs.field(factory=list[str])

    def take(self, events: Sequence[v.AnyEvent]) -> list[Shown]:
        """The text that these events add. Notes and text alternate only where both go to one terminal."""
        shown = list[Shown]()
        for event in events:
            self._add(event)
            if self.shared and self._err:
                shown.append(self._flush())
        shown.append(self._flush())
        return [part for part in shown if part.out or part.err]

    def finish(self, text: str) -> Shown:
        """End the run; `text` is its answer, shown when nothing was shown before."""
        if not self._shown and text:
            self._write(text)
        self._end_line()
        return self._flush()

    def note(self, line: str) -> Shown:
        """The text of a line about the run that is no event."""
        self._note(line)
        return self._flush()

    def end_line(self) -> None:
        """The person has ended the line, at the same terminal."""
        self._mid_line = False

    def _add(self, event: v.AnyEvent) -> None:
        match event:
            case v.TextDelta(parent=None):
                self._streamed += len(event.text)
                self._write(event.text)
            case v.Text(parent=None):
                self._whole(event.text)
            case v.Notice(code=code, data=data) if code == VOID and data.get("parent") is None:
                self._streamed = 0
                self._end_line()
                self._note("discard the last text: the attempt failed and is repeated")
            case _:
                if line := line_of(event):
                    self._note(line)

    def _whole(self, text: str) -> None:
        rest, self._streamed = text[self._streamed :], 0
        self._write(rest)
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            self._out.append(printable(text) if self.safe else text)
            self._shown, self._mid_line = True, not text.endswith("\n")

    def _end_line(self) -> None:
        if self._mid_line:
            self._out.append("\n")
            self._mid_line = False

    def _note(self, line: str) -> None:
        if self.quiet:
            return
        broken = "\n" if self.shared and self._mid_line else ""
        self._mid_line = self._mid_line and not broken
        self._err.append(f"{broken}\x1b[2m{line}\x1b[0m\n" if self.dim else f"{broken}{line}\n")

    def _flush(self) -> Shown:
        shown = Shown("".join(self._out), "".join(self._err))
        self._out.clear()
        self._err.clear()
        return shown
