"""The state machine of a conversation, as two tables: phase x event, and mode x phase x request.

Each cell is the next phase; `REST` stands for the phase that follows from the open prompts and turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from proctor.protocols.dialect import Mode, Phase
from proctor.protocols.vocabulary import (
    Answered,
    ApprovalRequested,
    ApprovalWithdrawn,
    Decision,
    EndSession,
    Event,
    HookCalled,
    HookVerdict,
    Interrupt,
    LimitReached,
    Notice,
    Prompt,
    Request,
    RequestWithdrawn,
    Retrying,
    SetModel,
    SetPermissionMode,
    Started,
    Steer,
    Steered,
    StopTask,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolRequested,
    ToolResult,
    ToolReturn,
    TurnEnded,
    TurnStarted,
)

Cell = Phase | Literal["rest"]
REST: Final = "rest"

CONTENT = (TextDelta, Text, Thinking, ToolCall, ToolResult)
CONTROL = (
    Started,
    Notice,
    Retrying,
    LimitReached,
    ApprovalRequested,
    ApprovalWithdrawn,
    ToolRequested,
    HookCalled,
    RequestWithdrawn,
    Steered,
    Answered,
)
REPLIES = (ToolReturn, HookVerdict)


def _staying(phase: Phase, *kinds: type[Event]) -> dict[type[Event], Cell]:
    return dict.fromkeys(kinds, phase)


def _keeping(phase: Phase, *kinds: type[Request]) -> dict[type[Request], Phase]:
    return dict.fromkeys(kinds, phase)


EVENTS: Mapping[Phase, Mapping[type[Event], Cell]] = {
    "greeting": {**_staying("greeting", *CONTROL), Answered: REST, TurnStarted: "working"},
    "idle": {**_staying("idle", *CONTROL, *CONTENT), TurnStarted: "working"},
    "working": {**_staying("working", *CONTROL, *CONTENT, TurnStarted), TurnEnded: REST},
    "ending": _staying("ending", *CONTROL, *CONTENT, TurnStarted, TurnEnded),
    "ended": {},
}
"""Phase x event: the next phase. Background work may speak between two turns, so content has a cell in `idle`."""

REQUESTS: Mapping[Mode, Mapping[Phase, Mapping[type[Request], Phase]]] = {
    "session": {
        "greeting": {
            **_keeping("greeting", Prompt, Interrupt, SetModel, SetPermissionMode, *REPLIES),
            EndSession: "ending",
        },
        "idle": {
            **_keeping("idle", Decision, Interrupt, SetModel, SetPermissionMode, StopTask, *REPLIES),
            Prompt: "working",
            EndSession: "ending",
        },
        "working": {
            **_keeping(
                "working", Prompt, Decision, Interrupt, SetModel, SetPermissionMode, StopTask, *REPLIES
            ),
            Steer: "working",
            EndSession: "ending",
        },
        "ending": _keeping("ending", Decision, Interrupt, EndSession, *REPLIES),
        "ended": {},
    },
    "oneshot": {"greeting": {}, "idle": {Prompt: "working"}, "working": {}, "ending": {}, "ended": {}},
}
"""Mode x phase x request: the next phase. A one-shot run takes one prompt; then its stdin is closed."""

STAYS: Mapping[Phase, frozenset[type[Event]]] = {
    phase: frozenset(kind for kind, cell in cells.items() if cell == phase and kind is not Started)
    for phase, cells in EVENTS.items()
}
"""Phase: the events that change nothing, for which no cell needs to be looked up."""
