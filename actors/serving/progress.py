"""Progress of an agent that is called as a tool: its text as it is written, and a line for each tool, retry and limit.

The end of its text is kept, for an answer that is cut short.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.actors.serving.toolset import Call
from proctor.protocols import vocabulary as v

KEPT = 8000
"""Characters of an agent's text that are kept."""
_INPUT = 120
_PASSED_ON = frozenset(("parked", "unsettled", "stalled", "resume_refused", "option_ignored", "given_up"))
"""Notices that are passed on to the caller."""


class Progress:
    """Progress of one request; `text` is the end of the agent's own text, without that of its sub-agents."""

    def __init__(self, call: Call) -> None:
        self.text = ""
        self._call = call
        self._piecewise = False

    def take(self, events: Iterable[v.AnyEvent]) -> None:
        """Pass these events on."""
        for event in events:
            self._take(event)

    def _take(self, event: v.AnyEvent) -> None:
        match event:
            case v.TextDelta(parent=None):
                self._piecewise = True
                self._call.write(event.text)
            case v.Text(parent=None):
                self._whole(event.text)
            case v.ToolCall():
                self._call.tell(f"uses {_use(event)}")
            case v.Retrying():
                why = f": {event.error}" if event.error else ""
                self._call.tell(f"tries again in {event.delay:g} s (attempt {event.attempt}){why}")
            case v.LimitReached():
                self._call.tell("has reached a usage limit")
            case v.Notice(code="attempt_void", data=data) if data.get("parent") is None:
                if self._piecewise:
                    self._call.tell("what was written last is void: the attempt failed")
                self._piecewise = False
            case v.Notice() if event.code in _PASSED_ON:
                self._call.tell(event.text or event.code)
            case _:
                pass

    def _whole(self, text: str) -> None:
        self.text = f"{self.text}\n{text}"[-KEPT:]
        if not self._piecewise:
            self._call.tell(text)
        self._piecewise = False


def _use(event: v.ToolCall) -> str:
    arguments = msgspec.json.encode(event.input).decode() if event.input else ""
    return f"{event.name} {arguments if len(arguments) <= _INPUT else arguments[:_INPUT] + '…'}".rstrip()
