"""What a user writes: an `Actor` with hooks; and the loop that calls them.

Guarantees: one hook runs at a time (M1). `init` comes first, then its `handle_continue`, then messages (M5).
An exception in a hook, or in a task of `self.nursery`, is a crash of the actor (M10); alone it is the crash
itself, not wrapped in the nursery's group. The tasks of `self.nursery` have ended before `terminate` runs, those of
`self.background` live through it.

Not here: when it is started and stopped, and what its end is called (`child`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from proctor.runtime.calls import Call, Cast, Info, Ref
from proctor.runtime.errors import UnknownMessage
from proctor.runtime.exits import ExitReason, Normal
from proctor.runtime.kept import Kept
from proctor.runtime.mailbox import Mailbox
from proctor.runtime.monitors import Down, watch
from proctor.runtime.registry import Registry
from proctor.runtime.streams import Sink

if TYPE_CHECKING:
    from proctor.runtime.calls import Address
    from proctor.runtime.cell import Cell, Message
    from proctor.runtime.supervisor import AnySupervisor


class Ignore(Enum):
    """The type of `IGNORE`."""

    IGNORE = "ignore"


class NoReply(Enum):
    """The type of `NO_REPLY`."""

    NO_REPLY = "no reply"


IGNORE: Final = Ignore.IGNORE
NO_REPLY: Final = NoReply.NO_REPLY


@attrs.frozen
class Reply:
    """From `handle_call`: the answer, spelled out. A plain returned value means the same."""

    value: Any


@attrs.frozen
class Stop:
    """From any hook but `terminate`: end with `reason`, after answering with `reply` if it is given (M20)."""

    reason: ExitReason = attrs.field(factory=Normal)
    reply: Any = NO_REPLY


@attrs.frozen
class Continue:
    """From `init` or a handler of messages that want no answer: call `handle_continue(arg)` next (M5)."""

    arg: Any = None


@attrs.frozen
class ActorContext:
    """What an incarnation knows of itself.

    `kept` belongs to the child's place at its supervisor: it survives restarts and goes with the spec.
    """

    ref: Ref
    id: str
    incarnation: int
    kept: Kept
    registry: Registry
    supervisor: AnySupervisor

    @property
    def path(self) -> str:
        """Where it stands in the tree, as in `fleet/fixers/fixer`."""
        return self.ref.path


CONTEXT: Final[ContextVar[ActorContext]] = ContextVar("proctor.actor")


def current_actor() -> ActorContext:
    """The context of the child in whose task, or a task below it, this runs. Raises `RuntimeError` elsewhere."""
    try:
        return CONTEXT.get()
    except LookupError:
        raise RuntimeError("not inside a supervised child") from None


class Actor:
    """A child with a mailbox. Subclass it and write the hooks that are needed.

    A hook may return `Stop(...)` to end the actor, and each but `handle_call` may return `Continue(...)`.
    """

    _context: ActorContext
    _cell: Cell

    nursery: trio.Nursery
    """Tasks that belong to this incarnation: one that raises is a crash; cancelled before `terminate` runs."""

    background: trio.Nursery
    """The same, for tasks that `terminate` still needs: cancelled when it has returned."""

    async def init(self, *args: Any, **kwargs: Any) -> Any:
        """Set up, with the spec's `args`. Ready when it returns; an exception is a start failure.

        May return `Continue(arg)`, or `IGNORE` (S9): not to be started, and no error.
        """

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        """Answer a call: the returned value, `Reply(value)`, `Stop(reason, reply=value)`, or `NO_REPLY` now and
        `reply(from_, value)` later, from any task."""
        raise UnknownMessage(self.ref, "call", msg)

    async def handle_cast(self, msg: Any) -> Any:
        """Handle a message that wants no answer."""
        raise UnknownMessage(self.ref, "cast", msg)

    async def handle_stream(self, msg: Any, sink: Sink) -> Any:
        """Serve a stream. It ends when this returns, unless `sink.produce(fn, ...)` goes on in a task of its own,
        or `NO_REPLY` is returned and `sink.end()` comes later."""
        raise UnknownMessage(self.ref, "stream", msg)

    async def handle_info(self, msg: Any) -> Any:
        """Handle a message of the system lane: `send_info`, or the `Down` of an actor monitored by `monitor`."""
        self._cell.dead_letter(msg, "not handled")

    async def handle_continue(self, arg: Any) -> Any:
        """Go on after `Continue(arg)`, before any message."""

    async def terminate(self, reason: ExitReason) -> None:
        """Clean up, on a stop, a clean exit and a crash, within the spec's `shutdown` time; not on a kill (S46)."""

    @property
    def ref(self) -> Ref:
        """This incarnation."""
        return self._context.ref

    @property
    def id(self) -> str:
        """The id of its spec."""
        return self._context.id

    @property
    def incarnation(self) -> int:
        """1 at the first start, one more at each restart."""
        return self._context.incarnation

    @property
    def kept(self) -> Kept:
        """What survives a restart; dropped with the spec."""
        return self._context.kept

    @property
    def registry(self) -> Registry:
        """The names of its tree."""
        return self._context.registry

    @property
    def supervisor(self) -> AnySupervisor:
        """The supervisor it stands under."""
        return self._context.supervisor

    def send_info(self, msg: object) -> None:
        """Put `msg` into the own mailbox for `handle_info`, ahead of user messages; never waits.

        Dropped once the actor has ended.
        """
        if self._cell.mailbox is not None and self._cell.exit is None:
            self._cell.mailbox.put_system(Info(msg))

    def monitor(self, target: Address) -> OwnMonitor:
        """Watch `target`: its one `Down` comes to `handle_info`, after what it sent before (M26)."""
        return OwnMonitor(target, self._cell)

    def bind(self, context: ActorContext, cell: Cell, background: trio.Nursery) -> None:
        """Give the actor its identity. For the runtime."""
        self._context, self._cell, self.background = context, cell, background


class OwnMonitor:
    """An actor's watch on another; see `Actor.monitor`."""

    def __init__(self, target: Address, own: Cell) -> None:
        self._own = own
        self._target = target.find()
        self._notice: Info | None = None
        watch(self, target, self._target)

    def deliver(self, down: Down) -> None:
        """Queue the notice."""
        self._notice = Info(down)
        if self._own.mailbox is not None and self._own.exit is None:
            self._own.mailbox.put_in_order(self._notice)

    def close(self) -> None:
        """Stop watching; a `Down` that was not handled yet never is (M25)."""
        if self._target is not None:
            self._target.watchers.pop(self, None)
        if self._notice is not None and self._own.mailbox is not None:
            self._own.mailbox.withdraw(self._notice)


Ended: TypeAlias = ExitReason | Ignore | None


async def live(
    actor: Actor, args: tuple[Any, ...], mailbox: Mailbox[Message], ready: Callable[[], None]
) -> Ended:
    """Run an actor until it ends by itself: why, or `None` when its mailbox hands out nothing more."""
    try:
        async with trio.open_nursery() as nursery:
            actor.nursery = nursery
            ended = await _serve(actor, args, mailbox, ready)
            nursery.cancel_scope.cancel(reason="the actor ended")
            return ended
    except BaseExceptionGroup as group:
        raise alone(group) from None


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a nursery of ours wrapped: the one exception by itself, several as the group."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group


async def _serve(
    actor: Actor, args: tuple[Any, ...], mailbox: Mailbox[Message], ready: Callable[[], None]
) -> Ended:
    outcome = await actor.init(*args)
    if isinstance(outcome, Ignore):
        return outcome
    if isinstance(outcome, Stop):
        return outcome.reason
    ready()
    while True:
        while isinstance(outcome, Continue):
            outcome = await actor.handle_continue(outcome.arg)
        if isinstance(outcome, Stop):
            return outcome.reason
        message = await mailbox.take()
        if message is None:
            return None
        outcome = await _handle(actor, message)


async def _handle(actor: Actor, message: Message) -> Stop | Continue | None:
    if isinstance(message, Call):
        outcome = await actor.handle_call(message.msg, message)
        return _answered(message, outcome)
    if isinstance(message, Info):
        outcome = await actor.handle_info(message.msg)
    elif isinstance(message, Cast):
        outcome = await actor.handle_cast(message.msg)
    else:
        assert isinstance(message, Sink)
        outcome = await _handle_stream(actor, message)
    return outcome if isinstance(outcome, Stop | Continue) else None


def _answered(call: Call, outcome: object) -> Stop | None:
    if outcome is NO_REPLY:
        return None
    if isinstance(outcome, Stop):
        if outcome.reply is not NO_REPLY:
            call.reply(outcome.reply)
        return outcome
    call.reply(outcome.value if isinstance(outcome, Reply) else outcome)
    return None


async def _handle_stream(actor: Actor, sink: Sink) -> Any:
    if sink.closed:
        return None
    sink.opened_in(actor.nursery)
    outcome = await sink.contain(actor.handle_stream, sink.msg, sink)
    if outcome is not NO_REPLY and not sink.producing:
        sink.end()
    return outcome
