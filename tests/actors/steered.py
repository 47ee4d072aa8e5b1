"""Dialects that can be steered, each in another way, over the scripted agent, which cannot.

`taken`: taken in with the next tool result. `kept`: a user message, which the scripted agent keeps for its next turn.
`denied`: asked for by a control request that nobody knows. `unheard`: nothing comes of it.
"""

from __future__ import annotations

import json
from typing import Literal

import attrs

from proctor.actors.plan.plan import Plan
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Memo, Out
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest, Prompt, Steer, Steered, ToolResult

Way = Literal["taken", "kept", "denied", "unheard", "unable"]


def steerable(plan: Plan, way: Way) -> Plan:
    """The plan with a dialect that takes a `Steer` in this way."""

    def write(memo: Memo, request: AnyRequest) -> bytes:
        if not isinstance(request, Steer):
            return CLAUDE.write(memo, request)
        if way == "unable":
            raise Misuse("this dialect has no way to send a 'steer' request", request="steer")
        if way == "kept":
            return CLAUDE.write(memo, Prompt(request.id, request.text))
        if way == "denied":
            memo.pending[request.id] = "steer"
            asked = {"type": "control_request", "request_id": request.id, "request": {"subtype": "steer"}}
            return json.dumps(asked).encode() + b"\n"
        memo.own.setdefault("steers", []).append(request.id)
        return b'{"type": "steer"}\n'

    def read(memo: Memo, line: bytes) -> Out:
        out = CLAUDE.read(memo, line)
        if way != "taken" or not any(isinstance(event, ToolResult) for event in out):
            return out
        taken: list[str] = memo.own.pop("steers", [])
        return (*out, *(Steered(memo.frame, memo.turn, request) for request in taken))

    missing = {"unable": {"steer", "queue"}, "kept": set[str]()}.get(way, {"queue"})
    words = {word: first for word, first in CLAUDE.capabilities.items() if word not in missing}
    dialect = attrs.evolve(plan.dialect, write=write, read=read, read_lines=None, capabilities=words)
    return attrs.evolve(plan, dialect=dialect)
