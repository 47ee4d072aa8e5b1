"""Questions whose answers are waited for later: one by one, or several in the order in which they are answered.

Guarantees: a request ends in exactly one of an answer, `NoProc`, `ActorExited`, `CallTimeout`, `MailboxFull`,
`NoMailbox` or the error answered with, and keeps it; or it is abandoned, and what comes later is dropped.
A wait that runs out changes nothing. An answer that has come is never lost to a deadline of the same tick.

A request is never waited with to be sent: a full mailbox ends it at once with `MailboxFull`, under
`overflow="block"` too. OTP's send cannot fail, because its mailbox has no end; where there is one, who goes on at
once needs an error, or the messages would wait without bound on the sender's side.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Self

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, current_task

from proctor.runtime.addresses import AnyAddress
from proctor.runtime.errors import CallingSelf, CallTimeout, MailboxFull
from proctor.runtime.messaging.deadlines import until
from proctor.runtime.messaging.endpoint import Endpoint
from proctor.runtime.messaging.messages import Call


class Request:
    """A question under way, made by `send_request`. `target` is who was asked."""

    def __init__(self, target: AnyAddress, timeout: float) -> None:
        self.target = target
        self.settled = self.abandoned = False
        self._timeout = timeout
        self._call: Call | None = None
        self._answer: object = None
        self._error: BaseException | None = None
        self._notified = trio.Event()
        self._collection: Requests | None = None

    async def wait(self, timeout: float | None = None) -> Any:
        """The answer, waited for at most `timeout` seconds, any number of times.

        Raises `CallTimeout` without one, and the request stays open; `CallingSelf` where that would never end;
        `trio.ClosedResourceError` when it was abandoned; else what the request ended with.
        """
        if self.settled and self._error is not None:
            await checkpoint()  # one that failed at once has waited nowhere, and may be repeated in a loop
        # An answer at hand costs no task switch, but a cancelled caller gets none.
        await checkpoint_if_cancelled()
        if not self.settled and self._call is not None and self._call.is_for(current_task()):
            raise CallingSelf(self.target)
        with trio.CancelScope(deadline=until(timeout)):
            await self._wait()
        if self.abandoned:
            raise trio.ClosedResourceError
        if not self.settled:
            raise self._timed_out(timeout or 0.0)
        return self.result()

    async def _wait(self) -> None:
        if not self.settled and not self.abandoned:
            await self._notified.wait()

    async def receive(self, timeout: float | None = None) -> Any:
        """`wait`, for the last time: without an answer the request is abandoned."""
        try:
            return await self.wait(timeout)
        finally:
            self.abandon()

    def result(self) -> Any:
        """Its result, returned or raised. Raises `trio.WouldBlock` before."""
        if not self.settled:
            raise trio.WouldBlock
        if self._error is not None:
            raise self._error
        return self._answer

    def abandon(self) -> None:
        """Stop waiting for the answer; nothing happens if there is one."""
        if self.settled or self.abandoned:
            return
        self.abandoned = True
        if self._call is not None:
            self._call.give_up()
        self._notify()

    def opened(self, call: Call) -> None:
        """It is sent as `call`. For the runtime."""
        self._call = call

    def settle(self, answer: object, error: BaseException | None, *, expired: bool = False) -> None:
        """It has ended. For the runtime."""
        self.settled = True
        self._answer = answer
        # made here, in the step of its end, so that each wait raises the same error
        self._error = self._timed_out(self._timeout) if expired else error
        self._notify()

    def _timed_out(self, timeout: float) -> CallTimeout:
        return CallTimeout(self.target, timeout).carrying(None if self._call is None else self._call.msg)

    def _notify(self) -> None:
        self._notified.set()
        if self._collection is not None:
            self._collection.on_settled(self)

    def join(self, collection: Requests) -> None:
        """`collection` is notified of its end. For `Requests.add`."""
        if self._collection is not None or self.abandoned:
            raise ValueError("a request can be added to one collection only, and not after it was abandoned")
        self._collection = collection


class Question(Call):
    """A call whose answer goes to a `Request` instead of a task that sleeps."""

    __slots__ = ("_request",)

    def __init__(self, msg: object, endpoint: Endpoint, deadline: float, request: Request) -> None:
        super().__init__(msg, endpoint, deadline)
        self._request = request
        request.opened(self)

    def send(self, timeout: float) -> None:
        """Queue it, or fail where that would wait."""
        try:
            self._endpoint.deliver_nowait(self)
        except MailboxFull as error:
            self.fail(error)
        # after the delivery, unlike a call's: one that failed at once is not held
        if timeout != math.inf and not self.settled:
            self._held = self._endpoint.system.deadlines.add(self, timeout)

    def _settle(self) -> None:
        self.give_up()
        self._request.settle(self._answer, self._error, expired=self.expired)


class Requests:
    """Several requests, handed out as they end: `async for label, request in requests`. For one task.

    Each comes once, settled, with the label it was added with; `request.result()` is its answer. Iterating ends when
    none is left; more may be added meanwhile. An abandoned one is not handed out.
    """

    def __init__(self) -> None:
        self._open: dict[Request, Any] = {}
        self._ended: deque[tuple[Any, Request]] = deque()
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    def add(self, request: Request, label: Any = None) -> None:
        """Have `request` handed out when it ends. Raises `ValueError` if it stands in a collection already."""
        request.join(self)
        self._open[request] = label
        if request.settled:
            self.on_settled(request)

    def on_settled(self, request: Request) -> None:
        """`request` has ended. For the runtime."""
        label = self._open.pop(request)
        if request.settled:
            self._ended.append((label, request))
        self._news.set()

    async def receive(self, timeout: float | None = None) -> tuple[Any, Request]:
        """The label and the request that ended next, waited for at most `timeout` seconds.

        Raises `trio.EndOfChannel` when none is left, and `trio.TooSlowError` when none ended; all stay open then.
        """
        await checkpoint_if_cancelled()
        with trio.CancelScope(deadline=until(timeout)):
            await self._wait()
        if self._ended:
            return self._ended.popleft()
        raise trio.TooSlowError if self._open else trio.EndOfChannel

    async def _wait(self) -> None:
        while self._open and not self._ended:
            self._news = trio.Event()
            await self._news.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Any, Request]:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
