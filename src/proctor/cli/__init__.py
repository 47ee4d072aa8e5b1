"""The command line. `main` is the console script; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

from proctor.cli.codes import INTERNAL, USAGE

NEEDED = ("cyclopts", "rich", "platformdirs")
"""What the extra `cli` brings."""


def main() -> None:
    """Run the command of `sys.argv` and exit with its status. No traceback reaches the user."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command listens: no traceback out of an import
    try:
        status = _dispatch(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        status = 128 + signal.SIGPIPE
    except Exception as error:  # the last resort: one line instead of a traceback
        if os.environ.get("PROCTOR_TRACEBACK"):
            raise
        _tell(f"internal error: {_one_line(error)} (set PROCTOR_TRACEBACK=1 to see where)")
        status = INTERNAL
    _leave(status)


def _dispatch(argv: list[str]) -> int:
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        _tell("the command line needs its extra packages: pip install 'proctor[cli]'")
        return USAGE
    from proctor.cli.commands import dispatch

    return dispatch(argv)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _tell(text: str) -> None:
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]  # closed at the start: None
        print(f"proctor: {text}", file=sys.stderr)


def _leave(status: int) -> None:
    """Exit; what is still buffered for a reader that has gone must not become a complaint of the interpreter's."""
    try:
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)
