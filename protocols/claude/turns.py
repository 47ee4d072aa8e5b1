"""The start and the end of a turn of Claude Code.

Guarantees: a `result` line ends exactly one turn, the one that it names by the ids of the prompts it answers, else by
its origin (background work that ended answers no prompt), else the oldest open one. A `result` for which no turn is
open but a prompt waits begins its turn first, so that a refused start has a turn too. A `result` that was lost ends
its turn when the next one begins. The cause comes from tables.

`is_error` decides, then the subtype, then the reason; where the reason only says that the API failed, the word of the
synthetic answer before it, then the HTTP status. A rejection by a usage limit is separate from a busy server.

Costs are running totals on the wire, so a turn's share is a difference; where the total before is not known, the
share is None. 2.1.197 starts again at zero in a resumed process, 2.1.330 goes on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from proctor.protocols import turns
from proctor.protocols.causes import STATUSES
from proctor.protocols.claude.wire import Init, Lifecycle, Message, ModelUsage, Result, Tokens
from proctor.protocols.dialect import Memo, OpenTurn, Used, parse_version
from proctor.protocols.lenient import decoded_or
from proctor.protocols.vocabulary import (
    AnyEvent,
    ApprovalWithdrawn,
    Ending,
    Misplaced,
    Notice,
    Steered,
    TurnEnded,
    TurnStarted,
    Usage,
)

COST_STARTS_AGAIN = (2, 1, 197)
"""The newest version known to count a resumed session's cost from zero."""

COST_GOES_ON = (2, 1, 330)
"""The oldest version known to go on counting."""

NAMES_PROMPTS = (2, 1, 330)
"""The oldest version known to say in `init` which prompts a turn answers."""

REFUSED_START: Ending = "refused_start"

GOOD: frozenset[Ending] = frozenset({"completed", "interrupted"})
"""The endings under which the text is the agent's own text."""

PROMPT_BLOCKED = "prompt_blocked"
"""The `detail` of a turn whose prompt a hook of the host kept out."""

SUBTYPES: Mapping[str, Ending] = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget",
    "error_max_structured_output_retries": "schema_unmet",
}

ABORTED = frozenset({"aborted_streaming", "aborted_tools"})

REASONS: Mapping[str, Ending] = {
    "aborted_streaming": "interrupted",
    "aborted_tools": "interrupted",
    "max_turns": "max_turns",
    "budget_exhausted": "budget",
    "structured_output_retry_exhausted": "schema_unmet",
    "prompt_too_long": "prompt_too_long",
    "blocking_limit": "prompt_too_long",
    "image_error": "prompt_too_long",
}

FAILURES: Mapping[str, Ending] = {
    "authentication_failed": "authentication",
    "oauth_org_not_allowed": "authentication",
    "billing_error": "authentication",
    "rate_limit": "overloaded",
    "overloaded": "overloaded",
    "invalid_request": "invalid_request",
    "model_not_found": "model_not_found",
}
"""By the `error` of the synthetic answer. A billing error is an account that cannot be used, like a wrong key."""

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""What the CLI takes as the id of a prompt."""


@attrs.define
class SessionState:
    """Facts of Claude Code's frames of one turn that only its end needs.

    `streams` holds the message that is being streamed, by the tool call of the subagent it belongs to; `questions`
    the turn that an approval holds up, by its id; `decided` the last questions that got their answer; `tool_calls`
    the host's tools that were called, by the request, with the call's id in MCP; `hook_points` where the CLI waits for
    a hook of the host; `rules` what the CLI would add to its permissions, by the question. `prompt_blocked` is why such a hook did not let a prompt in. `spent` has the tokens of each message.
    """

    failure: str | None = None
    limited: bool = False
    model_refused: bool = False
    model: str | None = None
    prompt_blocked: str | None = None
    spent: dict[str, Tokens] = attrs.field(factory=dict[str, Tokens])
    streams: dict[str | None, str] = attrs.field(factory=dict[str | None, str])
    questions: dict[str, str] = attrs.field(factory=dict[str, str])
    rules: dict[str, list[dict[str, Any]]] = attrs.field(factory=dict[str, list[dict[str, Any]]])
    tool_calls: dict[str, str] = attrs.field(factory=dict[str, str])
    hook_points: dict[str, str] = attrs.field(factory=dict[str, str])
    decided: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=64))

    def forget_turn(self) -> None:
        self.failure = self.model = self.prompt_blocked = None
        self.limited = self.model_refused = False
        self.spent.clear()
        self.streams.clear()


def state_of(memo: Memo) -> SessionState:
    """The notes of a conversation, made at their first use."""
    state = memo.own.get("notes")
    if not isinstance(state, SessionState):
        state = memo.own["notes"] = SessionState()
    return state


def begin_turn(memo: Memo, init: Init) -> list[AnyEvent]:
    """A turn for this init, unless it repeats the init of one that is open.

    The turns of a session follow each other, so one that is open when another prompt's begins has ended unseen.
    """
    ids = init.user_message_uuids
    for turn in memo.open_turns:
        # `init` may be repeated within a turn, with the ids of prompts that have joined it.
        if not {*ids}.isdisjoint(turn.prompts):
            return [_take_in(memo, turn, prompt) for prompt in ids if prompt not in turn.prompts]
    # A one-shot run holds its first result back while work goes on in the background (2.1.330): there an open
    # turn has not ended.
    unseen = [*memo.open_turns] if ids and memo.mode == "session" else []
    ended = [_end_unseen(memo, turn) for turn in unseen]
    prompts = ids or [prompt for prompt in memo.waiting_prompts() if not _named_by_init(memo, prompt)][:1]
    return [*ended, _open(memo, prompts)]


def _end_unseen(memo: Memo, turn: OpenTurn) -> TurnEnded:
    memo.close_turn(turn, turn.prompts)
    return TurnEnded(
        memo.frame,
        turn.id,
        "error",
        error="the line that ended this turn was not understood",
        detail="unseen",
        prompts=tuple(turn.prompts),
        solicited=turn.solicited,
    )


def _named_by_init(memo: Memo, prompt: str) -> bool:
    version = parse_version(memo.version)
    if memo.mode != "session" or version is None or version < NAMES_PROMPTS:
        return False
    return UUID.fullmatch(prompt) is not None


def _open(memo: Memo, prompts: Sequence[str]) -> TurnStarted:
    return turns.begin_turn(memo, prompts, solicited=any(prompt in memo.prompts for prompt in prompts))


def fold(memo: Memo, prompt: str) -> tuple[Steered, ...]:
    """A prompt that waits has begun: where a turn runs, it was taken into that turn."""
    if not memo.open_turns or prompt not in memo.waiting_prompts():
        return ()
    return (_take_in(memo, memo.open_turns[-1], prompt),)


def _take_in(memo: Memo, turn: OpenTurn, prompt: str) -> Steered:
    turn.prompts.append(prompt)
    return Steered(memo.frame, turn.id, prompt)


def follow(memo: Memo, frame: Lifecycle) -> tuple[AnyEvent, ...]:
    """The fate of a prompt that the CLI had queued."""
    # A steer was taken in at the call of a tool: it has no turn of its own.
    if frame.state == "started" and (taken := fold(memo, frame.command_uuid)):
        return taken
    if frame.state == "cancelled" and frame.command_uuid in memo.waiting_prompts():
        memo.prompts.remove(frame.command_uuid)
        text = "a queued prompt was dropped"
        return (Notice(memo.frame, memo.turn, "prompt_cancelled", text, {"prompt": frame.command_uuid}),)
    return memo.ignore("command_lifecycle")


def end_turn(memo: Memo, result: Result) -> list[AnyEvent]:
    """The end of the turn that this result is about, after its beginning where that was not reported."""
    ending = _ending(result, state_of(memo))
    begun: list[AnyEvent] = []
    turn = _named(memo, result)
    if turn is not None:
        waiting = memo.waiting_prompts()
        begun = [_take_in(memo, turn, prompt) for prompt in _ids(result) if prompt in waiting]
    elif (prompts := _unbegun(memo, result, ending)) is not None:
        begun = [_open(memo, prompts)]
        turn = memo.open_turns[-1]
    ended = _ended(memo, result, ending, turn)
    moot = _moot_questions(memo, turn)
    # Before the turn is forgotten: cost and text of the end need it.
    state_of(memo).forget_turn()
    if turn is None and memo.turns:  # a second result of one prompt: its turn has ended
        return [Misplaced(memo.frame, None, "turn_ended", "")]
    if turn is not None:
        memo.close_turn(turn, ended.prompts)
    return [*begun, *moot, ended]


def _moot_questions(memo: Memo, turn: OpenTurn | None) -> list[AnyEvent]:
    """The approvals that held up this turn; where stdin was closed the CLI denies them without a word."""
    questions = state_of(memo).questions
    moot = [question for question, owner in questions.items() if turn is not None and owner == turn.id]
    for question in moot:
        del questions[question]
    withdrawn = [question for question in moot if memo.approvals.pop(question, None) is not None]
    return [ApprovalWithdrawn(memo.frame, memo.turn, question) for question in withdrawn]


def _ids(result: Result) -> list[str]:
    return result.user_message_uuids or ([result.user_message_uuid] if result.user_message_uuid else [])


def _named(memo: Memo, result: Result) -> OpenTurn | None:
    ids = _ids(result)
    for turn in memo.open_turns:
        if any(prompt in ids for prompt in turn.prompts):
            return turn
    # A result with an origin is that of background work, which answers no prompt.
    solicited = result.origin is None
    alike = [turn for turn in memo.open_turns if turn.solicited == solicited]
    return next(iter(alike or memo.open_turns), None)


def _unbegun(memo: Memo, result: Result, ending: Ending) -> list[str] | None:
    if ending == REFUSED_START:
        return [*memo.prompts]
    waiting = memo.waiting_prompts()[:1]
    if result.origin is not None:
        return []
    return _ids(result) or waiting or None


def _answered(memo: Memo, result: Result, turn: OpenTurn | None) -> list[str]:
    if ids := _ids(result):
        return ids
    if result.origin is not None or turn is None:
        return []
    return turn.prompts or memo.waiting_prompts()[:1]


def _ended(memo: Memo, result: Result, ending: Ending, turn: OpenTurn | None) -> TurnEnded:
    kept = state_of(memo)
    prompts = _answered(memo, result, turn)
    cost = _share(memo, result.total_cost_usd)
    memo.context_window = _context_window(memo, result)
    good = ending in GOOD and not result.is_error
    return TurnEnded(
        memo.frame,
        turn.id if turn else None,
        ending,
        text=result.result if good else None,
        error=None if good else "; ".join(result.errors) or kept.prompt_blocked or result.result,
        detail=result.startup_failure_reason or result.api_error or kept.failure or _reason(result, kept),
        status=result.api_error_status,
        usage=_usage(result, ending),
        cost_usd=cost,
        total_cost_usd=result.total_cost_usd,
        model=kept.model or memo.model,
        model_turns=result.num_turns,
        duration=None if result.duration_ms is None else result.duration_ms / 1000,
        structured_output=result.structured_output,
        denied_tools=tuple(denial.tool_name for denial in result.permission_denials),
        prompts=tuple(prompts),
        solicited=any(prompt in memo.prompts for prompt in prompts),
        session_id=None if ending == REFUSED_START else result.session_id,
    )


def _reason(result: Result, kept: SessionState) -> str | None:
    if _was_blocked(result, kept):
        return PROMPT_BLOCKED
    return result.terminal_reason or result.subtype or None


def _was_blocked(result: Result, kept: SessionState) -> bool:
    """Did a hook of the host keep the prompt out? The CLI reports that as a success of no model turns."""
    return kept.prompt_blocked is not None and not result.num_turns


def _ending(result: Result, kept: SessionState) -> Ending:
    if _was_blocked(result, kept):
        return "error"
    if not result.is_error:  # an interrupt between two blocks is reported as a success that was aborted
        return "interrupted" if result.terminal_reason in ABORTED else "completed"
    # Failures of the model's API come as a `success` with `is_error` (both versions).
    if result.subtype == "success":
        return _failure(result, kept)
    if ending := SUBTYPES.get(result.subtype) or REASONS.get(result.terminal_reason or ""):
        return ending
    unstarted = result.terminal_reason is None and not result.num_turns
    return REFUSED_START if unstarted or result.startup_failure_reason else "error"


def _failure(result: Result, kept: SessionState) -> Ending:
    if kept.model_refused or result.stop_reason == "refusal":
        return "model_refused"
    if kept.limited or result.api_error == "usage_limit_reached":
        return "limit"
    if ending := REASONS.get(result.terminal_reason or "") or FAILURES.get(kept.failure or ""):
        return ending
    return STATUSES.get(result.api_error_status or 0, "api_error")


def _share(memo: Memo, total: float | None) -> float | None:
    if total is None:
        return None
    before, memo.total_cost_usd = _total_before(memo), total
    memo.resumed = False
    # A total that went down was set to zero meanwhile: the share is not known.
    return total - before if before is not None and total >= before else None


def _total_before(memo: Memo) -> float | None:
    """The total that this process counts from. In the first result of a resumed one it may hold the past."""
    version = parse_version(memo.version)
    if not memo.resumed or version is None:
        return None if memo.resumed else memo.total_cost_usd
    if version <= COST_STARTS_AGAIN:
        return 0.0
    return memo.total_cost_usd if version >= COST_GOES_ON else None


def count(memo: Memo, message: Message, parent: str | None) -> None:
    """Note what a message has taken: the last line of it tells most. `parent`: the tool call of the subagent that wrote it."""
    tokens = decoded_or(None, Tokens, message.usage)  # the end of the turn has the whole
    if message.id is not None and tokens is not None:
        state_of(memo).spent[message.id] = tokens
        # a subagent has a context of its own
        if parent is None:
            memo.context_tokens = tokens.usage.total


def _context_window(memo: Memo, result: Result) -> int | None:
    """That of the model of the conversation; a turn may have used others beside it."""
    models = decoded_or(dict[str, ModelUsage](), dict[str, ModelUsage], result.model_usage)
    model = models.get(state_of(memo).model or memo.model or "")
    return memo.context_window if model is None else model.context_window


def used(memo: Memo) -> Used:
    """The tokens of the running turn's messages so far, those of subagents included. What they cost is reported at its end."""
    spent = state_of(memo).spent.values()
    return sum((tokens.usage for tokens in spent), Usage(0, 0, 0, 0)) if spent else None, None


def _usage(result: Result, ending: Ending) -> Usage | None:
    if result.usage is None:
        return None
    usage = result.usage.usage
    # After an interrupt the CLI writes zeros although tokens were spent.
    counted = ending != "interrupted" or any(msgspec.structs.astuple(usage))
    return usage if counted else None
