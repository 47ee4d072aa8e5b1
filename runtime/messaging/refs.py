"""Sending messages: the methods of every address, and `Ref`, the address of one incarnation.

Guarantees: a call ends in exactly one of an answer, `NoProc`, `ActorExited`, `CallTimeout`, `MailboxFull`,
`NoMailbox`, `CallingSelf`, the error the callee answered with, or the caller's own cancellation. Between the answer
and the return of `call` there is no checkpoint, so a deadline of the same tick cannot lose it.

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
from proctor.runtime.messaging.endpoint import Control, Endpoint, Message, TreeServices
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
    def find(self) -> Endpoint | None:
        """The end point that stands for this address now."""

    def is_alive(self) -> bool:
        """Whether an actor is there now."""
        endpoint = self.find()
        return endpoint is not None and endpoint.exit is None

    @enable_ki_protection
    async def call(
        self,
        msg: object,
        timeout: float | None = 5.0,
        *,
        wait_for: float | None = None,
    ) -> Any:
        """Send `msg` and wait for the answer, at most `timeout` seconds; `None` waits without limit.

        Made by an actor while it handles a call, it waits no longer than that call may. `wait_for` first
        waits, at most so many seconds, for one that takes messages; `timeout` counts from then on. Raises
        `NoProc`, `ActorExited`, `CallTimeout`, `CallingSelf`, `MailboxFull`, `NoMailbox`, or the error answered with.
        """
        task, endpoint = current_task(), self.find()
        if endpoint is None or not endpoint.accepting:
            endpoint = await self._await_cell(endpoint, msg, wait_for)
        if endpoint.task is task:
            await checkpoint()  # an actor that catches this in a loop must let others run
            raise CallingSelf(self).carrying(msg)
        now = endpoint.system.now()
        limit = seconds_left(timeout, task, now, endpoint)
        call, unheld = Call(msg, endpoint, now + limit), limit
        if endpoint.mailbox is None or not endpoint.mailbox.offer(call):
            await _deliver_in_time(call, endpoint)
            unheld = (
                math.inf
            )  # its deadline is held by now, since it may have passed while it waited for room
        if not call.settled:
            await call.asleep(task, unheld)
        if call.expired:
            raise CallTimeout(self, limit, cycle_of(task)).carrying(msg)
        return call.outcome()

    @enable_ki_protection
    async def _await_cell(self, stopping: Endpoint | None, msg: object, wait_for: float | None) -> Endpoint:
        # A call that fails at once is a checkpoint all the same, or a loop of retries would hold up the run.
        await checkpoint()
        if stopping is not None and stopping.task is current_task():
            raise CallingSelf(self).carrying(msg)
        if wait_for is not None:
            with trio.move_on_after(seconds_left(wait_for, current_task(), trio.current_time())):
                await self.until_found()
        # Looked up again: the time may have run out, or another incarnation stands there now.
        endpoint = self.find()
        if endpoint is None or not endpoint.accepting:
            raise self.missing().carrying(msg)
        return endpoint

    async def until_found(self) -> None:
        """Wait until there is one that takes messages; an incarnation that stopped doing so never does again."""
        raise self.missing()

    def missing(self) -> NoProc:
        """The error of there being none."""
        return NoProc(self)

    @enable_ki_protection
    def send_request(self, msg: object, timeout: float | None = None) -> Request:
        """Send `msg` and return at once; the `Request` waits for the answer.

        It ends with `CallTimeout` after `timeout` seconds, at once with `NoProc` where no actor is, and with
        `MailboxFull` where there is no room, because a request does not wait to be sent.
        """
        now = trio.current_time()
        limit = seconds_left(timeout, current_task(), now)
        request, endpoint = Request(self, limit), self.find()
        if endpoint is None or not endpoint.accepting:
            request.settle(None, self.missing().carrying(msg))
        else:
            Question(msg, endpoint, now + limit, request).send(limit)
        return request

    @enable_ki_protection
    async def cast(self, msg: object) -> None:
        """Queue `msg` and return. Waits only for room, under `overflow="block"`.

        Succeeds for a target that has ended: the message becomes a dead letter. Raises `MailboxFull` under
        `overflow="raise"`. A checkpoint wherever the message is not queued at once, and at least once in `CASTS`
        casts: cancelled, it has sent nothing.
        """
        endpoint = self.find()
        if endpoint is not None:
            system = endpoint.system
            system.casts += 1
            if system.casts >= CASTS:
                system.casts = 0
                await checkpoint()
                endpoint = self.find()  # meanwhile another may stand there
        cast = Cast(msg)
        if endpoint is None or (mailbox := endpoint.mailbox) is None or not mailbox.offer(cast):
            await self._cast_otherwise(cast, endpoint)

    async def _cast_otherwise(self, cast: Cast, endpoint: Endpoint | None) -> None:
        # Cancelled, it has sent nothing; from here on the message is on its way.
        await checkpoint_if_cancelled()
        if endpoint is not None and endpoint.waits():
            await endpoint.deliver(cast)
            return
        try:
            if endpoint is None or not endpoint.accepting:
                self._dead_letter(cast.msg)
            else:
                endpoint.deliver_nowait(cast)
        finally:  # in a loop of casts that are refused or dropped nothing else would let others run
            # Shielded: the message may be queued by now, and a cancellation would report it as not sent.
            await cancel_shielded_checkpoint()

    @enable_ki_protection
    def cast_nowait(self, msg: object) -> None:
        """`cast` that never waits: raises `MailboxFull` where that would wait for room."""
        endpoint = self.find()
        if endpoint is None or not endpoint.accepting:
            self._dead_letter(msg)
        else:
            endpoint.deliver_nowait(Cast(msg))

    @abstractmethod
    def _dead_letter(self, msg: object) -> None: ...

    def stream(self, msg: object, demand: int = 64) -> Stream:
        """Ask for a stream: an async context manager that iterates over items, at most `demand` ahead."""
        return Stream(self, msg, demand)

    def monitor(self) -> Monitor:
        """Watch the incarnation that stands here now; `await` it for its `Down`."""
        return Monitor(self, self.find())

    @enable_ki_protection
    def exit(self, reason: ExitReason) -> None:
        """Ask the incarnation to end with `reason`; `Normal` does nothing, `Killed` kills."""
        endpoint = self.find()
        if endpoint is None or endpoint.exit is not None or isinstance(reason, Normal):
            return
        if isinstance(reason, Killed):
            endpoint.control.kill()
        else:
            endpoint.control.stop(reason)

    def kill(self) -> None:
        """End the incarnation by force, without its `terminate`. Nothing happens if no actor is there."""
        self.exit(Killed())


class Ref(Address):
    """The address of one incarnation; a restart makes another `Ref`."""

    __slots__ = ("endpoint",)

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def find(self) -> Endpoint | None:
        """The end point of the incarnation."""
        return self.endpoint

    @property
    def path(self) -> str:
        """Its place in the tree, as in `fleet/fixers/fixer`."""
        return self.endpoint.path

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` as long as it lives."""
        return self.endpoint.exit

    @property
    def info(self) -> object:
        """The value that its start gave to `task_status.started(info)`."""
        return self.endpoint.info

    def hold(self, name: str) -> bool:
        """Note a registered name, to be given back at the end; False if that has come."""
        if self.endpoint.exit is None:
            self.endpoint.hold(name)
        return self.endpoint.exit is None

    def let_go(self, name: str) -> None:
        """Forget a name."""
        self.endpoint.let_go(name)

    def _dead_letter(self, msg: object) -> None:
        self.endpoint.dead_letter(msg, "no such actor")

    def __repr__(self) -> str:
        return f"<{self.endpoint.path} at {id(self.endpoint):#x}>"


async def _deliver_in_time(call: Call, endpoint: Endpoint) -> None:
    # Before anything is queued: a cancelled call has asked nothing.
    await checkpoint_if_cancelled()
    try:
        with trio.CancelScope(deadline=call.deadline) as scope:
            await endpoint.deliver(call)
    except MailboxFull:
        # Others run, but no cancellation is taken: it would hide the `MailboxFull`.
        await cancel_shielded_checkpoint()
        raise
    if scope.cancelled_caught:
        call.expire()
    elif call.settled:  # refused: in a loop of such calls nothing else would let others run
        # Shielded: the call has its answer, which a cancellation must not replace.
        await cancel_shielded_checkpoint()
    else:
        call.hold_late()


def open_ref(path: str, system: TreeServices, control: Control, mailbox: Mailbox[Message] | None) -> Ref:
    """The `Ref` of a new incarnation, with its end point."""
    endpoint = Endpoint(path, system, control, mailbox)
    endpoint.ref = ref = Ref(endpoint)
    return ref
