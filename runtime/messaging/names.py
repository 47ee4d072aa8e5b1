"""`Name`: the address of a registered name, or of a place in the tree; it follows restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from proctor.runtime.events import DeadLetter
from proctor.runtime.exits import NoProc
from proctor.runtime.messaging.deadlines import until
from proctor.runtime.messaging.endpoint import Endpoint
from proctor.runtime.messaging.refs import Address, Ref
from proctor.runtime.messaging.tree_context import TreeContext


class Name(Address):
    """The actor that holds a name, or that stands at a place of the tree (`/` and its path); looked up at each use."""

    __slots__ = ("_system", "_whereis", "name")

    def __init__(self, name: str, system: TreeContext) -> None:
        self.name = name
        self._system = system
        self._whereis = system.registry.whereis

    def missing(self) -> NoProc:
        """The same, with the name that was perhaps meant."""
        return NoProc(self, self._system.registry.all_names)

    def ref(self) -> Ref:
        """The incarnation that stands there now. Raises `NoProc`."""
        found = self._whereis(self.name)
        if found is None:
            raise self.missing()
        return found

    def find(self) -> Endpoint | None:
        """The end point of the incarnation that stands there now."""
        found = self._whereis(self.name)
        return None if found is None else found.endpoint

    async def wait(self, timeout: float | None = None) -> Ref:
        """Wait, at most `timeout` seconds, for one that takes messages, due or not.

        Raises `NoProc` after that time, and as soon as the tree is ending.
        """
        registry = self._system.registry
        with trio.CancelScope(deadline=until(timeout)):
            return await registry.wait(self.name)
        ref = registry.receiver(self.name)  # with no time at all, it may be there all the same
        if ref is None:
            raise self.missing()
        return ref

    def is_due(self) -> bool:
        """Whether a supervisor holds a child of this name that runs, or is to run again."""
        return self._system.registry.is_due(self.name)

    def kept(self) -> Mapping[Any, Any]:
        """The state that the child of this name keeps over restarts, also between two incarnations; nothing where none is due."""
        return self._system.registry.kept(self.name)

    async def wait_out(self) -> Ref:
        """Wait out a stop or a restart: the next that takes messages. Raises `NoProc` when none is due.

        Always a checkpoint, so `except NoProc: await name.wait_out()` may be repeated in a loop.
        """
        return await self._system.registry.wait_out(self.name)

    async def until_found(self) -> None:
        """Wait until one that takes messages stands there. Raises `NoProc` when the tree is ending."""
        await self._system.registry.wait(self.name)

    def _dead_letter(self, msg: object) -> None:
        self._system.events.emit(DeadLetter(path=self.name, target=self, msg=msg, why="no such actor"))

    def __repr__(self) -> str:
        return f"<name {self.name!r}>"
