"""What travels: the bodies that are taken and given. The document's schemas are made of these, and bodies checked by them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import trio

from proctor.actors.agent.approval_queue import Approval
from proctor.actors.agent.receipts import Fate, Receipt
from proctor.actors.agent.states import Status
from proctor.actors.delivery import Delivery, Sent, Stage
from proctor.actors.gateways.http.health_checks import Grade
from proctor.actors.outcomes import Answer, Outcome
from proctor.protocols.vocabulary import Ending, Usage

SESSION = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$"
"""What names a session: it stands in a path."""

Prompt = Annotated[str, msgspec.Meta(min_length=1)]
SessionId = Annotated[str, msgspec.Meta(pattern=SESSION)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400 * 30)]


class Taken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that a client sends."""


class TurnRequest(Taken, frozen=True, kw_only=True):
    """A prompt for a turn. `timeout` (seconds) interrupts it; `schema` is the JSON schema of its answer. `session_id` has it
    carried out in the session of this name, in a folder and a conversation of its own, where the server keeps sessions."""

    prompt: Prompt
    session_id: SessionId | None = None
    timeout: Seconds | None = None
    schema: dict[str, Any] | None = None


class SteerRequest(Taken, frozen=True, kw_only=True):
    """Text for the turn that runs. `timeout`: seconds to wait for the command line's word."""

    text: Prompt
    timeout: Seconds | None = None


class QueueRequest(Taken, frozen=True, kw_only=True):
    """A prompt for a turn of its own, whoever leaves meanwhile."""

    prompt: Prompt


class DecisionRequest(Taken, frozen=True, kw_only=True):
    """The answer to an open question. `message` tells the model why not; `input` replaces the tool's, if allowed."""

    decision: Literal["allow", "deny"]
    message: str = ""
    input: dict[str, Any] | None = None


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An agent at one moment. `seconds`: how long it has been in that state; `until`: when it wakes (Unix seconds);
    `unresponsive`: what was found of a command line that does not respond; `not_recorded`: why nothing is recorded."""

    name: str
    state: str
    evidence: str = ""
    unresponsive: str = ""
    not_recorded: str = ""
    seconds: float | None = None
    pid: int | None = None
    incarnation: int = 0
    session_id: str | None = None
    model: str | None = None
    queued: int = 0
    until: float | None = None
    turns: int = 0
    cost_usd: float | None = None


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    """Every agent that is served."""

    agents: tuple[AgentRecord, ...]


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn came that failed. `sent`: whether its prompt was written to the command line; `stage`: where it stood;
    `elapsed`: seconds; `pid`, `code` and `signal` are the command line's own; `text` is what had streamed, `stderr` the end of
    what it wrote there; `truncated` names what is not whole."""

    sent: Sent
    stage: Stage
    elapsed: float
    pid: int | None = None
    code: int | None = None
    signal: str | None = None
    text: str = ""
    stderr: str = ""
    recording: str | None = None
    session_id: str | None = None
    truncated: tuple[str, ...] = ()


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended. `duration` is in seconds; `value` is the answer that a schema was asked for, in so many `attempts`;
    `delivery` is there where it is not ok."""

    agent: str
    ok: bool
    outcome: Outcome
    text: str = ""
    error: str | None = None
    ending: Ending | None = None
    detail: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    duration: float | None = None
    model: str | None = None
    model_turns: int | None = None
    session_id: str | None = None
    value: Any = None
    attempts: int = 1
    denied_tools: tuple[str, ...] = ()
    resets_at: float | None = None
    notes: tuple[str, ...] = ()
    delivery: DeliveryRecord | None = None


class ViolationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a body: `where` is a JSON pointer, "" for the whole."""

    where: str
    what: str


class ProblemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no result (RFC 9457): what went wrong, `where` in the request, and the `remedy`. `delivery` says how far
    a turn came that an agent was asked for."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    where: str = ""
    violations: tuple[ViolationRecord, ...] = ()
    delivery: DeliveryRecord | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent: how many turns run in it or wait for it, and for how many seconds there were none."""

    id: str
    in_use: int
    idle: float


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of an agent that were used since the server began, the one that was idle longest first."""

    sessions: tuple[SessionRecord, ...]


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was asked for here. `first` is its first event's position in the agent's log, or in its own where it has
    a session; `duration` in seconds.

    One that ended has an `answer`, or a `problem` that says why there is none.
    """

    id: str
    agent: str
    url: str
    state: Literal["waiting", "running", "ended"]
    session_id: str | None = None
    first: int | None = None
    duration: float | None = None
    answer: AnswerRecord | None = None
    problem: ProblemRecord | None = None


class TurnList(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of an agent that were asked for here and are still known, oldest first."""

    turns: tuple[TurnRecord, ...]


class EndRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last event of a stream: `why` it ends, after how many seconds, and what became of its turn."""

    why: str
    duration: float
    turn: TurnRecord | None = None


class ReceiptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of what was said to an agent beside its prompts."""

    request: str
    fate: Fate
    why: str = ""
    turn: str | None = None


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that wants to run. It is denied in `seconds_left`."""

    agent: str
    id: str
    tool: str
    input: dict[str, Any]
    description: str | None = None
    tool_call: str | None = None
    seconds_left: float = 0.0


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """The open questions of an agent."""

    approvals: tuple[ApprovalRecord, ...]


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a question was settled."""

    id: str
    settled: str


class HealthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`ready` is false while starting or stopping, and when a check failed. `grade` is of the checks: `degraded` when some
    fail, `down` when all do. `checks` says of each what is wrong, null if nothing; `/healthz` only names, in `why`."""

    ready: bool
    grade: Grade = "ok"
    why: str = ""
    checks: dict[str, str | None] = {}


def agent_record(status: Status) -> AgentRecord:
    """A status as it travels; Trio's clock means nothing elsewhere."""
    facts = {name: getattr(status, name) for name in AgentRecord.__struct_fields__ if name != "seconds"}
    return AgentRecord(
        **facts, seconds=round(trio.current_time() - status.since, 3) if status.since else None
    )


def answer_record(answer: Answer) -> AnswerRecord:
    """An answer as it travels."""
    facts: dict[str, Any] = {name: getattr(answer, name) for name in AnswerRecord.__struct_fields__}
    facts["delivery"] = delivery_record(answer.delivery)
    return AnswerRecord(**facts)


def delivery_record(delivery: Delivery | None) -> DeliveryRecord | None:
    """A delivery as it travels."""
    return None if delivery is None else msgspec.convert(delivery.facts(), DeliveryRecord)


def receipt_record(receipt: Receipt) -> ReceiptRecord:
    """A receipt as it travels."""
    return ReceiptRecord(request=receipt.request, fate=receipt.fate, why=receipt.why, turn=receipt.turn)


def approval_record(approval: Approval) -> ApprovalRecord:
    """An open question as it travels."""
    return ApprovalRecord(
        agent=approval.agent,
        id=approval.id,
        tool=approval.tool,
        input=approval.input,
        description=approval.description,
        tool_call=approval.tool_call,
        seconds_left=round(max(0.0, approval.deadline - trio.current_time()), 3),
    )
