"""The base class `Actor`, its hooks, and their possible results.

Guarantees: one hook runs at a time. The tasks of `self.nursery` have ended before `terminate` runs, those of
`self.background` live through it.

Not here: the loop that calls the hooks (`actor_loop`).
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

import attrs
import trio

from proctor.runtime.errors import UnknownMessage
from proctor.runtime.exits import ExitReason, Normal
from proctor.runtime.messaging import links
from proctor.runtime.messaging.endpoint import Endpoint
from proctor.runtime.messaging.messages import Call, Info
from proctor.runtime.messaging.monitors import watch
from proctor.runtime.messaging.notices import Down
from proctor.runtime.messaging.persistent_state import Kept
from proctor.runtime.messaging.refs import Address, Ref
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.messaging.streams import Sink
from proctor.runtime.messaging.supervisor_handle import SupervisorHandle
from proctor.runtime.task_status import ChildStatus


class Ignore(Enum):
    """The type of `IGNORE`."""

    IGNORE = "ignore"


class NoReply(Enum):
    """The type of `NO_REPLY`."""

    NO_REPLY = "no reply"


class Idle(Enum):
    """The type of `IDLE`."""

    IDLE = "idle"


IGNORE: Final = Ignore.IGNORE
NO_REPLY: Final = NoReply.NO_REPLY

IDLE: Final = Idle.IDLE
"""What `handle_info` gets when nothing has arrived for `idle_timeout` seconds."""


@attrs.frozen
class Reply:
    """From `handle_call`: the answer, spelled out. A plain returned value means the same."""

    value: Any


@attrs.frozen
class Stop:
    """From any hook but `terminate`: end with `reason`; from `handle_call`, `reply` is the answer.

    As in gen_server, `terminate` comes first: the caller gets the reply when the actor has ended, also if `terminate`
    raised. If it is killed before, the caller gets `ActorExited`.
    """

    reason: ExitReason = attrs.field(factory=Normal)
    reply: Any = NO_REPLY


@attrs.frozen
class Continue:
    """From `init` or a handler of messages that want no answer: call `handle_continue(arg)` next."""

    arg: Any = None


@attrs.frozen
class ActorContext:
    """The identity of an incarnation, for itself.

    `kept` belongs to the child's place at its supervisor: it survives restarts and goes with the spec.
    """

    ref: Ref
    id: str
    incarnation: int
    kept: Kept
    registry: Registry
    supervisor: SupervisorHandle
    _status: ChildStatus

    @property
    def path(self) -> str:
        """Its place in the tree, as in `fleet/fixers/fixer`."""
        return self.ref.path

    def beat(self) -> None:
        """Alive, for the next `watchdog` seconds."""
        self._status.beat()

    def ready(self, is_ready: bool = True) -> None:
        """Mark the child as ready or not: see `Actor.ready`."""
        self._status.ready(is_ready)

    def extend_start(self, seconds: float) -> None:
        """While starting: `start_timeout` does not end before so many seconds from now."""
        self._status.extend(seconds)


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
    _endpoint: Endpoint

    idle_timeout: float | None = None
    """Seconds without a message after which `handle_info(IDLE)` is called, and again after as many more.

    Counted from the end of the last hook; any message starts it anew. May be set, or unset, by any hook.
    """

    trap_exits: bool = False
    """Whether the end of one linked comes to `handle_info` as `ExitSignal`, instead of ending this one."""

    nursery: trio.Nursery
    """Tasks that belong to this incarnation: one that raises is a crash; cancelled before `terminate` runs."""

    background: trio.Nursery
    """The same, for tasks that `terminate` still needs: cancelled when it has returned."""

    async def init(self, *args: Any, **kwargs: Any) -> Any:
        """Set up, with the spec's `args`. Ready when it returns; an exception is a start failure.

        May return `Continue(arg)`, or `IGNORE`: not to be started, and no error.
        """

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        """Answer a call: the returned value, `Reply(value)`, `Stop(reason, reply=value)`, or `NO_REPLY` now and
        `reply(from_, value)` later, from any task."""
        raise UnknownMessage(self.ref, "call", msg)

    async def handle_cast(self, msg: Any) -> Any:
        """Handle a message that wants no answer."""
        raise UnknownMessage(self.ref, "cast", msg)

    async def handle_stream(self, msg: Any, sink: Sink) -> Any:
        """Serve a stream; cancelled when the consumer closes it.

        The stream ends when this returns, unless `sink.produce(fn, ...)` goes on in a task of its own, or `NO_REPLY`
        is returned and `sink.end()` comes later.
        """
        raise UnknownMessage(self.ref, "stream", msg)

    async def handle_info(self, msg: Any) -> Any:
        """Handle what is no user message: `send_info`, the `Down` of an actor monitored by `monitor`, the `ExitSignal`
        of one linked, `IDLE`."""
        if msg is not IDLE:
            self._endpoint.dead_letter(msg, "not handled")

    async def handle_continue(self, arg: Any) -> Any:
        """Go on after `Continue(arg)`, before any message."""

    async def terminate(self, reason: ExitReason) -> None:
        """Clean up, on a stop, a clean exit and a crash, within the spec's `shutdown` time; not on a kill."""

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
        """The state that survives a restart; dropped with the spec."""
        return self._context.kept

    @property
    def registry(self) -> Registry:
        """The names of its tree."""
        return self._context.registry

    @property
    def supervisor(self) -> SupervisorHandle:
        """The supervisor it stands under."""
        return self._context.supervisor

    def extend_start(self, seconds: float) -> None:
        """In `init`: the spec's `start_timeout` does not end before so many seconds from now."""
        self._context.extend_start(seconds)

    def beat(self) -> None:
        """Alive, for the next `watchdog` seconds of the spec: one attribute is written."""
        self._context.beat()

    def ready(self, is_ready: bool = True) -> None:
        """Mark this incarnation as ready or not: shown by `tree()` and emitted as an event, nothing else.

        Raises `RuntimeError` in `init`: it is ready when that returns.
        """
        self._context.ready(is_ready)

    def send_info(self, msg: object) -> None:
        """Put `msg` into the own mailbox for `handle_info`, ahead of user messages; never waits.

        Dropped once the actor has ended.
        """
        if self._endpoint.mailbox is not None and self._endpoint.exit is None:
            self._endpoint.mailbox.put_system(Info(msg))

    def monitor(self, target: Address) -> OwnMonitor:
        """Watch `target`: its one `Down` comes to `handle_info`, after what it sent before."""
        return OwnMonitor(target, self._endpoint)

    def link(self, target: Address) -> None:
        """Link with the incarnation that stands at `target` now; see `links` for what follows."""
        links.link(self.ref, target)

    def unlink(self, target: Address) -> None:
        """Take the link back. An `ExitSignal` that is queued already still comes."""
        links.unlink(self.ref, target)

    def bind(self, context: ActorContext, endpoint: Endpoint, background: trio.Nursery) -> None:
        """Give the actor its identity. For the runtime."""
        self._context, self._endpoint, self.background = context, endpoint, background


class OwnMonitor:
    """An actor's watch on another; see `Actor.monitor`. It ends with the actor."""

    def __init__(self, target: Address, own: Endpoint) -> None:
        self._own = own
        self._target = target.find()
        self._notice: Info | None = None
        self._leaving = _Leaving(self)
        # Before `watch`, which delivers at once where the target is dead, and `deliver` takes this out again.
        own.watchers[self._leaving] = None
        watch(self, target, self._target)

    def deliver(self, down: Down) -> None:
        """Queue the notice."""
        self._own.watchers.pop(self._leaving, None)
        self._notice = Info(down)
        if self._own.mailbox is not None and self._own.exit is None:
            self._own.mailbox.put_in_order(self._notice)

    def close(self) -> None:
        """Stop watching; a `Down` that was not handled yet never is."""
        self._own.watchers.pop(self._leaving, None)
        if self._target is not None:
            self._target.watchers.pop(self, None)
        if self._notice is not None and self._own.mailbox is not None:
            self._own.mailbox.withdraw(self._notice)


class _Leaving:
    """Closes an actor's watch when the actor ends, or one that lives long would collect those of all who watched it."""

    def __init__(self, monitor: OwnMonitor) -> None:
        self._monitor = monitor

    def deliver(self, down: Down) -> None:
        self._monitor.close()
