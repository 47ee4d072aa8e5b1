"""The notices of an incarnation's end: `Down` for monitors, `ExitSignal` for links."""

from __future__ import annotations

from typing import Protocol

import attrs

from proctor.runtime.addresses import AnyAddress
from proctor.runtime.exits import ExitReason


@attrs.frozen
class Down:
    """The end of a monitored actor: who, and why (`NoProc` if it was gone before)."""

    ref: AnyAddress
    reason: ExitReason


@attrs.frozen
class ExitSignal:
    """The end of one that was linked to an actor that traps exits: who, and why (`NoProc` if it was gone before)."""

    ref: AnyAddress
    reason: ExitReason


class Watcher(Protocol):
    """A receiver of the notice that an end point has ended."""

    def deliver(self, down: Down) -> None:
        """Take the one notice. Must not raise."""
