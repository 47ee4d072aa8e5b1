"""The records of request and response bodies; the schemas of the OpenAPI document are made of them."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import trio

from proctor.actors.agent.approval_queue import Approval, Choice
from proctor.actors.agent.receipts import Fate, Receipt
from proctor.actors.agent.states import Status
from proctor.actors.delivery import Delivery, Sent, Stage
from proctor.actors.operations.health import Grade
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.plan.budgets import Spending, Then
from proctor.actors.tools.menus import MenuQuestion
from proctor.protocols.vocabulary import AnyEvent, Ending, Usage

SESSION = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$"
"""The pattern of a session's name, which is part of a path."""

Prompt = Annotated[str, msgspec.Meta(min_length=1)]
SessionId = Annotated[str, msgspec.Meta(pattern=SESSION)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400 * 30)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""


class TurnRequest(RequestBody, frozen=True, kw_only=True):
    """A prompt for a turn. `timeout` (seconds) interrupts it; `schema` is the JSON schema of its answer. `session_id` runs
    it in the session of this name, with its own folder and conversation, if the server has sessions."""

    prompt: Prompt
    session_id: SessionId | None = None
    timeout: Seconds | None = None
    schema: dict[str, Any] | None = None


class SteerRequest(RequestBody, frozen=True, kw_only=True):
    """Text for the running turn. `timeout`: seconds to wait for the reply of the command line."""

    text: Prompt
    timeout: Seconds | None = None


class QueueRequest(RequestBody, frozen=True, kw_only=True):
    """A prompt for a turn of its own, which continues when the client disconnects."""

    prompt: Prompt


class ParkRequest(RequestBody, frozen=True, kw_only=True):
    """An agent is held back. `until`: in Unix seconds; without it until it is let go."""

    reason: str = ""
    until: float | None = None


class DecisionRequest(RequestBody, frozen=True, kw_only=True):
    """The decision about a tool. `message` tells the model why it was denied; `input` replaces the input of an allowed tool. `always` allows it, and
    all that is like it for the rest of the session. `answers` are those to the questions of the approval, in order."""

    decision: Choice
    message: str = ""
    input: dict[str, Any] | None = None
    answers: tuple[str, ...] = ()


class DeadlineRequest(RequestBody, frozen=True, kw_only=True):
    """More time for a decision: `seconds` from now on."""

    seconds: Seconds


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent. `seconds`: the time in that state; `until`: when it wakes (Unix seconds); `unresponsive`:
    evidence that its command line does not respond; `not_recorded`: why nothing is recorded."""

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


class FleetAgentRecord(AgentRecord, frozen=True, kw_only=True):
    """An agent of a fleet. `since`: when it came into its state (Unix seconds, as all moments), in place of `seconds`; `restarts` by its supervisor;
    `last_exit`: how its last incarnation ended; `approvals`: the open ones; `kind`: of its command line.

    `activity` is what it does now, in one line: the tool that runs, else the end of its newest text. `tokens` (input and output, as its command line
    counts them) and `cost_usd` are those of this host, `tokens_today` and `cost_today_usd` those of them since midnight. `context_tokens` of
    `context_window` were in its last call of the model, where the command line reports that. `last_event`: when its command line last wrote anything;
    `started`: when its incarnation did; `memory`: resident bytes of its command line, some seconds old; `stopped_by`: "operator" for one that was stopped by request.
    """

    path: str
    since: float | None = None
    restarts: int = 0
    last_exit: str | None = None
    approvals: int = 0
    kind: str = ""
    activity: str = ""
    context_tokens: int | None = None
    context_window: int | None = None
    tokens: int = 0
    tokens_today: int = 0
    cost_today_usd: float | None = None
    last_event: float | None = None
    started: float | None = None
    memory: int | None = None
    cwd: str = ""
    worktree: str | None = None
    recording: str | None = None
    stopped_by: str = ""


class TreeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A supervisor or another child of a fleet with its `state`, or an `agent`, whose own record has that, and what is below it."""

    id: str
    path: str
    agent: str | None = None
    state: str | None = None
    restarts: int = 0
    children: tuple[TreeRecord, ...] = ()


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that holds agents back: a usage limit of an account, or a budget that is spent. `until`: when it ends (Unix seconds)."""

    name: str
    until: float | None
    why: str


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a fleet as a whole. `host`: the name of its machine; `file`: its fleet file; `cost_today_usd`: of all its agents since midnight;
    `cost_cap_usd`: the budget of the whole fleet; `limits`: those that hold agents back now."""

    host: str
    file: str | None = None
    cost_today_usd: float | None = None
    cost_cap_usd: float | None = None
    limits: tuple[LimitRecord, ...] = ()


class FleetRecord(FleetFacts, frozen=True, kw_only=True):
    """A fleet at one moment. `since`: when its host began to serve it (ISO 8601); `sequence`: the number of its last change."""

    fleet: str
    pid: int
    since: str
    sequence: int
    agents: tuple[FleetAgentRecord, ...]
    tree: TreeRecord | None = None


RequestState = Literal["waiting", "running", "ended"]


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request of an agent, with the first 200 characters of its `prompt`. `accepted`, `sent` and `ended` in Unix seconds. `key`: that of one that the
    fleet's store keeps; only of those is known how they ended."""

    id: str
    key: str | None = None
    agent: str
    prompt: str
    state: RequestState
    accepted: float
    sent: float | None = None
    ended: float | None = None
    outcome: str | None = None
    cost_usd: float | None = None
    session_id: str | None = None


class RequestList(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of the fleet, the newest first."""

    requests: tuple[RequestRecord, ...]


class RestartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of an agent by its supervisor, or with it, `at` Unix seconds."""

    agent: str
    at: float
    cause: str


class RestartList(msgspec.Struct, frozen=True, kw_only=True):
    """The restarts of the agents, the newest first."""

    restarts: tuple[RestartRecord, ...]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run of an agent in the folder `path`. `begun`, and `changed` by its last event, in Unix seconds. `outcome` and `text` are those of
    its last turn that has ended; `is_in_turn`: another has begun since."""

    id: str
    agent: str
    kind: str
    path: str
    begun: float
    changed: float
    is_running: bool
    is_in_turn: bool
    turns: int
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    outcome: Outcome | None = None
    text: str = ""
    cost_usd: float | None = None


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded runs of the agents of the fleet, the newest first."""

    runs: tuple[RunRecord, ...]


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a recorded run from the position `since` on; `next` is that of the following ones, null at the end."""

    since: int
    next: int | None
    events: tuple[AnyEvent, ...]


class ShutdownRequest(RequestBody, frozen=True, kw_only=True):
    """The end of the host. `grace`: seconds that running turns have."""

    grace: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 0.0


class BudgetRequest(RequestBody, frozen=True, kw_only=True):
    """A budget: at most `usd` dollars in any `per` seconds; without `per` that stays as it is, or is a day."""

    usd: Annotated[float, msgspec.Meta(gt=0)]
    per: Seconds | None = None


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A budget: at most `usd` dollars in any `per` seconds, of which `spent_usd` are spent, and what happens `then`; all null without one.
    `unknown_turns` reported no cost. `until`: when a spent one lets turns begin again (Unix seconds). `agent` is null for that of the fleet."""

    agent: str | None = None
    usd: float | None = None
    per: float | None = None
    then: Then | None = None
    spent_usd: float | None = None
    unknown_turns: int = 0
    until: float | None = None


class ShutdownRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The process that is stopping."""

    pid: int


class ReloadRequest(RequestBody, frozen=True, kw_only=True):
    """The fleet file is read again. With `dry_run` nothing is changed; with `restart` changed agents that are idle are restarted."""

    dry_run: bool = False
    restart: bool = False


class ReloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is different in the fleet file, by agent; those of the `changed` that were `restarted` run as it says, the others go on as before.
    `problems`: what could not be done, a line each."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    restarted: tuple[str, ...]
    problems: tuple[str, ...]


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    """All agents of the server."""

    agents: tuple[AgentRecord, ...]


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a failed turn. `sent`: whether its prompt was written to the command line; `stage`: its last stage;
    `elapsed`: seconds; `pid`, `code` and `signal` are those of the command line; `text` is the text that had streamed, `stderr`
    the end of its stderr; `truncated` names the fields that were cut."""

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
    """The result of a turn. `duration` is in seconds; `value` is the answer for a schema, after so many `attempts`; `delivery`
    is set when the turn is not ok."""

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
    """One violation of the schema of a body: `where` is a JSON pointer, "" for the whole body."""

    where: str
    what: str


class ProblemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457): what is wrong, `where` in the request, and the `remedy`. `delivery` says how far a turn came."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    where: str = ""
    violations: tuple[ViolationRecord, ...] = ()
    delivery: DeliveryRecord | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent: the number of turns that run in it or wait for it, and the seconds it has been idle."""

    id: str
    in_use: int
    idle: float


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of an agent that were used since the server started; the longest idle one comes first."""

    sessions: tuple[SessionRecord, ...]


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was requested here. `first` is the position of its first event in the agent's log, or, in a session, in its own log;
    `duration` is in seconds.

    A turn that ended has an `answer` or a `problem`.
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
    """The last turns of an agent that were requested here, the oldest first."""

    turns: tuple[TurnRecord, ...]


class EndRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last event of a stream: `why` it ends, its `duration` in seconds, and its turn."""

    why: str
    duration: float
    turn: TurnRecord | None = None


class ReceiptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a steer, queue or interrupt request."""

    request: str
    fate: Fate
    why: str = ""
    turn: str | None = None


class OptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a question offers."""

    label: str
    description: str = ""


class QuestionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the person. The answer is the label of an option, or a text of its own; `multiple`: several labels."""

    text: str
    header: str = ""
    options: tuple[OptionRecord, ...] = ()
    multiple: bool = False


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that waits for a decision. It is denied after `seconds_left`; `asked`: since when it waits (Unix seconds). `diff`: what it would change in
    files, at most 200 lines. `choices` can be decided. `questions` are those to the person, if the tool asks some, and `question` is the first."""

    agent: str
    id: str
    tool: str
    input: dict[str, Any]
    description: str | None = None
    tool_call: str | None = None
    seconds_left: float = 0.0
    asked: float = 0.0
    choices: tuple[Choice, ...] = ()
    diff: str | None = None
    question: QuestionRecord | None = None
    questions: tuple[QuestionRecord, ...] = ()


class SettledRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an approval."""

    agent: str
    id: str
    settled: str


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """The open approvals of an agent, or of all, the oldest of each first."""

    approvals: tuple[ApprovalRecord, ...]


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about an approval."""

    id: str
    settled: str


class HealthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`ready` is false while the server starts or stops, and when a check failed. `grade` is `degraded` when a check fails,
    `down` when no agent can answer. `checks` has the problem of each check, null when it passed, and `agents` the reason why each
    agent cannot answer, null when it can; `/healthz` has only the names of the checks, in `why`."""

    ready: bool
    grade: Grade = "ok"
    why: str = ""
    checks: dict[str, str | None] = {}
    agents: dict[str, str | None] = {}


Record = TypeVar("Record", bound=msgspec.Struct)


def record_of(kind: type[Record], source: object, **other: Any) -> Record:
    """A record with the attributes of `source` that have its names, and `other` fields."""
    names = [name for name in kind.__struct_fields__ if name not in other]
    return kind(**{name: getattr(source, name) for name in names}, **other)


def agent_record(status: Status) -> AgentRecord:
    """The record of a status; times on Trio's clock become durations."""
    seconds = round(trio.current_time() - status.since, 3) if status.since else None
    return record_of(AgentRecord, status, seconds=seconds)


def answer_record(answer: Answer) -> AnswerRecord:
    """The record of an answer."""
    return record_of(AnswerRecord, answer, delivery=delivery_record(answer.delivery))


def delivery_record(delivery: Delivery | None) -> DeliveryRecord | None:
    """The record of a delivery."""
    return None if delivery is None else msgspec.convert(delivery.facts(), DeliveryRecord)


def receipt_record(receipt: Receipt) -> ReceiptRecord:
    """The record of a receipt."""
    return record_of(ReceiptRecord, receipt)


def approval_record(approval: Approval) -> ApprovalRecord:
    """The record of an open approval."""
    left = round(max(0.0, approval.deadline - trio.current_time()), 3)
    questions = tuple(map(_question_record, approval.questions))
    first = questions[0] if questions else None
    return record_of(ApprovalRecord, approval, seconds_left=left, question=first, questions=questions)


def _question_record(question: MenuQuestion) -> QuestionRecord:
    options = tuple(OptionRecord(label=label, description=text) for label, text in question.options)
    return QuestionRecord(
        text=question.question, header=question.header, options=options, multiple=question.several
    )


def budget_record(agent: str | None, spending: Spending | None) -> BudgetRecord:
    """The record of a budget and what was spent under it."""
    if spending is None:
        return BudgetRecord(agent=agent)
    now, budget = trio.current_time(), spending.budget
    left = spending.frees_in(now)
    return BudgetRecord(
        agent=agent,
        usd=budget.usd,
        per=budget.period,
        then=budget.then,
        spent_usd=round(spending.spent(now), 6),
        unknown_turns=spending.unknown,
        until=round(time.time() + left, 3) if left > 0 else None,
    )
