"""The pipes and the memory of the scripted agent: lines in, bytes out, signals as something to wait for, sessions kept.

stdout is written with blocking writes; a reader that went away is ignored, as the real CLI ignores it. A session is
one small JSON file under `$CLAUDE_CONFIG_DIR/scripted` (else `$XDG_STATE_HOME/proctor/scripted`), replaced whole; a home that
cannot be written is tolerated.
"""

from __future__ import annotations

import os
import select
import signal
import time

from proctor.actors.scripted.frames import Frame, encode
from proctor.actors.scripted.script import parse, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen


class Pipes:
    """stdin as lines, waited for together with signals; stdout and stderr as bytes."""

    def __init__(self) -> None:
        self.eof = False
        self.parts: list[bytes] = []
        self.woken, waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(waker, False)
        # a signal has to wake `select`, which Python would else go on with (PEP 475)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def read(self, seconds: float | None) -> list[bytes]:
        """The lines that have come, after at most `seconds`; none after the end, or when a signal came first."""
        descriptors = [self.woken] if self.eof else [self.woken, 0]
        ready, _, _ = select.select(descriptors, [], [], seconds)
        if self.woken in ready:
            os.read(self.woken, 4096)
        if 0 not in ready:
            return []
        data = os.read(0, 1 << 20)
        self.eof = not data
        self.parts.append(data)
        # joined only when a line has ended: a prompt of many megabytes would be copied again for each piece
        if b"\n" not in data and not self.eof:
            return []
        *lines, rest = (b"".join(self.parts) + (b"\n" if self.eof else b"")).split(b"\n")
        self.parts = [rest]
        return lines

    def write(self, data: bytes, fd: int = 1) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BrokenPipeError:
                return


class Store:
    """One small JSON file for each session, replaced whole; a home that cannot be written is tolerated."""

    def __init__(self, persist: bool) -> None:
        home = os.environ.get("CLAUDE_CONFIG_DIR")
        state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self.folder = os.path.join(home or os.path.join(state, "proctor"), "scripted")
        self.persist = persist and os.path.isabs(self.folder)  # without a home the ~ stays

    def load(self, session: str) -> Frame | None:
        if not session.replace("-", "").replace("_", "").isalnum():
            return None
        return parse(read_bytes(os.path.join(self.folder, session + ".json"))) or None

    def save(self, name: str, state: Frame) -> None:
        if not self.persist:
            return
        path = os.path.join(self.folder, name + ".json")
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                file.write(encode(state))
            # a kill in the middle of the write, which is what scripts test, leaves the old state
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            self.persist = False

    def first(self, key: str) -> bool:
        """Whether this is the first time that anyone using this folder asks for `key`."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            # O_EXCL decides between several processes that ask at once
            os.close(os.open(os.path.join(self.folder, f"once-{key}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True


def start_group(command: str) -> Popen[bytes]:
    """A shell command as the real CLI runs its tools: in a session of its own, its output to be read as it comes."""
    import subprocess

    tool = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert tool.stdout is not None
    # read between two steps of a turn, where a wait would hold up the other pipes
    os.set_blocking(tool.stdout.fileno(), False)
    return tool


def stop_group(tool: Popen[bytes]) -> None:
    """SIGTERM to the group of a tool, SIGKILL after 1.5 s, as the real CLI does it."""
    end_group(tool.pid, signal.SIGTERM)
    deadline = time.monotonic() + 1.5
    while tool.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    end_group(tool.pid, signal.SIGKILL)
    tool.wait()


def end_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
