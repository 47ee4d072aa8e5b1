"""The stop of a process: a sequence of steps, as data.

Guarantees: each step acts once and then waits up to its grace for the exit; the exit ends the ladder at any point. A
ladder always ends in a kill, written or not: `run_ladder` returns only when the process is dead. A kill that does not
take is reported every time its grace runs out and is tried again with more force; the process is not called dead
before it is. A step that makes no sense is passed over without waiting: stdin already closed (though its grace
counts from that closing, for a process that is flushing its transcript), a message that can no longer be written.
Once a kill has been sent, no polite step follows.

Also here: what the exit status means given what was sent, as one function over plain values.

Not here: which process group a signal reaches and who reaps; the target of a ladder knows that. Nor any shield: the
caller decides whether a ladder may be cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from signal import SIGCONT, SIGKILL, SIGUSR1, Signals
from typing import Literal, Protocol

import attrs
import trio

from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process_errors import ProcessError

Action = Literal["write", "close_stdin", "signal", "terminate", "kill"]
KILL_PATIENCE = 10.0
"""Seconds a kill may take before it is reported."""


def _not_negative(_: object, __: object, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"grace is {value!r}; give seconds, zero or more")


@attrs.frozen
class Step:
    """One step of a ladder: act, then wait up to `grace` seconds for the exit.

    `write` sends `data` to stdin, the writing counted in the grace; `close_stdin` ends the input; `signal` sends
    `signal` to the group; `terminate` sends the process's own stop signal to the group; `kill` kills everything, and `grace` is then the
    time until it is reported as unresponsive.
    """

    action: Action
    grace: float = attrs.field(default=5.0, validator=_not_negative)
    data: bytes = attrs.field(default=b"", kw_only=True, repr=False)
    signal: Signals | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if (self.action == "write") != bool(self.data):
            raise ValueError(f"step {self.action!r}: data belongs to 'write', and 'write' needs it")
        if (self.action == "signal") != (self.signal is not None):
            raise ValueError(f"step {self.action!r}: a signal belongs to 'signal', and 'signal' needs it")


CONTINUE = Step("signal", 0.0, signal=SIGCONT)
"""Wake a group that was stopped, or its guard, so that the steps after this one can be acted on."""

DEFAULT_LADDER: tuple[Step, ...] = (
    Step("close_stdin", 5.0),
    Step("terminate", 5.0),
    Step("kill", KILL_PATIENCE),
)
"""Close stdin, 5 s; the stop signal, 5 s; kill."""


def fitted(ladder: Sequence[Step], seconds: float) -> tuple[Step, ...]:
    """`ladder` with the graces before its kill shortened, all alike, so that the kill comes within `seconds`."""
    polite = list(takewhile(lambda step: step.action != "kill", ladder))
    graces = [min(step.grace, seconds) for step in polite]
    scale = min(1.0, seconds / sum(graces)) if 0 < sum(graces) < math.inf else 1.0
    shorter = [attrs.evolve(step, grace=grace * scale) for step, grace in zip(polite, graces, strict=True)]
    return (*shorter, *ladder[len(polite) :])


class Target(Protocol):
    """The target of a stop ladder: a process, or a scripted one."""

    @property
    def exit(self) -> ExitReason | None:
        """The reason of the exit, None while it runs."""
        ...

    @property
    def stdin_closed_at(self) -> float | None:
        """The time stdin was closed, None while it is open."""
        ...

    @property
    def kill_sent(self) -> bool:
        """True once a kill has been sent by anyone."""
        ...

    async def wait(self) -> ExitReason:
        """Wait for the exit."""
        ...

    async def send(self, data: bytes) -> None:
        """Write to stdin."""
        ...

    def close_stdin(self) -> None:
        """End the input."""
        ...

    def signal(self, signum: int) -> None:
        """Send a signal to the group."""
        ...

    def terminate(self) -> None:
        """Send the stop signal to the group."""
        ...

    def kill(self, *, guard_too: bool = False) -> None:
        """Kill everything now."""
        ...

    def note(self, what: str) -> None:
        """Put `what` on the trace."""
        ...


async def run_ladder(
    target: Target, steps: Sequence[Step], *, on_unresponsive: Callable[[float], None] | None = None
) -> ExitReason:
    """Take `target` down by `steps` and return the reason of its exit; returns only when it is dead.

    `on_unresponsive(seconds)` is called each time a kill has not taken for its grace.
    """
    patience = KILL_PATIENCE
    for step in steps:
        if step.action == "kill":
            patience = step.grace
            break
        # A kill is on its way already: a polite step would only delay the report that it does not take.
        if target.exit is not None or target.kill_sent:
            break
        await _climb(target, step)
    return await _kill(target, patience, on_unresponsive)


async def _climb(target: Target, step: Step) -> None:
    closed_at = target.stdin_closed_at
    started_at = trio.current_time()
    # A process whose stdin was closed earlier has had that part of its grace.
    if step.action == "close_stdin" and closed_at is not None:
        started_at = closed_at
    # The act is inside, too: a write to a full pipe may block as long as the process lives.
    with trio.move_on_at(started_at + step.grace):
        if await _acted(target, step):
            await target.wait()


async def _acted(target: Target, step: Step) -> bool:
    match step.action:
        case "write":
            return await _written(target, step)
        case "close_stdin" if target.stdin_closed_at is None:
            target.note(step.action)
            target.close_stdin()
        case "signal" if step.signal is not None:
            target.note(step.signal.name)
            target.signal(step.signal)
        case "terminate":
            target.note(step.action)
            target.terminate()
        case _:
            pass
    return True


async def _written(target: Target, step: Step) -> bool:
    if target.stdin_closed_at is not None:
        return False
    target.note(step.action)
    try:
        await target.send(step.data)
    except ProcessError:
        # The pipe broke: the process is ending or has closed it. The next step does not need it.
        return False
    return True


async def _kill(
    target: Target, patience: float, on_unresponsive: Callable[[float], None] | None
) -> ExitReason:
    began = trio.current_time()
    again = False
    while target.exit is None:
        # A kill that somebody else has sent is waited for first; only then is it repeated with more force.
        if again or not target.kill_sent:
            target.note("kill")
            # The second time past the guard: a guard that hangs would never carry the kill out.
            target.kill(guard_too=again)
        with trio.move_on_after(patience) as waiting:
            await target.wait()
        if waiting.cancelled_caught and on_unresponsive is not None:
            on_unresponsive(trio.current_time() - began)
        again = True
    return await target.wait()


@attrs.frozen(kw_only=True)
class Sent:
    """The signals that a process got before it ended, as far as its exit is judged by them."""

    signals: AbstractSet[int] = frozenset()
    killed: bool = False
    guarded: bool = False
    detail: Shutdown = attrs.field(factory=Shutdown)


def judge(
    code: int | None, signum: int | None, sent: Sent, success_codes: AbstractSet[int] = frozenset()
) -> ExitReason:
    """The reason of an exit: by its status and by what was sent, never by the end of its output.

    Zero and the success codes are Normal; a death by a signal we sent, or its shell form 128 + signal, is Shutdown; a death by our
    own kill is Killed; all else is ExitStatus. A SIGKILL that is not ours is the system's and stays an ExitStatus.
    """
    if code == 0 or code in success_codes:
        return Normal()
    # Shells, and CLIs that catch the signal and leave by themselves, end with 128 + signal.
    if signum in sent.signals or (code is not None and code - 128 in sent.signals):
        return sent.detail
    if sent.killed and _is_kill(code, signum, sent.guarded):
        return Killed()
    return ExitStatus(code=code, signal=signum)


def _is_kill(code: int | None, signum: int | None, guarded: bool) -> bool:
    if signum == SIGKILL:
        return True
    # a guard not yet listening dies of the request itself; one that gave up waiting says 137
    return guarded and (signum == SIGUSR1 or code == 128 + SIGKILL)
