"""The run directory: what one agent was told and said, as it came.

    DIRECTORY/                      0700, held under a lock while its agent lives
        .proctor-tag                says that it is ours: what has none is never removed
        events.ndjson               the event log, through all incarnations
        lock                        one owner
        1/ 2/ ...                   one folder an incarnation:
            stdout.ndjson stdin.ndjson stderr.txt meta.json

A folder of an incarnation has the format of a recorded transcript, so it can be replayed. Frames are written before
they are decoded, bytes as they came. Environment values are never written, only the names of what was passed (L12,
R185); nor is anything the caller gave as a secret.

Without a place to record, the same files live in a temporary directory that goes with the run, or with the sweep of the
next host where this one is killed. Kept directories are
bounded by size and age. Removed is only what has our tag with its own name, belongs to this user, and is not locked:
a folder of somebody else's, a copy, a renamed one and a run directory of a version without tags stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from proctor.actors.disk import write_whole
from proctor.actors.errors import RecordingFailed
from proctor.runtime.ledger import make_folder
from proctor.runtime.tags import is_tagged, tag_folder

KEEP_BYTES = 1 * 2**30
KEEP_SECONDS = 30 * 86400.0
RUN = "proctor-run"
"""The kind in the tag of a run directory."""
_RUN_NAME = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,40}-[a-z0-9_]{8}")
_TIMES = 10_000


class RunDirectory:
    """A new directory below `root` (None: a temporary one, removed by `close`), locked until closed.

    `path` is where it records, `scratch` what its processes have for themselves: always temporary.

    Raises `RecordingFailed` when it cannot be made.
    """

    def __init__(self, root: Path | None, agent: str) -> None:
        self.kept = root is not None
        try:
            self.path = _make(root, agent)
            # short, because sockets are made in it, and gone with the run, because nobody replays it
            self.scratch = make_folder("proctor-") if self.kept else self.path
            self._lock = _new_lock(self.path)
        except OSError as error:
            raise RecordingFailed(str(root or tempfile.gettempdir()), error) from error
        self.incarnations = 0

    def open_incarnation(self) -> Recording:
        """The folder of the next incarnation."""
        self.incarnations += 1
        return Recording(self.path / str(self.incarnations))

    def close(self) -> None:
        """Give the lock back; a temporary directory is removed."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            shutil.rmtree(self.scratch, ignore_errors=True)


class Recording:
    """The four files of one incarnation. Every method raises `RecordingFailed` when the disk does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._t0 = trio.current_time()
        self._meta: dict[str, Any] = {}
        self._hidden: tuple[bytes, ...] = ()
        self._in_times = array("d")
        self._out_times = array("d")
        self._out_frames = array("q")
        try:
            path.mkdir(mode=0o700)
            self._stdout, self._stdin, self._stderr = (
                os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                for name in ("stdout.ndjson", "stdin.ndjson", "stderr.txt")
            )
        except OSError as error:
            raise RecordingFailed(str(path), error) from error

    def describe(self, **facts: Any) -> None:
        """Add to `meta.json` (argv, names of the environment, versions)."""
        self._meta.update(facts)

    def stdout(self, data: bytes, frame: int) -> None:
        """Bytes as read; `frame` is the number of the first line that ends in them."""
        write_whole(self._stdout, data, self.path)
        if len(self._out_times) < _TIMES:
            self._out_times.append(self._elapsed())
            self._out_frames.append(frame)

    def hide(self, secrets: Iterable[str]) -> None:
        """Write these texts nowhere: where one is a whole string of what is told, stars stand for it."""
        self._hidden = tuple(msgspec.json.encode(secret) for secret in secrets)

    def stdin(self, data: bytes) -> None:
        for secret in self._hidden:
            data = data.replace(secret, b'"***"')
        write_whole(self._stdin, data, self.path)
        if len(self._in_times) < _TIMES:
            self._in_times.append(self._elapsed())

    def stderr(self, data: bytes) -> None:
        write_whole(self._stderr, data, self.path)

    def read_stdout(self, offset: int, size: int) -> bytes:
        """A frame's bytes back from the disk."""
        return os.pread(self._stdout, size, offset)

    def close(self, **facts: Any) -> None:
        """Write `meta.json` and close the files. A second call does nothing."""
        if self._stdout < 0:
            return
        self.describe(**facts, wall_s=self._elapsed(), stdin_times_s=self._in_times.tolist())
        times = _spread(self._out_frames, self._out_times, facts.get("stdout_lines", 0))
        self.describe(line_times_s=times)
        data = msgspec.json.format(msgspec.json.encode(self._meta, enc_hook=str), indent=1)
        try:
            (self.path / "meta.json").write_bytes(data)
        except OSError as error:
            raise RecordingFailed(str(self.path), error) from error
        finally:
            for fd in (self._stdout, self._stdin, self._stderr):
                os.close(fd)
            self._stdout = self._stdin = self._stderr = -1

    def _elapsed(self) -> float:
        return round(trio.current_time() - self._t0, 4)


def write_private(path: Path, content: str | bytes) -> None:
    """A file that only its owner may read; one of this name is replaced. Raises `RecordingFailed`."""
    try:
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
    except OSError as error:
        raise RecordingFailed(str(path), error) from error


def prune(
    root: Path,
    *,
    keep_bytes: int = KEEP_BYTES,
    keep_seconds: float = KEEP_SECONDS,
    now: float | None = None,
) -> list[Path]:
    """Remove the oldest run directories below `root` until both bounds hold; returns what was removed.

    Only directories with our tag and our lock file count, and one whose lock is held is left alone. `now` is the time
    that ages are counted to (default: the wall clock's).
    """
    now, total, removed = time.time() if now is None else now, 0, list[Path]()
    for changed, run in sorted(_runs_in(root), reverse=True):
        total += _size(run)
        old = now - changed > keep_seconds
        if (total > keep_bytes or old) and _remove_unlocked(run):
            removed.append(run)
    return removed


def untagged_runs(root: Path) -> list[Path]:
    """What looks like a run directory below `root` and has no tag of ours, as versions before the tag made them. Nothing
    removes these by itself."""
    return sorted(
        lock.parent
        for lock in root.glob("*/lock")
        if _RUN_NAME.fullmatch(lock.parent.name) and not is_tagged(lock.parent, RUN, lock.parent.name)
    )


def forget(folder: Path, *, keep_seconds: float = KEEP_SECONDS) -> None:
    """Remove the files of `folder` that nobody has written for so long. A folder that is not there is empty."""
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime > keep_seconds:
                path.unlink()


def _make(root: Path | None, agent: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", agent)[:40] or "agent"
    if root is None:
        return make_folder(f"proctor-{name}-")
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=root))
    tag_folder(path, RUN, path.name)
    return path


def _new_lock(folder: Path) -> int:
    fresh = folder / "lock.new"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # held before it has the name that others look at: a prune between the two would remove a live directory
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(fresh, folder / "lock")
    except OSError:
        os.close(fd)
        raise
    return fd


def _spread(frames: Sequence[int], times: Sequence[float], lines: int) -> list[float]:
    if lines > _TIMES:
        return []
    out: list[float] = []
    for at, following in zip(times, [*frames[1:], lines], strict=False):
        out += [at] * (following - len(out))
    return out


def _runs_in(root: Path) -> Iterator[tuple[float, Path]]:
    for lock in root.glob("*/lock"):
        run = lock.parent
        with suppress(FileNotFoundError):  # somebody else prunes too
            if _RUN_NAME.fullmatch(run.name) and is_tagged(run, RUN, run.name):
                yield _changed(run), run


def _changed(run: Path) -> float:
    """When something was last written: the folder alone would say when its last process was started."""
    with suppress(FileNotFoundError):
        return max(run.stat().st_mtime, (run / "events.ndjson").stat().st_mtime)
    return run.stat().st_mtime


def _size(run: Path) -> int:
    total = 0
    for folder, _, names in os.walk(run):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(Path(folder, name)).st_size
    return total


def _remove_unlocked(run: Path) -> bool:
    try:
        fd = os.open(run / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        shutil.rmtree(run, ignore_errors=True)
        return True
    finally:
        os.close(fd)
