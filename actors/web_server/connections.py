"""The connections of one server: those on which a request was let in, and those on which none was yet.

Guarantees: each kind has a bound of its own, so that clients which never say who they are take no place of those that did.
An unauthenticated connection ends after `patience` seconds; where there are too many the oldest makes room, so that a
new client always has the time to ask. Who is let in while all places are taken is disconnected.

A server without a door lets in every complete request. An application that has one says so while it starts
(`admit_by_request`), and then for each request that it lets in (`admit`). Both travel in the `state` of ASGI.

Not here: who is let in, and the sockets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from typing import Any

import attrs
import trio

CONNECTION = "proctor.connection"
"""The key of the connection in the state of its requests."""
DOOR = "proctor.door"
"""The key in the state of the lifespan that says that the application lets requests in by itself."""

Scope = MutableMapping[str, Any]


@attrs.define(eq=False)
class Connection:
    """One client. `close` ends it at once; `scope` is cancelled when its time is over."""

    table: ConnectionTable
    scope: trio.CancelScope
    close: Callable[[], None]

    def admit(self) -> None:
        """Count it among the authenticated ones from now on."""
        self.table.admit(self)


class ConnectionTable:
    """At most `authenticated` and `unauthenticated` connections; `log` is given what was done to keep that."""

    def __init__(
        self, authenticated: int, unauthenticated: int, patience: float, log: Callable[[str], None]
    ) -> None:
        self._bounds = authenticated, unauthenticated
        self._patience = patience
        self._log = log
        self._known: dict[Connection, None] = {}
        self._unknown: dict[Connection, None] = {}  # the oldest first

    def enter(self, connection: Connection) -> None:
        """Take in a new connection, as unauthenticated; the oldest of these may have to go."""
        if len(self._unknown) >= self._bounds[1]:
            oldest = next(iter(self._unknown))
            self._log(f"{len(self._unknown)} connections have not been authenticated; the oldest was closed")
            self.leave(oldest)
            oldest.close()
        self._unknown[connection] = None
        connection.scope.deadline = trio.current_time() + self._patience

    def admit(self, connection: Connection) -> None:
        """For `Connection.admit`."""
        if connection not in self._unknown:
            return  # let in before, or on its way out
        if len(self._known) >= self._bounds[0]:
            self._log(f"there are {len(self._known)} connections already; one more was closed")
            self.leave(connection)
            connection.close()
            return
        del self._unknown[connection]
        self._known[connection] = None
        connection.scope.deadline = math.inf

    def leave(self, connection: Connection) -> None:
        """Forget it. A second call does nothing."""
        self._known.pop(connection, None)
        self._unknown.pop(connection, None)


def admit_by_request(scope: Scope) -> None:
    """Of an application, in its lifespan: it calls `admit` for each request that it lets in."""
    scope.setdefault("state", {})[DOOR] = True


def admit(scope: Scope) -> None:
    """The request of this scope was let in, and so is its connection. Under another server nothing happens."""
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.admit()
