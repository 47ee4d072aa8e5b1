"""The expense of turns: sums of tokens, dollars, seconds, lines of output, and timeouts.

Guarantees: a turn counts once, by its end; one whose process died counts by what its CLI reported until then, its cost as
unknown where none was. What no command line reports is None, and is never taken for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from time import time

import attrs
import msgspec

from proctor.actors.outcomes import Answer
from proctor.protocols.lenient import decoded_or
from proctor.protocols.vocabulary import Exited, Notice, TurnEnded, Usage

End = TurnEnded | Exited | Answer
"""What tells of tokens and dollars: the end of a turn or of the process in its midst, or a whole answer."""


@attrs.define
class Expense:
    """Of one agent, one request, or all runs of one name. `turns` have ended, of which `unpriced` at an unknown cost; `duration`
    in seconds; `lines` were read; `timeouts` by the clock that ran out."""

    turns: int = 0
    unpriced: int = 0
    cost_usd: float | None = None
    usage: Usage | None = None
    model_turns: int | None = None
    duration: float | None = None
    lines: int = 0
    timeouts: Counter[str] = attrs.field(factory=Counter[str])

    def take(self, event: TurnEnded | Exited | Notice) -> None:
        """Count what an event tells."""
        if isinstance(event, Notice):
            if event.code == "stalled":
                self.timeouts[str(event.data.get("clock", "silence"))] += 1
            return
        if isinstance(event, Exited):
            self.lines += event.lines
        if isinstance(event, TurnEnded) or event.turn is not None:
            self.add(event)

    def add(self, end: End) -> None:
        """Count a turn, or all of an answer."""
        self.turns += 1
        self.unpriced += end.cost_usd is None
        self.cost_usd = _sum(self.cost_usd, end.cost_usd)
        self.usage = add_usage(self.usage, end.usage)
        if not isinstance(end, Exited):
            self.duration = _sum(self.duration, end.duration)
            turns = _sum(self.model_turns, end.model_turns)
            self.model_turns = None if turns is None else int(turns)

    def applied_to(self, answer: Answer) -> Answer:
        """The answer with these sums for its own."""
        return attrs.evolve(
            answer,
            cost_usd=self.cost_usd,
            usage=self.usage,
            model_turns=self.model_turns,
            duration=self.duration,
        )


@attrs.define
class DailyExpense:
    """The expense of the local day. `wall` gives Unix seconds."""

    wall: Callable[[], float] = time
    _day: date | None = None
    _expense: Expense = attrs.field(factory=Expense)

    def take(self, event: TurnEnded | Exited) -> None:
        """Count what an event tells."""
        if (day := date.fromtimestamp(self.wall())) != self._day:
            self._day, self._expense = day, Expense()
        self._expense.take(event)

    @classmethod
    def of_text(cls, text: str | None, wall: Callable[[], float] = time) -> DailyExpense:
        """That of an earlier host, as `as_text` has it; none for a text that cannot be read."""
        kept = decoded_or(None, _Kept, (text or "null").encode())
        if kept is None:
            return cls(wall)
        expense = Expense(turns=kept.turns, cost_usd=kept.cost_usd, usage=kept.usage)
        return cls(wall, kept.day, expense)

    def as_text(self) -> str:
        """It as text, for the next host."""
        day, spent = self._day or date.fromtimestamp(self.wall()), self._expense
        return msgspec.json.encode(_Kept(day, spent.turns, spent.cost_usd, spent.usage)).decode()

    def on(self, day: date) -> Expense | None:
        """What was spent on that day, if it is the last that anything was spent on."""
        return self._expense if day == self._day else None


class _Kept(msgspec.Struct, frozen=True):
    day: date
    turns: int
    cost_usd: float | None
    usage: Usage | None


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0) + other


def prompt_tokens(usage: Usage, kind: str) -> int | None:
    """The tokens of the prompts, with those from a cache, of a command line of this kind: Codex counts these among the others."""
    if usage.input_tokens is None or kind.startswith("codex"):
        return usage.input_tokens
    return usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """The sum of two counts; a number that neither has is None."""
    if one is None or other is None:
        return other if one is None else one
    sums = (_sum(getattr(one, name), getattr(other, name)) for name in Usage.__struct_fields__)
    return Usage(*(None if number is None else int(number) for number in sums))
