"""The beginning and the end of a turn as events, with the bookkeeping in the `Memo` that every dialect shares, and the prompt of a
one-shot run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.protocols.attachment import whole_text
from proctor.protocols.dialect import Memo, OpenTurn
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyEvent, AnyRequest, Ending, Prompt, TurnEnded, TurnStarted


def begin_turn(memo: Memo, prompts: Sequence[str], *, solicited: bool | None = None) -> TurnStarted:
    """Open a turn that answers these prompts; by default it is solicited where there are any."""
    turn = memo.open_turn(prompts, solicited=bool(prompts) if solicited is None else solicited)
    return TurnStarted(memo.frame, turn.id, turn.solicited, tuple(prompts))


def end_turn(memo: Memo, turn: OpenTurn, ending: Ending, **fields: Any) -> TurnEnded:
    """Close a turn; `fields` are further ones of its event, and replace those that the memo has."""
    memo.close_turn(turn, turn.prompts)
    own: dict[str, Any] = {"model": memo.model, "session_id": memo.session_id, "solicited": turn.solicited}
    return TurnEnded(memo.frame, turn.id, ending, prompts=tuple(turn.prompts), **{**own, **fields})


def refuse_prompt(memo: Memo, prompt: str, ending: Ending, error: str, **fields: Any) -> list[AnyEvent]:
    """The turn of a prompt that the CLI did not take: it begins and ends with the refusal."""
    began = begin_turn(memo, [prompt])
    return [began, end_turn(memo, memo.open_turns[-1], ending, error=error, model=None, **fields)]


def write_text(memo: Memo, request: AnyRequest) -> bytes:
    """`Dialect.write` of a one-shot run: the prompt as text. Raises Misuse for content blocks, and for every other request."""
    if not isinstance(request, Prompt):
        raise Misuse(f"a one-shot run does not support {request!r}", request="write")
    if request.blocks:
        raise Misuse("a one-shot run takes text, not content blocks: use a session", request="prompt")
    # half a surrogate pair in a prompt has no bytes in UTF-8
    return whole_text(request.text, request.attachments).encode("utf-8", "replace")
