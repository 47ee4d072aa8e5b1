"""The messages of an actor: calls, casts, and the system messages that go ahead of both.

Guarantees: a call is settled once, by an answer, an error, its time or its caller. An answer wakes the waiting task
directly; a late or second one changes nothing and is an event.

Invariant: `_task` is set exactly while a task sleeps for the call, so that it is rescheduled at most once. A caller
that was cancelled before it asked has asked nothing: it learns of that when it goes to sleep, in the step in which it
queued the call, and takes that back. So a call costs no look at the cancellation beside the one that sleeping is.

Not here: how they are sent (`calls`), what waits for them (`mailbox`, `deadlines`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterator
from typing import Any

from trio.lowlevel import (
    Abort,
    Task,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from proctor.runtime.errors import MailboxFull
from proctor.runtime.events import Deadlock, LateReply
from proctor.runtime.exits import DeliveryError
from proctor.runtime.messaging.deadlines import Holder
from proctor.runtime.messaging.endpoint import OWN, Endpoint

LOOKED_AT = 64
"""How many queued messages of an actor are looked at for a deadlock when it calls another."""


class Call:
    """One question that waits for its answer; the `from_` of `handle_call`.

    `deadline` is on the run's clock; `math.inf` without one. `settled` says that it was answered, or is not
    waited for any more; `expired`, that its time was up first.
    """

    __slots__ = (
        *("_answer", "_endpoint", "_error", "_held", "_task"),
        *("deadline", "expired", "msg", "settled"),
    )

    _answer: object
    _error: BaseException | None
    _held: Holder | None
    _task: Task | None

    def __init__(self, msg: object, endpoint: Endpoint, deadline: float) -> None:
        self.msg = msg
        self.deadline = deadline
        self.settled = self.expired = False
        self._endpoint = endpoint
        self._held = self._task = None

    # An interrupt between `settled` and the wake-up would leave the caller asleep without end.
    @enable_ki_protection
    def reply(self, value: object) -> None:
        """Answer. Never raises: a late or second answer is dropped."""
        if self.settled:
            self._late(value)
        else:
            self._answer, self._error = value, None  # before the wake-up, which reads them
            self._settle()

    # As for `reply`.
    @enable_ki_protection
    def fail(self, error: BaseException) -> None:
        """Answer with an error, raised in the caller. Never raises here."""
        if self.settled:
            self._late(error)
        else:
            self._answer, self._error = None, error
            self._settle()

    def expire(self) -> None:
        """Its time is up: the waiting task goes on without an answer, unless there is one."""
        if not self.settled:
            self.expired = True
            self.reply(None)

    def _late(self, answer: object) -> None:
        self._endpoint.system.events.emit(LateReply(path=self._endpoint.path, msg=answer))

    def _settle(self) -> None:
        self.settled = True
        if self._endpoint.calls:  # mostly empty, and a look is cheaper than a hash
            self._endpoint.calls.pop(self, None)
        if self._held is not None:
            self._held.pop(self, None)
        task = self._task
        if task is not None:
            # Cleared first: a task that is rescheduled twice is an internal error of Trio.
            self._task = None
            reschedule(task)

    def give_up(self) -> None:
        """The answer is not waited for any more."""
        self.settled = True
        if self._endpoint.calls:
            self._endpoint.calls.pop(self, None)
        if self._held is not None:
            self._held.pop(self, None)

    @property
    def sleeper(self) -> Task | None:
        """The task that sleeps until it is settled."""
        return self._task

    def is_for(self, task: Task) -> bool:
        """Whether `task` is the one that is to handle it."""
        return self._endpoint.task is task

    def _abort(self, _raise_cancel: object) -> Abort:
        task, self._task = self._task, None
        self.give_up()
        # cancelled before it slept: the actor cannot have seen it. Later it may have, and only finds it settled
        if self._endpoint.mailbox is not None and _is_in_its_step(task):
            self._endpoint.mailbox.take_back(self)
        return Abort.SUCCEEDED

    def asleep(self, task: Task, timeout: float = math.inf) -> Awaitable[object]:
        """An awaitable for `task`, the current one, that ends when it is settled.

        `timeout` is what the `deadline` was made of in this step; infinity if it is held already.
        """
        if timeout != math.inf:
            self._held = self._endpoint.system.deadlines.add(self, timeout)
        self._task = task
        return wait_task_rescheduled(self._abort)  # noqa: ASYNC105  # awaited by the caller, one frame nearer

    def hold_late(self) -> None:
        """Have it expire at its deadline, which was counted from a moment that is gone."""
        if self.deadline != math.inf:
            self._held = self._endpoint.system.deadlines.add_late(self)

    @enable_ki_protection
    async def wait(self) -> Any:
        """The answer, or the error answered with, to a question that stands in no mailbox. For one task."""
        if not self.settled:
            self._endpoint.calls[self] = None
            await self.asleep(current_task())
        return self.outcome()

    def outcome(self) -> Any:
        """Its answer: returned, or raised if it is an error; `None` if it `expired`."""
        if self._error is not None:
            raise self._error
        return self._answer

    def undelivered(self, endpoint: Endpoint, error: DeliveryError) -> None:
        """It will not be handled."""
        if self.settled:
            return
        if isinstance(error, MailboxFull):
            endpoint.dead_letter(self.msg, str(error))
        self.fail(error.carrying(self.msg))


class Cast:
    """One message that wants no answer."""

    __slots__ = ("msg",)

    def __init__(self, msg: object) -> None:
        self.msg = msg

    def undelivered(self, endpoint: Endpoint, error: DeliveryError) -> None:
        """It will not be handled."""
        endpoint.dead_letter(self.msg, str(error))


class Info(Cast):
    """A message for `handle_info`: from the actor's own tasks, a `Down` or an `ExitSignal`."""

    __slots__ = ()


def reply(from_: Call, value: object) -> None:
    """Answer a call that `handle_call` left open with `NO_REPLY`, from any task."""
    from_.reply(value)


def reply_error(from_: Call, error: BaseException) -> None:
    """Answer a call with an error, which is raised in the caller; the callee lives on."""
    from_.fail(error)


def _is_in_its_step(task: Task | None) -> bool:
    try:
        return current_task() is task
    except RuntimeError:  # a deadline, while no task has its turn
        return False


def seconds_left(timeout: float | None, task: Task, now: float, target: Endpoint | None = None) -> float:
    """The seconds that a call of `task` may take: its own time-out, or what is left of the call it is handling.

    Reports a call of an actor to a `target` that waits, over whatever others, for this actor.
    """
    limit, own = math.inf if timeout is None else timeout, OWN.get()
    if own is None or own.task is not task:
        return limit
    if target is not None and (own.handling is not None or own.is_awaited()):
        own.cycle = _cycle_with(own, target)
        if own.cycle:
            own.system.events.emit(Deadlock(path=own.path, cycle=own.cycle))
    elif own.cycle:  # of its last call, which is over
        own.cycle = ()
    if own.handling is None:
        return limit
    return min(limit, max(0.0, own.handling.deadline - now))


def cycle_of(task: Task) -> tuple[str, ...]:
    """The actors that wait for each other because of the call that `task` made last; empty where they do not."""
    own = OWN.get()
    return () if own is None or own.task is not task else own.cycle


def _cycle_with(own: Endpoint, target: Endpoint) -> tuple[str, ...]:
    waits_for: dict[Endpoint, Endpoint] = {own: target}
    to_do = [own]
    while to_do:
        endpoint = to_do.pop()
        for caller in _callers(endpoint):
            if (
                caller in waits_for
            ):  # a cycle that this call is no part of was reported by the call that closed it
                continue
            waits_for[caller] = endpoint
            if caller is target:
                return _around(waits_for, target)
            to_do.append(caller)
    return ()


def _around(waits_for: dict[Endpoint, Endpoint], target: Endpoint) -> tuple[str, ...]:
    cycle, endpoint = [target.path], waits_for[target]
    while endpoint is not target:
        cycle.append(endpoint.path)
        endpoint = waits_for[endpoint]
    return (*cycle, target.path)


def _callers(endpoint: Endpoint) -> Iterator[Endpoint]:
    """The actors that wait, each in its own task, for a call that `endpoint` handles or has still to handle.

    Of a long queue only the beginning is looked at: a caller further behind waits for those before it, too.
    """
    queued = () if endpoint.mailbox is None else endpoint.mailbox.first_queued(LOOKED_AT)
    for message in (endpoint.handling, *queued):
        task = message.sleeper if isinstance(message, Call) else None
        caller = None if task is None else task.context.get(OWN)
        if caller is not None and caller.task is task:
            yield caller
