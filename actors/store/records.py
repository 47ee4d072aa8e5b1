"""What a store keeps: requests, how each ended, and facts of agents. Times are in Unix seconds.

A request passes through three marks, each on disk before what it announces: `accepted` before its caller is answered, `sent`
before a byte of its prompt is written, `ended` before its caller has the answer. So a host that dies leaves each request in a
state that says what may be done with it: one that was not sent is begun, once; one that was sent may have been carried out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.actors.delivery import Part, Sent, Stage
from proctor.actors.outcomes import Outcome
from proctor.actors.plan.options import OnCrash
from proctor.protocols.attachment import Attachment
from proctor.protocols.vocabulary import Ending, Usage


class StoredExit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a process: the `kind` of the reason, and its status; of a crash the text alone."""

    kind: str
    code: int | None = None
    signal: int | None = None
    text: str = ""


class StoredDelivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of `Delivery`."""

    sent: Sent
    stage: Stage
    elapsed: float
    pid: int | None = None
    exit: StoredExit | None = None
    text: str = ""
    stderr: str = ""
    recording: str | None = None
    session_id: str | None = None
    truncated: tuple[Part, ...] = ()


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of `Answer` but its value, which each caller reads by a schema of its own."""

    agent: str
    outcome: Outcome
    text: str = ""
    error: str | None = None
    ending: Ending | None = None
    detail: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    duration: float | None = None
    model: str | None = None
    model_turns: int | None = None
    session_id: str | None = None
    structured_output: Any = None
    attempts: int = 1
    denied_tools: tuple[str, ...] = ()
    resets_at: float | None = None
    exit: StoredExit | None = None
    stderr: str = ""
    notes: tuple[str, ...] = ()
    delivery: StoredDelivery | None = None


class StoredError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as plain data: its class by name, its text, and the attributes that it had."""

    kind: str
    text: str
    outcome: str = ""
    seconds: float = 0.0
    acknowledged: bool = False
    delivery: StoredDelivery | None = None


class StoredEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a request: an `answer`, or the `error` that its caller got. `ends` writes both; `text`
    is what a person reads. `outcome` is the label of the end, the name of the error's class where it has none. `sent` says
    whether its prompt had reached the command line."""

    ended: float
    outcome: str
    sent: Sent
    text: str = ""
    cost_usd: float | None = None
    answer: StoredAnswer | None = None
    error: StoredError | None = None


class SendMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Written before a prompt: from `at` on the request may have been carried out. `on_crash` is what its agent does about that;
    `session_id` and `recording` are the conversation and the folder in which it happens. `started`: its turn has begun, so the
    conversation has the prompt. `parked`: the attempt was refused by a usage limit, and the prompt is to be sent again."""

    at: float
    on_crash: OnCrash = "fail"
    session_id: str | None = None
    recording: str | None = None
    started: bool = False
    parked: bool = False

    @property
    def may_go_on(self) -> bool:
        """Whether the request is sent again or gone on with, when its host or its agent has left it without an end. Without its turn
        begun the conversation may lack the prompt, and to send it again might do all of it twice."""
        return self.parked or self.on_crash == "retry" or (self.on_crash == "resume" and self.started)


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of the agent named `agent`, under the caller's `key`; `id` is our own. `digest` is that of all that was asked, so
    that a key is not used for two things. `timeout` is in seconds from `accepted` on. `schema` is the JSON schema of the answer."""

    id: str
    agent: str
    key: str
    digest: str
    prompt: str
    accepted: float
    timeout: float | None = None
    schema: dict[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()
    sent: SendMark | None = None
    end: StoredEnd | None = None

    @property
    def holds_key(self) -> bool:
        """Whether its key is used up: not by one that ended and was never sent, which may be asked anew."""
        return self.end is None or self.end.sent != "no"


def digest_of(prompt: str, schema: object, attachments: Sequence[Attachment]) -> str:
    """The same for two requests that ask the same. `schema` is plain data."""
    parts = (prompt, schema, tuple(attachments))
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="sorted")).hexdigest()
