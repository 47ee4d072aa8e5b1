"""The mailbox of one actor: a bounded queue for messages of users and an unbounded one for system messages.

Guarantees: user messages are handed out first in, first out, at most `size` of them wait. System
items are looked at before user messages, and can be put whatever the state of the user lane. A notice put
with `put_in_order` takes no room but comes after the user messages that were queued before it. Once
refusing, what is queued is handed out and then `None`; once halted, `None` at once. A sender without
room waits behind those who waited before; cancelled, it has sent nothing.

One task takes. It passes through a checkpoint at least every `BURST` items, so a full mailbox starves no other task.

Invariants: `_room` is what may still be queued, 0 when no more are taken. As long as a sender waits, there is none:
who takes a message lets the first sender's in, in the same step. `_aside` says that there may be more to look at
than user messages: system items, notices, waiting senders, the end. A notice stands in a lane of its own, with the
number of user messages that go before it, counted from where `_taken` was 0; as long as there are notices, each user
message taken is counted there. So queueing, handing out and withdrawing one cost the same however many there are. The
lanes are made when first used, because most actors of a large tree sleep.

Not here: what a message means, and what becomes of those refused or left over (`endpoint`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Iterable, Iterator
from itertools import islice
from typing import Generic, Literal, TypeAlias, TypeVar

import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from proctor.runtime.spec import Overflow

Item = TypeVar("Item")

BURST = 256

_Closing: TypeAlias = Literal["open", "refusing", "halted"]


class Full(Exception):
    """The user lane is full and the policy does not wait."""


class Mailbox(Generic[Item]):
    """The queue of one actor. `burst` counts what was taken since the taker last slept, or let others have a turn."""

    __slots__ = (
        "_aside",
        "_closing",
        "_notices",
        "_overflow",
        "_room",
        "_senders",
        "_sleeper",
        "_system",
        "_taken",
        "_user",
        "burst",
    )

    def __init__(self, size: int, overflow: Overflow) -> None:
        self._room = size
        self._overflow: Overflow = overflow
        self._user: deque[Item] | None = None
        self._system: deque[Item] | None = None
        self._notices: OrderedDict[int, tuple[int, Item]] | None = None
        self._taken = 0
        self._senders: OrderedDict[Task, Item] | None = None
        self.burst = 0
        self._aside = False
        self._closing: _Closing = "open"
        self._sleeper: Task | None = None

    def offer(self, item: Item) -> bool:
        """Queue a user message if there is room; False if there is none or no more are taken."""
        if self._room <= 0:
            return False
        self._room -= 1
        if self._user is None:
            self._user = deque()
        self._user.append(item)
        # `_wake` written out: a frame here is a tenth of a cast
        task = self._sleeper
        if task is not None:
            self._sleeper = None
            reschedule(task)
        return True

    def take_back(self, item: Item) -> None:
        """Undo the `offer` of `item`, if that was the last thing queued; who was woken for it finds nothing."""
        # the taker may have run since: what it took cannot be undone
        if self._user and self._user[-1] is item:
            self._user.pop()
            self._make_room()

    def waits(self) -> bool:
        """Whether there is no room now and a sender is to wait for it."""
        return self._room <= 0 and self._overflow == "block" and self._closing == "open"

    # An interrupt before the sleep would leave a task in the line that does not sleep there.
    @trio.lowlevel.enable_ki_protection
    async def put(self, item: Item) -> None:
        """Queue a user message when there is room, where there is none now.

        Raises `trio.BrokenResourceError` when no more are taken before there is.
        """
        task = current_task()
        if self._senders is None:
            self._senders = OrderedDict()
        senders = self._senders
        senders[task] = item
        self._aside = True

        def give_up(_raise_cancel: object) -> Abort:
            # Cancelled, it has sent nothing: its message leaves the line with it.
            del senders[task]
            return Abort.SUCCEEDED

        await wait_task_rescheduled(give_up)
        # `_let_in` has removed it; `close` wakes all and removes none
        if senders.pop(task, None) is not None:
            raise trio.BrokenResourceError

    def displace(self, item: Item) -> Item:
        """Drop a message for one that `offer` refused, by the policy; returns the one dropped.

        Raises `Full` where the policy drops nothing, `trio.BrokenResourceError` when no more are taken.
        """
        if self._closing != "open":
            raise trio.BrokenResourceError
        if self._overflow == "drop_newest":
            return item
        if self._overflow != "drop_oldest":
            raise Full
        assert self._user is not None
        oldest = self._user.popleft()
        self._taken += 1
        self._user.append(item)
        return oldest

    def load(self) -> int:
        """The number of user messages that wait to be handled, those of senders without room included."""
        return len(self._user or ()) + len(self._senders or ())

    def first_queued(self, number: int) -> list[Item]:
        """At most so many of the user messages that wait to be handled, in order."""
        return list(islice(self._user or (), number))

    def drop_oldest(self) -> Item | None:
        """Take out the user message that was queued first, if there is one; its room is for others."""
        return self._take_oldest() if self._user else None

    def _take_oldest(self) -> Item:
        assert self._user
        oldest = self._user.popleft()
        self._taken += 1
        self._make_room()
        return oldest

    def put_system(self, item: Item) -> None:
        """Queue a system item, ahead of all user messages."""
        if self._system is None:
            self._system = deque()
        self._system.append(item)
        self._aside = True
        self._wake()

    def put_in_order(self, item: Item) -> None:
        """Queue a notice behind the user messages already queued; it takes no room."""
        if not self._notices:
            # no place refers to the count now, so it begins anew and stays a small number
            self._notices, self._taken = OrderedDict(), 0
        self._notices[id(item)] = (self._taken + len(self._user or ()), item)
        self._aside = True
        self._wake()

    def withdraw(self, item: Item) -> None:
        """Take back a notice put in order, if it is still queued."""
        if self._notices:
            self._notices.pop(id(item), None)

    def _is_turn_of_notice(self) -> bool:
        assert self._notices
        return not self._user or next(iter(self._notices.values()))[0] <= self._taken

    def preload(self, items: Iterable[Item]) -> list[Item]:
        """Queue what another mailbox left over, before anything else: what finds no room, because that one was larger.

        Those are the oldest under `drop_oldest`, else the newest: here no sender can wait.
        """
        refused = [item for item in items if not self.offer(item)]
        return [self.displace(item) for item in refused] if self._overflow == "drop_oldest" else refused

    def refuse(self) -> None:
        """Take no more messages; those queued are still handed out."""
        self._close("refusing")

    def halt(self) -> None:
        """Hand out nothing more."""
        self._close("halted")

    def _close(self, closing: _Closing) -> None:
        if self._closing != "halted":  # a drain that begins after a kill must not hand out again
            self._closing = closing
        self._room, self._aside = 0, True
        self._wake()

    def _wake(self) -> None:
        task, self._sleeper = self._sleeper, None
        if task is not None:
            reschedule(task)

    def is_waited_for(self) -> bool:
        """Whether the taker sleeps until something is put in."""
        return self._sleeper is not None

    @trio.lowlevel.enable_ki_protection
    def forget_sleeper(self) -> None:
        """No task sleeps here any more: the one that took from it has left."""
        self._sleeper = None

    def _abort(self, _raise_cancel: object) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED

    def take_nowait(self) -> Item | None:
        """The next item, or `None`: there is none at hand, or it is the turn of others."""
        if self.burst >= BURST:
            return None
        if self._aside:
            return self._take_with_care()
        if not self._user:
            return None
        # nothing aside: no sender waits for the room and no notice counts what is taken
        self.burst += 1
        self._room += 1
        return self._user.popleft()

    def _take_with_care(self) -> Item | None:
        if self._closing == "halted" or self.is_empty():
            return None
        self.burst += 1
        if self._system:
            item = self._system.popleft()
        elif self._notices and self._is_turn_of_notice():
            item = self._notices.popitem(last=False)[1][1]
        else:
            item = self._take_oldest()
        self._aside = bool(self._system or self._notices or self._senders) or self._closing != "open"
        return item

    def _make_room(self) -> None:
        # the room goes to the first in line, never back to `offer`: a later sender would overtake it
        if self._senders:
            self._let_in(self._senders)
        elif self._closing == "open":
            self._room += 1

    def _let_in(self, senders: OrderedDict[Task, Item]) -> None:
        assert self._user is not None
        task, item = senders.popitem(last=False)
        self._user.append(item)
        reschedule(task)

    async def take(self) -> Item | None:
        """The next item, or `None` when there will be none. Cancelled, it has taken nothing."""
        while (item := self.take_nowait()) is None and not self.is_over():
            await self.pause()
        return item

    def pause(self) -> Awaitable[object]:
        """An awaitable for when `take_nowait` gave nothing: news, or that others had their turn."""
        if self.burst >= BURST:
            self.burst = 1
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105  # awaited by the caller, one frame nearer
        self.burst, self._sleeper = 0, current_task()
        return wait_task_rescheduled(self._abort)  # noqa: ASYNC105  # awaited by the caller, one frame nearer

    def is_over(self) -> bool:
        """Whether `take_nowait` gave nothing because there will be nothing."""
        return self._closing == "halted" or (self._closing == "refusing" and self.is_empty())

    def is_empty(self) -> bool:
        """Whether nothing waits to be handed out."""
        return not (self._system or self._user or self._notices)

    def close(self) -> list[Item]:
        """Take no more and release who waits for room; returns what was left, in order of handling."""
        self._closing, self._room = "halted", 0
        left = [*(self._system or ()), *self._in_order()]
        self._user = self._system = self._notices = None
        # they stay in `_senders`: by that each knows that it was refused
        for task in self._senders or ():
            reschedule(task)
        return left

    def _in_order(self) -> Iterator[Item]:
        user = self._user or deque[Item]()
        while user or self._notices:
            if self._notices and self._is_turn_of_notice():
                yield self._notices.popitem(last=False)[1][1]
            else:
                yield user.popleft()
                self._taken += 1
