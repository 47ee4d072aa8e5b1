"""A fork server: a process that has imported the command, and forks for each start of it, so that a start imports nothing.

What runs is a process of its own as a user's is: streams, environment, folder, session, signals, exit status and the
end of the interpreter are real. Only its parent and the command line that the system shows are others, so a test of
those, or of an interpreter's start, starts one itself.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
MODULE = "tests.proctor.fork_server"
NUMBER = 4
"""Bytes of a process id or an exit status, as the fork server reports them."""


class Forked:
    """A process that the fork server forked, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int, report: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        """The exit status, None while the process runs; negative as of `Popen` for a signal."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status; raises `subprocess.TimeoutExpired` when it does not come."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # reaped, and not reported yet
                os.kill(self.pid, number)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = _number(self._report)
            os.close(self._report)
        return self.returncode


def fork(
    words: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    *,
    terminal: bool = False,
    first: str = "",
) -> Forked:
    """Start `python -m proctor` with these words, descriptors of stdin, stdout and stderr, and environment.

    With `terminal` it leads a session whose terminal is its stdin; `first` is code that it runs before. The words
    `-c CODE` start `python -c CODE`.
    """
    start = json.dumps([[*words], dict(environment), str(Path.cwd()), terminal, first]).encode()
    report, reporting = os.pipe()
    try:
        socket.send_fds(_server(), [start], [*streams, reporting])
    finally:
        os.close(reporting)
    return Forked(_number(report), report)


@cache
def _server() -> socket.socket:
    """The fork server of this process, started at its first use and ended with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(its.fileno())],
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT / "src")},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    Finalize(None, end, exitpriority=0)  # a fork of the tests' process runs no function of `atexit`
    return ours


def _number(report: int) -> int:
    data = os.read(report, NUMBER)
    assert len(data) == NUMBER, "the fork server has ended"
    return int.from_bytes(data, signed=True)


def _serve(requests: socket.socket) -> tuple[list[Any], list[int]]:
    """Fork for each request; returns in the new process only, with the request and its descriptors."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            sys.exit()
        _reap()
        if os.fork() == 0:
            requests.close()
            *streams, report = descriptors
            _watch(streams, report)
            os.close(report)
            return json.loads(message), streams
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(streams: Sequence[int], report: int) -> None:
    """Fork the command's process, and be its parent: report its id and its end. Returns in the command's process."""
    pid = os.fork()
    if pid == 0:
        return
    for descriptor in streams:
        os.close(descriptor)
    os.write(report, pid.to_bytes(NUMBER, signed=True))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(report, status.to_bytes(NUMBER, signed=True))
    os._exit(0)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:  # there is none
        pass


def _become(environment: Mapping[str, str], folder: str, streams: Sequence[int], *, terminal: bool) -> None:
    """Make of this fork what an interpreter finds at its start."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    if terminal:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in {*streams} - {0, 1, 2}:
        os.close(descriptor)
    sys.stdin = _stream(0, sys.stdin)
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)


def _stream(number: int, like: Any) -> io.TextIOWrapper:
    mode = "rb" if number == 0 else "wb"
    raw = open(number, mode, closefd=False)  # noqa: SIM115  # open as long as the process is
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(raw, like.encoding, like.errors, line_buffering=lines)


def _prepare() -> None:
    import proctor.cli

    for module in pkgutil.walk_packages(proctor.cli.__path__, "proctor.cli."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # else each fork copies what a look for garbage touches


if __name__ == "__main__":
    _prepare()
    (words, environment, folder, terminal, first), streams = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(environment, folder, streams, terminal=terminal)
    exec(first, {})  # noqa: S102  # of the tests themselves
    if words[:1] == ["-c"]:
        sys.argv = ["-c", *words[2:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        code = compile(words[1], "<string>", "exec", dont_inherit=True)  # without this module's `__future__`
        exec(code, vars(main))  # noqa: S102  # as the interpreter does
    else:
        sys.argv = ["proctor", *words]
        runpy.run_module("proctor", run_name="__main__", alter_sys=True)
