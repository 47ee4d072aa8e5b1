"""The state of a conversation with an OpenCode server, and the requests that it sends.

A request is a line, `{key, verb, path, query, body}`; its reply names the key. Requests are carried out one after
another, in the order of the lines.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import attrs

from proctor.protocols.dialect import Memo
from proctor.protocols.jsonrpc import line
from proctor.protocols.opencode.wire import Error
from proctor.protocols.vocabulary import Usage

KEPT = 200
"""Messages and parts of a turn that are remembered after it: news of them may come after its end."""

QUESTION = "question"
"""The tool by which the agent asks its user."""

Kind = Literal[
    "session",
    "fork",
    "prompt",
    "abort",
    "decision",
    "model",
    "question",
    "states",
    "messages",
    "server",
    "rules",
]
"""What a request was for."""


@attrs.frozen
class PendingRequest:
    """A request on its way: what for, and the host's id of it ("" for none)."""

    kind: Kind
    request: str = ""


@attrs.define
class Account:
    """The texts and the cost of the steps of the open turn so far.

    `speaker` is the message that the last text was in, `texts` its finished texts; `streaming` the message of the step that
    has some text and is not finished; `reason` the last step's;
    `loose` counts the last steps in a row that ended without one; `messages` are the model's since the turn began. `gap`:
    a part of the answer was too long to be read.
    """

    speaker: str = ""
    texts: list[str] = attrs.field(factory=list[str])
    streaming: str = ""
    reason: str = ""
    loose: int = 0
    messages: set[str] = attrs.field(factory=set[str])
    steps: int = 0
    cost: float = 0.0
    usage: Usage | None = None
    model: str | None = None
    structured: Any = None
    gap: bool = False
    error: Error | None = None
    denied: list[str] = attrs.field(factory=list[str])


@attrs.define
class SessionState:
    """`family` holds the session and those that its tools have opened. `sent` are the prompts whose message was not
    seen yet, `seen` those whose message was, before a turn took them. `roles` are the messages' by id, `kinds` the
    parts'; `running` the tool calls by id; `questions` the tools of open
    questions by the question's. `stray_idle`: one more end may follow an aborted turn's.
    `aborting`: the host has interrupted the open turn."""

    family: set[str] = attrs.field(factory=set[str])
    pending: dict[str, PendingRequest] = attrs.field(factory=dict[str, PendingRequest])
    next: int = 1
    sent: deque[str] = attrs.field(factory=deque[str])
    seen: list[str] = attrs.field(factory=list[str])
    roles: dict[str, str] = attrs.field(factory=dict[str, str])
    kinds: dict[str, str] = attrs.field(factory=dict[str, str])
    questions: dict[str, str] = attrs.field(factory=dict[str, str])
    running: set[str] = attrs.field(factory=set[str])
    account: Account = attrs.field(factory=Account)
    stray_idle: bool = False
    aborting: bool = False
    model: str | None = None

    def forget_old(self) -> None:
        """Keep what late news may still be about."""
        for kept in (self.roles, self.kinds):
            for id in list(kept)[:-KEPT]:
                del kept[id]


def state_of(memo: Memo) -> SessionState:
    """The notes of a conversation, made at their first use."""
    state = memo.own.get("serve")
    if not isinstance(state, SessionState):
        state = memo.own["serve"] = SessionState(model=memo.launch.model)
    return state


def ask(memo: Memo, kind: Kind, verb: str, path: str, body: object = None, *, request: str = "") -> bytes:
    """A request of ours; `request` is the host's id of it, if a host waits for the reply."""
    own = state_of(memo)
    key, own.next = f"{kind}.{own.next}", own.next + 1
    own.pending[key] = PendingRequest(kind, request)
    frame: dict[str, Any] = {"key": key, "verb": verb, "path": path, "query": {"directory": memo.launch.cwd}}
    if body is not None:
        frame["body"] = body
    return line(frame, tag=False)
