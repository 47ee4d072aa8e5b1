"""Supervisors of programs that are programs themselves, told what to keep by files and arguments.

What is kept tells its number when it is up; the bench kills it by that number and waits for the next. Erlang reads what
its program writes, and passes it on. The others do not read: there, the program writes to the bench by itself, which is
a little less work than those have that `bench.restart` compares them with.

A program that is up reads from a FIFO that nobody writes to, and ends when the bench does: whatever happens to its
supervisor, none stays behind.

runit and s6 hold back a program that ran for less than a second. They are given that second before each kill, outside
the time that counts.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import attrs

from bench.contest import Stopwatch
from bench.peers.erlang import PROGRAM

SECOND = 1.1
PATIENCE = 60.0
"""Seconds until programs that are not back are given up."""

SUPERVISORD = """
[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={folder}/supervisord.pid

[program:kept]
command=/bin/sh {script}
process_name=%(process_num)d
numprocs={count}
startsecs=0
autorestart=true
stdout_logfile=NONE
stderr_logfile=NONE
"""
CIRCUS = """
[circus]
endpoint = ipc://{folder}/endpoint
pubsub_endpoint = ipc://{folder}/pubsub
"""
WATCHER = """
[watcher:kept{number}]
cmd = /bin/sh {script}
"""

Argv = Sequence[str]


class Silent(Exception):
    """Somebody did not come up."""


class Bell:
    """Two FIFOs: by `path` each program tells its number when it is up, and by another it is held until `close`.

    `shell` is the program for one who reads its output; `script` is a file with the same, which rings by itself."""

    def __init__(self, folder: Path) -> None:
        self.path, hold, self.script = folder / "up", folder / "hold", folder / "run"
        os.mkfifo(self.path)
        os.mkfifo(hold)
        self._up, self._hold = os.open(self.path, os.O_RDWR), os.open(hold, os.O_RDWR)
        self._rest = b""
        self.shell = f"exec <{hold}; echo $$; exec cat"
        self.script.write_text(f"#!/bin/sh\nexec <{hold}\necho $$ >{self.path}\nexec cat\n")
        self.script.chmod(0o755)

    def hear(self, count: int) -> list[int]:
        """Wait until so many are up."""
        while (missing := count - self._rest.count(b"\n")) > 0:
            if not select.select([self._up], [], [], PATIENCE)[0]:
                raise Silent(f"{missing} of {count} programs did not come up in {PATIENCE:.0f} s")
            self._rest += os.read(self._up, 65536)
        *lines, self._rest = self._rest.split(b"\n")
        return [int(line) for line in lines]

    def close(self) -> None:
        """Hear no more, and let all go."""
        os.close(self._up)
        os.close(self._hold)


@attrs.frozen
class Keeper:
    """`lay(folder, bell, count)` writes what it is to be told, and gives the commands that keep `count` programs;
    `pause`: how old, in seconds, a program has to be to be started again at once."""

    lay: Callable[[Path, Bell, int], list[Argv]]
    pause: float = 0.0


def folders(program: str, folder: Path, bell: Bell, count: int) -> list[Argv]:
    """A service directory for each, and a supervisor for each of those."""
    services = [folder / f"service{number}" for number in range(count)]
    for service in services:
        service.mkdir()
        (service / "run").symlink_to(bell.script)
    return [(program, str(service)) for service in services]


def runit(folder: Path, bell: Bell, count: int) -> list[Argv]:
    """A `runsv` for each."""
    return folders("runsv", folder, bell, count)


def s6(folder: Path, bell: Bell, count: int) -> list[Argv]:
    """An `s6-supervise` for each."""
    return folders("s6-supervise", folder, bell, count)


def supervisord(folder: Path, bell: Bell, count: int) -> list[Argv]:
    """One for all."""
    settings = folder / "supervisord.conf"
    settings.write_text(SUPERVISORD.format(folder=folder, script=bell.script, count=count))
    return [("supervisord", "-c", str(settings))]


def circus(folder: Path, bell: Bell, count: int) -> list[Argv]:
    """One for all, with a watcher for each."""
    settings = folder / "circus.ini"
    watchers = [WATCHER.format(number=number, script=bell.script) for number in range(count)]
    settings.write_text("".join((CIRCUS.format(folder=folder), *watchers)))
    return [("circusd", str(settings))]


def erlang(folder: Path, bell: Bell, count: int) -> list[Argv]:
    """One for all: a server with a port for each."""
    return [("escript", str(PROGRAM), "keep", str(count), bell.shell, str(bell.path))]


KEEPERS: Mapping[str, Keeper] = {
    "runit": Keeper(runit, SECOND),
    "s6": Keeper(s6, SECOND),
    "supervisord": Keeper(supervisord),
    "circus": Keeper(circus),
    "erlang": Keeper(erlang),
}


def kept(name: str, at_once: int, kills: int) -> Stopwatch:
    """`kills` replacements by one of `KEEPERS`, `at_once` at a time; CPU time is NaN, for it is not ours."""
    keeper, total = KEEPERS[name], Stopwatch()
    total.cpu = float("nan")
    with (
        tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder,
        closing(Bell(Path(folder))) as bell,
        running(keeper.lay(Path(folder), bell, at_once)),
    ):
        up = bell.hear(at_once)
        for _ in range(kills // at_once):
            time.sleep(keeper.pause)
            with Stopwatch() as watch:
                kill(up)
                up = bell.hear(at_once)
            total.wall += watch.wall
    return total


@contextmanager
def running(commands: Sequence[Argv]) -> Generator[None, None, None]:
    """All of them, for the length of the `with`; then they are asked to end."""
    null = subprocess.DEVNULL
    started: list[subprocess.Popen[bytes]] = []
    try:
        for argv in commands:
            started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=null, stderr=null))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            end(process)


def kill(pids: Sequence[int]) -> None:
    """End all."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Close its stdin and wait for its end; kill it when that does not come."""
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=PATIENCE)
    process.kill()
    process.wait()
