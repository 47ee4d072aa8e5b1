"""A machine whose n-th system call fails: the functions of the operating system that processes and files need.

`faults.every(scenario)` runs a scenario once to count its calls, then once for each of them with that call failing. Only
calls that come from `proctor.runtime` count, and where `ours` says so of other modules, directly or through `subprocess` and `pathlib`; what the standard library
does with the answer of a call that cannot fail in reality (reading the pipe of its own child) is left alone. It is the
machine that fails: no function of ours is replaced.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import gc
import inspect
import io
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import attrs
import pytest
import trio

from tests.runtime.belongings import children, descriptors

Failure = Literal["EMFILE", "EAGAIN", "ENOMEM", "EINTR", "ENOSPC", "EIO", "short write"]
FAILURES: tuple[Failure, ...] = ("EMFILE", "EAGAIN", "ENOMEM", "EINTR", "short write")
ON_DISK: tuple[Failure, ...] = ("ENOSPC", "EIO", "EMFILE", "short write")

CALLS: Mapping[Any, tuple[str, ...]] = {
    os: (
        *("pipe", "open", "read", "write", "set_blocking", "pidfd_open", "waitid", "kill", "killpg"),
        *("mkdir", "chmod", "stat", "fstat", "listdir", "scandir", "unlink", "rename", "rmdir"),
        *("pread", "ftruncate", "fsync", "utime", "lstat", "replace"),
    ),
    fcntl: ("fcntl", "flock", "ioctl"),
    signal: ("pidfd_send_signal",),
    subprocess: ("_fork_exec",),
    builtins: ("open",),
    io: ("open",),
    trio.lowlevel: ("wait_readable", "wait_writable"),
}
THROUGH: Mapping[str, frozenset[str]] = {
    "subprocess": frozenset({"pipe", "open", "_fork_exec"}),
    "pathlib": frozenset(
        {
            "mkdir",
            "chmod",
            "stat",
            "lstat",
            "listdir",
            "scandir",
            "unlink",
            "rename",
            "replace",
            "rmdir",
            "open",
        }
    ),
    "tempfile": frozenset({"mkdir", "open"}),
}
"""Modules that a call of ours may pass through → the calls that are then ours."""
OURS = "proctor.runtime."


@attrs.define
class Faults:
    """Counts the calls, and lets number `nth` of them fail by `failure`. `hit` is the name of the call that failed."""

    failure: Failure
    nth: int = 0
    count: int = 0
    hit: str = ""
    ours: tuple[str, ...] = (OURS,)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def strikes(self, name: str) -> bool:
        """Count a call; whether it is the one that fails."""
        if not _is_ours(name, self.ours) or (self.failure == "short write" and name != "write"):
            return False
        with self._lock:
            self.count += 1
            if self.count != self.nth:
                return False
        self.hit = name
        return True

    def error(self) -> OSError:
        """What the call fails with."""
        number: int = getattr(errno, self.failure)
        return OSError(number, os.strerror(number))


def _is_ours(name: str, ours: tuple[str, ...]) -> bool:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame is not None and name in THROUGH.get(frame.f_globals.get("__name__", ""), ()):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(ours)


def _call(faults: Faults, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
    if not faults.strikes(name):
        return real(*args, **more)
    if faults.failure == "short write":
        fd, data = args
        return real(fd, data[: max(1, len(data) // 2)])
    raise faults.error()


@contextmanager
def failing(failure: Failure, nth: int = 0, ours: tuple[str, ...] = (OURS,)) -> Generator[Faults]:
    """The block runs on a machine whose `nth` call fails; 0: none, they are counted only."""
    faults = Faults(failure, nth, ours=ours)
    with pytest.MonkeyPatch.context() as patch:
        for module, names in CALLS.items():
            for name in names:
                patch.setattr(module, name, partial(_call, faults, name, getattr(module, name)))
        yield faults


Scenario = Callable[[], Awaitable[None]]


@attrs.define
class Trial:
    """What became of a scenario in which one call failed."""

    call: str
    nth: int
    raised: BaseException | None
    left: tuple[str, ...]


def _nothing() -> tuple[str, ...]:
    return ()


async def trials(
    scenario: Scenario,
    failure: Failure,
    *,
    dense: int = 1000,
    left: Callable[[], tuple[str, ...]] = _nothing,
    ours: tuple[str, ...] = (OURS,),
) -> list[Trial]:
    """The scenario once for each of its calls, with that call failing; above `dense` for some of them, where a scenario
    looks at one process after the other. `left` says what else it has left behind."""
    await scenario()  # caches and imports: what the first run alone opens is no leak
    gc.collect()  # what earlier tests left is closed before a count, not during it
    found: list[Trial] = []
    nth = 0
    while True:
        nth += 1 if nth < dense else nth // 4
        before = descriptors(), children()
        raised: BaseException | None = None
        with failing(failure, nth, ours) as faults:
            try:
                with trio.fail_after(10):
                    await scenario()
            except Exception as error:  # noqa: BLE001  judged by the test
                raised = error
        if not faults.hit:
            if raised is not None:
                raise raised
            return found
        more = [f"descriptor {n}: {what}" for n, what in descriptors().items() if before[0].get(n) != what]
        more += [f"process {pid}" for pid in children() - before[1]]
        found.append(Trial(faults.hit, nth, raised, (*more, *left())))
