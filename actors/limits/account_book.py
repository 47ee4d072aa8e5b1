"""The account book: what agents and runs have spent, by name, and the windows of the budgets that bound them.

A tree has one, and so have a pool, sessions and a completion model outside of a tree. `with AccountBook(path)` makes one for a
whole program; with a file, the windows survive a restart. A cost counts once in each window that it belongs to; an unreported
one is counted as unknown. In memory times are Trio's clock, in the file wall time: where that was set back, what was spent counts
as spent just now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar, Token
from pathlib import Path
from time import time
from types import TracebackType
from typing import Self

import trio
from trio_util import AsyncValue

from proctor.actors.expense import Expense
from proctor.actors.limits.budget_file import BudgetFile, KeptWindow
from proctor.actors.plan.budgets import Budget, Spending

ACCOUNT_BOOK: ContextVar[AccountBook | None] = ContextVar("proctor.account_book", default=None)


class AccountBook:
    """`with AccountBook(path) as book`: one for all that is run in the block. `budget` bounds it all together; `whose` is what
    messages call that. `path` is the file that the windows are kept in (None: they go with the book).

    `wall` gives the time in Unix seconds. Entering a second time raises RuntimeError.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        budget: Budget | None = None,
        whose: str = "the program",
        wall: Callable[[], float] = time,
    ) -> None:
        self.changes = AsyncValue(0)
        """How often something has changed that others wait for, to be raised with each change."""
        self.budget = budget
        """The budget that bounds all that is in it."""
        self._whose = whose
        self._wall = wall
        self._file = None if path is None else BudgetFile(Path(path).expanduser().absolute())
        self._around: AccountBook | None = None
        self._windows: dict[str, Spending] = {}
        self._kept: dict[str, KeptWindow] = {}
        self._is_open = False
        self._expenses: dict[str, Expense] = {}
        self._token: Token[AccountBook | None] | None = None

    @property
    def expenses(self) -> Mapping[str, Expense]:
        """Expenses so far, by the name of the agent."""
        return self._expenses if self._around is None else self._around.expenses

    def expense(self, name: str) -> Expense:
        """The expense of the agent of that name, to be added to."""
        if self._around is not None:
            return self._around.expense(name)
        return self._expenses.setdefault(name, Expense())

    # -- what bounds a turn

    def window(self, whose: str, budget: Budget, key: str | None = None) -> Spending:
        """The spending under a budget. `whose` names it in messages, `key` in the file."""
        key = whose if key is None else key
        # In the outermost book: its file and its `changes` hold for all that are in it.
        if self._around is not None:
            return self._around.window(whose, budget, f"{self._whose}: {key}")
        if key not in self._windows:
            self._windows[key] = self._recalled(key, Spending(budget, whose))
        # The budget of now: a window that was read from the file, or made by another plan of this name, may
        # have an older one.
        self._windows[key].budget = budget
        return self._windows[key]

    def forget(self, spending: Spending) -> None:
        """Count no more under a budget that was removed."""
        if self._around is not None:
            self._around.forget(spending)
        else:
            self._windows = {key: window for key, window in self._windows.items() if window is not spending}
            self.save()

    def windows(self) -> Iterator[Spending]:
        """Of the budgets that bound all that is in it: its own, and those of the books around it."""
        if self.budget is not None:
            yield self.window(self._whose, self.budget, "")
        if self._around is not None:
            yield from self._around.windows()

    def spendings(self) -> Collection[Spending]:
        """All windows that are counted here, those of single agents included."""
        return self._windows.values() if self._around is None else self._around.spendings()

    def enclose(self, around: AccountBook | None) -> None:
        """All that is in this book is in that one too. Before anything is in it."""
        if around is not None and around is not self:
            self._around, self.changes = around, around.changes

    # -- between two lives

    def _recalled(self, key: str, window: Spending) -> Spending:
        # At the first use, not when it is made: a book that nothing is counted in must not lock the file.
        if self._file is not None and not self._is_open:
            self._kept, self._is_open = self._file.open(), True
        kept = self._kept.pop(key, None)
        if kept is not None:
            wall, now = self._wall(), trio.current_time()
            # A wall clock that was set back would put spending into the future, where it would never leave
            # the window.
            spent = [(now - max(0.0, wall - moment), usd) for moment, usd in kept.spent]
            window.recall(sorted(spent), kept.unknown, kept.dearest)
        return window

    def save(self) -> None:
        """Write down what was spent, where there is a file for it."""
        if self._around is not None:
            self._around.save()
        elif self._file is not None:
            ahead, now = self._wall() - trio.current_time(), trio.current_time()
            written = {
                key: KeptWindow(
                    [(at + ahead, usd) for at, usd in window.entries(now)],
                    window.unknown,
                    dict(window.dearest),
                )
                for key, window in self._windows.items()
            }
            self._file.write({**self._kept, **written})

    def close(self) -> None:
        """Let another program have the file. What is counted afterwards is read and written anew."""
        if self._file is not None and self._is_open:
            self._file.close()
            # What is counted afterwards is read anew: another program may have written meanwhile.
            self._windows.clear()
            self._is_open = False

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("this account book is open already")
        self.enclose(ACCOUNT_BOOK.get())
        self._token = ACCOUNT_BOOK.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            ACCOUNT_BOOK.reset(self._token)
            self._token = None
        self.close()
