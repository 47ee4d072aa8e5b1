"""What an agent does now, in one line: the tool that runs, else the end of its newest text.

Nothing is kept for it while an agent works: the events that the log has in memory are read when somebody looks.
"""

from __future__ import annotations

import attrs

from proctor.actors.recording.eventlog import EventLog
from proctor.actors.tool_summary import describe_tool
from proctor.protocols.vocabulary import (
    AnyEvent,
    Exited,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
)

WIDTH = 120
_KEPT = 2 * WIDTH
"""Characters of the newest text that are kept: white space is removed when they are shown."""


@attrs.define
class Progress:
    """The progress of one agent as far as `position` in its log. Text of its subagents is left out, their tools are not."""

    position: int = 0
    _tools: dict[str, ToolCall] = attrs.field(factory=dict[str, ToolCall])
    _text: str = ""
    _is_whole: bool = False

    def follow(self, log: EventLog) -> None:
        """Take in what has come since the last time, as far as the log has it in memory."""
        for event in log.recent(self.position):
            self._take(event)
        self.position = log.end

    def _take(self, event: AnyEvent) -> None:
        match event:
            case TextDelta(parent=None):
                self._text = event.text[-_KEPT:] if self._is_whole else (self._text + event.text)[-_KEPT:]
                self._is_whole = False
            case Text(parent=None):
                self._text, self._is_whole = event.text[-_KEPT:], True
            case ToolCall():
                self._tools[event.id] = event
            case ToolResult():
                self._tools.pop(event.id, None)
            case TurnStarted() | TurnEnded() | Exited():
                self._tools.clear()
                self._text = ""
            case _:
                pass

    @property
    def text(self) -> str:
        """The line, at most `WIDTH` characters; "" between turns."""
        if self._tools:
            call = next(reversed(self._tools.values()))
            line = " ".join(describe_tool(call.name, call.input).split())
            return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
        line = " ".join(self._text.split())
        return line if len(line) <= WIDTH else "…" + line[1 - WIDTH :]
