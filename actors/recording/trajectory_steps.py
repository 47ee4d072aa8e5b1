"""The steps of one voice of a run: of its agent, or of a subagent. Plain state, without I/O.

A step of an agent is, as near as the events tell, one answer of its model: reasoning, then text, then calls of tools with their results. So
text or reasoning behind a call, and a call behind a result, begin the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

from proctor.actors.recording.atif import Extra, Observation, Result, Step, SubagentRef, ToolCall
from proctor.protocols import vocabulary as v

BETWEEN = "\n\n"
"""Between two blocks of text of one step."""


@attrs.define(eq=False)
class Draft:
    """A step that may still grow, until it is `closed`. `ended` completes the finished step.
    `model` is named where it is not the one of the whole run."""

    source: Literal["system", "user", "agent"]
    timestamp: str | None
    texts: list[str] = attrs.field(factory=list[str])
    thoughts: list[str] = attrs.field(factory=list[str])
    calls: dict[str, ToolCall] = attrs.field(factory=dict[str, ToolCall])
    results: list[Result] = attrs.field(factory=list[Result])
    extra: Extra = attrs.field(factory=dict[str, Any])
    ended: Callable[[Step], None] | None = None
    closed: bool = False
    model: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is left, as of one whose text was void."""
        return self.source == "agent" and not (
            self.texts or self.thoughts or self.calls or self.results or self.ended
        )

    def step(self, number: int) -> Step:
        """The finished step."""
        step = Step(
            step_id=number,
            timestamp=self.timestamp,
            source=self.source,
            model_name=self.model,
            message=BETWEEN.join(self.texts),
            reasoning_content=BETWEEN.join(self.thoughts) or None,
            tool_calls=[*self.calls.values()] or None,
            observation=Observation(self.results) if self.results else None,
            extra=self.extra or None,
        )
        if self.ended is not None:
            self.ended(step)
        return step


@attrs.define(eq=False)
class Voice:
    """All steps of an agent or a subagent so far. `name` is the tool call that began a subagent, None for the agent itself."""

    name: str | None
    drafts: list[Draft] = attrs.field(factory=list[Draft])
    _owners: dict[str, Draft] = attrs.field(factory=dict[str, Draft])
    _with_text: list[Draft] = attrs.field(factory=list[Draft])
    _pieces: list[str] = attrs.field(factory=list[str])
    _thought: list[str] = attrs.field(factory=list[str])

    def add(self, source: Literal["system", "user"], at: str | None, text: str, extra: Extra) -> Draft:
        """A step of the user or of the system."""
        draft = Draft(source, at, [text] if text else [], extra=extra)
        self.drafts.append(draft)
        return draft

    def take(self, event: v.AnyEvent, at: str | None) -> None:
        """Add an event of this voice; other kinds of events change nothing."""
        match event:
            case v.TextDelta():
                self._pieces.append(event.text)
            case v.Text():
                self._pieces.clear()
                self._write(event.text, at)
            case v.Thinking(partial=True):
                self._thought.append(event.text)
            case v.Thinking():
                self._thought.clear()
                self._think(event.text, at)
            case v.ToolCall():
                self._call(event, at)
            case v.ToolResult():
                self._result(event, at)
            case _:
                pass

    def void(self, whole: int) -> None:
        """Forget the pieces since the last whole block, and so many whole texts before."""
        self._pieces.clear()
        self._thought.clear()
        for _ in range(min(whole, len(self._with_text))):
            self._with_text.pop().texts.pop()

    def finish(self, at: str | None) -> None:
        """Keep the pieces of a block that never became whole: the turn, or the process, has ended."""
        if thought := "".join(self._thought):
            self._think(thought, at).extra["partial"] = True
        if text := "".join(self._pieces):
            self._write(text, at).extra["partial"] = True
        self._pieces.clear()
        self._thought.clear()

    def close_turn(self) -> None:
        """Begin a new step with what comes next."""
        self._with_text.clear()
        if self.drafts and self.drafts[-1].source == "agent":
            self.drafts[-1].closed = True

    def call(self, id: str) -> ToolCall | None:
        """The last call of this id."""
        owner = self._owners.get(id)
        return None if owner is None else owner.calls[id]

    def refer(self, id: str) -> bool:
        """Let the result of a tool call refer to the trajectory of its subagent; False where there is no such call."""
        owner = self._owners.get(id)
        if owner is None:
            return False
        result = next((result for result in owner.results if result.source_call_id == id), None)
        if result is None:
            result = Result(id)
            owner.results.append(result)
        result.subagent_trajectory_ref = [SubagentRef(id)]
        return True

    def agent_step(self, at: str | None, *, new: bool = False) -> Draft:
        """The step that the agent is in, a new one where something else came between."""
        last = self.drafts[-1] if self.drafts else None
        if new or last is None or last.source != "agent" or last.closed:
            last = Draft("agent", at)
            self.drafts.append(last)
        return last

    def _write(self, text: str, at: str | None) -> Draft:
        draft = self.agent_step(at)
        if draft.calls or draft.results:
            draft = self.agent_step(at, new=True)
        draft.texts.append(text)
        self._with_text.append(draft)
        return draft

    def _think(self, text: str, at: str | None) -> Draft:
        draft = self.agent_step(at)
        if draft.calls or draft.results or draft.texts:
            draft = self.agent_step(at, new=True)
        draft.thoughts.append(text)
        return draft

    def _call(self, event: v.ToolCall, at: str | None) -> None:
        draft = self.agent_step(at)
        if draft.results or event.id in draft.calls:
            draft = self.agent_step(at, new=True)
        draft.calls[event.id] = ToolCall(event.id, event.name, event.input)
        self._owners[event.id] = draft

    def _result(self, event: v.ToolResult, at: str | None) -> None:
        owner = self._owners.get(event.id)
        extra: Extra = {"is_error": True} if event.is_error else {}
        if event.duration is not None:
            extra["duration_sec"] = event.duration
        if event.metadata:
            extra["metadata"] = event.metadata
        if owner is None:  # its call was in a part of the recording that is gone
            extra["tool_call_id"] = event.id
        result = Result(None if owner is None else event.id, event.text, extra=extra or None)
        (owner or self.agent_step(at)).results.append(result)
