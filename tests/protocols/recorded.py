"""What the players of recordings have in common: the ways to cut what was written, and what every recording comes to."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from proctor.protocols.conversation import Conversation
from proctor.protocols.vocabulary import AnyEvent, TurnEnded, TurnStarted

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
SIZES = (1, 2, 7, 100, 4096, 65536)

E = TypeVar("E")
Cut = Callable[[bytes], Iterable[bytes]]


def names_in(folder: Path) -> list[str]:
    """The recordings of a folder."""
    return sorted(path.name.removesuffix(".meta.json") for path in folder.glob("*.meta.json"))


def whole(output: bytes) -> Iterable[bytes]:
    return [output]


def by_line(output: bytes) -> Iterable[bytes]:
    return output.splitlines(keepends=True)


def by_byte(output: bytes) -> Iterable[bytes]:
    return (output[at : at + 1] for at in range(len(output)))


def at_random(seed: str, sizes: Sequence[int] = SIZES) -> Cut:
    """Pieces of these sizes, in an order that is the same for the same seed."""
    chance = random.Random(seed)

    def cut(output: bytes) -> Iterable[bytes]:
        at = 0
        while at < len(output):
            size = chance.choice(sizes)
            yield output[at : at + size]
            at += size

    return cut


def received(talk: Conversation, output: bytes, cut: Cut) -> list[AnyEvent]:
    """The events of what was written, heard in such pieces."""
    return [event for chunk in cut(output) if chunk for event in talk.receive(chunk)]


def of(events: Sequence[AnyEvent], kind: type[E]) -> list[E]:
    """Those of one kind."""
    return [event for event in events if isinstance(event, kind)]


def lines_of(output: bytes) -> list[bytes]:
    """Those with something in them."""
    return [line for line in output.split(b"\n") if line.strip()]


def all_hold(checks: Sequence[Callable[[str], None]], name: str) -> None:
    """Apply every check to a recording, and raise what failed together, each failure with the name of its check."""
    failures: list[Exception] = []
    for check in checks:
        try:
            check(name)
        except Exception as failure:  # noqa: BLE001  # raised below
            failure.add_note(f"check: {check.__name__}")
            failures.append(failure)
    if failures:
        raise ExceptionGroup(f"{name} fails {len(failures)} of {len(checks)} checks", failures)


def assert_every_line_is_told_or_quiet(talk: Conversation, events: Sequence[AnyEvent], lines: int) -> None:
    """Each of so many lines gave events, or was counted as quiet."""
    assert talk.frames == lines
    assert len({event.frame for event in events}) + talk.memo.quiet.total() == lines
    assert talk.events == len(events)


def assert_each_turn_ends_once(events: Sequence[AnyEvent]) -> None:
    """Each turn that ends has begun, was asked for or not as at its beginning, and ends once."""
    open_turns: dict[str | None, TurnStarted] = {}
    for event in events:
        if isinstance(event, TurnStarted):
            open_turns[event.turn] = event
        elif isinstance(event, TurnEnded):
            assert open_turns.pop(event.turn).solicited == event.solicited
