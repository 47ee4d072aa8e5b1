"""Actors for the tests of supervision: they do as they are told and note what happened to them."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
import trio.testing

from proctor.runtime import (
    Actor,
    ActorExited,
    Address,
    ChildSpec,
    Crash,
    Down,
    Exit,
    ExitReason,
    ExitStatus,
    Killed,
    Normal,
    Shutdown,
    Stop,
    Subscription,
    Supervisor,
    SupervisorEvent,
)
from proctor.runtime.supervision.handles import AnySupervisor

Notes = list[str]
settled = trio.testing.wait_all_tasks_blocked


class Boom(Exception):
    """A failure on purpose."""


class Player(Actor):
    """Notes `+id` at its start and `-id` at its terminate; `start(incarnation)` decides how the start goes."""

    notes: Notes

    async def init(self, notes: Notes, start: Callable[[int], object] | None = None) -> object:
        self.notes = notes
        notes.append(f"+{self.id}")
        return start(self.incarnation) if start is not None else None

    async def handle_call(self, msg: Any, from_: object) -> Any:
        if isinstance(msg, Exception):
            raise msg
        if isinstance(msg, Stop):
            return msg
        return self.incarnation if msg == "incarnation" else msg

    async def handle_cast(self, msg: Any) -> None:
        if isinstance(msg, Exception):
            raise msg
        self.notes.append(f"{self.id}:{msg}")

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"-{self.id}")


class Stubborn(Actor):
    """Takes `seconds` to terminate."""

    async def init(self, seconds: float) -> None:
        self.seconds = seconds

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(self.seconds)


def stubborn(id: str, seconds: float, **spec: Any) -> ChildSpec:
    return ChildSpec(id, Stubborn, (seconds,), **spec)


def player(id: str, notes: Notes, start: Callable[[int], object] | None = None, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": id}
    return ChildSpec(id, Player, (notes, start), **(fields | spec))


def fails_at(*incarnations: int) -> Callable[[int], object]:
    """A start that fails at the given incarnations."""

    def start(incarnation: int) -> None:
        if incarnation in incarnations:
            raise Boom(f"start {incarnation}")

    return start


def fails_from(incarnation: int) -> Callable[[int], object]:
    """A start that fails from that incarnation on."""

    def start(number: int) -> None:
        if number >= incarnation:
            raise Boom(f"start {number}")

    return start


EXITS: dict[str, ExitReason] = {
    "normal": Normal(),
    "shutdown": Shutdown("on purpose"),
    "crash": Crash(Boom("crash")),
    "killed": Killed(),
    "exit status 0": ExitStatus(0),
    "exit status 1": ExitStatus(1),
}


async def end(target: Address, reason: ExitReason) -> Down:
    """Make an actor end by itself with `reason`, and wait for its end."""
    with target.monitor() as monitor:
        if isinstance(reason, Killed):
            target.kill()
        else:
            with contextlib.suppress(ActorExited):
                await target.call(Boom("crash") if isinstance(reason, Crash) else Stop(reason))
        return await monitor


def errors_in(reason: object) -> list[Exception]:
    """The exceptions of a crash that is a group."""
    assert isinstance(reason, Crash)
    whole: object = reason.error
    assert isinstance(whole, ExceptionGroup)
    return list(cast("ExceptionGroup[Exception]", whole).exceptions)


async def crash(sup: Supervisor, *names: str) -> None:
    """Crash children one after the other, each when the supervisor has dealt with the one before."""
    for name in names:
        await end(sup.name(name), Crash(Boom("crash")))
        await settled()


def heard(events: Subscription) -> list[SupervisorEvent]:
    """What a subscription holds."""
    found: list[SupervisorEvent] = []
    while True:
        try:
            found.append(events.receive_nowait())
        except trio.WouldBlock:
            return found


def kinds(events: Subscription) -> list[str]:
    """The same, as `kind path`."""
    return [f"{event.kind} {event.path}" for event in heard(events)]


async def picture(sup: AnySupervisor) -> dict[str, int | str]:
    """Each held child: its incarnation, or its state if it does not run."""
    await settled()
    return {n.id: n.incarnation if n.state == "running" else n.state for n in sup.tree().children}


async def forever(*, task_status: trio.TaskStatus[None]) -> None:
    """A function child that does nothing."""
    task_status.started()
    await trio.sleep_forever()


Body = Callable[..., Awaitable[None]]


def ready_after(seconds: float) -> Body:
    """A function child that takes so long to start, and then does nothing."""

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(seconds)
        await forever(task_status=task_status)

    return body


async def never_ready(*, task_status: trio.TaskStatus[None]) -> None:
    """A function child whose start does not end."""
    await trio.sleep_forever()


async def shielded(*, task_status: trio.TaskStatus[None]) -> None:
    """A function child that nobody can end before a minute is over."""
    task_status.started()
    with trio.CancelScope(shield=True):
        await trio.sleep(60)


def exits_with(reason: ExitReason) -> ChildSpec:
    """A temporary function child, `f`, that ends with `reason` once it is ready."""

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise Exit(reason)

    return ChildSpec("f", body, restart="temporary")
