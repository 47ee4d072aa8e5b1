"""The group a process leads: the signals sent to it, and what of them counts when its exit is judged.

Guarantees: a signal reaches every member of the group, or by its guard the whole tree; an empty group is no error.
Once `close`d nothing is sent: the dead leader has been reaped, and its number may be a stranger's. What was
sent while the leader lived is what `judge` takes into account; a signal to a dead leader's group explains nothing.

Not here: when to send what (`stopping`), and who waits for the end (`process`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from proctor.runtime.exits import Shutdown
from proctor.runtime.processes.stopping import Sent


class Group:
    """The process group that signals of one process go to. `pgid` is the leader's pid, a guard's if `guarded`; `leader_pid` is the
    program's own. `note` is called with what could not be delivered."""

    __slots__ = ("_closed", "_note", "_signals", "guarded", "leader_pid", "pgid")

    def __init__(self, pid: int, guarded: bool, note: Callable[[str], None]) -> None:
        self.pgid = self.leader_pid = pid
        self.guarded = guarded
        self._signals: set[int] = set()
        self._note = note
        self._closed = False

    def send(self, signum: int, *, alive: bool) -> None:
        """Send a signal other than SIGKILL to the group; it counts for the exit while the leader is `alive`."""
        if alive:
            # A signal to a dead leader's group explains nothing about its exit status, so only those to a
            # live one count.
            self._signals.add(signum)
        if self.guarded and signum == signal.SIGUSR1:  # to the guard it would mean: kill everything
            self._deliver(os.kill, self.leader_pid, signum)
        else:
            self._deliver(os.killpg, self.pgid, signum)

    def kill(self, *, guard_too: bool = False) -> None:
        """Kill the group, or by the guard the whole tree. `guard_too` does not rely on the guard."""
        if self.guarded and not guard_too:
            self._deliver(os.kill, self.pgid, signal.SIGUSR1)
            # A guard that was stopped (SIGSTOP) would act on SIGUSR1 only after it is continued.
            self._deliver(os.kill, self.pgid, signal.SIGCONT)
        else:
            self.sweep()

    def sweep(self) -> None:
        """Kill what is left of the group; says nothing about the leader's exit."""
        self._deliver(os.killpg, self.pgid, signal.SIGKILL)

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True

    def sent(self, killed: bool, detail: Shutdown) -> Sent:
        """The signals sent so far, for `judge`; `killed` counts a kill, `detail` is the reason of the stop."""
        return Sent(signals=self._signals, killed=killed, guarded=self.guarded, detail=detail)

    def _deliver(self, send: Callable[[int, int], None], number: int, signum: int) -> None:
        # The leader is reaped: its number may be another process's by now, and a signal would hit a stranger.
        if self._closed:
            return
        # ESRCH is the normal case of an empty group; EPERM comes on macOS for a group of zombies.
        try:
            send(number, signum)
        except OSError as error:  # whatever the reason, the ladder goes on: it tries again with more force
            self._note(f"{signal.Signals(signum).name} not delivered: {error.strerror}")
