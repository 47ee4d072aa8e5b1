"""proctor as the first process of a container.

The kernel makes the first process the parent of every orphan of the container, and one that is not waited for stays as a zombie, until no process
can be started any more. A host waits for the processes that it has started and for no others, so the command runs in a child, and the
first process only waits, passes signals on, and ends as its child does.
"""

from __future__ import annotations

import os
import signal
import sys

from proctor.cli.exit_status import BY_SIGNAL

PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_SI_KERNEL = 0x80
"""The `si_code` of a signal that the kernel has sent."""


def go_on_in_child() -> None:
    """Where this is the first process, return in a child of it; does nothing elsewhere. Before any thread is started."""
    if os.getpid() != 1 or sys.platform != "linux":
        return
    awaited = {*PASSED_ON, signal.SIGCHLD}
    # before the fork: a signal that comes in between waits
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status = None
    while status is None:
        found = signal.sigwaitinfo(awaited)
        if found.si_signo == signal.SIGCHLD:
            status = _collect(child)
        # those of a terminal reach the child as well, which takes the second one as an order to kill
        elif found.si_code != _SI_KERNEL:
            os.kill(child, found.si_signo)
    # not by the interpreter's own end, which is that of the child
    os._exit(status)


def _collect(child: int) -> int | None:
    """Wait for all processes that have ended. The exit status of `child`, None while it runs."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # the last one was the child
            return ended
        if pid == 0:
            return ended
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            ended = code if code >= 0 else BY_SIGNAL - code
