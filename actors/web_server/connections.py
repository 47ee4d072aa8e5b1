"""The connections of one server, authenticated and unauthenticated ones, each with a limit of its own.

Clients that do not authenticate cannot use up the connections of those that do. An unauthenticated connection is closed
after `admit_timeout` seconds; when there are too many, the oldest is closed. A connection that authenticates while all
places are taken is closed.

By default every complete request authenticates its connection. An application that decides itself says so in its lifespan
(`admit_by_request`), and then calls `admit` for each authenticated request. Both are passed in the `state` of ASGI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from typing import Any

import attrs
import trio

CONNECTION = "proctor.connection"
"""The key of the connection in the `state` of its requests."""
ADMITS_BY_REQUEST = "proctor.admits_by_request"
"""The key in the `state` of the lifespan of an application that calls `admit` itself."""

Scope = MutableMapping[str, Any]


@attrs.define(eq=False)
class Connection:
    """The connection of one client. `close` closes it at once; `scope` is cancelled when its time is over."""

    table: ConnectionTable
    scope: trio.CancelScope
    close: Callable[[], None]

    def admit(self) -> None:
        """Mark it as authenticated."""
        self.table.admit(self)


class ConnectionTable:
    """A table with at most `authenticated` and `unauthenticated` connections; `log` gets a line for each that is closed."""

    def __init__(
        self, authenticated: int, unauthenticated: int, admit_timeout: float, log: Callable[[str], None]
    ) -> None:
        self._bounds = authenticated, unauthenticated
        self._admit_timeout = admit_timeout
        self._log = log
        self._authenticated: dict[Connection, None] = {}
        self._unauthenticated: dict[Connection, None] = {}  # the oldest first

    def enter(self, connection: Connection) -> None:
        """Add a new, unauthenticated connection; closes the oldest of these when there are too many."""
        if len(self._unauthenticated) >= self._bounds[1]:
            oldest = next(iter(self._unauthenticated))
            self._log(f"{len(self._unauthenticated)} unauthenticated connections; the oldest was closed")
            self.leave(oldest)  # before its task ends, so that the new one is counted in its place
            oldest.close()
        self._unauthenticated[connection] = None
        connection.scope.deadline = trio.current_time() + self._admit_timeout

    def admit(self, connection: Connection) -> None:
        """Mark a connection as authenticated, or close it when there are too many."""
        if connection not in self._unauthenticated:
            return  # authenticated already, or closing
        if len(self._authenticated) >= self._bounds[0]:
            self._log(f"{len(self._authenticated)} authenticated connections; one more was closed")
            self.leave(connection)
            connection.close()
            return
        del self._unauthenticated[connection]
        self._authenticated[connection] = None
        # Authenticated: from here on only the idle time-out ends it.
        connection.scope.deadline = math.inf

    def leave(self, connection: Connection) -> None:
        """Remove it. A second call does nothing."""
        self._authenticated.pop(connection, None)
        self._unauthenticated.pop(connection, None)


def admit_by_request(scope: Scope) -> None:
    """Declare, in the lifespan, that the application calls `admit` for each authenticated request."""
    scope.setdefault("state", {})[ADMITS_BY_REQUEST] = True


def admit(scope: Scope) -> None:
    """Mark the connection of this request as authenticated. Does nothing under another server."""
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.admit()
