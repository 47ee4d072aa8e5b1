"""The file that keeps the windows of budgets between two runs of a program.

It is replaced atomically. A file that is damaged, of a later version, or open in another program is reported in one log record;
the windows then start empty, and a file of another program or version is left as it is.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.actors.disk import replace_file

VERSION = 1
_LOG = "proctor"


class KeptWindow(msgspec.Struct, frozen=True):
    """One window: what was spent at which moment (Unix seconds), turns of unknown cost, and the dearest turn of each kind
    of command line."""

    spent: list[tuple[float, float]] = []
    unknown: int = 0
    dearest: dict[str, float] = {}


class _Written(msgspec.Struct, frozen=True):
    version: int
    windows: dict[str, KeptWindow] = {}


class _Version(msgspec.Struct, frozen=True):
    version: int


class BudgetFile:
    """`path` and, beside it, the lock of the host that has it open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        self._refused = False

    def open(self) -> dict[str, KeptWindow]:
        """The windows that are in it; from now on it is this host's to write, where that can be."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._taken()
            return self._read()
        except FileNotFoundError:
            return {}
        except BlockingIOError:
            # Two programs that write one file would each overwrite what the other has spent.
            self._leave("another program has it open")
        except OSError as error:
            self._leave(error.strerror or str(error))
        return {}

    def write(self, windows: Mapping[str, KeptWindow]) -> None:
        """Put these in the place of what is in it."""
        if self._lock < 0:
            return
        try:
            # By a rename: a program killed in the midst leaves the old windows whole.
            replace_file(self._path, msgspec.json.encode(_Written(VERSION, dict(windows))))
            self._refused = False
        except OSError as error:
            # Once for each failure that lasts, not for each turn.
            if not self._refused:
                self._refused = True
                text = "cannot save spending to %s: %s; it is counted in memory only"
                logging.getLogger(_LOG).warning(text, self._path, error.strerror or error)

    def close(self) -> None:
        """Let another host have it. A second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _taken(self) -> int:
        # The lock is a file of its own: the other one is replaced, and with it a lock on it.
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        return lock

    def _read(self) -> dict[str, KeptWindow]:
        data = self._path.read_bytes()
        try:
            # The version first: a later form may not decode as ours.
            found = msgspec.json.decode(data, type=_Version).version
            if found > VERSION:
                self._leave(f"a later version of proctor wrote it ({found}, this one knows {VERSION})")
                return {}
            return msgspec.json.decode(data, type=_Written).windows
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = "%s is not a spending file (%s); their windows start empty"
            logging.getLogger(_LOG).warning(text, self._path, error)
            return {}

    def _leave(self, why: str) -> None:
        """It is not ours to write."""
        with suppress(OSError):
            # Gives the lock back, so that `write` leaves the file alone.
            self.close()
        text = "spending is neither loaded nor saved: %s: %s"
        logging.getLogger(_LOG).warning(text, self._path, why)
