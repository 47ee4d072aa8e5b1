"""Deterministic simulation: runs a whole program on a virtual clock, the same way for the same seed.

Time passes only when no task can run, and then at once. A run that does not end is cut by a limit on its time and on the
turns of its event loop. Real processes, sockets and threads cannot be simulated: a virtual clock does not wait for them.
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
    """A simulated run reached its limit of `seconds` or of `turns` of the event loop."""

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
    """Run `await main(*args)` on a virtual clock that starts at 0, and return its result.

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
    """The limits of one run; counts the turns of the event loop."""

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
            # on the virtual clock, which starts at 0 with the run
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


# Trio orders ready tasks with a private random source; this private switch makes the order follow from it alone. Both
# belong to the process: a Trio run in another thread makes this one unrepeatable.
_SWITCH = "_ALLOW_DETERMINISTIC_SCHEDULING"


def _scheduler() -> tuple[Random, dict[str, Any]]:
    names = vars(importlib.import_module("trio._core._run"))
    chance = names.get("_r")
    if not isinstance(chance, Random) or _SWITCH not in names:
        raise RuntimeError(
            f"trio {trio.__version__} does not have the random source that a simulation seeds: use another version of trio"
        )
    return chance, names
