"""Chunks of text and thought, joined: the whole block follows when the run of its chunks is over.

A run ends when another message begins, when it turns from thought to speech, when a tool is used, and with its turn.
A chunk that was too long to be read leaves a gap in its run. Where the line that ends a run was too long, the block names
the line of its last chunk, because it owes nothing to the other.
"""

from __future__ import annotations

from proctor.protocols.acp.state import Run, notes
from proctor.protocols.dialect import Memo
from proctor.protocols.vocabulary import HOST, AnyEvent, Notice, Text, TextDelta, Thinking


def add_chunk(
    memo: Memo, text: str, *, thought: bool, message: str | None, parent: str | None
) -> list[AnyEvent]:
    """A chunk as events: the block before it where that is over now, and the piece itself where pieces are wanted."""
    runs = notes(memo).runs
    run = runs.get(parent)
    ended: list[AnyEvent] = []
    if run is None or run.thought != thought or run.message != message:
        ended = end_run(memo, parent)
        run = runs[parent] = Run(thought, message)
    if memo.skim:
        run.gap = True
        return ended
    run.pieces.append(text)
    run.frame = memo.frame
    if memo.launch.partial:
        ended.append(
            Thinking(memo.frame, memo.turn, text, parent, partial=True)
            if thought
            else TextDelta(memo.frame, memo.turn, text, parent)
        )
    return ended


def end_run(memo: Memo, parent: str | None) -> list[AnyEvent]:
    """The whole block of the run that is open, if one is."""
    kept = notes(memo)
    run = kept.runs.pop(parent, None)
    if run is None:
        return []
    text = "".join(run.pieces)
    if parent is None and memo.open_turns and not run.thought:
        before = kept.turn.texts if kept.turn.message == run.message else 0
        kept.turn.said, kept.turn.gap, kept.turn.answered = text or None, run.gap, True
        kept.turn.message, kept.turn.texts = run.message, before + bool(text)
    if not text:
        return []
    frame = run.frame if memo.skim else memo.frame
    return [(Thinking if run.thought else Text)(frame, memo.turn, text, parent)]


def void(memo: Memo, message: str, parent: str | None) -> list[AnyEvent]:
    """What was said so far of this message was never said: the call of the model that said it broke."""
    kept = notes(memo)
    run = kept.runs.get(parent)
    streamed = run is not None and run.message == message
    said = parent is None and kept.turn.message == message
    texts = kept.turn.texts if said else 0
    if streamed:
        del kept.runs[parent]
    if said:
        kept.turn.said, kept.turn.gap, kept.turn.message, kept.turn.texts = None, False, None, 0
    if not (streamed or said):
        return []
    return [voided(HOST, memo.turn, message, parent, texts)]


def voided(frame: int, turn: str | None, message: str, parent: str | None, texts: int = 0) -> Notice:
    """Says that what was said so far of this message does not count: its open pieces, and so many whole `texts`."""
    text = "the call of the model broke; what it had said of this message is void"
    whole = {"texts": texts} if texts else {}
    return Notice(frame, turn, "attempt_void", text, {"message": message, "parent": parent, **whole})


def end_runs(memo: Memo) -> list[AnyEvent]:
    """The whole blocks of all runs."""
    return [event for parent in [*notes(memo).runs] for event in end_run(memo, parent)]
