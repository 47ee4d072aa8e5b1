"""The state of an Agent Client Protocol conversation besides its `Memo`."""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from proctor.protocols.acp.profile import GENERIC, Profile
from proctor.protocols.acp.wire import Abilities, Choice
from proctor.protocols.dialect import Memo
from proctor.protocols.vocabulary import HOST, Prompt


@attrs.define
class DeltaBatch:
    """Chunks of one text that belong together: of one message, thought or text. `frame` is the line of the last one;
    `gap` says that one was too long to be read."""

    thought: bool
    message: str | None
    pieces: list[str] = attrs.field(factory=list[str])
    frame: int = HOST
    gap: bool = False


@attrs.define
class Call:
    """A tool call: what is known of it, whether it was `announced` as an event, and whether it was denied. `unread`: its input
    came in a line that was too long, and has not come again. `changes`: those of files, as the agent has shown them last."""

    id: str
    name: str = ""
    title: str = ""
    input: dict[str, Any] = attrs.field(factory=dict[str, Any])
    output: list[str] = attrs.field(factory=list[str])
    announced: bool = False
    denied: bool = False
    unread: bool = False
    parent: str | None = None
    changes: tuple[dict[str, Any], ...] = ()


@attrs.define
class PendingQuestion:
    """An open question: the option for each kind of answer, the call that it is about, and all its options."""

    options: dict[str, str]
    call: Call
    choices: list[Choice]


@attrs.define
class TurnState:
    """The state of the running turn: the last text `text`, of which `message`, how many whole `texts` of that message there
    were, and whether a part of it was not read (`gap`), whether text followed the last denial (`answered`), the tools
    `denied`, the text of a `failure`, the model calls in a row that brought only text."""

    text: str | None = None
    message: str | None = None
    texts: int = 0
    gap: bool = False
    answered: bool = False
    denied: list[str] = attrs.field(factory=list[str])
    failed: bool = False
    failure: str | None = None
    calls: int = 0
    steps: set[str] = attrs.field(factory=set[str])
    fruitless: int = 0
    endless: bool = False


@attrs.define
class SessionState:
    """`current` is the prompt that the agent works on, `held` are those that wait for its end; `pending_settings` the settings
    of the launch not made yet; `options` the session's own by category, with id and value; `settled` the questions
    that were answered for the host, whose withdrawal is still to be reported; `replaying` that history is still to come."""

    profile: Profile
    abilities: Abilities = attrs.field(factory=Abilities)
    version: str | None = None
    options: dict[str, tuple[str, object]] = attrs.field(factory=dict[str, tuple[str, object]])
    mode: str | None = None
    has_modes: bool = False
    has_models: bool = False
    pending_settings: deque[tuple[str, str]] = attrs.field(factory=deque[tuple[str, str]])
    current: str | None = None
    held: deque[Prompt] = attrs.field(factory=deque[Prompt])
    batches: dict[str | None, DeltaBatch] = attrs.field(factory=dict[str | None, DeltaBatch])
    calls: dict[str, Call] = attrs.field(factory=dict[str, Call])
    questions: dict[str, PendingQuestion] = attrs.field(factory=dict[str, PendingQuestion])
    settled: list[str] = attrs.field(factory=list[str])
    replaying: bool = False
    cost: float | None = None
    turn: TurnState = attrs.field(factory=TurnState)


def state_of(memo: Memo, profile: Profile = GENERIC) -> SessionState:
    """The notes of a conversation, made for `profile` at their first use."""
    state = memo.own.get("acp")
    if not isinstance(state, SessionState):
        state = memo.own["acp"] = SessionState(profile)
    return state
