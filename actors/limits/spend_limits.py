"""Spending limits on the turns of an agent, or on all runs of a name: its budget, its tree's, its program's.

A turn is admitted while all windows have room for what it may cost, and holds that much of them until it ends. What it may
cost is what the dearest turn of its kind of command line has cost so far. Before the first is known, it is the
CLI's own bound for the turn (`max_budget_usd`), else all that is left: so the first goes alone. A turn that was dearer than
all before it raises what those under way hold. Kinds that tell no cost hold nothing.

Guarantees: a spent window admits no turn, so whatever is spent above a budget is of turns that were under way when it was
reached. Those are one turn, as long as none is dearer than all before it; else as many as ran when the first of them reported a
cost above what it held, and each adds at most what it costs above that. A turn is admitted when its process can be started,
not when it gets in line for a place.

A turn that is begun from within another one, by a tool of the host, waits for no turn under way, which may be the one that
waits for it: it is refused by a spent window alone, and adds what it costs.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from operator import ne

import trio

from proctor.actors.errors import BadOption, BudgetExceeded
from proctor.actors.limits.account_book import ACCOUNT_BOOK, AccountBook
from proctor.actors.plan.account_id import kind_of
from proctor.actors.plan.budgets import Alarm, Budget, Spending, Then
from proctor.actors.plan.plan import Plan
from proctor.protocols.vocabulary import Exited, Notice, TurnEnded

INSIDE_TURN: ContextVar[bool] = ContextVar("proctor.within_a_turn", default=False)
"""Whether this task works for a turn: it runs a tool or a hook of the host that an agent has called."""


class SpendLimits:
    """`windows` are the budgets that bound this agent or these runs, `book` is where they are counted, by `name`.

    `kind` is that of the command line, which tells costs or not (`priced`); `most` is its own bound for a turn.
    """

    def __init__(
        self,
        book: AccountBook,
        windows: tuple[Spending, ...],
        name: str,
        *,
        kind: str = "",
        priced: bool = True,
        most: float | None = None,
    ) -> None:
        self._book = book
        self.bind(windows)
        self._name = name
        self._kind = kind
        self._priced = priced
        self._most = most
        self._expense = book.expense(name)

    def bind(self, windows: tuple[Spending, ...]) -> None:
        """Bound it by these from now on. A turn under way holds nothing of a window that is new."""
        self.bounded = bool(windows)
        self._windows = windows

    def take(self, event: TurnEnded | Exited | Notice) -> Iterator[tuple[Alarm, str]]:
        """Count what an event tells. Yields each alarm with its text."""
        self._expense.take(event)
        if isinstance(event, TurnEnded):
            yield from self.spend(event.cost_usd, whole=event.ending == "completed")
        elif isinstance(event, Exited) and event.turn is not None:
            # The process died in the midst of a turn: what it had reported by then counts.
            yield from self.spend(event.cost_usd)

    def spend(self, usd: float | None, *, whole: bool = False) -> Iterator[tuple[Alarm, str]]:
        """A turn has cost so much (US dollars, None: unknown); `whole`: it was done to its end."""
        now = trio.current_time()
        for window in self._windows:
            # Cut off without a cost, it says nothing about what a turn costs.
            if whole or usd:
                window.learn(self._kind, usd)
            for alarm in window.spend(usd, now):
                yield alarm, window.text(now)
        if self._windows:
            self._book.save()
            # After the saving: who wakes may spend at once.
            self._book.changes.value += 1

    # -- before a turn

    def spent(self, *then: Then) -> tuple[str, float] | None:
        """The text of a spent budget whose action is in `then`, and the seconds until it frees; None without one."""
        now = trio.current_time()
        for window in self._windows:
            if window.budget.then in then and (seconds := window.frees_in(now)) > 0:
                return window.text(now), seconds
        return None

    def under_way(self) -> str | None:
        """Why the turns under way leave no room for another, None where they do."""
        now = trio.current_time()
        for window in self._windows:
            if window.budget.then != "warn" and not window.has_room(now):
                return f"{window.text(now)}; running turns may use the rest"
        return None

    def has_room(self) -> bool:
        """Whether a turn may begin now."""
        return self.spent("park", "escalate") is None and (INSIDE_TURN.get() or self.under_way() is None)

    def reserve(self, turn: object) -> None:
        """A turn begins, and holds what it may cost until it is settled."""
        now = trio.current_time()
        # A kind without prices would hold the budget for a cost that never comes.
        for window in self._windows if self._priced else ():
            window.reserve(turn, self._kind, self._most, now)

    def settle(self, turn: object) -> None:
        """The turn has ended. A second call does nothing."""
        held = [window.settle(turn) for window in self._windows]
        if any(held):
            self._book.changes.value += 1

    @asynccontextmanager
    async def turn(self, ends: float = math.inf, *, parks: bool = True) -> AsyncGenerator[None]:
        """Admit a run for the length of the block, as soon as there is room for it, and before `ends` on Trio's clock.

        Raises `BudgetExceeded` where that cannot be; at once when a budget is spent and `parks` is False, or ends agents.
        """
        await self.wait_for_room(ends, parks=parks)
        with self.holding():
            yield

    @contextmanager
    def holding(self) -> Generator[None]:
        """A turn that is admitted, for the length of the block."""
        turn = object()
        self.reserve(turn)
        try:
            yield
        finally:
            self.settle(turn)

    async def wait_for_room(self, ends: float = math.inf, *, parks: bool = True) -> None:
        """Return when a turn may begin, which is so until the next checkpoint. Raises as `turn` does."""
        while True:
            text: str | None = None
            # The count before the looks: a change between them and the wait wakes it.
            seconds, count = math.inf, self._book.changes.value
            if (spent := self.spent("park", "escalate")) is not None:
                text, seconds = spent
                waits = parks and self.spent("escalate") is None and trio.current_time() + seconds <= ends
            elif INSIDE_TURN.get() or (text := self.under_way()) is None:
                return
            else:
                waits = trio.current_time() < ends
            if not waits:
                raise BudgetExceeded(self._name, text, seconds)
            # Run out, the loop goes round once more, and its `ends` check raises.
            with trio.move_on_at(min(ends, trio.current_time() + seconds)):
                await self._book.changes.wait_value(partial(ne, count))


def windows_of(whose: str, budget: Budget | None, book: AccountBook) -> tuple[Spending, ...]:
    """The windows of a budget of its own, if it has one, and of all budgets around it; `whose` it is in messages."""
    own = () if budget is None else (book.window(whose, budget),)
    return (*own, *book.windows())


def spend_limits_of(plan: Plan, book: AccountBook, whose: str | None = None) -> SpendLimits:
    """The spending limits on the turns of this plan; `whose` its own budget is in messages (the plan's name)."""
    return SpendLimits(
        book,
        windows_of(whose or plan.name, plan.conduct.budget, book),
        plan.name,
        kind=kind_of(plan),
        priced=plan.dialect.can("cost", None),
        most=plan.launch.max_budget_usd,
    )


def run_limits(plan: Plan, own: AccountBook | None = None) -> SpendLimits:
    """The spending limits on a run of this plan, by the book around this task, or else by `own`. Raises `BadOption` for a plan with a
    budget that nothing would remember after the run."""
    book = ACCOUNT_BOOK.get() or own
    if book is None and plan.conduct.budget is not None:
        raise BadOption(
            f"budget of {plan.name!r}: a single run does not remember what earlier runs spent. Run it within "
            "`with proctor.AccountBook():`, a supervisor, a pool or sessions; max_budget_usd bounds a single turn"
        )
    return spend_limits_of(plan, AccountBook() if book is None else book)
