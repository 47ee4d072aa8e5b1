"""The endpoint of one incarnation: its mailbox, its monitors and its links.

Guarantees: `exit` is set once, and everything that follows from it happens in the same step without a
checkpoint, in this order: names are given back, the mailbox is closed, calls waiting for an answer fail
with `ActorExited` and casts left over become dead letters, watchers get their `Down`. An answer or
a stream item that was sent before stays received.

A child that keeps its mailbox over a restart has its queued casts kept by its place at the supervisor instead, and
queued calls and streams fail with `ActorRestarting`.

An incarnation that is stopping, asked or by itself, is still there to be watched and killed, but takes no messages:
`accepting` is False from the first moment of its end.

Invariant: a call that may still be answered is in the mailbox, in its handler, or in `calls`, where a handler that
ends without an answer puts it, however it ends. So all are found at the end.

Not here: what runs behind it (`child`, `loop`): `control` stops and kills that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Final, Protocol

import trio

from proctor.runtime.addresses import AnyAddress, AnyRef
from proctor.runtime.errors import ActorExited, ActorRestarting, MailboxFull, NoMailbox
from proctor.runtime.events import DeadLetter, Events
from proctor.runtime.exits import DeliveryError, ExitReason, NoProc
from proctor.runtime.messaging.deadlines import Deadlines
from proctor.runtime.messaging.mailbox import Full, Mailbox
from proctor.runtime.messaging.notices import Down, ExitSignal, Watcher


class Stoppable(Protocol):
    """Something that can be stopped from outside."""

    def stop(self, reason: ExitReason) -> None:
        """Ask it to end with `reason`. Returns at once; a second request changes nothing."""

    def kill(self) -> None:
        """End it by force. Returns at once."""


class Control(Stoppable, Protocol):
    """The controls behind an endpoint."""

    def ending(self) -> None:
        """Take note that its end begins, whatever the cause. Returns at once; a second call changes nothing."""


class Message(Protocol):
    """Something in a mailbox."""

    msg: object

    def undelivered(self, endpoint: Endpoint, error: DeliveryError) -> None:
        """It will not be handled, because of `error`."""


class PendingCall(Message, Protocol):
    """A call that waits for its answer."""

    deadline: float

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""


class Keeper(Protocol):
    """The store in which the queued casts of an incarnation wait for the next one."""

    def keep(self, endpoint: Endpoint, left: Sequence[Message], error: Callable[[], DeliveryError]) -> None:
        """Keep the casts of what `endpoint` has left over; all else fails with an `error` of its own."""


class Names(Protocol):
    """The registry of a tree, as an end point needs it."""

    def unregister(self, name: str, ref: AnyRef) -> None:
        """Take `name` from `ref`; nothing happens if it does not hold it."""


class TreeServices(Protocol):
    """The services that the end points of one tree share."""

    casts: int

    @property
    def registry(self) -> Names:
        """The names."""
        ...

    @property
    def events(self) -> Events:
        """The events."""
        ...

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of calls."""
        ...

    @property
    def now(self) -> Callable[[], float]:
        """The clock of the run."""
        ...


class Findable(AnyAddress, Protocol):
    """An address, as a stream needs it."""

    def find(self) -> Endpoint | None:
        """The end point that stands for it now."""
        ...

    def missing(self) -> NoProc:
        """The error of there being none."""
        ...


class Linked(Protocol):
    """The controls behind an endpoint that can be linked."""

    def take_exit_signal(self, signal: ExitSignal) -> bool:
        """Take the end of one that it was linked to; False if that means nothing to it. Never waits."""
        ...


class Endpoint:
    """One incarnation, as messages see it. Made by `refs.open_ref`, which also gives it its `ref`."""

    __slots__ = (
        "__weakref__",
        "accepting",
        "calls",
        "control",
        "cycle",
        "exit",
        "handling",
        "info",
        "keeper",
        "linked",
        "links",
        "mailbox",
        "names",
        "path",
        "ref",
        "system",
        "task",
        "watchers",
        "woken_at",
    )

    ref: AnyRef

    def __init__(
        self, path: str, system: TreeServices, control: Control, mailbox: Mailbox[Message] | None
    ) -> None:
        self.path = path
        self.system = system
        self.control = control
        self.mailbox = mailbox
        self.accepting = True
        self.exit: ExitReason | None = None
        self.info: object = None
        self.calls: dict[PendingCall, None] = {}
        self.handling: PendingCall | None = None
        self.watchers: dict[Watcher, None] = {}
        self.names: tuple[str, ...] = ()
        self.task: trio.lowlevel.Task | None = None
        self.woken_at = system.now()
        self.cycle: tuple[str, ...] = ()
        self.keeper: Keeper | None = None
        self.linked: Linked | None = None
        self.links: dict[Endpoint, None] | None = None

    def busy_for(self) -> float | None:
        """Seconds since its actor last waited for messages, None while it waits, has ended or is no actor."""
        if self.exit is not None or self.mailbox is None or self.mailbox.is_waited_for():
            return None
        return self.system.now() - self.woken_at

    def refuse(self) -> None:
        """Take no more messages: it is stopping. It keeps its names until its end."""
        self.accepting = False

    def hold(self, name: str) -> None:
        """Note a registered name."""
        if name not in self.names:
            self.names += (name,)

    def let_go(self, name: str) -> None:
        """Forget a name."""
        self.names = tuple(other for other in self.names if other != name)

    def is_awaited(self) -> bool:
        """Whether messages wait to be handled."""
        return self.mailbox is not None and self.mailbox.load() > 0

    def waits(self) -> bool:
        """Whether a sender is to wait for room now."""
        return self.mailbox is not None and self.mailbox.waits()

    async def deliver(self, message: Message) -> None:
        """Queue a message, by the overflow policy where there is no room.

        Raises `MailboxFull` under `raise`; in all other cases a message that will not be handled is settled with the error.
        """
        if self.mailbox is not None and self.mailbox.waits():
            try:
                await self.mailbox.put(message)
            except trio.BrokenResourceError:
                message.undelivered(self, self.gone())
        else:
            self.deliver_nowait(message)

    def deliver_nowait(self, message: Message) -> None:
        """The same, but raises `MailboxFull` where that would wait."""
        if self.mailbox is None:
            message.undelivered(self, NoMailbox(self.ref))
        elif not self.mailbox.offer(message):
            self._displace(message, self.mailbox)

    def _displace(self, message: Message, mailbox: Mailbox[Message]) -> None:
        try:
            mailbox.displace(message).undelivered(self, MailboxFull(self.ref))
        except Full:
            raise MailboxFull(self.ref).carrying(message.msg) from None
        except trio.BrokenResourceError:
            message.undelivered(self, self.gone())

    def gone(self) -> DeliveryError:
        """The error for a message that was under way when the actor ended, or that a draining one refuses."""
        return NoProc(self.ref) if self.exit is None else ActorExited(self.ref, self.exit)

    def dead_letter(self, msg: object, why: str) -> None:
        """Emit an event for a message that no actor handles."""
        self.system.events.emit(DeadLetter(path=self.path, target=self.ref, msg=msg, why=why))

    def close(self, reason: ExitReason) -> None:
        """End: see the module's guarantees. Never waits."""
        # Set first: everything below may look at this endpoint, and has to see it dead.
        self.exit, self.accepting = reason, False
        # Before any notice: who learns of the end finds the name free.
        for name in self.names:
            self.system.registry.unregister(name, self.ref)
        self._empty_mailbox(reason)
        # a copy, because a call that fails removes itself
        for call in tuple(self.calls):
            call.fail(ActorExited(self.ref, reason).carrying(call.msg))
        if self.links:
            self._break_links(reason)
        down = Down(self.ref, reason)
        # cleared first: a watcher that removes itself on its notice finds nothing to remove
        watchers = tuple(self.watchers)
        self.watchers.clear()
        for watcher in watchers:
            watcher.deliver(down)

    def unlink(self, other: Endpoint) -> None:
        """Forget a link; nothing happens where there is none."""
        if self.links is not None:
            self.links.pop(other, None)

    def take_exit(self, signal: ExitSignal) -> None:
        """Take the end of one that it was linked to; a dead letter where that means nothing to it."""
        if self.exit is None and (self.linked is None or not self.linked.take_exit_signal(signal)):
            self.dead_letter(signal, "a supervisor takes the exits of its children only")

    def _break_links(self, reason: ExitReason) -> None:
        # Taken out first: an end that follows from a signal must not break them again.
        links, self.links = self.links or {}, None
        for other in links:
            other.unlink(self)  # before its signal: an end that follows from it must not come back here
            other.take_exit(ExitSignal(self.ref, reason))

    def _empty_mailbox(self, reason: ExitReason) -> None:
        left = [] if self.mailbox is None else self.mailbox.close()
        if self.keeper is not None:
            # an error made only where needed: with a full mailbox most are casts, which are kept
            self.keeper.keep(self, left, partial(ActorRestarting, self.ref, reason))
            return
        for message in left:
            message.undelivered(self, ActorExited(self.ref, reason))


OWN: Final[ContextVar[Endpoint | None]] = ContextVar("proctor.endpoint", default=None)
"""The endpoint of the child in whose task, or a task below it, this runs."""
