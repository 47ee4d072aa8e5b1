"""The loop that calls an actor's hooks.

Guarantees: one hook runs at a time. `init` comes first, then its `handle_continue`, then messages.
An exception in a hook, or in a task of `self.nursery`, is a crash of the actor; alone it is the crash
itself, not wrapped in the nursery's group. The tasks of `self.nursery` have ended when the loop has.

A call whose time was up before its turn is not handled. The clock is looked at only for one that waited for
other messages of this turn, because the deadlines of the tree have had none since; for any other they decide.

It is flat on purpose: each wake-up of an actor goes through every frame that stands between its task and its
mailbox, and an idle one keeps them all in memory.

Not here: when it is started and stopped, and what its end is called (`child`).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import trio

from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging.actor import IDLE, NO_REPLY, Actor, Continue, Ignore, Reply, Stop
from proctor.runtime.messaging.endpoint import Endpoint, Message
from proctor.runtime.messaging.mailbox import Mailbox
from proctor.runtime.messaging.messages import Call, Cast, Info
from proctor.runtime.messaging.streams import Sink

Ended: TypeAlias = ExitReason | Ignore | None


class Owner(Protocol):
    """The owner of a running actor."""

    def opened(self, nursery: trio.Nursery) -> None:
        """The actor's hooks and tasks run in `nursery` from now on."""

    def started(self) -> None:
        """The actor is ready."""

    def ending(self) -> None:
        """The actor handles nothing more."""

    def reply_at_end(self, call: Call, value: object) -> None:
        """The actor ends, and `value` answers `call` when it has terminated."""


@trio.lowlevel.disable_ki_protection
async def live(actor: Actor, args: tuple[Any, ...], endpoint: Endpoint, owner: Owner) -> Ended:
    """Run an actor until it ends by itself: why, or `None` when its mailbox hands out nothing more."""
    mailbox = endpoint.mailbox
    assert mailbox is not None
    try:
        async with trio.open_nursery() as nursery:
            actor.nursery = nursery
            owner.opened(nursery)
            try:
                begun = actor.init(*args)
                del args  # else they would be kept as long as it lives
                outcome = await _serve(actor, endpoint, mailbox, owner, await begun)
            finally:
                mailbox.forget_sleeper()  # a SIGINT may come between its note and its sleep
                owner.ending()  # at once: its tasks and its `terminate` may take their time
            # after `ending`, so that no message comes to an actor whose tasks are being cancelled
            nursery.cancel_scope.cancel(reason="the actor ended")
            return outcome.reason if isinstance(outcome, Stop) else outcome
        return None
    except BaseExceptionGroup as group:
        raise_one_of(group)
        raise


def raise_one_of(group: BaseExceptionGroup[BaseException]) -> None:
    """Raise what a nursery of ours wrapped, as it was, if it is one exception; several stay a group."""
    if len(group.exceptions) != 1:
        return
    error = group.exceptions[0]
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # not the group that it was in
        del error, context, group  # its traceback leads here


async def _serve(
    actor: Actor, endpoint: Endpoint, mailbox: Mailbox[Message], owner: Owner, outcome: object
) -> Stop | Ignore | None:
    if isinstance(outcome, Stop | Ignore):
        return outcome
    owner.started()  # before the first continue, which may call actors that wait for this one to be ready
    now = endpoint.system.now
    endpoint.woken_at = now()
    while True:
        while outcome is not None:
            if isinstance(outcome, Stop):
                return outcome
            outcome = await actor.handle_continue(outcome.arg) if isinstance(outcome, Continue) else None
        message = mailbox.take_nowait()
        if message is None:
            if mailbox.is_over():
                return None
            outcome = await (
                mailbox.pause() if actor.idle_timeout is None else _pause_in_time(actor, mailbox, endpoint)
            )
            # once for all messages of a burst: a look at the clock for each would cost a tenth of a cast
            endpoint.woken_at = now()
            continue
        if type(message) is Cast:  # the most frequent first, by the cheapest test
            outcome = await actor.handle_cast(message.msg)
        elif isinstance(message, Call):
            if message.expired or (mailbox.burst > 1 and _is_late(message, endpoint.woken_at)):
                continue
            endpoint.handling = message
            try:
                outcome = _answered(message, await actor.handle_call(message.msg, message), owner)
            finally:
                _handled(message, endpoint)
        elif isinstance(message, Info):
            outcome = await actor.handle_info(message.msg)
        else:
            assert isinstance(message, Sink)
            outcome = await _handle_stream(actor, message)


async def _pause_in_time(actor: Actor, mailbox: Mailbox[Message], endpoint: Endpoint) -> Any:
    assert actor.idle_timeout is not None
    with trio.move_on_after(actor.idle_timeout) as scope:
        # A message that came in the tick in which the time ran out goes before `IDLE`.
        await mailbox.pause()
    endpoint.woken_at = endpoint.system.now()
    return await actor.handle_info(IDLE) if scope.cancelled_caught and mailbox.is_empty() else None


def _is_late(call: Call, woken_at: float) -> bool:
    # one that was late when the actor had its turn is judged by the deadlines of the tree, which may have had none yet
    if woken_at <= call.deadline < trio.current_time():
        call.expire()
    return call.expired


def _handled(call: Call, endpoint: Endpoint) -> None:
    endpoint.handling = None
    if not call.settled:  # `NO_REPLY`, or a crash: the end of the actor must find it
        endpoint.calls[call] = None


def _answered(call: Call, outcome: object, owner: Owner) -> Stop | None:
    if outcome is NO_REPLY:
        return None
    if isinstance(outcome, Stop):
        if outcome.reply is not NO_REPLY:
            owner.reply_at_end(call, outcome.reply)
        return outcome
    call.reply(outcome.value if isinstance(outcome, Reply) else outcome)
    return None


async def _handle_stream(actor: Actor, sink: Sink) -> Any:
    if sink.closed:  # its reader left while it was queued
        return None
    outcome: object = None
    with trio.CancelScope() as scope:
        sink.opened_in(actor.nursery, scope)
        outcome = await sink.contain(actor.handle_stream, sink.msg, sink)
    if outcome is not NO_REPLY and not sink.producing:
        sink.end()
    return outcome
