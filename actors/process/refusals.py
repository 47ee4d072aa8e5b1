"""The error for a process that never became ready."""

from __future__ import annotations

import trio

from proctor.actors.errors import AgentError, StartKilled, StartRefused
from proctor.actors.outcomes import with_stderr
from proctor.actors.transport.transport import Transport
from proctor.runtime.exits import SIGNAL_NAMES, Crash, ExitReason, ExitStatus

KILLS = frozenset(("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"))
"""Signals that come from outside: of any other a program dies by its own doing."""
EXIT_WAIT = 1.0
"""Seconds that a process has to end by itself once it says no more."""


async def killed_start(agent: str, transport: Transport) -> StartKilled | None:
    """The error for a process that says no more because somebody killed it, None for any other."""
    # The end of the output comes before the exit status can be read.
    with trio.move_on_after(EXIT_WAIT):
        exit = await transport.wait()
        name = SIGNAL_NAMES.get(exit.signal or 0, "") if isinstance(exit, ExitStatus) else ""
        if name in KILLS:
            return StartKilled(agent, name, transport.stderr.decode("utf-8", "replace"))
    return None


def start_failure(
    agent: str, reason: str | None, exit: ExitReason | None, stderr: str, resumed: str | None
) -> AgentError:
    """The error for a process that was not killed. `reason` is the one it gave on its protocol, if any: what
    it wrote on stderr is shown as evidence, and may be about something else."""
    if isinstance(exit, Crash) and isinstance(exit.error, AgentError):
        return exit.error  # the connection broke: the CLI has refused nothing
    silent_exit = f"its process ended before it was ready ({with_stderr(exit, stderr)})"
    return StartRefused(agent, reason or silent_exit, resumed=resumed, stderr=stderr)
