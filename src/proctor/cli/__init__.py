"""The command line. `main` is the console script; each command imports what it needs when it runs."""

from __future__ import annotations

import atexit
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from proctor.cli.exit_status import INTERNAL, OK, STDOUT_GONE, USAGE
from proctor.cli.loading import loading

NEEDED = ("cyclopts", "rich", "platformdirs")
"""Packages of the extra `cli`."""


def main() -> None:
    """Run the command of `sys.argv` and exit with its status. No traceback reaches the user."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is in a background job of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command listens: no traceback out of an import
    # before anything opens a file, because the lowest free number is taken: a socket or a ledger would become
    # stdout
    _reserve_standard_streams()
    if os.getpid() == 1:  # in a container
        from proctor.cli.first_process import go_on_in_child

        go_on_in_child()
    try:
        status = _dispatch(sys.argv[1:])
    except BrokenPipeError:
        status = STDOUT_GONE
    except Exception as error:  # the last resort: one line instead of a traceback
        if os.environ.get("PROCTOR_TRACEBACK"):
            raise
        _write_error(f"internal error: {_one_line(error)} (set PROCTOR_TRACEBACK=1 to see where)")
        status = INTERNAL
    _leave(status)


_SERVERS = ("serve", "web")


def _reserve_standard_streams() -> None:
    """Keep the numbers of closed standard streams occupied: a file of ours must not become stdout. Using one stays an error."""
    for fd, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            # opened the wrong way round on purpose (stdin to write, stdout to read): its use fails as on a
            # closed one
            os.open(os.devnull, mode)


def _dispatch(argv: list[str]) -> int:
    # found, not imported: the check must not cost the start of a command its time
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        _write_error("the command line needs its extra packages: pip install 'proctor[cli]'")
        return USAGE
    if argv == ["--version"]:  # which scripts and health checks ask for: it needs no parser
        print(version_line())
        return OK
    with loading():
        from proctor.cli.verbs import VERBS, run_verb
    if argv and argv[0] in VERBS:  # they ask a host that runs already, and load none of what follows
        return run_verb(argv)
    with loading():
        from proctor.actors.serving.capacity import raise_file_limit
        from proctor.cli.app import dispatch
        from proctor.cli.log import log_to_stderr
        from proctor.cli.traces import exported_traces
        from proctor.cli.usage_errors import complain

    serves = not argv or argv[0] in _SERVERS
    # not in `dispatch`: a program that calls it keeps its own logging and limits
    if error := log_to_stderr(os.environ, serves=serves):
        complain(error)
    # before the loop: an agent needs about ten descriptors, and the usual soft limit of 1024 is too small for
    # a server
    raise_file_limit()
    with exported_traces(os.environ, complain):
        return dispatch(argv)


def version_line() -> str:
    """The name of the program and its version."""
    import proctor

    return f"proctor {proctor.__version__}"


def _one_line(error: BaseException) -> str:
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    if len(inner) == 1:  # a group of one adds nothing to its error
        return _one_line(inner[0])
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _write_error(text: str) -> None:
    if _is_open(sys.stderr):
        from proctor.cli.ui.log_format import as_line

        sys.stderr.write(as_line(text, os.environ))


def _is_open(stream: object) -> bool:
    """Whether a standard stream is open; one that was closed when Python started is None."""
    return stream is not None


def _leave(status: int) -> NoReturn:
    """Exit. Output that its reader no longer takes must not end in a message of the interpreter.

    The interpreter's own end, which frees every object of every module one by one, takes longer than a short command. It is skipped
    when nothing depends on it: what was registered for the exit has run, output is flushed, and no thread is to be waited for.
    """
    if _is_open(sys.stdout):
        try:
            sys.stdout.flush()
        except OSError:
            # the interpreter flushes stdout once more at its exit and would print "Exception ignored" for it
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = status or STDOUT_GONE
    if _is_observed() or any(not thread.daemon for thread in threading.enumerate()[1:]):
        sys.exit(status)
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # there is no public way, and `os._exit` runs none
    if _is_open(sys.stderr):
        with suppress(OSError):
            sys.stderr.flush()
    os._exit(status)


def _is_observed() -> bool:
    """Whether a debugger, a profiler or a measurement of coverage follows the program, and writes its result at the end."""
    return sys.gettrace() is not None or sys.getprofile() is not None or bool(sys.flags.inspect)
