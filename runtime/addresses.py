"""Protocols of addresses: the part of `Ref` and `Name` that errors and events need to name actors.

The classes that implement these protocols are `messaging.refs.Address` and `messaging.refs.Ref`.
"""

from __future__ import annotations

from typing import Any, Protocol

from proctor.runtime.exits import ExitReason


class AnyAddress(Protocol):
    """Something that messages can be sent to."""

    def is_alive(self) -> bool:
        """Whether an actor is there now."""
        ...

    async def call(self, msg: object, timeout: float | None = 5.0, *, wait_for: float | None = None) -> Any:
        """Send `msg` and wait for the answer."""

    async def cast(self, msg: object) -> None:
        """Queue `msg` and return."""

    def cast_nowait(self, msg: object) -> None:
        """Queue `msg`, or raise where that would wait for room."""

    def exit(self, reason: ExitReason) -> None:
        """Ask the actor to end with `reason`."""

    def kill(self) -> None:
        """End the actor by force."""


class AnyRef(AnyAddress, Protocol):
    """One incarnation of an actor."""

    @property
    def path(self) -> str:
        """The place in the tree, as in `fleet/fixers/fixer`."""
        ...

    @property
    def exit_reason(self) -> ExitReason | None:
        """The reason of its end; `None` as long as it lives."""
        ...

    @property
    def info(self) -> object:
        """The value of `task_status.started(value)`."""
        ...
