"""The start and the end of a turn on an OpenCode server.

Guarantees: a turn begins with the session's first sign of work and ends with `session.idle`, once: after an abort that
comes twice, and the second differs from the end of the next turn by the lack of a model call since. A prompt
sent in mid-turn is taken into it when its message appears; one whose message appears after the end belongs to the
next. The error that was reported last decides, then the reason of the last step. Costs and tokens are sums of steps.

OpenCode asks its model again, at once and for ever, when an answer breaks off without a reason. After `LOOSE` such
answers in a row the turn is aborted, and ends as a failure of the API.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.causes import STATUSES, cause_of
from proctor.protocols.dialect import Memo, OpenTurn, Out, Used
from proctor.protocols.lenient import UNKEPT
from proctor.protocols.opencode.serve.state import Account, SessionState, state_of
from proctor.protocols.opencode.wire import Error, ErrorData, Part
from proctor.protocols.turns import begin_turn, end_turn, refuse_prompt
from proctor.protocols.vocabulary import AnyEvent, Ending, Steered, TurnEnded, Usage

LOOSE = 3
"""Answers in a row without a finish reason after which the turn is aborted."""

ERRORS: Mapping[str, Ending] = {
    "MessageAbortedError": "interrupted",
    "ProviderAuthError": "authentication",
    "ContextOverflowError": "prompt_too_long",
    "StructuredOutputError": "schema_unmet",
    "ContentFilterError": "model_refused",
    "MessageOutputLengthError": "error",
    "BadRequest": "invalid_request",
    "NotFoundError": "error",
}
"""The name of an error: how its turn ended. An `APIError` is classified by its status, all else is `error`."""

NO_SUCH_MODEL = ("Model not found", "Provider not found")


def take_prompt(memo: Memo) -> tuple[AnyEvent, ...]:
    """A message of the user has appeared: the oldest prompt sent is in it."""
    own = state_of(memo)
    if not own.sent:
        return ()
    prompt = own.sent.popleft()
    # No turn runs: the next one takes it.
    if not memo.open_turns:
        own.seen.append(prompt)
        return ()
    memo.open_turns[0].prompts.append(prompt)
    return (Steered(memo.frame, memo.turn, prompt),)


def begin(memo: Memo) -> tuple[AnyEvent, ...]:
    """The session works: a turn is open, from now on if none was."""
    if memo.open_turns:
        return ()
    own = state_of(memo)
    prompts, own.seen = own.seen, []
    own.account = Account()
    own.running.clear()
    return (begin_turn(memo, prompts),)


def step(memo: Memo, part: Part) -> bool:
    """Count a step that has ended. True when nothing better is to be expected of the next."""
    account = state_of(memo).account
    account.usage = (account.usage or Usage()) + part.tokens.usage
    memo.context_tokens = part.tokens.usage.total
    account.cost += part.cost or 0.0
    account.steps += 1
    account.reason = part.reason
    account.loose = account.loose + 1 if part.reason in ("unknown", "") else 0
    if account.loose != LOOSE:
        return False
    text = f"the model's API ended {LOOSE} answers in a row without a finish reason"
    account.error = Error("APIError", ErrorData(text))
    return True


def used(memo: Memo) -> Used:
    """The tokens and the cost of the running turn so far."""
    account = state_of(memo).account
    return account.usage, account.cost if account.steps else None


def idle(memo: Memo) -> Out:
    """The session says that it rests."""
    own = state_of(memo)
    if not memo.open_turns:
        # The second `session.idle` of an abort (1.18.33 sends two).
        own.stray_idle = False
        return memo.ignore("session.idle")
    # A turn in which no model was called yet cannot have ended: this is the second end of the aborted one.
    if own.stray_idle and not own.account.messages and own.account.error is None:
        own.stray_idle = False
        return memo.ignore("session.idle")
    return end(memo)


def end(memo: Memo) -> Out:
    """End the open turn by its account."""
    own, turn = state_of(memo), memo.open_turns[0]
    ended = _ended(memo, own, turn)
    # After an abort one more `session.idle` comes.
    own.stray_idle = ended.ending == "interrupted"
    own.aborting = False
    own.account = Account()
    own.forget_old()
    memo.total_cost_usd = ended.total_cost_usd
    return (ended,)


def refused(memo: Memo, prompt: str, error: Error, status: int) -> Out:
    """A prompt that the server did not take: a turn of its own, or no part of the open one."""
    own = state_of(memo)
    # A prompt that never got into the session must not be taken for the next message.
    if prompt in own.sent:
        own.sent.remove(prompt)
    text = error.data.message or f"the server refused the prompt with status {status}"
    ending = ERRORS.get(error.name, "invalid_request" if status == 400 else "error")
    return (*refuse_prompt(memo, prompt, ending, text, detail=error.name or None, status=status),)


def _ended(memo: Memo, own: SessionState, turn: OpenTurn) -> TurnEnded:
    account = own.account
    ending, detail = _ending(account)
    if own.aborting and account.error is None and ending != "completed":
        ending = "interrupted"  # out of a back-off the server says nothing of its abort
    total = None if memo.total_cost_usd is None else memo.total_cost_usd + account.cost
    return end_turn(
        memo,
        turn,
        ending,
        text="".join(account.texts) or None,
        error=_why(account, ending),
        detail=detail,
        status=None if account.error is None else account.error.data.status,
        usage=account.usage,
        cost_usd=account.cost,
        total_cost_usd=total,
        model=account.model,
        model_turns=account.steps,
        structured_output=account.structured,
        denied_tools=tuple(account.denied),
    )


def _ending(account: Account) -> tuple[Ending, str | None]:
    error = account.error
    if error is None:
        # A last step that called a tool, or gave no reason, left the answer unfinished.
        cut = account.reason in ("tool-calls", "unknown", "") and account.structured is None
        return ("error" if cut else "completed"), account.reason or None
    if error.name == "APIError":
        by_status = STATUSES.get(error.data.status or 0, "api_error")
        return cause_of(error.data.message, status=by_status), error.name
    if error.data.message.startswith(NO_SUCH_MODEL):
        return "model_not_found", error.name
    return ERRORS.get(error.name, "error"), error.name


def _why(account: Account, ending: Ending) -> str | None:
    if account.error is not None:
        return account.error.data.message or account.error.name
    if ending == "completed":
        return UNKEPT if account.gap else None
    if account.denied:
        return f"the turn ended when a tool was denied: {', '.join(account.denied)}"
    return f"the turn ended without an answer (last step: {account.reason or 'none'})"
