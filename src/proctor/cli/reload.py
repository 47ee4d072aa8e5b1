"""The reload of a running fleet from its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.fleet.reload import FleetUpdate, difference
from proctor.actors.specs import Supervisor

K = TypeVar("K")
V = TypeVar("V")


def replace(target: dict[K, V], content: Mapping[K, V]) -> None:
    """Give a dictionary that others hold another content."""
    target.clear()
    target.update(content)


@attrs.define
class FleetReload:
    """Reloads the `fleet` that runs under `sup` from its `file`. `strict`: as it was started; `record` is the folder for recordings.

    Each of `listeners` is called with the fleet as it runs, before anything new starts; `on_started` gets the paths of the agents
    that were started then.
    """

    file: Path
    fleet: Fleet
    strict: bool = attrs.field(kw_only=True)
    record: Path | None = attrs.field(kw_only=True)
    on_started: Callable[[Sequence[str]], None] = attrs.field(kw_only=True)
    sup: Supervisor | None = None
    listeners: list[Callable[[Fleet], None]] = attrs.field(factory=list[Callable[[Fleet], None]])
    _lock: trio.Lock = attrs.field(factory=trio.Lock)

    async def __call__(self, *, dry_run: bool, restart: bool) -> dict[str, Any]:
        """Reload; returns what is different, and what was done about it. Raises `FleetFaults`, and then nothing has changed."""
        async with self._lock:
            # in a thread: five hundred agents take half a second
            read = await trio.to_thread.run_sync(load_fleet, self.file)
            new = read if self.strict else read.degrading()
            found = difference(self.fleet, new)
            started, failed = list[str](), list[str]()
            if not dry_run and self.sup is not None:
                update = FleetUpdate(self.sup, self.fleet, new, self.record, restart)
                await update.carry_out(self._on_change)
                names = self.fleet.names("")
                started, failed = [names[path] for path in update.started], update.failed
                self.on_started([f"{self.fleet.name}{path}" for path in update.started])
            return {
                **attrs.asdict(found),
                "restarted": tuple(name for name in found.changed if name in started),
                "problems": (*found.problems, *failed),
            }

    def _on_change(self, fleet: Fleet) -> None:
        self.fleet = fleet
        for listener in self.listeners:
            listener(fleet)
