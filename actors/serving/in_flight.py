"""Requests in flight beside a gateway, so that a server's end can wait for them.

A request is counted until its block is left. After `close` no request is admitted; `end` cuts the rest short, with the reason.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import attrs
import trio


@attrs.define(eq=False)
class InFlightRequest:
    """One request in flight. `why` it was cut short, else None."""

    why: str | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class InFlight:
    """The requests in flight of one server. `closed` is why no more are admitted, else None."""

    def __init__(self) -> None:
        self.closed: str | None = None
        self._requests: set[InFlightRequest] = set()
        self._left = trio.lowlevel.ParkingLot()

    @contextmanager
    def visit(self) -> Generator[InFlightRequest]:
        """Context of one request, which is left early when it is cut short. Call it only while not `closed`."""
        request = InFlightRequest()
        self._requests.add(request)
        try:
            with request.scope:
                yield request
        finally:
            self._requests.discard(request)
            self._left.unpark_all()

    def close(self, why: str) -> None:
        """Admit no more requests. The first reason counts."""
        self.closed = self.closed or why

    def end(self, why: str) -> None:
        """Cut short every request in flight."""
        for request in self._requests:
            request.why = request.why or why
            request.scope.cancel(why)

    async def wait_empty(self) -> None:
        """Wait until no request is in flight."""
        while self._requests:
            await self._left.park()
