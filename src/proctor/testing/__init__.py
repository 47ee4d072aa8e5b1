"""Runs a whole program on a virtual clock, the same way each time.

Guarantees: with the same `seed` tasks that are ready at one instant run in the same order, so a program that takes
time, chance and the far end from where it should, does the same things at the same instants (X16). Time passes only
when nobody has anything to do, and then at once. A run that never comes to its end is cut by a cap on its time and a
cap on its turns, for a run may also turn for ever within one instant.

Trio orders ready tasks by chance, from a source of its own, and has a private switch that makes the order follow from
that source alone. Both are touched in `_scheduler` and nowhere else. They belong to the process: a Trio run in another
thread meanwhile is not harmed, but makes this one unrepeatable. Both are put back afterwards.

Not here: real processes, sockets and threads. A virtual clock does not wait for them (T16). What is left behind is told
by `leaks`; the fixtures for pytest are `fixtures`, which is imported by name only.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

__all__ = ["SimulationOverran", "simulate"]

_Result = TypeVar("_Result")


class SimulationOverran(RuntimeError):
    """A simulated run that was cut: `seconds` of its clock or `turns` of its event loop had passed."""

    def __init__(self, seconds: float, turns: int) -> None:
        super().__init__(
            f"the run was cut after {seconds:g} virtual seconds and {turns} turns of the event loop"
        )
        self.seconds, self.turns = seconds, turns


def simulate(
    main: Callable[..., Awaitable[_Result]],
    *args: Any,
    seed: int = 0,
    seconds: float = 1_000_000.0,
    turns: int = 1_000_000,
) -> _Result:
    """Run `await main(*args)` on a virtual clock that starts at 0, and return what it returns.

    `seed` orders the tasks that are ready at one instant. `seconds` of virtual time and `turns` of the event loop are
    the most the run may take; an idle run without a deadline takes all its seconds at once. Raises what `main` raises,
    and `SimulationOverran`. Not for programs with real processes, sockets or threads.
    """
    limit = _Limit(seconds, turns)
    with _seeded(seed):
        return trio.run(
            limit.run,
            main,
            args,
            clock=MockClock(autojump_threshold=0),
            instruments=[limit],
            strict_exception_groups=True,
        )


class _Limit(trio.abc.Instrument):
    """The caps of one run: counts the turns of the event loop."""

    def __init__(self, seconds: float, turns: int) -> None:
        self._seconds, self._turns = seconds, turns
        self._turn = 0
        self._scope = trio.CancelScope()

    def after_io_wait(self, timeout: float) -> None:
        self._turn += 1
        if self._turn == self._turns:
            self._scope.cancel(reason="the simulated run took too many turns")

    async def run(self, main: Callable[..., Awaitable[_Result]], args: tuple[Any, ...]) -> _Result:
        with self._scope:
            self._scope.deadline = self._seconds
            return await main(*args)
        raise SimulationOverran(trio.current_time(), self._turn)


@contextmanager
def _seeded(seed: int) -> Generator[None]:
    chance, scheduler = _scheduler()
    before, switch = chance.getstate(), scheduler[_SWITCH]
    chance.seed(seed)
    scheduler[_SWITCH] = True
    try:
        yield
    finally:
        chance.setstate(before)
        scheduler[_SWITCH] = switch


_SWITCH = "_ALLOW_DETERMINISTIC_SCHEDULING"


def _scheduler() -> tuple[Random, dict[str, Any]]:
    names = vars(importlib.import_module("trio._core._run"))
    chance = names.get("_r")
    if not isinstance(chance, Random) or _SWITCH not in names:
        raise RuntimeError(
            f"trio {trio.__version__} orders ready tasks in a way that cannot be seeded: use another version"
        )
    return chance, names
