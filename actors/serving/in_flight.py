"""Requests under way in what is served beside a gateway, so that a server's end can wait for them, too.

Guarantees: who is here is counted until it has left; after `close` whoever asks is told why nobody comes in any more;
`end` cuts short those that are still here, each of which learns the reason.

Not here: what they are told in the words of their protocol.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import attrs
import trio


@attrs.define(eq=False)
class Visit:
    """One request. `ended` says why it was cut short, None when it was not."""

    ended: str | None = None
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def end(self, why: str) -> None:
        """Cut it short."""
        self.ended = self.ended or why
        self._scope.cancel(why)

    @contextmanager
    def lasting(self) -> Generator[None]:
        """Around what it does: left when it is cut short."""
        with self._scope:
            yield


class Visits:
    """Those of one server. `closed` says why nobody comes in any more, None as long as they may."""

    def __init__(self) -> None:
        self.closed: str | None = None
        self._here: set[Visit] = set()
        self._left = trio.lowlevel.ParkingLot()

    @contextmanager
    def visit(self) -> Generator[Visit]:
        """Around a request; the block is left early when it is cut short. To be asked for only while not `closed`."""
        visit = Visit()
        self._here.add(visit)
        try:
            with visit.lasting():
                yield visit
        finally:
            self._here.discard(visit)
            self._left.unpark_all()

    def close(self, why: str) -> None:
        """Nobody comes in any more. The first reason counts."""
        self.closed = self.closed or why

    def end(self, why: str) -> None:
        """Cut short whoever is here."""
        for visit in self._here:
            visit.end(why)

    async def wait_empty(self) -> None:
        """Wait until nobody is here."""
        while self._here:
            await self._left.park()
