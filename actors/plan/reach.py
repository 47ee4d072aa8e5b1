"""Processes that are started by way of another command: ssh, docker exec, a jail, or any other that runs what it is given.

Guarantees: the whole command that would have been started here is mapped: its words, environment and folder. What runs
instead has a guard above it, is stopped by the same steps and judged by its own exit.

Not here: what the other command passes on to the program that it runs, such as signals and the exit status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import attrs

from proctor.actors.errors import BadOption
from proctor.actors.transport.transport import ProcessTransport, Reach, Start
from proctor.runtime.processes import Command

Wrapper = Sequence[str] | Callable[[Command], Command]
"""The words that are put before those of the program, or a function that maps the whole command."""


@attrs.frozen
class WrapperReach:
    """A `Reach` by another command: `words` before those of the program, or what `function` makes of the whole command."""

    words: tuple[str, ...] = ()
    function: Callable[[Command], Command] | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether a function decides where it runs, so that the folder may be one of another machine."""
        return self.function is not None

    def __call__(self, start: Start) -> ProcessTransport:
        """Raises `BadOption` when the function gives no command."""
        return ProcessTransport(attrs.evolve(start, command=self._mapped(start.command)))

    def _mapped(self, command: Command) -> Command:
        if self.function is None:
            return attrs.evolve(command, argv=(*self.words, *command.argv))
        mapped = cast("object", self.function(command))
        if not isinstance(mapped, Command):
            raise BadOption(f"the function given as reach must return a Command, got {mapped!r}")
        return mapped


def wrapper_reach(by: object) -> Reach:
    """The transport for this value of the option `reach`, None: as it is. Raises `BadOption`."""
    if by is None:
        return ProcessTransport
    if callable(by):
        return WrapperReach(function=cast("Callable[[Command], Command]", by))
    words = () if isinstance(by, str) or not isinstance(by, Sequence) else tuple(cast("Sequence[object]", by))
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
        raise BadOption(
            f"reach must be a sequence of words, such as ('docker', 'exec', '-i', 'box'), or a function, got {by!r}"
        )
    return WrapperReach(cast("tuple[str, ...]", words))
