"""What the events of an incarnation have told so far, and whether a sign of life is due.

Guarantees: a turn's beginning and end forget the tools of the one before. Silence counts only in a turn, and not while
a tool runs, a question or a call of the CLI is open, or the incarnation is being stopped.

Not here: what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proctor.actors.plan import Clocks
from proctor.actors.silence import Silence
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation


class Signs:
    """`ending` is the last turn's, None while one runs; `tools` the ids of those that run; `background` says whether
    work goes on between turns; `resets_at` when a usage limit ends (Unix seconds)."""

    def __init__(self, conversation: Conversation, clocks: Clocks, *, excused: Callable[[], bool]) -> None:
        self.ending: v.TurnEnded | None = None
        self.tools: set[str] = set()
        self.background = False
        self.resets_at: float | None = None
        self.silence = Silence(self._due, patience=clocks.silence, after_error=clocks.final)
        self._conversation = conversation
        self._excused = excused

    def observers(self) -> dict[type, Callable[[Any], None]]:
        """Event: what is to be told of it."""
        return {
            v.TurnStarted: self._on_turn_started,
            v.TurnEnded: self._on_turn_ended,
            v.ToolCall: self._on_tool_call,
            v.ToolResult: self._on_tool_result,
            v.Retrying: self._on_retrying,
            v.LimitReached: self._on_limit,
            v.Notice: self._on_notice,
        }

    def _due(self) -> bool:
        memo = self._conversation.memo
        waited_for = self.tools or memo.approvals or memo.calls
        return self._conversation.phase == "working" and not waited_for and not self._excused()

    def _on_turn_started(self, event: v.TurnStarted) -> None:
        self.tools.clear()
        self.ending = self.silence.error = None

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        self.tools.clear()
        self.ending, self.silence.error = event, None

    def _on_tool_call(self, event: v.ToolCall) -> None:
        self.tools.add(event.id)

    def _on_tool_result(self, event: v.ToolResult) -> None:
        self.tools.discard(event.id)

    def _on_retrying(self, event: v.Retrying) -> None:
        self.silence.hold(event.delay)

    def _on_limit(self, event: v.LimitReached) -> None:
        self.resets_at = event.resets_at

    def _on_notice(self, event: v.Notice) -> None:
        if event.code == "api_failure":
            self.silence.error = event.text
        elif event.code == "background_tasks":
            self.background = bool(event.data.get("tasks"))
