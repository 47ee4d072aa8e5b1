"""Batches of text deltas: the complete block follows when a batch ends.

A batch ends when another message begins, at a change between thought and text, when a tool is used, and with its turn. A
truncated chunk leaves a gap in its batch.
"""

from __future__ import annotations

from proctor.protocols.acp.state import DeltaBatch, state_of
from proctor.protocols.dialect import Memo
from proctor.protocols.vocabulary import HOST, AnyEvent, Notice, Text, TextDelta, Thinking


def add_chunk(
    memo: Memo, text: str, *, thought: bool, message: str | None, parent: str | None
) -> list[AnyEvent]:
    """A chunk as events: the block before it where that is over now, and the piece itself where the launch asks for pieces."""
    batches = state_of(memo).batches
    batch = batches.get(parent)
    ended: list[AnyEvent] = []
    # No frame says that a message is whole: it is over when another kind or message begins.
    if batch is None or batch.thought != thought or batch.message != message:
        ended = end_run(memo, parent)
        batch = batches[parent] = DeltaBatch(thought, message)
    if memo.truncated:
        batch.gap = True
        return ended
    batch.pieces.append(text)
    batch.frame = memo.frame
    if memo.launch.partial:
        ended.append(
            Thinking(memo.frame, memo.turn, text, parent, partial=True)
            if thought
            else TextDelta(memo.frame, memo.turn, text, parent)
        )
    return ended


def end_run(memo: Memo, parent: str | None) -> list[AnyEvent]:
    """The whole block of the run that is open, if one is."""
    kept = state_of(memo)
    batch = kept.batches.pop(parent, None)
    if batch is None:
        return []
    text = "".join(batch.pieces)
    if parent is None and memo.open_turns and not batch.thought:
        before = kept.turn.texts if kept.turn.message == batch.message else 0
        kept.turn.text, kept.turn.gap, kept.turn.answered = text or None, batch.gap, True
        kept.turn.message, kept.turn.texts = batch.message, before + bool(text)
    if not text:
        return []
    # A cut line caused no event: the block is that of the last chunk that was read.
    frame = batch.frame if memo.truncated else memo.frame
    return [(Thinking if batch.thought else Text)(frame, memo.turn, text, parent)]


def void(memo: Memo, message: str, parent: str | None) -> list[AnyEvent]:
    """Void the pieces of this message: the model call that wrote them failed."""
    kept = state_of(memo)
    batch = kept.batches.get(parent)
    streamed = batch is not None and batch.message == message
    is_spoken = parent is None and kept.turn.message == message
    texts = kept.turn.texts if is_spoken else 0
    if streamed:
        del kept.batches[parent]
    # What was counted as the answer goes with its message.
    if is_spoken:
        kept.turn.text, kept.turn.gap, kept.turn.message, kept.turn.texts = None, False, None, 0
    if not (streamed or is_spoken):
        return []
    return [voided(HOST, memo.turn, message, parent, texts)]


def voided(frame: int, turn: str | None, message: str, parent: str | None, texts: int = 0) -> Notice:
    """The notice that the pieces of this message are void: its open ones, and so many whole `texts`."""
    text = "the model call failed; discard the pieces of this message"
    whole = {"texts": texts} if texts else {}
    return Notice(frame, turn, "attempt_void", text, {"message": message, "parent": parent, **whole})


def end_runs(memo: Memo) -> list[AnyEvent]:
    """The whole blocks of all runs."""
    # A copy: `end_run` takes entries out.
    return [event for parent in [*state_of(memo).batches] for event in end_run(memo, parent)]
