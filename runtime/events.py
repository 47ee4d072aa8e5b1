"""Numbered events of one tree, and the subscriptions to them.

Guarantees: one root numbers its events 1, 2, 3 … in the order in which they happened, and emits each after
the state it describes is visible. Emitting never waits and never fails: a subscription holds a bounded
buffer, drops its oldest event when full and counts that. A subscription sees what was emitted after it
was opened, and ends, after what it still holds, when the tree has ended.

Not here: keeping events without a subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar, get_args

import attrs
import trio

from proctor.runtime.addresses import AnyAddress, AnyRef
from proctor.runtime.exits import ExitReason

EventKind: TypeAlias = Literal[
    "child_started",
    "child_exited",
    "child_terminated",
    "child_restarting",
    "start_error",
    "shutdown_error",
    "max_restarts",
    "child_overdue",
    "child_unresponsive",
    "child_ready",
    "supervisor_started",
    "supervisor_stopped",
    "dead_letter",
    "late_reply",
    "deadlock",
    "kept_error",
    "run_skipped",
    "child_orphaned",
    "child_adopted",
]


@attrs.frozen(kw_only=True)
class SupervisorEvent:
    """The fields of every event: its number in the tree, the time in seconds of the run's clock, and whose it is.

    `path` names the child or supervisor, as in `fleet/fixers/fixer`.
    """

    kind: ClassVar[EventKind]

    path: str
    seq: int = 0
    time: float = 0.0


@attrs.frozen(kw_only=True)
class ChildStarted(SupervisorEvent):
    """A child is ready; `incarnation` counts from 1."""

    kind = "child_started"
    ref: AnyRef
    incarnation: int


@attrs.frozen(kw_only=True)
class ChildExited(SupervisorEvent):
    """A child that had been ready ended, in any way, on request or not."""

    kind = "child_exited"
    ref: AnyRef
    reason: ExitReason


@attrs.frozen(kw_only=True)
class ChildTerminated(SupervisorEvent):
    """A child ended by itself, abnormally or though permanent."""

    kind = "child_terminated"
    ref: AnyRef
    reason: ExitReason


@attrs.frozen(kw_only=True)
class ChildRestarting(SupervisorEvent):
    """A restart was decided: the `attempt`-th in a row, put off for `delay` seconds."""

    kind = "child_restarting"
    attempt: int
    delay: float
    reason: ExitReason


@attrs.frozen(kw_only=True)
class StartFailed(SupervisorEvent):
    """A child could not start."""

    kind = "start_error"
    reason: ExitReason


@attrs.frozen(kw_only=True)
class ShutdownFailed(SupervisorEvent):
    """A child that was asked to stop ended with another reason than asked for."""

    kind = "shutdown_error"
    ref: AnyRef
    reason: ExitReason


@attrs.frozen(kw_only=True)
class MaxRestarts(SupervisorEvent):
    """A supervisor, `path`, gave up because of its child `id`; `limit` says what was exceeded.

    `child_only`: the child alone was given up, by `give_up="child"`. It is down, its siblings go on.
    """

    kind = "max_restarts"
    id: str
    reason: ExitReason
    limit: str = ""
    child_only: bool = False


@attrs.frozen(kw_only=True)
class ChildOverdue(SupervisorEvent):
    """A child whose end had begun did not end within its `grace`, in seconds, and is killed.

    `doing` says where its tasks were waiting, a line each, as in `root/a: terminate (shop.py:12) > upload (net.py:4)`.
    """

    kind = "child_overdue"
    ref: AnyRef
    grace: float
    doing: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ChildUnresponsive(SupervisorEvent):
    """A kill did not take; the supervisor goes on waiting. `doing` as for `ChildOverdue`."""

    kind = "child_unresponsive"
    ref: AnyRef
    doing: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ChildReady(SupervisorEvent):
    """A child that runs marked itself as ready again, or as not ready."""

    kind = "child_ready"
    ref: AnyRef
    ready: bool


@attrs.frozen(kw_only=True)
class SupervisorStarted(SupervisorEvent):
    """A supervisor and all of its first children are ready."""

    kind = "supervisor_started"


@attrs.frozen(kw_only=True)
class SupervisorStopped(SupervisorEvent):
    """A supervisor ended, after all of its children."""

    kind = "supervisor_stopped"
    reason: ExitReason


@attrs.frozen(kw_only=True)
class DeadLetter(SupervisorEvent):
    """A message that no actor will handle: `path` is its target, `why` says what stood in the way."""

    kind = "dead_letter"
    target: AnyAddress
    msg: object
    why: str


@attrs.frozen(kw_only=True)
class LateReply(SupervisorEvent):
    """An answer that came twice, or for a caller that is gone; for debugging."""

    kind = "late_reply"
    msg: object


@attrs.frozen(kw_only=True)
class Deadlock(SupervisorEvent):
    """An actor, `path`, calls one that waits for it: `cycle` has the paths of all that wait, each for the next.

    Reported when the call is made; what ends it is its time-out, or a stop.
    """

    kind = "deadlock"
    cycle: tuple[str, ...]


@attrs.frozen(kw_only=True)
class KeptFailed(SupervisorEvent):
    """A function that a child left with `kept` raised."""

    kind = "kept_error"
    error: BaseException


@attrs.frozen(kw_only=True)
class RunSkipped(SupervisorEvent):
    """A scheduled job did not run when it was `due`, because it was running still, or down; `next` is its next time.

    Both are on the clock of its schedule: the run's for `every`, seconds since 1970 for `at`. Times in between that
    were due as well are skipped too.
    """

    kind = "run_skipped"
    due: float
    next: float


@attrs.frozen(kw_only=True)
class ChildOrphaned(SupervisorEvent):
    """The supervisor of a child failed, and the child runs on until the supervisor is back."""

    kind = "child_orphaned"
    ref: AnyRef


@attrs.frozen(kw_only=True)
class ChildAdopted(SupervisorEvent):
    """The supervisor is back and holds the child again, which has run all the time."""

    kind = "child_adopted"
    ref: AnyRef


LateStop: TypeAlias = ChildOverdue | ChildUnresponsive
"""What did not end in time during a stop."""

Event = TypeVar("Event", bound=SupervisorEvent)


class Events:
    """The one source of a tree's events."""

    def __init__(self) -> None:
        self._seq = 0
        self._subscriptions: dict[Subscription, None] = {}
        self._closed = False

    @trio.lowlevel.enable_ki_protection
    def emit(self, event: SupervisorEvent) -> None:
        """Number `event`, stamp it, and hand it to every subscription. Never waits."""
        if self._subscriptions:
            # numbered even without a reader below, so that a later subscriber sees by the number that it came
            # late
            self.publish(self.number(event))
        else:
            self._seq += 1

    def number(self, event: Event) -> Event:
        """The same event with the next number and the time, to be published at once."""
        self._seq += 1
        return attrs.evolve(event, seq=self._seq, time=trio.current_time())

    def publish(self, numbered: SupervisorEvent) -> None:
        """Hand a numbered event to every subscription."""
        for subscription in self._subscriptions:
            subscription.offer(numbered)

    def subscribe(self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None) -> Subscription:
        """A subscription from now on that holds at most `buffer` events, of these `kinds` only; None: of all.

        Raises `ValueError` for a kind that does not exist.
        """
        subscription = Subscription(buffer, self._forget, _checked_kinds(kinds))
        # after the end of the tree a loop over this subscription must end too, not wait for ever
        if self._closed:
            subscription.end()
        else:
            self._subscriptions[subscription] = None
        return subscription

    def close(self) -> None:
        """No event follows: every subscription ends after what it holds."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.end()
        # each was ended above; held here they would keep their events for as long as the tree's handle lives
        self._subscriptions.clear()

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)


class Subscription:
    """An async iterator over events, and a context manager that ends it. For one consumer."""

    def __init__(
        self, buffer: int, forget: Callable[[Subscription], None], kinds: frozenset[str] | None = None
    ) -> None:
        self._kinds = kinds
        self._events: deque[SupervisorEvent] = deque(maxlen=buffer)
        self._forget = forget
        self._news = trio.Event()
        self._ended = False
        self.dropped = 0

    def offer(self, event: SupervisorEvent) -> None:
        """Take one event, at the cost of the oldest when full; one of another kind is passed over."""
        if self._kinds is not None and event.kind not in self._kinds:
            return
        if len(self._events) == self._events.maxlen:
            # counted before the append: a full deque with maxlen drops its oldest without a word
            self.dropped += 1
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        """No event follows."""
        self._ended = True
        self._news.set()

    def close(self) -> None:
        """Stop listening and forget what is held."""
        # first, so that nothing is offered to it any more while it is emptied
        self._forget(self)
        self._events.clear()
        self.end()

    def receive_nowait(self) -> SupervisorEvent:
        """The next event; raises `trio.WouldBlock` if there is none yet."""
        if not self._events:
            raise trio.WouldBlock
        return self._events.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SupervisorEvent:
        # a consumer that is always behind would otherwise never yield to the tasks that it reads about
        await trio.lowlevel.checkpoint()
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            # made and awaited without a checkpoint between: an event offered meanwhile would set the old one
            self._news = trio.Event()
            await self._news.wait()
        return self._events.popleft()


def _checked_kinds(kinds: Iterable[str] | None) -> frozenset[str] | None:
    if kinds is None:
        return None
    chosen = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    if unknown := chosen.difference(get_args(EventKind)):
        accepted = ", ".join(get_args(EventKind))
        raise ValueError(f"unknown event kind {', '.join(map(repr, sorted(unknown)))}; kinds: {accepted}")
    return chosen
