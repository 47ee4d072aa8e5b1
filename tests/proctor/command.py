"""The command with a home and a state folder of its own: in this process, or as a user runs it, in one of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import attrs

from proctor.cli.app import dispatch
from tests.proctor.fork_server import Forked, fork

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROCTOR = (sys.executable, "-m", "proctor")
PATIENCE = 60.0


@attrs.frozen
class Ended:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr. Fails when there are more."""
        [line] = self.err.splitlines()
        return line


def environment(home: Path, **more: str) -> dict[str, str]:
    """What the command gets of ours, with its own home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm", "COLUMNS": "100"}
    return {**kept, **own, "PYTHONPATH": str(ROOT / "src"), **more}


def proctor(*words: str, home: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ended:
    """Run the command to its end in this process: what it prints, asks and answers, without an interpreter's start."""
    with (
        tempfile.TemporaryFile() as stdin_file,
        tempfile.TemporaryFile() as stdout_file,
        tempfile.TemporaryFile() as stderr_file,
    ):
        stdin_file.write(stdin)
        stdin_file.seek(0)
        with _streams(stdin_file, stdout_file, stderr_file), _environment(environment(home, **(env or {}))):
            status = dispatch(list(words))
        return Ended(status, *(_content(file) for file in (stdout_file, stderr_file)))


@contextlib.contextmanager
def _streams(*files: IO[bytes]) -> Generator[None]:
    """Put files in the place of stdin, stdout and stderr, as descriptors and as Python's own streams."""
    before, kept = (sys.stdin, sys.stdout, sys.stderr), [os.dup(fd) for fd in range(3)]
    for fd, file in enumerate(files):
        os.dup2(file.fileno(), fd)
    streams = [os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate(("r", "w", "w"))]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        for stream in streams:
            stream.close()
        sys.stdin, sys.stdout, sys.stderr = before
        for fd, old in enumerate(kept):
            os.dup2(old, fd)
            os.close(old)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def proctor_process(
    *words: str, home: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None, first: str = ""
) -> Ended:
    """Run the command to its end in a process of its own; `first` as for `running`."""
    return _ended(running(*words, home=home, env=env, first=first, asked=True), stdin)


def python_process(code: str, *words: str, stdin: bytes = b"") -> Ended:
    """Run `python -c CODE` to its end, with the environment of the tests; proctor is imported before."""
    return _ended(_piped(("-c", code, *words), os.environ, asked=True), stdin)


def _ended(start: AbstractContextManager[Running], stdin: bytes) -> Ended:
    with ThreadPoolExecutor(3) as pool, start as command:
        written = pool.submit(_write, command.stdin, stdin)
        out, err = pool.map(_read_all, (command.out, command.err), timeout=PATIENCE)
        written.result()
        return Ended(command.end(), out, err)


def _read_all(pipe: IO[bytes]) -> str:
    return pipe.read().decode()


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)


def _shell(under: str) -> Sequence[str]:
    return ("sh", "-c", f'{under}; exec "$@"', "sh") if under else ()


def read_until(fd: int, wanted: bytes) -> bytes:
    """What can be read until `wanted` has come, that included. Fails after a minute, or at the end before."""
    seen, limit = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        ready, _, _ = select.select([fd], [], [], max(0.0, limit - time.monotonic()))
        assert ready, f"{wanted!r} did not come: {seen[-2000:]!r}"
        part = _read(fd)
        assert part, f"it ended without {wanted!r}: {seen[-2000:]!r}"
        seen += part
    return seen


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # a terminal that nobody holds any more
        return b""


def once(look: Callable[[], Any]) -> Any:
    """What a look finds, as soon as it finds something."""
    limit = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return found


def wait_for(path: Path, pattern: str, *, patience: float = PATIENCE) -> Path:
    """The first file below `path` that matches, when it has come."""
    limit = time.monotonic() + patience
    while not (found := next(iter(path.glob(pattern)), None)):
        assert time.monotonic() < limit, f"no {pattern} in {path}"
        time.sleep(0.02)
    return found


def wait_recorded(runs: Path, pattern: str = "*/1/meta.json", *, patience: float = PATIENCE) -> Path:
    """The `meta.json` of a process whose recording is complete, when it is."""
    limit = time.monotonic() + patience
    meta = wait_for(runs, pattern, patience=patience)
    while b'"wall_s"' not in meta.read_bytes():  # it is there from the start, and replaced at the end
        assert time.monotonic() < limit, f"{meta} is not complete"
        time.sleep(0.02)
    return meta


def processes_with(word: str) -> list[int]:
    """Processes whose command line holds `word`."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return [pid for pid in found if pid != os.getpid()]


class Terminal:
    """The command at a terminal of its own, 100 columns wide."""

    def __init__(self, words: Sequence[str], home: Path, *, lines: int = 30) -> None:
        self.fd, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 100, 0, 0))
        self.process = fork(words, [inner] * 3, environment(home), terminal=True)
        os.close(inner)
        self.seen = b""

    def until(self, wanted: str) -> str:
        """All that was shown up to this text."""
        self.seen += read_until(self.fd, wanted.encode())
        return self.seen.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        """Type as a person does."""
        os.write(self.fd, keys.encode())

    def end(self) -> int:
        """Read to the end and return the exit status."""
        while part := _read(self.fd):
            self.seen += part
        return self.process.wait(PATIENCE)

    @property
    def shown(self) -> str:
        """Everything that was shown."""
        return self.seen.decode("utf-8", "replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self.fd)


@attrs.frozen
class Running:
    """A command with pipes."""

    process: Forked | subprocess.Popen[bytes]
    stdin: IO[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def said(self, wanted: bytes, pipe: IO[bytes] | None = None) -> bytes:
        """What it says up to the line with `wanted`, that line included."""
        seen = b""
        while wanted not in seen:
            line = (pipe or self.out).readline()
            assert line, f"it ended without {wanted!r}: {seen!r}"
            seen += line
        return seen

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, patience: float = PATIENCE) -> int:
        """Its exit status."""
        return self.process.wait(patience)


@contextlib.contextmanager
def running(
    *words: str,
    home: Path,
    env: Mapping[str, str] | None = None,
    under: str = "",
    first: str = "",
    asked: bool = False,
) -> Generator[Running]:
    """The command with pipes, gone after the block; unless it is `asked` something, its stdin is at its end.

    `under` are words of a shell that set its limits before: it gets an interpreter of its own then, and wherever its
    environment changes how one starts. All else is a fork, which runs the Python code `first` before the command.
    """
    with _piped(words, environment(home, **(env or {})), under, first, asked=asked) as command:
        yield command


@contextlib.contextmanager
def _piped(
    words: Sequence[str], chosen: Mapping[str, str], under: str = "", first: str = "", *, asked: bool
) -> Generator[Running]:
    (stdin, to_stdin), (out, to_out), (err, to_err) = [os.pipe() for _ in range(3)]
    streams = (stdin, to_out, to_err)
    try:
        process = _start(words, streams, chosen, under, first)
    finally:
        for descriptor in streams:
            os.close(descriptor)
    with open(to_stdin, "wb") as pipe, open(out, "rb") as stdout, open(err, "rb") as stderr:
        if not asked:
            pipe.close()
        try:
            yield Running(process, pipe, stdout, stderr)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)


def _start(
    words: Sequence[str], streams: Sequence[int], chosen: Mapping[str, str], under: str, first: str
) -> Forked | subprocess.Popen[bytes]:
    of_the_interpreter = {name: value for name, value in chosen.items() if name.startswith("PYTHON")}
    is_plain = not under and of_the_interpreter == {"PYTHONPATH": str(ROOT / "src")}
    if first or is_plain or words[:1] == ("-c",):
        return fork(words, streams, chosen, first=first)
    stdin, stdout, stderr = streams
    command = [*_shell(under), *PROCTOR, *words]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=chosen)
