"""The messages of an agent and their immediate replies. Later results are read from its event log."""

from __future__ import annotations

import attrs
import trio

from proctor.actors.agent.request import Request
from proctor.actors.recording.eventlog import EventLog
from proctor.protocols.vocabulary import AnyRequest, Prompt


@attrs.frozen
class Submit:
    """Take a request. The reply is its `Turn`, at once. A caller that gives up before the reply marks the request as withdrawn,
    and it is never sent."""

    pending: Request


@attrs.frozen
class Control:
    """Pass a request such as `Steer` or `SetModel` on to the CLI. The reply is `ControlResult`, once it is written."""

    request: AnyRequest


@attrs.frozen
class ControlResult:
    """It was written while `turn` ran (None: none had begun), or it was not, for the reason `refused`.

    `log` from `position` on holds the CLI's word about it. `keeps`: what a turn has not taken in when it ends, the
    CLI keeps for its next one.
    """

    log: EventLog
    position: int
    turn: str | None = None
    keeps: bool = False
    refused: str | None = None


@attrs.frozen
class GetStatus:
    """The reply is a `Status`."""


@attrs.frozen
class GetRequests:
    """The reply is the `StoredRequests` of the agent's tree, None where the tree has no store."""


@attrs.frozen
class GetLog:
    """The reply is the agent's `EventLog`."""


@attrs.frozen
class GetApprovals:
    """The reply is the `ApprovalQueue` where the agent's open questions lie."""


@attrs.frozen
class Resume:
    """From the agent to itself: the wait of this request is over."""

    pending: Request


@attrs.frozen
class Deliver:
    """From the agent to itself: send this prompt of the request, for the reason `why`."""

    pending: Request
    prompt: Prompt
    why: str


@attrs.frozen
class NotWritten:
    """From the agent to itself: the process refused the prompt of this request before a byte was written."""

    pending: Request
    written: trio.Event
    error: Exception


@attrs.frozen
class CallerGone:
    """The caller of this request has left."""

    pending: Request


@attrs.frozen
class ProcessEnded:
    """From the agent to itself: the process of this number has ended."""

    number: int
