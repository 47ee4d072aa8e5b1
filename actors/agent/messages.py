"""The messages of an agent and their immediate replies. Later results are read from its event log."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from proctor.actors.agent.agent_state import PendingRequest
from proctor.actors.recording.eventlog import EventLog
from proctor.protocols.vocabulary import AnyRequest, Prompt
from proctor.runtime.exits import ExitReason


@attrs.frozen
class Submit:
    """Take a request. The reply is `Accepted`, at once; what comes of it is read from the log: a `sent` notice with
    the ticket names the prompt it travels as, each time it is sent. A caller that gives up before the reply marks
    the job as withdrawn, and it is never sent."""

    pending: PendingRequest


def _unknown() -> None:
    return


@attrs.frozen
class Accepted:
    """`log` from `position` on tells the request's story. `repeats`: a crash does not end it. `withdraw()` says that
    the caller has left: the request is forgotten, or its turn ended; it never waits. `reason()` is why the last incarnation
    ended: what a request meets whose log has ended without a word of it."""

    log: EventLog
    position: int
    repeats: bool
    withdraw: Callable[[], None]
    reason: Callable[[], ExitReason | None] = _unknown


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
class GetLog:
    """The reply is the agent's `EventLog`."""


@attrs.frozen
class GetApprovals:
    """The reply is the `ApprovalQueue` where the agent's open questions lie."""


@attrs.frozen
class Resume:
    """From the agent to itself: the wait of this request is over."""

    pending: PendingRequest


@attrs.frozen
class Deliver:
    """From the agent to itself: send this prompt of the request, for the reason `why`."""

    pending: PendingRequest
    prompt: Prompt
    why: str


@attrs.frozen
class NotWritten:
    """From the agent to itself: the process refused the prompt of this request before a byte was written."""

    pending: PendingRequest
    written: trio.Event
    error: Exception


@attrs.frozen
class CallerGone:
    """From whoever withdraws it: the caller of this request has left."""

    pending: PendingRequest


@attrs.frozen
class ProcessEnded:
    """From the agent to itself: the process of this number has ended."""

    number: int
