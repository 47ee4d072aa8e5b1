"""The frames that commands run in: one that serves until it is stopped, and one that writes a result."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from signal import SIGTERM
from typing import TypeVar

import trio

from proctor.actors.errors import AgentError
from proctor.actors.scripted import ScriptError
from proctor.cli.exit_status import BY_SIGNAL, FAILED, OK, STDOUT_GONE
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, one_line
from proctor.cli.ui.verdict import report
from proctor.runtime.processes import ProcessError

T = TypeVar("T")


def run_daemon(main: Callable[[T], Awaitable[int]], options: T) -> int:
    """Run `main` to its end and return the exit status. SIGTERM is the normal way to stop a server, so it is no failure."""
    try:
        status = trio.run(main, options)
    finally:
        gc.freeze()  # skips a garbage collection at exit that takes most of a second
    return OK if status == BY_SIGNAL + SIGTERM else status


def run_report(work: Callable[[Output], Awaitable[int]], *failures: type[Exception]) -> int:
    """Run `work`, which writes its result to the output, and return the exit status. An expected error is shown on stderr: that of an
    invalid argument or file, and `failures` of the work."""
    return trio.run(_main, work, (OutputFailed, ProcessError, *failures))


async def _main(work: Callable[[Output], Awaitable[int]], failures: tuple[type[Exception], ...]) -> int:
    screen = Output(2)

    async def shown(interrupts: Interrupts) -> int:
        try:
            with interrupts.scope:
                return await work(Output(1))
        except BrokenPipeError:
            # a reader that has gone (`| head`) is no fault and gets no text
            return STDOUT_GONE
        except (AgentError, ScriptError) as error:
            return await report(error, screen)
        except failures as error:
            await screen.say(one_line(str(error), WHOLE))
        return FAILED  # or interrupted: then the status of the signal counts

    return await interruptible(shown, notify=screen.say, background=trio.sleep_forever)
