"""State that a child keeps over its restarts, like an Erlang table owned by the supervisor.

For a child with `keep_mailbox` that is also its mail: casts that were queued when an incarnation ended, for the next
one. They become dead letters when the child comes to rest, or its spec is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proctor.runtime.exits import DeliveryError, NoProc
from proctor.runtime.messaging.endpoint import Endpoint, Message
from proctor.runtime.messaging.messages import Cast


class Kept(dict[Any, Any]):
    """A dictionary that lives as long as the child's spec is held, and runs functions when it is not in use any more.

    The functions are called by the supervisor, must not wait, and an error in one is an event (`kept_error`).
    """

    __slots__ = ("_mail", "dropped", "resting")

    def __init__(self) -> None:
        super().__init__()
        self.resting: tuple[Callable[[], object], ...] = ()
        self.dropped: tuple[Callable[[], object], ...] = ()
        self._mail: _Mail | None = None

    def at_rest(self, fn: Callable[[], object]) -> None:
        """Call `fn` each time the child is down and no restart is due; also before it is dropped."""
        self.resting += (fn,)

    def when_dropped(self, fn: Callable[[], object]) -> None:
        """Call `fn` once, when the spec is dropped or the supervisor has ended."""
        self.dropped += (fn,)

    def keep(self, endpoint: Endpoint, left: Sequence[Message], error: Callable[[], DeliveryError]) -> None:
        """Keep the casts of what `endpoint` has left over; all else fails with an `error` of its own."""
        if self._mail is None:
            self._mail = _Mail()
            self.at_rest(self._mail.discard)
        for message in left:
            if type(message) is Cast:
                self._mail.casts.append((endpoint, message))
            else:
                message.undelivered(endpoint, error())

    def take_mail(self) -> list[Message]:
        """The casts kept for the next incarnation."""
        return [] if self._mail is None else self._mail.take()


class _Mail:
    """Casts between two incarnations, and whose they were."""

    def __init__(self) -> None:
        self.casts: list[tuple[Endpoint, Message]] = []

    def take(self) -> list[Message]:
        casts, self.casts = self.casts, []
        return [message for _, message in casts]

    def discard(self) -> None:
        casts, self.casts = self.casts, []
        for endpoint, message in casts:
            message.undelivered(endpoint, NoProc(endpoint.ref))
