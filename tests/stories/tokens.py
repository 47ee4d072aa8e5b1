"""Events as tokens: what a story says of them, without what differs from run to run or is a CLI's own way of counting.

Left out: sessions, usage, durations, notices, replies to our own requests, and why a tool failed. Pieces of one text
are joined, the ids of tool calls are numbered in the order they come. A garbled line is `odd`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proctor.protocols import vocabulary as v

QUIET = (v.Started, v.Notice, v.Answered, v.ApprovalWithdrawn, v.Steered, v.RequestWithdrawn, v.Exited)


class Teller:
    """Tells events one after the other; `pieces` is the text that deltas have come to since the last token."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.pieces: tuple[str, str] = ("", "")
        self.calls: dict[str, str] = {}

    def tell(self, event: v.AnyEvent) -> None:
        if isinstance(event, QUIET):
            return
        if isinstance(event, v.TextDelta):
            self.piece("delta", event.text)
        elif isinstance(event, v.Thinking) and event.partial:
            self.piece("hm", event.text)
        else:
            self.flush()
            self.said.append(TELL[type(event)](self, event).strip())

    def piece(self, kind: str, text: str) -> None:
        if self.pieces[0] != kind:
            self.flush()
        self.pieces = (kind, self.pieces[1] + text)

    def flush(self) -> None:
        kind, text = self.pieces
        if kind == "delta":
            self.said.append(f"delta {text}")
        self.pieces = ("", "")

    def call(self, id: str) -> str:
        return self.calls.setdefault(id, f"#{len(self.calls) + 1}")


def command(given: Mapping[str, Any]) -> str:
    """The command that a tool was given, out of the shell that a CLI has put around it."""
    text = given.get("command", "")
    words = text if isinstance(text, str) else " ".join(text)
    return words.removeprefix("/bin/bash -lc ").strip("'")


def ended(_teller: Teller, event: v.TurnEnded) -> str:
    if event.ending != "completed":
        return f"end {event.ending}"
    whole = "" if event.structured_output is None else f" = {json.dumps(event.structured_output)}"
    return f"end completed: {event.text}{whole}"


def resulted(teller: Teller, event: v.ToolResult) -> str:
    call = teller.call(event.id)
    return f"failure {call}" if event.is_error else f"result {call} {event.text}"


TELL: Mapping[type[v.Event], Callable[[Teller, Any], str]] = {
    v.TurnStarted: lambda _teller, event: "begin" if event.solicited else "begin unasked",
    v.Text: lambda _teller, event: f"text {event.text}",
    v.Thinking: lambda _teller, event: f"think {event.text}",
    v.ToolCall: lambda teller, event: f"call {teller.call(event.id)} {command(event.input)}",
    v.ToolResult: resulted,
    v.ApprovalRequested: lambda _teller, event: f"asked {command(event.input)}",
    v.ToolRequested: lambda _teller, event: f"wanted {event.tool} {event.input.get('x', '')}",
    v.HookCalled: lambda _teller, event: f"hook {event.point}",
    v.Retrying: lambda _teller, event: f"retry {event.attempt}/{event.max_attempts}",
    v.LimitReached: lambda _teller, _event: "limit",
    v.TurnEnded: ended,
    v.Garbled: lambda _teller, _event: "odd",
    v.Unrecognized: lambda _teller, event: f"unrecognized {event.kind}",
    v.Misplaced: lambda _teller, event: f"misplaced {event.kind}",
}


def tokens(events: Iterable[v.AnyEvent]) -> list[str]:
    """The story that these events tell."""
    teller = Teller()
    for event in events:
        teller.tell(event)
    teller.flush()
    return teller.said
