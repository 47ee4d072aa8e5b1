"""Chunks of a completion: a small closed set, the same for every command line.

Each text comes once, in pieces if the CLI streams; two blocks are separated by a blank line, and no chunk is empty. A `Void` retracts
the end of the text so far: a failed attempt, pieces that the whole block does not continue, text that a dead process left unfinished,
and everything when the prompt is sent again. Facts that only one CLI reports are in `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from proctor.actors.errors import CompletionError
from proctor.protocols import vocabulary as v

BETWEEN = "\n\n"


@attrs.frozen(kw_only=True)
class _Chunk:
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any], eq=False, repr=False)


@attrs.frozen
class TextChunk(_Chunk):
    """Text of the agent, never empty."""

    text: str


@attrs.frozen
class ThinkingChunk(_Chunk):
    """Reasoning of the agent, never empty."""

    text: str


@attrs.frozen
class Void(_Chunk):
    """`text` is the end of all `TextChunk`s so far, `thinking` that of all `ThinkingChunk`s: they are retracted."""

    text: str = ""
    thinking: str = ""


@attrs.frozen
class ToolUse(_Chunk):
    """The agent uses a tool, which it runs itself."""

    id: str
    name: str
    input: Mapping[str, Any]


@attrs.frozen
class ToolOutput(_Chunk):
    """The result of the `ToolUse` with this id, as text. `duration` is in seconds, None if the command line reports none.

    `metadata["result"]` has the structured result of an MCP tool.
    """

    id: str
    name: str
    text: str
    is_error: bool = False
    duration: float | None = None


@attrs.frozen
class Complete(_Chunk):
    """The end of a good response, with its tokens; None if the CLI reports none."""

    usage: v.Usage | None


@attrs.frozen
class Failed(_Chunk):
    """The end of a failed response, with its error."""

    error: CompletionError


Chunk = TextChunk | ThinkingChunk | Void | ToolUse | ToolOutput | Complete | Failed


class _Blocks:
    """The whole blocks of one kind, each with the blank line before it, and the pieces of the one that is open."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._open: list[str] = []

    def add(self, piece: str) -> str:
        """Add a piece, and return what it adds to the text."""
        added = piece if self._open else self._between + piece
        self._open.append(added)
        return added

    def end(self, text: str) -> tuple[str, str]:
        """End the open block, which is `text`. Returns the retracted pieces and the added text."""
        between, begun = self._between, "".join(self._open)
        self._open = []
        whole = between + text if text else ""
        if whole:
            self._whole.append(whole)
        return ("", whole[len(begun) :]) if whole.startswith(begun) else (begun, whole)

    def take_back(self, blocks: int | None = 0) -> str:
        """Remove the open block, and so many whole ones before it (None: all). Returns their text."""
        keep = 0 if blocks is None else max(0, len(self._whole) - blocks)
        void = "".join((*self._whole[keep:], *self._open))
        del self._whole[keep:]
        self._open = []
        return void

    @property
    def _between(self) -> str:
        return BETWEEN if self._whole else ""

    @property
    def open(self) -> str:
        """The pieces of the block that is not whole."""
        return "".join(self._open)

    @property
    def text_so_far(self) -> str:
        """All whole blocks."""
        return "".join(self._whole)


class ChunkBuilder:
    """Turns the events of one response into chunks."""

    def __init__(self) -> None:
        self._texts = _Blocks()
        self._thoughts = _Blocks()
        self._tools: dict[str, str] = {}

    @property
    def thinking(self) -> str:
        """All reasoning in whole blocks so far."""
        return self._thoughts.text_so_far

    def add(self, event: v.AnyEvent) -> list[Chunk]:
        """The chunks of an event, mostly none or one."""
        match event:
            case v.TextDelta(text=text, parent=None) if text:
                return [TextChunk(self._texts.add(text), metadata=_place(event))]
            case v.Text(text=text, parent=None):
                return self._text(text, event)
            case v.Thinking(text=text, parent=None):
                return self._thought(text, event)
            case v.ToolCall(id=id, name=name, input=input):
                self._tools[id] = name
                return [ToolUse(id, name, input, metadata=_of_tool(event))]
            case v.ToolResult():
                return [self._output(event)]
            case v.Notice():
                return self._taken_back(event)
            case _:
                return []

    def end(self, text: str) -> list[Chunk]:
        """End a good response whose answer is `text`: retract an open block, and return the answer as a chunk if no text came."""
        open_text, text = self._texts.open, text.strip()
        if open_text and open_text.strip() == text:
            return []
        chunks = _void(self._texts.take_back(), "", {})
        if text and not self._texts.text_so_far:
            chunks.append(TextChunk(self._texts.end(text)[1]))
        return chunks

    def _text(self, text: str, event: v.Text) -> list[Chunk]:
        void, added = self._texts.end(text)
        place = _place(event)
        return [*_void(void, "", place), *([TextChunk(added, metadata=place)] if added else [])]

    def _thought(self, text: str, event: v.Thinking) -> list[Chunk]:
        place = _place(event)
        void, added = ("", self._thoughts.add(text)) if event.partial and text else self._thoughts.end(text)
        return [*_void("", void, place), *([ThinkingChunk(added, metadata=place)] if added else [])]

    def _output(self, event: v.ToolResult) -> ToolOutput:
        beside = {"result": event.metadata} if event.metadata else {}
        name = self._tools.pop(event.id, "")
        metadata = {**_of_tool(event), **beside}
        return ToolOutput(event.id, name, event.text, event.is_error, event.duration, metadata=metadata)

    def _taken_back(self, notice: v.Notice) -> list[Chunk]:
        blocks: int | None = 0
        match notice:
            case v.Notice(code="attempt_void", data=data) if data.get("parent") is None:
                blocks = data.get("texts", 0)
            case v.Notice(code="sent", data={"goes_on": True}):
                pass
            case v.Notice(code="sent", data={"attempt": int(attempt)}) if attempt > 1:
                blocks = None
            case _:
                return []
        thoughts = None if blocks is None else 0
        return _void(self._texts.take_back(blocks), self._thoughts.take_back(thoughts), _place(notice))


def _void(text: str, thinking: str, place: Mapping[str, Any]) -> list[Chunk]:
    return [Void(text, thinking, metadata=place)] if text or thinking else []


def _of_tool(event: v.ToolCall | v.ToolResult) -> dict[str, Any]:
    parent = {} if event.parent is None else {"parent": event.parent}
    return {**_place(event), **parent}


def _place(event: v.Event) -> dict[str, Any]:
    return {"frame": event.frame, "turn": event.turn}
