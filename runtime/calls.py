"""How messages are sent: `Ref` for one incarnation, `Name` for whoever stands there now, the same verbs.

Guarantees: a call ends in exactly one of an answer, `NoProc`, `ActorExited`, `CallTimeout`, `MailboxFull`,
`NoMailbox`, `CallingSelf`, the error the callee answered with, or the caller's own cancellation. An answer wakes
the waiting task directly; between that and the return of `call` there is no checkpoint, so a deadline of the
same tick cannot lose it (T15). An answer that comes late or twice changes nothing and is an event (M17).

Invariant: a `Call` is settled once; `_task` is set exactly while a task sleeps for it, so that it is rescheduled
at most once.

Not here: what a supervisor understands (`core`), streams once opened (`streams`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import checkpoint_if_cancelled, current_task, wait_task_rescheduled

from proctor.runtime.cell import Cell, Control, Message
from proctor.runtime.errors import CallingSelf, CallTimeout, MailboxFull
from proctor.runtime.events import DeadLetter, LateReply
from proctor.runtime.exits import DeliveryError, ExitReason, Killed, NoProc, Normal
from proctor.runtime.mailbox import Mailbox
from proctor.runtime.monitors import Monitor
from proctor.runtime.streams import Stream

if TYPE_CHECKING:
    from proctor.runtime.system import System


class Call:
    """One question that waits for its answer; the `from_` of `handle_call`.

    `deadline` is on the run's clock (T14); `math.inf` without one.
    """

    __slots__ = ("_answer", "_cell", "_error", "_settled", "_task", "deadline", "expired", "msg")

    def __init__(self, msg: object, cell: Cell, deadline: float) -> None:
        self.msg = msg
        self.deadline = deadline
        self.expired = False
        self._cell = cell
        self._task: trio.lowlevel.Task | None = None
        self._settled = False
        self._answer: object = None
        self._error: BaseException | None = None
        cell.calls[self] = None

    def reply(self, value: object) -> None:
        """Answer. Never raises: a late or second answer is dropped (M17)."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, raised in the caller (M10). Never raises here."""
        self._settle(None, error)

    def _settle(self, answer: object, error: BaseException | None) -> None:
        if self._settled:
            late = LateReply(path=self._cell.path, msg=answer if error is None else error)
            self._cell.system.events.emit(late)
            return
        self._answer, self._error = answer, error
        self.give_up()
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def expire(self) -> None:
        """Its time is up: whoever waits goes on without an answer, unless there is one."""
        if not self._settled:
            self.expired = True
            self._settle(None, None)

    def give_up(self) -> None:
        """No answer is wanted any more."""
        self._settled = True
        self._cell.calls.pop(self, None)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    @property
    def settled(self) -> bool:
        """Whether it was answered, or is not waited for any more."""
        return self._settled

    async def wait(self) -> Any:
        """The answer, or the error answered with; `None` if it `expired`. For one task."""
        if not self._settled:
            if self.deadline != math.inf:
                self._cell.system.deadlines.add(self)
            self._task = current_task()
            await wait_task_rescheduled(self._abort)
        if self._error is not None:
            raise self._error
        return self._answer

    def undelivered(self, cell: Cell, error: DeliveryError) -> None:
        """Nobody will handle it."""
        if self._settled:
            return
        if isinstance(error, MailboxFull):
            cell.dead_letter(self.msg, str(error))
        self.fail(error)


class Cast:
    """One message that wants no answer."""

    __slots__ = ("msg",)

    def __init__(self, msg: object) -> None:
        self.msg = msg

    def undelivered(self, cell: Cell, error: DeliveryError) -> None:
        """Nobody will handle it (M3)."""
        cell.dead_letter(self.msg, str(error))


class Info(Cast):
    """A message on the system lane: from the actor's own tasks, or the `Down` of one it monitors."""

    __slots__ = ()


def reply(from_: Call, value: object) -> None:
    """Answer a call that `handle_call` left open with `NO_REPLY`, from any task (M19)."""
    from_.reply(value)


def reply_error(from_: Call, error: BaseException) -> None:
    """Answer a call with an error, which is raised in the caller; the callee lives on (M10)."""
    from_.fail(error)


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

    async def call(
        self,
        msg: object,
        timeout: float | None = 5.0,
        *,
        wait_for: float | None = None,
    ) -> Any:
        """Send `msg` and wait for the answer, at most `timeout` seconds; `None` waits without limit (M13).

        `wait_for` first waits, at most so many seconds, for somebody to be there (X17). Raises `NoProc`,
        `ActorExited`, `CallTimeout`, `CallingSelf`, `MailboxFull`, `NoMailbox`, or the error answered with.
        """
        await checkpoint_if_cancelled()
        cell = self.find()
        if cell is None or cell.exit is not None:
            cell = await self._await_cell(wait_for)
        if cell.task is current_task():
            raise CallingSelf(self)
        deadline = math.inf if timeout is None else trio.current_time() + timeout
        call = Call(msg, cell, deadline)
        try:
            if cell.mailbox is None or not cell.mailbox.offer(call):
                await _deliver_in_time(call, cell)
            answer = await call.wait()
        finally:
            if not call.settled:
                call.give_up()
        if call.expired:
            raise CallTimeout(self, timeout or 0.0)
        return answer

    async def _await_cell(self, wait_for: float | None) -> Cell:
        if wait_for is not None:
            with trio.move_on_after(wait_for):
                await self.until_found()
        cell = self.find()
        if cell is None or cell.exit is not None:
            raise NoProc(self)
        return cell

    async def until_found(self) -> None:
        """Wait until somebody may be there; an address of one incarnation never comes back."""
        raise NoProc(self)

    async def cast(self, msg: object) -> None:
        """Queue `msg` and return (M3). Waits only for room, under `overflow="block"`.

        Succeeds for a target that is gone: the message becomes a dead letter. Raises `MailboxFull` under
        `overflow="raise"`.
        """
        cell = self.find()
        if cell is None or cell.exit is not None:
            self._dead_letter(msg)
            return
        cast = Cast(msg)
        if cell.mailbox is None or not cell.mailbox.offer(cast):
            await checkpoint_if_cancelled()
            await cell.deliver(cast)

    def cast_nowait(self, msg: object) -> None:
        """`cast` that never waits: raises `MailboxFull` where that would wait for room."""
        cell = self.find()
        if cell is None or cell.exit is not None:
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
            self.cell.names[name] = None
        return self.cell.exit is None

    def let_go(self, name: str) -> None:
        """Forget a name."""
        self.cell.names.pop(name, None)

    def _dead_letter(self, msg: object) -> None:
        self.cell.dead_letter(msg, "no such actor")

    def __repr__(self) -> str:
        return f"<{self.cell.path} at {id(self.cell):#x}>"


class Name(Address):
    """Whoever holds a name, or stands at a place of the tree (`/` and its path); looked up at each use (M32)."""

    __slots__ = ("_system", "name")

    def __init__(self, name: str, system: System) -> None:
        self.name = name
        self._system = system

    def ref(self) -> Ref:
        """The incarnation that stands there now. Raises `NoProc`."""
        found = self._system.registry.whereis(self.name)
        if found is None:
            raise NoProc(self)
        return found

    def find(self) -> Cell | None:
        """The end point of the incarnation that stands there now."""
        found = self._system.registry.whereis(self.name)
        return None if found is None else found.cell

    async def wait(self, timeout: float | None = None) -> Ref:
        """Wait, at most `timeout` seconds, until somebody stands there (X17). Raises `NoProc`."""
        with trio.CancelScope(deadline=math.inf if timeout is None else trio.current_time() + timeout):
            await self.until_found()
        return self.ref()

    def is_due(self) -> bool:
        """Whether a supervisor holds a child of this name that runs, or is to run again."""
        return self._system.registry.is_due(self.name)

    async def wait_out(self) -> Ref:
        """Wait out a restart: who stands there, as soon as somebody does. Raises `NoProc` when none is owed."""
        return await self._system.registry.wait_out(self.name)

    async def until_found(self) -> None:
        """Wait until somebody stands there."""
        await self._system.registry.wait(self.name)

    def _dead_letter(self, msg: object) -> None:
        self._system.events.emit(DeadLetter(path=self.name, target=self, msg=msg, why="no such actor"))

    def __repr__(self) -> str:
        return f"<name {self.name!r}>"


async def _deliver_in_time(call: Call, cell: Cell) -> None:
    with trio.CancelScope(deadline=call.deadline) as scope:
        await cell.deliver(call)
    if scope.cancelled_caught:
        call.expire()


def open_cell(path: str, system: System, control: Control, mailbox: Mailbox[Message] | None) -> Cell:
    """An end point for a new incarnation, with its `ref`."""
    cell = Cell(path, system, control, mailbox)
    cell.ref = Ref(cell)
    return cell
