"""What the checks of a gateway found.

Guarantees: `look` asks all of them now, and waits at most `CHECKING` seconds. `look_soon` waits for nothing: it has them
asked behind its caller, one such look at a time, so that a question about life is answered at once, whatever they do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import trio

CHECKING = 5.0

Check = Callable[[], Awaitable[str | None]]
"""What is wrong, None when nothing is."""

Found = Mapping[str, str | None]
Grade = Literal["ok", "degraded", "down"]


class Looks:
    """Those of one gateway; `nursery` runs what nobody waits for. `found` is what the last look found, by check. An alarm is
    a check that is found only when something is wrong."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        nursery: trio.Nursery,
        *,
        alarms: Mapping[str, Check] | None = None,
    ) -> None:
        self.found: Found = {}
        self._checks = {**checks, **(alarms or {})}
        self._alarms = frozenset(alarms or ())
        self._nursery = nursery
        self._looking = False

    async def look(self) -> Found:
        """Ask every check: what is wrong, by its name."""
        said: dict[str, str | None] = {}
        async with trio.open_nursery() as nursery:
            for name, check in self._checks.items():
                nursery.start_soon(_checked, name, check, said)
        quiet = {name for name in self._alarms if said[name] is None}
        self.found = {name: said[name] for name in sorted(said.keys() - quiet)}
        return self.found

    def look_soon(self) -> None:
        """The next `found` is a new one."""
        if self._checks and not self._looking:
            self._looking = True
            self._nursery.start_soon(self._look_once)

    async def _look_once(self) -> None:
        try:
            await self.look()
        finally:
            self._looking = False


def bad(found: Found) -> tuple[str, ...]:
    """The names of what does not work."""
    return tuple(sorted(name for name, wrong in found.items() if wrong is not None))


def grade(found: Found) -> Grade:
    """`ok`: all work; `down`: none does; `degraded`: some do."""
    wrong = len(bad(found))
    return "ok" if not wrong else "degraded" if wrong < len(found) else "down"


async def _checked(name: str, check: Check, said: dict[str, str | None]) -> None:
    said[name] = f"the check did not end within {CHECKING:g} s"
    with trio.move_on_after(CHECKING):
        said[name] = await check()
