"""What an application hears of an agent: a small closed set of chunks, the same for every command line.

Guarantees: a text comes once, in pieces where the CLI gives pieces and whole where it does not; two blocks of text are a
blank line apart; no chunk is empty (R088); events that mean nothing to an application give nothing. What only one CLI
knows travels in `metadata`. Pieces of an attempt that its CLI took back have been told, and the whole block is told anew.
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
class TextPiece(_Chunk):
    """Text of the agent's, never empty."""

    text: str


@attrs.frozen
class ToolUse(_Chunk):
    """The agent uses a tool, which it runs itself."""

    id: str
    name: str
    input: Mapping[str, Any]


@attrs.frozen
class Complete(_Chunk):
    """The end of a good response: the tokens it took, None where the CLI counted none."""

    usage: v.Usage | None


@attrs.frozen
class Failed(_Chunk):
    """The end of a response that is none, with the error that says why (R114)."""

    error: CompletionError


Chunk = TextPiece | ToolUse | Complete | Failed


class Speech:
    """Turns the events of one response into chunks."""

    def __init__(self) -> None:
        self._pieces = ""
        self._said = False

    def hear(self, event: v.AnyEvent) -> list[Chunk]:
        """The chunks that an event gives, mostly none or one."""
        match event:
            case v.TextDelta(text=text, parent=None) if text:
                before = BETWEEN if self._said and not self._pieces else ""
                self._pieces += text
                return [TextPiece(before + text, metadata=_place(event))]
            case v.Text(text=text, parent=None):
                return self._whole(text, event)
            case v.ToolCall(id=id, name=name, input=input):
                parent = {} if event.parent is None else {"parent": event.parent}
                return [ToolUse(id, name, input, metadata={**_place(event), **parent})]
            case _:
                return []

    def _whole(self, text: str, event: v.Text) -> list[Chunk]:
        pieces, self._pieces = self._pieces, ""
        before = BETWEEN if self._said and not pieces else ""
        self._said = self._said or bool(text)
        if pieces and not text.startswith(pieces):
            before, pieces = BETWEEN, ""
        left = text[len(pieces) :]
        return [TextPiece(before + left, metadata=_place(event))] if left else []


def _place(event: v.Event) -> dict[str, Any]:
    return {"frame": event.frame, "turn": event.turn}
