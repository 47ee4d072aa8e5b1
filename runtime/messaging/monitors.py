"""Monitors: one-way notices of an incarnation's end, each delivered exactly once.

Guarantees: a monitor gets one `Down`, at once if the target is dead or unknown already; several monitors of one
target are independent; a closed monitor gets none. A monitor stays with the incarnation it was made for.

Not here: notices to an actor's own mailbox (`Actor.monitor`, same `Down`).
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

import trio

from proctor.runtime.addresses import AnyAddress
from proctor.runtime.exits import NoProc
from proctor.runtime.messaging.endpoint import Endpoint
from proctor.runtime.messaging.notices import Down, Watcher


class Monitor:
    """Waits for the end of one incarnation: `down = await monitor`, any number of times, by any task.

    A context manager that closes it; `down` is the notice, `None` until it comes.
    """

    def __init__(self, target: AnyAddress, endpoint: Endpoint | None) -> None:
        self.down: Down | None = None
        # made before `watch`, which notifies at once where the target is dead
        self._notified = trio.Event()
        self._endpoint = endpoint
        watch(self, target, endpoint)

    def deliver(self, down: Down) -> None:
        """Take the one notice."""
        self.down = down
        self._notified.set()

    async def wait(self) -> Down:
        """Wait for the end; returns at once if it has come. Never returns on a monitor that was closed before."""
        await self._notified.wait()
        assert self.down is not None
        return self.down

    def __await__(self) -> Generator[Any, Any, Down]:
        return self.wait().__await__()

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """Stop watching. A notice already given stays readable."""
        if self._endpoint is not None:
            self._endpoint.watchers.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(watcher: Watcher, target: AnyAddress, endpoint: Endpoint | None) -> None:
    """Notify `watcher` once of the end of `endpoint`, at once if it is gone or was never there."""
    if endpoint is None or endpoint.exit is not None:
        watcher.deliver(Down(target, NoProc(target)))
    else:
        endpoint.watchers[watcher] = None
