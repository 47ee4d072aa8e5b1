"""The guard: a small parent for one program, run as `python -I -S -c LAUNCH RUNTIME_PID[:REPORT_FD] CMD...`.

It is the parent of the program and the subreaper of all that the program starts. Guarantees: when the runtime goes,
however it goes, the whole tree is killed; when the program ends, what it left behind is killed before the guard ends
with the program's own status; SIGUSR1 kills everything now. Sessions and process groups of the descendants do not
matter. stdin, stdout, stderr, environment and working directory are the program's; the guard holds none of the pipes.

Every other signal that can be caught is survived: sent to the group, it reaches the program by itself.
On REPORT_FD goes one line: the program's pid, or `!ERRNO` when it cannot be run; then the guard also says so on
stderr and exits with 127 (not found) or 126, and with 125 when it cannot do its own work.

The runtime is watched by pidfd: one end of a pipe could be inherited, and a parent-death signal follows the thread
that spawned. The program has a parent-death signal, which is sound here as the guard has a single thread.

A guard by itself takes an interpreter's start. `serve` saves it: `python -I -S -c SERVE RUNTIME_PID SOCKET_FD SYS_CLONE` is
started once and forks a guard for each request, as a child of the runtime, by a clone with CLONE_PARENT. What a guard has
from its start (standard streams, environment, directory, limits, umask, its own session) the request brings, or it is
taken from the runtime; the answer on the socket is its pid and the errno that prevented it.

Not handled: guard and runtime killed in the same instant (the program dies, its descendants live until the next start
sweeps them, see `ledger`), processes that cannot die (after 10 s the guard leaves them behind). Linux only; standard library only, and little of it: a guard is
started with every program. `_signal` and `_ctypes` are what `signal` wraps in enums and `ctypes` in classes, for half of
the whole start-up. `LAUNCH` imports this file, where running it would compile it each time.
"""

from __future__ import annotations

import _ctypes
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    Environment = dict[bytes, bytes]
else:
    import _signal as signal

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
CANNOT_GUARD, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
SHELL_SIGNAL = 128
SWEEP_LIMIT = 10.0
CLONE_PARENT = 0x8000
MSG_CMSG_CLOEXEC = 0x40000000
REQUEST_LIMIT, RECORD = 64 * 1024, b"%10d%6d"
LEFT_ALONE = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGABRT, signal.SIGTRAP),
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS),
    }
)

THIS_PROGRAM: Any = None
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(THIS_PROGRAM, os.RTLD_NOW), "prctl")


def prctl(option: int, value: int) -> int:
    result: int = _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0))
    return result


def main() -> NoReturn:
    runtime, _, given = sys.argv[1].partition(":")
    report = int(given or -1)
    if report != -1:
        # The program must not inherit it: the runtime waits for the end of this pipe.
        os.set_inheritable(report, False)
    watch_over(int(runtime), report, sys.argv[2:], None)


def watch_over(runtime: int, report: int, command: list[str], environment: Environment | None) -> NoReturn:
    try:
        guard(runtime, report, command, environment)
    except OSError as refusal:
        give_up(report, refusal)


def guard(runtime: int, report: int, command: list[str], environment: Environment | None) -> NoReturn:
    # Before the program exists: a guard that cannot watch must refuse, not run a program without protection.
    watch = watch_runtime(runtime)
    # Before the fork: a SIGTERM between the two would kill the guard and leave the program.
    wake = catch_signals()
    program, error = start(command, environment)
    # Before the pipes are let go: an error text on stderr must reach its reader.
    write_line(report, f"!{error}" if error else str(program))
    if error:
        os.write(2, f"proctor guard: {command[0]}: {os.strerror(error)}\n".encode(errors="replace"))
        # `_exit`, not `exit`: no clean-up of the interpreter, which is slow and could raise.
        os._exit(NOT_FOUND if error == errno.ENOENT else NOT_EXECUTABLE)
    let_go_of_the_pipes()
    # Only after the last message to stderr, which goes to /dev/null from here on.
    end_as(sweep(program, *follow(program, watch, wake)))


def give_up(report: int, refusal: OSError) -> NoReturn:
    write_line(report, f"!{refusal.errno}")
    try:  # noqa: SIM105  an import of contextlib costs more than it saves in lines
        # A reader that has gone is an EPIPE here: Python does not let SIGPIPE end the guard.
        os.write(2, f"proctor guard: cannot go on: {refusal.strerror}\n".encode())
    except OSError:
        pass  # no reader any more
    sweep(0, None, True)  # without a guard above it the tree could outlive the runtime
    os._exit(CANNOT_GUARD)


def watch_runtime(runtime: int) -> int:
    # Without it, grandchildren of a program that ends would go to init, out of the guard's reach.
    if prctl(PR_SET_CHILD_SUBREAPER, 1):
        os._exit(CANNOT_GUARD)
    # a guard that was stopped would not see that its runtime has ended
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
    # Opened first and checked behind it: the runtime may have died since it spawned us, and its number be
    # reused.
    watch = os.pidfd_open(runtime)
    if os.getppid() != runtime:  # gone, and its number perhaps somebody else's
        os._exit(CANNOT_GUARD)
    return watch


def catch_signals() -> int:
    # Non-blocking: a flood of signals must not block the handler on a full pipe.
    wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    for number in signal.valid_signals() - LEFT_ALONE:
        signal.signal(number, caught)  # a handler, not SIG_IGN: exec puts it back to the default
    return wake_r


def caught(_number: int, _frame: object) -> None: ...


def start(command: list[str], environment: Environment | None) -> tuple[int, int]:
    # Close-on-exec: end of file without a byte says that the exec has worked.
    failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
    guard = os.getpid()
    # held back until the handlers are off: the child would swallow a stop meant for the program
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    program = os.fork()
    if program == 0:
        become(command, environment, guard, failed_w)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Before the read: our own copy would keep it from ever ending.
    os.close(failed_w)
    error = int(os.read(failed_r, 16) or b"0")
    os.close(failed_r)
    return program, error


def become(command: list[str], environment: Environment | None, guard: int, failed: int) -> NoReturn:
    try:
        # The child shares the pipe: its signals would wake the guard.
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - LEFT_ALONE:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # After the fork, since a child does not inherit it; before the check below, so that no gap is left.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:  # it can have died before the line above
            os.execvpe(command[0], command, given_environment() if environment is None else environment)
    except OSError as refusal:
        os.write(failed, str(refusal.errno).encode())
    finally:
        # Also behind an unexpected exception: a second copy of the guard must never run on.
        os._exit(NOT_FOUND)


def given_environment() -> Environment:
    # os.environ is not it: in the C locale the interpreter adds an LC_CTYPE of its own
    with open("/proc/self/environ", "rb") as block:
        return pairs(entry for entry in block.read().split(b"\0") if entry)


def pairs(entries: Iterable[bytes]) -> Environment:
    return {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}


def write_line(report: int, line: str) -> None:
    if report == -1:
        return
    try:
        os.write(report, line.encode() + b"\n")
        os.close(report)
    except OSError:
        pass  # no reader: the runtime is gone, which the watch sees


def let_go_of_the_pipes() -> None:
    # the end of file on a pipe must mean that the program's side closed it
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def follow(program: int, watch: int, wake: int) -> tuple[int | None, bool]:
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        kill = False
        for fd, _ in poll.poll():
            # SIGUSR1 asks for the end of everything; any other byte only wakes the guard, which then looks
            # for itself.
            kill |= fd == watch or signal.SIGUSR1 in os.read(wake, 512)
        # Looked at on every wake: several deaths can come as one SIGCHLD.
        status, more = reap(program, None)
        if kill or status is not None:
            return status, more


def sweep(program: int, status: int | None, more: bool) -> int | None:
    until = time.monotonic() + SWEEP_LIMIT
    while more and time.monotonic() < until:
        signal_tree(signal.SIGSTOP)  # first freeze, so that nothing forks away
        signal_tree(signal.SIGKILL)
        # Orphans of those just killed become our children, so `more` stays true until the last of them is
        # reaped.
        status, more = reap(program, status)
        if more:
            # A kill takes effect at the next schedule of its victim; without the pause this loop would hold a
            # core.
            time.sleep(0.003)
    return status


def reap(program: int, status: int | None) -> tuple[int | None, bool]:
    while True:
        try:
            # Any child: as subreaper the guard gets orphans of the program, which no other process reaps.
            pid, ended_as = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == program:
            status = ended_as


def signal_tree(number: int) -> None:
    for pid in tree(os.getpid()):
        try:  # noqa: SIM105  an import of contextlib costs more than it saves in lines
            os.kill(pid, number)
        except OSError:
            pass


def tree(root: int) -> list[int]:
    children = children_listed if os.path.exists(f"/proc/{root}/task/{root}/children") else children_by_scan()
    found: list[int] = []
    fresh = children(root)
    while fresh:
        found += fresh
        fresh = [child for parent in fresh for child in children(parent)]
    return found


def children_listed(pid: int) -> list[int]:
    listed: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as names:
                listed += map(int, names.read().split())
    except OSError:
        pass  # it ended meanwhile; its children are ours by now, and the sweep comes round again
    return listed


def children_by_scan() -> Callable[[int], list[int]]:
    # a kernel built without the lists: every process on the machine is looked at
    known: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []  # the sweep comes round again
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        known.setdefault(parent, []).append(int(name))
    return lambda pid: known.get(pid, [])


def end_as(status: int | None) -> NoReturn:
    if status is None:
        os._exit(SHELL_SIGNAL + signal.SIGKILL)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    prctl(PR_SET_DUMPABLE, 0)  # the program's death, not ours: no second core
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(SHELL_SIGNAL + number)


def serve() -> NoReturn:
    runtime, requests, clone = map(int, sys.argv[1:])
    # stopped, it would not see the end of the socket; checked behind it, since the runtime can be dead by now
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != runtime:
        os._exit(CANNOT_GUARD)
    # Here, not above: a guard that is started by itself needs none of them.
    import _socket
    import gc

    __import__("resource")  # loaded once for all guards

    fork = sibling_fork(clone)
    # a collection in a guard would write to each object, and so copy every page that it shares with the others
    gc.freeze()
    gc.disable()
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, requests)
    room = _socket.CMSG_SPACE(16)
    while True:
        request, extra, _, _ = socket.recvmsg(REQUEST_LIMIT, room, MSG_CMSG_CLOEXEC)
        if not request:
            os._exit(0)
        got = memoryview(extra[0][2] if extra else b"").cast("i").tolist()
        # Fewer than four: we are out of descriptors.
        pid = fork() if len(got) == 4 else -errno.EMFILE
        if pid == 0:
            become_guard(runtime, request, got, socket)
        for fd in got:
            os.close(fd)
        if pid < 0:
            socket.send(RECORD % (0, -pid))


def sibling_fork(clone: int) -> Callable[[], int]:
    # fork by hand, since `os.fork` cannot give its child to our parent: with the interpreter's own steps before and after
    # it, and its lock held, which a call by `ctypes` otherwise lets go of
    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class Locked(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = Long

    program = _ctypes.dlopen(THIS_PROGRAM, os.RTLD_NOW)
    names = ("syscall", "PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
    syscall, before, in_parent, in_child = (Locked(_ctypes.dlsym(program, name)) for name in names)
    arguments = [Long(value) for value in (clone, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)]

    def fork() -> int:
        before()
        pid: int = syscall(*arguments)
        error = _ctypes.get_errno()
        if pid == 0:
            in_child()
        else:
            in_parent()
        return -error if pid < 0 else pid

    return fork


def become_guard(runtime: int, request: bytes, given: list[int], socket: Any) -> NoReturn:
    number = errno.ENOMEM
    try:
        directory, marker, count, *rest = request.split(b"\0")
        variables, command = pairs(rest[: int(count)]), [*map(os.fsdecode, rest[int(count) :])]
        take_limits(runtime)
        os.chdir(directory)
        for fd in (0, 1, 2):
            os.dup2(given[fd], fd)
            os.close(given[fd])
        show_marker(marker)
        # A session of its own, as one that the runtime has started; before the answer, by which it is known to be there.
        os.setsid()
        socket.send(RECORD % (os.getpid(), 0))
    except OSError as refusal:
        number = refusal.errno or errno.EIO
    else:
        socket.close()
        watch_over(runtime, given[3], command, variables)
    finally:
        answer_and_end(socket, number)


def answer_and_end(socket: Any, number: int) -> NoReturn:
    try:
        socket.send(RECORD % (os.getpid(), number))
    finally:
        # Also where the runtime reads no more: without its knowledge nothing may be started.
        os._exit(CANNOT_GUARD)


def take_limits(runtime: int) -> None:
    import resource

    # the runtime's own, which may have changed since we were started
    with open(f"/proc/{runtime}/status", "rb") as status:
        os.umask(int(status.read().partition(b"Umask:")[2].split()[0], 8))
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            number = getattr(resource, name)
            limit = resource.prlimit(runtime, number)
            if limit != resource.getrlimit(number):
                resource.setrlimit(number, limit)


def show_marker(marker: bytes) -> None:
    # over the environment that we were started with, which is where a sweep looks for a marker; it has room for one
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    if len(marker) < end - start:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(marker.ljust(end - start, b"\0"))


if __name__ == "__main__":
    main()
