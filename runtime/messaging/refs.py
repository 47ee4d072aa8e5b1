"""How messages are sent: the verbs of every address, and `Ref`, the address of one incarnation.

Guarantees: a call ends in exactly one of an answer, `NoProc`, `ActorExited`, `CallTimeout`, `MailboxFull`,
`NoMailbox`, `CallingSelf`, the error the callee answered with, or the caller's own cancellation. Between the answer
and the return of `call` there is no checkpoint, so a deadline of the same tick cannot lose it (T15).

Not here: addresses that follow restarts (`names`), what is sent (`messages`), streams once opened (`streams`), answers that are waited for later (`requests`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import trio
from trio.lowlevel import (
    cancel_shielded_checkpoint,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
)

from proctor.runtime.errors import CallingSelf, CallTimeout, MailboxFull
from proctor.runtime.exits import ExitReason, Killed, NoProc, Normal
from proctor.runtime.messaging.endpoint import Cell, Control, Message, TreeServices
from proctor.runtime.messaging.mailbox import Mailbox
from proctor.runtime.messaging.messages import Call, Cast, cycle_of, seconds_left
from proctor.runtime.messaging.monitors import Monitor
from proctor.runtime.messaging.requests import Question, Request
from proctor.runtime.messaging.streams import Stream

CASTS = 1024
"""How many casts of one tree may be queued without a checkpoint: enough not to cost anything, few enough to be fair."""


class Address(ABC):
    """Something that messages can be sent to."""

    __slots__ = ()

    @abstractmethod
    def find(self) -> Cell | None:
        """The end point that stands for this address now."""

    def is_alive(self) -> bool:
        """Whether somebody is there now."""
        cell = self.find()
        return cell is not None and cell.exit is None

    @enable_ki_protection
    async def call(
        self,
        msg: object,
        timeout: float | None = 5.0,
        *,
        wait_for: float | None = None,
    ) -> Any:
        """Send `msg` and wait for the answer, at most `timeout` seconds; `None` waits without limit (M13).

        Made by an actor while it handles a call, it waits no longer than that call may (X14). `wait_for` first
        waits, at most so many seconds, for one that takes messages (X17); `timeout` counts from then on. Raises
        `NoProc`, `ActorExited`, `CallTimeout`, `CallingSelf`, `MailboxFull`, `NoMailbox`, or the error answered with.
        """
        task, cell = current_task(), self.find()
        if cell is None or not cell.accepting:
            cell = await self._await_cell(cell, msg, wait_for)
        if cell.task is task:
            await checkpoint()
            raise CallingSelf(self).carrying(msg)
        now = cell.system.now()
        limit = seconds_left(timeout, task, now, cell)
        call, unheld = Call(msg, cell, now + limit), limit
        if cell.mailbox is None or not cell.mailbox.offer(call):
            await _deliver_in_time(call, cell)
            unheld = math.inf
        if not call.settled:
            await call.asleep(task, unheld)
        if call.expired:
            raise CallTimeout(self, limit, cycle_of(task)).carrying(msg)
        return call.outcome()

    @enable_ki_protection
    async def _await_cell(self, stopping: Cell | None, msg: object, wait_for: float | None) -> Cell:
        await checkpoint()
        if stopping is not None and stopping.task is current_task():
            raise CallingSelf(self).carrying(msg)
        if wait_for is not None:
            with trio.move_on_after(seconds_left(wait_for, current_task(), trio.current_time())):
                await self.until_found()
        cell = self.find()
        if cell is None or not cell.accepting:
            raise self.missing().carrying(msg)
        return cell

    async def until_found(self) -> None:
        """Wait until there is one that takes messages; an incarnation that stopped doing so never does again."""
        raise self.missing()

    def missing(self) -> NoProc:
        """The error of there being none."""
        return NoProc(self)

    @enable_ki_protection
    def send_request(self, msg: object, timeout: float | None = None) -> Request:
        """Send `msg` and return at once; the `Request` waits for the answer (M21).

        It ends with `CallTimeout` after `timeout` seconds, at once with `NoProc` where nobody is, and with
        `MailboxFull` where there is no room, because a request does not wait to be sent.
        """
        now = trio.current_time()
        limit = seconds_left(timeout, current_task(), now)
        request, cell = Request(self, limit), self.find()
        if cell is None or not cell.accepting:
            request.settle(None, self.missing().carrying(msg))
        else:
            Question(msg, cell, now + limit, request).send(limit)
        return request

    @enable_ki_protection
    async def cast(self, msg: object) -> None:
        """Queue `msg` and return (M3). Waits only for room, under `overflow="block"`.

        Succeeds for a target that is gone: the message becomes a dead letter. Raises `MailboxFull` under
        `overflow="raise"`. A checkpoint wherever the message is not queued at once, and at least once in `CASTS`
        casts: cancelled, it has sent nothing.
        """
        cell = self.find()
        if cell is not None:
            system = cell.system
            system.casts += 1
            if system.casts >= CASTS:
                system.casts = 0
                await checkpoint()
                cell = self.find()
        cast = Cast(msg)
        if cell is None or (mailbox := cell.mailbox) is None or not mailbox.offer(cast):
            await self._cast_otherwise(cast, cell)

    async def _cast_otherwise(self, cast: Cast, cell: Cell | None) -> None:
        await checkpoint_if_cancelled()
        if cell is not None and cell.waits():
            await cell.deliver(cast)
            return
        try:
            if cell is None or not cell.accepting:
                self._dead_letter(cast.msg)
            else:
                cell.deliver_nowait(cast)
        finally:  # in a loop of casts that are refused or dropped nothing else would let others run
            await cancel_shielded_checkpoint()

    @enable_ki_protection
    def cast_nowait(self, msg: object) -> None:
        """`cast` that never waits: raises `MailboxFull` where that would wait for room."""
        cell = self.find()
        if cell is None or not cell.accepting:
            self._dead_letter(msg)
        else:
            cell.deliver_nowait(Cast(msg))

    @abstractmethod
    def _dead_letter(self, msg: object) -> None: ...

    def stream(self, msg: object, demand: int = 64) -> Stream:
        """Ask for a stream: an async context manager that iterates over items, at most `demand` ahead (M22)."""
        return Stream(self, msg, demand)

    def monitor(self) -> Monitor:
        """Watch the incarnation that stands here now; `await` it for its `Down` (M25)."""
        return Monitor(self, self.find())

    @enable_ki_protection
    def exit(self, reason: ExitReason) -> None:
        """Ask the incarnation to end with `reason`; `Normal` does nothing, `Killed` kills (M28)."""
        cell = self.find()
        if cell is None or cell.exit is not None or isinstance(reason, Normal):
            return
        if isinstance(reason, Killed):
            cell.control.kill()
        else:
            cell.control.stop(reason)

    def kill(self) -> None:
        """End the incarnation by force, without its `terminate`. Nothing happens if nobody is there."""
        self.exit(Killed())


class Ref(Address):
    """One incarnation, for ever: a restart makes another `Ref`."""

    __slots__ = ("cell",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def find(self) -> Cell | None:
        """The end point of the incarnation."""
        return self.cell

    @property
    def path(self) -> str:
        """Where it stands in the tree, as in `fleet/fixers/fixer`."""
        return self.cell.path

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` as long as it lives."""
        return self.cell.exit

    @property
    def info(self) -> object:
        """What its start said by `task_status.started(info)` (S8)."""
        return self.cell.info

    def hold(self, name: str) -> bool:
        """Note a registered name, to be given back at the end; False if that has come."""
        if self.cell.exit is None:
            self.cell.hold(name)
        return self.cell.exit is None

    def let_go(self, name: str) -> None:
        """Forget a name."""
        self.cell.let_go(name)

    def _dead_letter(self, msg: object) -> None:
        self.cell.dead_letter(msg, "no such actor")

    def __repr__(self) -> str:
        return f"<{self.cell.path} at {id(self.cell):#x}>"


async def _deliver_in_time(call: Call, cell: Cell) -> None:
    await checkpoint_if_cancelled()
    try:
        with trio.CancelScope(deadline=call.deadline) as scope:
            await cell.deliver(call)
    except MailboxFull:
        await cancel_shielded_checkpoint()
        raise
    if scope.cancelled_caught:
        call.expire()
    elif call.settled:  # refused: in a loop of such calls nothing else would let others run
        await cancel_shielded_checkpoint()
    else:
        call.hold_late()


def open_ref(path: str, system: TreeServices, control: Control, mailbox: Mailbox[Message] | None) -> Ref:
    """The `Ref` of a new incarnation, with its end point."""
    cell = Cell(path, system, control, mailbox)
    cell.ref = ref = Ref(cell)
    return ref
