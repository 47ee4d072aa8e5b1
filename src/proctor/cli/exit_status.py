"""Exit statuses of the command line: how a script tells the results apart without reading a text.

The functions import what they need, because every command needs the numbers, and `--version` needs no agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.actors.outcomes import Outcome
    from proctor.runtime.errors import StartError

OK = 0
FAILED = 1
USAGE = 2
NOT_INSTALLED = 69
INTERNAL = 70
LIMITED = 75
DEADLINE = 124
BY_SIGNAL = 128
"""Plus the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""
STDOUT_GONE = 141
"""The status of a program that dies of SIGPIPE, as shells expect it behind `| head` and with `pipefail`."""


def status_of(result: Outcome | Exception) -> int:
    """The exit status for the outcome of a request, or for an error that prevented it."""
    from proctor.actors.error_kinds import facts_of
    from proctor.actors.outcomes import OUTCOMES

    if isinstance(result, Exception):
        return facts_of(result).exit_status
    return OUTCOMES[result].exit_status


def innermost(error: StartError) -> Exception:
    """The original cause of a failed start, below the supervisors that passed it on."""
    from proctor.runtime.errors import StartError
    from proctor.runtime.exits import Crash

    cause = error.reason.error if isinstance(error.reason, Crash) else error
    # each supervisor wraps the failure of its child once; only the innermost has a status of its own
    if isinstance(cause, StartError) and cause is not error:
        return innermost(cause)
    return cause if isinstance(cause, Exception) else error
