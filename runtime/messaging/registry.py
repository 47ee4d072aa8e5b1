"""Names of live actors, one registry per root supervisor.

Guarantees: a name has at most one live holder, an actor may hold several. A name is free before anybody
learns of its holder's exit, because an endpoint gives its names back first of all, in the step in which it
ends; so no entry is ever stale, look-ups return live actors only, and nothing dead blocks a registration.

A holder that is stopping keeps its names but takes no messages: who waits for a name waits for its next holder, and
so does not find the one that has just refused a message. Each wait passes through a checkpoint, whatever it finds.

A name whose child is between two incarnations is unknown, but due: `wait_out` waits for it. The name belongs to
the place of the child, known by what it keeps; when a nested supervisor ends, its parent takes over its names.
Once the root is ending, nothing is due.

Places of the tree are names too: `/` and the path. No other name begins with `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from proctor.runtime.addresses import AnyRef
from proctor.runtime.errors import AlreadyRegistered
from proctor.runtime.exits import NoProc
from proctor.runtime.messaging.persistent_state import Kept
from proctor.runtime.messaging.refs import Ref


class Registry:
    """The names of one tree."""

    def __init__(self) -> None:
        self._holders: dict[str, Ref] = {}
        self.whereis: Callable[[str], Ref | None] = self._holders.get
        """The live holder of a name; bound to the table itself, since each use of a name looks it up."""
        self.all_names = self._holders.keys()
        """The names and places that there are by now."""
        self._awaited: dict[str, trio.Event] = {}
        self._due: dict[str, Kept] = {}
        self._ending = False

    @trio.lowlevel.enable_ki_protection
    def register(self, name: str, ref: Ref) -> None:
        """Give `name` to a live actor. Raises `AlreadyRegistered`, or `NoProc` if `ref` is dead."""
        holder = self.whereis(name)
        if holder is not None and holder is not ref:
            raise AlreadyRegistered(name, holder)
        if not ref.hold(name):  # the end point notes it too, and so gives it back in the step of its end
            raise NoProc(ref)
        self._holders[name] = ref
        self._notify_waiters(name)

    @trio.lowlevel.enable_ki_protection
    def unregister(self, name: str, ref: AnyRef) -> None:
        """Take `name` from `ref`; nothing happens if it does not hold it."""
        holder = self._holders.get(name)
        if holder is not None and holder is ref:  # an earlier holder must not take it from the next
            del self._holders[name]
            holder.let_go(name)
            self._notify_waiters(name)

    def names(self) -> dict[str, Ref]:
        """All names with a live holder, places left out."""
        return {name: ref for name, ref in self._holders.items() if name[0] != "/"}

    def expect(self, name: str, owner: Kept) -> None:
        """The child at `owner` has this name and runs, or is to run again. For supervisors."""
        self._due[name] = owner

    def pass_on(self, name: str, owner: Kept, heir: Kept) -> bool:
        """Move the name from `owner` to `heir`; False if another place holds it by now. For supervisors."""
        if self._due.get(name) is not owner:
            return False
        self._due[name] = heir
        return True

    def settle(self, name: str, owner: Kept) -> None:
        """The name is not due from `owner` any more: its waiters are notified. For supervisors."""
        if self._due.get(name) is owner:
            del self._due[name]
            self._notify_waiters(name)

    def end(self) -> None:
        """The tree is ending, and starts nothing any more: who waits for a name goes on without it."""
        self._ending = True
        # A copy: notifying takes entries out.
        for name in list(self._awaited):
            self._notify_waiters(name)

    def _notify_waiters(self, name: str) -> None:
        event = self._awaited.pop(name, None)
        if event is not None:
            event.set()

    def is_due(self, name: str) -> bool:
        """Whether a child of this name runs, or is to run again."""
        return name in self._due and not (self._ending and self.receiver(name) is None)

    def kept(self, name: str) -> Mapping[Any, Any]:
        """The state that the child of this name keeps over its restarts, for readers; nothing where none is due."""
        return self._due.get(name, {})

    def receiver(self, name: str) -> Ref | None:
        """The holder of `name`, if it takes messages: one that is stopping does not."""
        ref = self.whereis(name)
        return ref if ref is not None and ref.endpoint.accepting else None

    async def wait_out(self, name: str) -> Ref:
        """Wait out a stop or restart: the first holder of `name` that takes messages. Raises `NoProc` when none is due.

        A stop is waited for to its end, because only the end decides whether a restart follows.
        """
        await trio.lowlevel.checkpoint()
        while (ref := self.receiver(name)) is None:
            if self._ending or (self.whereis(name) is None and name not in self._due):
                raise NoProc(name, self.all_names)
            await self._next(name)
        return ref

    async def wait(self, name: str) -> Ref:
        """Wait for a holder of `name` that takes messages, due or not. Raises `NoProc` once the tree is ending."""
        await trio.lowlevel.checkpoint()
        while (ref := self.receiver(name)) is None:
            if self._ending:
                raise NoProc(name, self.all_names)
            await self._next(name)
        return ref

    async def _next(self, name: str) -> None:
        event = self._awaited.setdefault(name, trio.Event())
        try:
            await event.wait()
        finally:
            # waiters that were cancelled would leave an entry for each name that never comes
            if not event.statistics().tasks_waiting and self._awaited.get(name) is event:
                del self._awaited[name]
