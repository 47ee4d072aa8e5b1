"""What waits for one actor: a bounded user lane and a system lane that takes no room.

Guarantees: user messages are handed out first in, first out (M1), at most `size` of them wait (M4). System
items are looked at before user messages, and can be put whatever the state of the user lane (M6). A notice put
with `put_in_order` takes no room but comes after the user messages that were queued before it (M26). Once
refusing, `take` hands out what is queued and then `None` (M8); once halted, `None` at once (M7).

One task takes. It passes through a checkpoint at least every `BURST` items, so a full mailbox starves nobody.

The user lane is a memory channel, used by its nowait halves; only a sender without room waits in it. The taker
sleeps outside the channel, so that one wake-up serves all lanes and an item costs no second task switch.

Not here: what a message means, and what becomes of those refused or left over (`cell`).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Literal, TypeAlias, TypeVar

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from proctor.runtime.spec import Overflow

Item = TypeVar("Item")

BURST = 64

_Closing: TypeAlias = Literal["open", "refusing", "halted"]


class Full(Exception):
    """The user lane is full and the policy does not wait."""


class Mailbox(Generic[Item]):
    """The queue of one actor."""

    def __init__(self, size: int, overflow: Overflow) -> None:
        self._send, self._receive = trio.open_memory_channel[Item](size)
        self._size = size
        self._overflow: Overflow = overflow
        self._system: deque[Item] = deque()
        self._in_order: deque[tuple[int, Item]] = deque()
        self._put = self._taken = self._burst = 0
        self._closing: _Closing = "open"
        self._sleeper: trio.lowlevel.Task | None = None

    def offer(self, item: Item) -> bool:
        """Queue a user message if there is room; False if there is none or no more are taken."""
        if self._closing != "open":
            return False
        try:
            self._send.send_nowait(item)
        except trio.WouldBlock:
            return False
        self._put += 1
        if self._sleeper is not None:
            self._wake()
        return True

    def waits(self) -> bool:
        """Whether there is no room now and a sender is to wait for it."""
        return self._buffered() == self._size and self._overflow == "block" and self._closing == "open"

    async def put(self, item: Item) -> None:
        """Queue a user message when there is room. Raises `trio.BrokenResourceError` when the actor ends first."""
        self._put += 1
        sent = False
        try:
            await self._send.send(item)
            sent = True
        finally:
            self._put -= not sent

    def displace(self, item: Item) -> Item:
        """Drop a message for one that `offer` refused, by the policy; returns the one dropped.

        Raises `Full` under `raise` and `block`, `trio.BrokenResourceError` when no more are taken.
        """
        if self._closing != "open":
            raise trio.BrokenResourceError
        if self._overflow == "drop_newest":
            return item
        if self._overflow != "drop_oldest":
            raise Full
        oldest = self._receive.receive_nowait()
        self._taken += 1
        self.offer(item)
        return oldest

    def put_system(self, item: Item) -> None:
        """Queue a system item, ahead of all user messages."""
        self._system.append(item)
        self._wake()

    def put_in_order(self, item: Item) -> None:
        """Queue a notice behind the user messages already queued; it takes no room."""
        self._in_order.append((self._taken + self._buffered(), item))
        self._wake()

    def withdraw(self, item: Item) -> None:
        """Take back a notice put in order, if it is still queued."""
        self._in_order = deque(entry for entry in self._in_order if entry[1] is not item)

    def refuse(self) -> None:
        """Take no more messages; those queued are still handed out."""
        self._close("refusing")

    def halt(self) -> None:
        """Hand out nothing more."""
        self._close("halted")

    def _close(self, closing: _Closing) -> None:
        if self._closing != "halted":
            self._closing = closing
        self._wake()

    def _buffered(self) -> int:
        return self._receive.statistics().current_buffer_used

    def _wake(self) -> None:
        task, self._sleeper = self._sleeper, None
        if task is not None:
            reschedule(task)

    def _abort(self, _raise_cancel: object) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED

    async def take(self) -> Item | None:
        """The next item, or `None` when there will be none. Cancelled, it has taken nothing."""
        while True:
            if self._closing != "open" and (self._closing == "halted" or self._is_empty()):
                return None
            if self._burst >= BURST:
                await self._rest()
            elif (self._system or self._in_order) and (notice := self._next_notice()) is not None:
                return notice
            elif self._put > self._taken:
                message = self._next_message()
                if message is not None:
                    return message
                await self._rest()
            else:
                self._burst, self._sleeper = 0, current_task()
                await wait_task_rescheduled(self._abort)

    async def _rest(self) -> None:
        self._burst = 0
        await trio.lowlevel.checkpoint()

    def _is_empty(self) -> bool:
        return not (self._system or self._in_order or self._buffered())

    def _next_notice(self) -> Item | None:
        self._burst += 1
        if self._system:
            return self._system.popleft()
        if self._in_order[0][0] > self._taken and self._buffered():
            return None
        return self._in_order.popleft()[1]

    def _next_message(self) -> Item | None:
        try:
            item = self._receive.receive_nowait()
        except trio.WouldBlock:  # a sender that waited for room was cancelled and has not run yet
            return None
        self._taken += 1
        self._burst += 1
        return item

    def close(self) -> list[Item]:
        """Take no more and release who waits for room; returns what was left, in order of handling."""
        self._closing = "halted"
        left = [*self._system, *self._drained(), *(item for _, item in self._in_order)]
        self._system.clear()
        self._in_order.clear()
        self._receive.close()
        self._send.close()
        return left

    def _drained(self) -> list[Item]:
        left: list[Item] = []
        while self._buffered():
            left.append(self._receive.receive_nowait())
        return left
