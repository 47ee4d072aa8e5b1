"""Reading /proc: the identity, the marker and the ancestors of any process.

A process is known by its number and the time it started, in ticks since the boot: a number alone is given away again.
Every answer is about one instant. What is gone, a zombie's environment and what may not be looked at are answers, not
errors; what is raised besides PermissionError is our own shortage, of descriptors for one. Linux; elsewhere nothing is known of anybody. Not here: what is done to whom.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from proctor.runtime.processes.spawning import MARKER

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGESIZE")
_GONE = (FileNotFoundError, ProcessLookupError)
_TICK = os.sysconf("SC_CLK_TCK")
_MARKED = f"\0{MARKER}=".encode()
_PF_EXITING = 0x4


@attrs.frozen
class Stat:
    """A line of /proc: the program's `name`, `state` (`Z` is a zombie), `parent`, and `start` in ticks since the boot.
    `exiting` is true from the moment the kernel began to end it, before its descriptors are closed."""

    name: str
    state: str
    parent: int
    start: int
    exiting: bool = False


def stat_of(pid: int) -> Stat | None:
    """The process with this number now; None when there is none, or the system hides others' processes."""
    read = _read_stat(pid)
    if read is None:
        return None
    name, fields = read
    exiting = fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)
    return Stat(name, fields[0].decode(), int(fields[1]), int(fields[19]), exiting)


def _read_stat(pid: int) -> tuple[str, list[bytes]] | None:
    """The name of a process and the fields of its `stat` behind the name; None as for `stat_of`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as line:
            before, _, after = line.read().rpartition(b")")  # a name may have a bracket in it
    except (*_GONE, PermissionError):
        return None
    return before.partition(b"(")[2].decode("utf-8", "replace"), after.split()


def marker_of(pid: int) -> str | None:
    """The marker in its environment; None without one, and empty when there is no environment at all: a zombie, a thread
    of the kernel, or one in the middle of its `exec`. Raises PermissionError when we may not look."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as block:
            text = block.read()
    except _GONE:
        return None
    if not text:
        return ""
    # a NUL in front, so that the marker is found as the first variable too and never within the value of another
    _, found, after = (b"\0" + text).partition(_MARKED)
    return after.partition(b"\0")[0].decode("utf-8", "replace") if found else None


def is_executing(pid: int) -> bool:
    """Whether it is in the middle of an `exec`: the memory of the old program is gone, and the new one has no environment
    yet. The kernel closes its descriptors before that, by which its parent knows that it runs."""
    read = _read_stat(pid)
    if read is None:
        return False
    _, fields = read
    # A kernel thread and a zombie have no memory; an environment that is empty for good has an end.
    return int(fields[20]) > 0 and int(fields[48]) == 0


def children_of(pid: int) -> list[int]:
    """The numbers of those it has started and of those it has inherited; none when it is gone."""
    found: list[int] = []
    try:
        # the kernel lists children by the thread that started them
        for task in os.listdir(f"/proc/{pid}/task"):
            found += _children(f"/proc/{pid}/task/{task}/children")
    except (*_GONE, PermissionError):
        pass
    return found


def _children(path: str) -> list[int]:
    try:
        with open(path, "rb") as line:
            return [*map(int, line.read().split())]
    except _GONE:  # a thread that has ended
        return []


def resident_of(pid: int) -> int | None:
    """Bytes of it that are in memory, what it shares with others included; None when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as line:
            return int(line.read().split()[1]) * _PAGE
    except (*_GONE, PermissionError):
        return None


@attrs.frozen
class Sample:
    """One process at one moment: its `state` as in `Stat`, the `cpu` time it has used in seconds, and the `io` bytes that
    it has read and written in all (0 where the system does not let us look)."""

    pid: int
    name: str
    state: str
    cpu: float
    io: int


def sample_tree(root: int) -> tuple[Sample, ...]:
    """The process `root` and all below it, parents before their children; empty when it is gone."""
    found: dict[int, Sample] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        # a number may be given away again during the walk, which must still end
        if pid not in found and (sample := _sample(pid)) is not None:
            found[pid] = sample
            waiting += children_of(pid)
    return tuple(found.values())


def _sample(pid: int) -> Sample | None:
    read = _read_stat(pid)
    if read is None:
        return None
    name, fields = read
    cpu = (int(fields[11]) + int(fields[12])) / _TICK
    return Sample(pid, name, fields[0].decode(), cpu, _io(pid))


def _io(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io", "rb") as lines:
            facts = dict(line.split(b":") for line in lines)
    except (*_GONE, PermissionError):
        return 0
    return int(facts.get(b"rchar", 0)) + int(facts.get(b"wchar", 0))


def pids() -> list[int]:
    """The numbers of all processes, the newest first. Raises OSError where there is no /proc."""
    # newest first: those that fork right now are stopped before they fork again
    return sorted(map(int, filter(str.isdigit, os.listdir(_PROC))), reverse=True)


def last_pid() -> int:
    """The number given away last: unchanged between two looks, nothing was started in between."""
    return int((_PROC / "loadavg").read_bytes().split()[-1])


def ancestors() -> set[int]:
    """The numbers of this process and of all that it descends from."""
    line: set[int] = set()
    pid = os.getpid()
    while pid and pid not in line:
        line.add(pid)
        above = stat_of(pid)
        pid = 0 if above is None else above.parent
    return line


@attrs.frozen
class PidNamespace:
    """The scope in which a process number is valid: the machine, its boot, and the namespace of process numbers."""

    machine: str
    boot: str
    namespace: str


def pid_namespace() -> PidNamespace:
    """Our own. Boot and namespace are `-` where the system does not show them. Raises OSError when it could not be asked:
    a place that was not looked at must not pass for another one."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink(_PROC / "self/ns/pid")
    except (*_GONE, NotADirectoryError, PermissionError):
        # not shown is an answer; any other error is raised, since a wrong place would disown a ledger
        boot = namespace = "-"
    return PidNamespace("".join(os.uname().nodename.split()) or "-", boot, namespace)
