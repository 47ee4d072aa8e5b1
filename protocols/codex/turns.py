"""The start and the end of a turn of a Codex thread, for `app-server` and `exec`.

Guarantees: `turn/completed` of our thread ends exactly one turn, and one whose beginning was not reported begins first.
A prompt sent while a turn runs is taken into that turn: the reply says so by naming it. A prompt that the CLI refuses
has a turn of its own that ends with the refusal.

Tokens of a turn are the sum of what its model calls cost, as Codex counts them: `input_tokens` has the cached ones in
it. What sub-agents spend is in their own threads and not counted. Codex names no price.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from proctor.protocols import turns
from proctor.protocols.codex.errors import Cause, cause_of, ending_of
from proctor.protocols.codex.wire import Failure, Limits, TokenUsage, Turn, usage_of
from proctor.protocols.dialect import Memo, OpenTurn, Out, Used
from proctor.protocols.lenient import UNKEPT, Refusal
from proctor.protocols.limits import reset_time
from proctor.protocols.vocabulary import (
    AnyEvent,
    AnyRequest,
    ApprovalWithdrawn,
    Ending,
    LimitReached,
    Notice,
    RequestWithdrawn,
    TurnEnded,
    Usage,
)

ENDINGS: Mapping[str, Ending] = {"completed": "completed", "interrupted": "interrupted"}
"""By the status of a turn; any other is a failure."""

ENDED = 16
"""Ended turns that are remembered by the CLI's id, for what comes late."""


@attrs.frozen
class PendingQuestion:
    """An open request of the server: the `key` it is answered by, its `method`, and our turn that it holds up."""

    key: str
    method: str
    turn: str | None
    input: dict[str, Any]
    tool: str


@attrs.frozen
class Call:
    """A tool that was called and has given nothing back yet. `unread`: what it was given was too long to be read, and it
    has no `ToolCall`."""

    name: str
    input: dict[str, Any]
    unread: bool = False


@attrs.define
class SessionState:
    """The state of a Codex conversation besides the memo.

    `current` is the CLI's id of the turn that runs on our thread, `ended` those before it with ours. `expected` holds
    the prompts of turns that were promised and have not begun; `early` the requests that wait for the thread, `held`
    those that wait for the turn. `calls` are the open tools by item, `streams` the items that are being streamed by
    their thread, `parents` the tool call that a sub-agent's thread belongs to. The rest is about the running turn; `gap`:
    its last message was too long to be read.
    """

    current: str | None = None
    ended: deque[tuple[str, str]] = attrs.field(factory=lambda: deque[tuple[str, str]](maxlen=ENDED))
    expected: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    early: list[AnyRequest] = attrs.field(factory=list[AnyRequest])
    held: list[AnyRequest] = attrs.field(factory=list[AnyRequest])
    calls: dict[str, Call] = attrs.field(factory=dict[str, Call])
    streams: dict[str, set[str]] = attrs.field(factory=dict[str, set[str]])
    parents: dict[str, str] = attrs.field(factory=dict[str, str])
    questions: dict[str, PendingQuestion] = attrs.field(factory=dict[str, PendingQuestion])
    limits: Limits = attrs.field(factory=Limits)
    warned: float | None = None
    text: str | None = None
    gap: bool = False
    usage: Usage | None = None
    model_calls: int = 0
    limited: bool = False
    denied: list[str] = attrs.field(factory=list[str])

    def forget_turn(self) -> None:
        self.current = self.text = self.usage = None
        self.model_calls = 0
        self.limited = self.gap = False
        self.denied.clear()
        self.streams.clear()


def state_of(memo: Memo) -> SessionState:
    """The notes of a conversation, made at their first use."""
    state = memo.own.get("codex")
    if not isinstance(state, SessionState):
        state = memo.own["codex"] = SessionState()
    return state


def say(memo: Memo, text: str) -> None:
    """A message of the agent's is whole: for all that is known it is the answer."""
    own = state_of(memo)
    own.text, own.gap = (None, True) if memo.truncated else (text, False)


def turn_of(memo: Memo, turn: str | None) -> str | None:
    """Our id of a turn of the CLI's: the running one, one that ended not long ago, else the newest that is open."""
    own = state_of(memo)
    if turn is None or turn == own.current:
        return memo.turn
    return next((ours for theirs, ours in own.ended if theirs == turn), memo.turn)


def begin_turn(memo: Memo, turn: str) -> list[AnyEvent]:
    """The turn with this id of the CLI's has begun. One that is open ended unseen."""
    own = state_of(memo)
    if turn == own.current:
        return []
    # Of one thread only one turn runs: the end of the one before was not understood.
    unseen = [_end(memo, each, "error", error="its end was not understood") for each in [*memo.open_turns]]
    prompts = own.expected.pop(turn, None) or memo.waiting_prompts()[:1]
    own.current = turn
    return [*unseen, turns.begin_turn(memo, prompts)]


def take_in(memo: Memo, turn: str, prompt: str) -> tuple[list[AnyEvent], bool]:
    """A prompt was given to this turn. The events of it, and whether a turn that ran before took it in."""
    own = state_of(memo)
    if turn != own.current:
        # The reply came after the end of its turn.
        if any(theirs == turn for theirs, _ in own.ended):
            return refuse_prompt(memo, prompt, "error", "its turn has already ended"), False
        own.expected.setdefault(turn, []).append(prompt)
        return [], False
    running = memo.open_turns[-1]
    if prompt in running.prompts:
        return [], False
    running.prompts.append(prompt)
    return [], True


def refuse_prompt(memo: Memo, prompt: str, ending: Ending, error: str) -> list[AnyEvent]:
    """The turn of a prompt that is refused, once."""
    return (
        turns.refuse_prompt(memo, prompt, ending, error, detail="refused") if prompt in memo.prompts else []
    )


def end_turn(memo: Memo, turn: Turn) -> Out:
    """The end of a turn of our thread, after its beginning where that was not reported."""
    own = state_of(memo)
    begun = [] if turn.id == own.current else begin_turn(memo, turn.id)
    running = memo.open_turns[-1]
    ending, cause = _ending(turn)
    limit = reach_limit(memo) if ending == "limit" else []
    structured, misfit = structured_output(memo, ending)
    ended = _end(
        memo,
        running,
        "schema_unmet" if misfit else ending,
        text=own.text if ending == "completed" else None,
        error=misfit or _error_text(turn.error) or unkept(memo),
        detail=cause.word or turn.status or None,
        status=cause.status,
        usage=own.usage,
        model_turns=own.model_calls or None,
        duration=None if turn.duration_ms is None else turn.duration_ms / 1000,
        structured_output=structured,
        denied_tools=tuple(own.denied),
    )
    # Before the turn is forgotten: a question left open would wait for its deadline.
    moot = withdraw(memo, [key for key, pending in own.questions.items() if pending.turn == running.id])
    own.forget_turn()
    return (*begun, *limit, *moot, ended)


def _end(memo: Memo, turn: OpenTurn, ending: Ending, **fields: Any) -> TurnEnded:
    own = state_of(memo)
    if own.current is not None:
        own.ended.append((own.current, turn.id))
    return turns.end_turn(memo, turn, ending, **fields)


def unkept(memo: Memo) -> str | None:
    """Why there is no answer, where it was too long to be read."""
    return UNKEPT if state_of(memo).gap else None


def _error_text(error: Failure | None) -> str | None:
    return None if error is None else error.message or "it failed without a message"


def _ending(turn: Turn) -> tuple[Ending, Cause]:
    cause = Cause() if turn.error is None else cause_of(turn.error)
    if (ending := ENDINGS.get(turn.status)) is not None:
        return ending, cause
    return ending_of(cause, _error_text(turn.error) or ""), cause


def structured_output(memo: Memo, ending: Ending) -> tuple[Any, str | None]:
    """The answer as data where a schema was asked for, and why it is none. Codex itself checks nothing."""
    if ending != "completed" or memo.launch.json_schema is None:
        return None, None
    if state_of(memo).gap:
        return None, UNKEPT
    try:
        return msgspec.json.decode(state_of(memo).text or ""), None
    except Refusal as error:
        return None, f"the answer is not JSON, but its schema requires it: {error}"


def count(memo: Memo, tokens: TokenUsage) -> None:
    """Add one call of the model to the running turn."""
    own, last = state_of(memo), tokens.last
    memo.context_tokens = last.input_tokens + last.output_tokens
    memo.context_window = tokens.model_context_window or memo.context_window
    own.model_calls += 1
    own.usage = (own.usage or Usage()) + usage_of(last)


def used(memo: Memo) -> Used:
    """The tokens of the running turn so far; Codex tells no cost."""
    return state_of(memo).usage, None


def reach_limit(memo: Memo) -> list[AnyEvent]:
    """The usage limit that stops the turn, once; it resets when the last of the windows that are used up does."""
    own = state_of(memo)
    # An `error` and then the end of the turn report the same limit.
    if own.limited:
        return []
    own.limited = True
    limits = own.limits
    full = [window for window in (limits.primary, limits.secondary) if window and window.used_percent >= 100]
    resets = [moment for window in full if (moment := reset_time(window.resets_at)) is not None]
    kind = limits.rate_limit_reached_type or limits.limit_id
    return [LimitReached(memo.frame, memo.turn, kind, max(resets, default=None))]


def withdraw(memo: Memo, questions: list[str]) -> list[AnyEvent]:
    """These questions of the CLI need no answer any more; what was answered before gives nothing."""
    own = state_of(memo)
    out: list[AnyEvent] = []
    for question in questions:
        pending = own.questions.pop(question, None)
        turn = pending.turn if pending is not None else None
        if memo.approvals.pop(question, None) is not None:
            out.append(ApprovalWithdrawn(memo.frame, turn, question))
        elif memo.calls.pop(question, None) is not None:
            out.append(RequestWithdrawn(memo.frame, turn, question))
    return out


def void(memo: Memo, thread: str) -> list[AnyEvent]:
    """Void the items that are being streamed on this thread: a retry repeats them as others."""
    own = state_of(memo)
    items = own.streams.pop(thread, None)
    if not items:
        return []
    data = {"items": sorted(items), "parent": own.parents.get(thread)}
    text = "the stream was cut; discard its pieces since the last complete block"
    return [Notice(memo.frame, memo.turn, "attempt_void", text, data)]
