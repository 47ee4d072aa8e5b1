"""What a run of a program came to, in plain values: made by the world and by the model, compared here.

Guarantees: two stories are equal when everything that the statements promise is. Events of one supervisor keep their
order; between supervisors, order within one instant is nobody's promise (T12), so a story sorts by owner there.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, TypeAlias

import attrs

Result: TypeAlias = Any

NEARLY = 2.0**-40


class Told(NamedTuple):
    """One event: `detail` is the reason's class, or what else the kind has to say."""

    time: float
    kind: str
    path: str
    detail: str = ""


class Answer(NamedTuple):
    """How an op of the script ended, and when."""

    time: float
    result: Result


OWN = frozenset({"supervisor_started", "supervisor_stopped", "max_restarts"})


@attrs.define
class Story:
    """Events, answers by the number of their op, and the outcome of the `async with`."""

    events: list[Told] = attrs.field(factory=list[Told])
    answers: dict[int, Answer] = attrs.field(factory=dict[int, Answer])
    outcome: Answer | None = None
    unordered: set[str] = attrs.field(factory=set[str])
    """The supervisors that stopped their children all together, in an order that nobody promises (S65)."""

    def told(self, unordered: AbstractSet[str]) -> list[Told]:
        """The events in the order that is promised."""
        return sorted(self.events, key=lambda told: _order(told, unordered))


def owner(told: Told) -> str:
    """The supervisor whose order an event stands in."""
    return told.path if told.kind in OWN else told.path.rpartition("/")[0]


def _order(told: Told, unordered: AbstractSet[str]) -> tuple[float, str, str]:
    supervisor = owner(told)
    return told.time, supervisor, told.path if supervisor in unordered else ""


def difference(seen: Story, expected: Story) -> str:
    """Where the world first differs from the model; empty if nowhere."""
    pairs: list[tuple[str, list[Any], list[Any]]] = [
        ("events", seen.told(expected.unordered), expected.told(expected.unordered)),
        ("answers", _answers(seen), _answers(expected)),
        ("outcome", [seen.outcome], [expected.outcome]),
    ]
    return next((text for what, a, b in pairs if (text := _first(what, a, b))), "")


def _first(what: str, seen: list[Any], expected: list[Any]) -> str:
    if seen == expected:
        return ""
    at = next(
        (n for n, (a, b) in enumerate(zip(seen, expected, strict=False)) if not _alike(a, b)),
        min(len(seen), len(expected)),
    )
    if at == len(seen) == len(expected):
        return ""
    before = "".join(f"\n    {line}" for line in seen[max(0, at - 8) : at])
    return f"{what} differ at {at}, after{before or ' nothing'}\n  seen:{_at(seen, at)}\n  expected:{_at(expected, at)}"


def _answers(story: Story) -> list[tuple[float, int, Result]]:
    return [(answer.time, number, answer.result) for number, answer in sorted(story.answers.items())]


def _alike(seen: Any, expected: Any) -> bool:
    """Apart from the last bits of their times: a delay by chance has too many of them to be added exactly."""
    if seen is None or expected is None:
        return seen is expected
    return bool(seen[1:] == expected[1:] and abs(seen[0] - expected[0]) < NEARLY)


def _at(lines: list[Any], at: int) -> str:
    return "".join(f"\n    {line}" for line in lines[at : at + 4]) or " nothing"
