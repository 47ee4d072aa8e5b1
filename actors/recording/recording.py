"""The run directory: the input and output of one agent's processes, as it came.

    DIRECTORY/                      0700, held under a lock while its agent lives
        .proctor-tag                says that it is ours: what has none is never removed
        events.ndjson               the event log, through all incarnations
        lock                        one owner
        1/ 2/ ...                   one folder an incarnation:
            stdout.ndjson stdin.ndjson stderr.txt meta.json

A folder of an incarnation has the format of a recorded transcript, so it can be replayed. Frames are written before
they are decoded, bytes as they came. Environment values are never written, only the names of what was passed; nor is anything the caller gave as a secret.

One agent's directory is bounded by `limit`: half of it for the event log, half for its processes' input and output, of which the
oldest incarnation goes first, and then the oldest segment of the one that runs (`segments`).

`meta.json` is there from the start of an incarnation, so that one whose host was killed can be played; it is completed at
the end.

Without a place to record, the same files live in a temporary directory that goes with the run, or with the sweep of the
next host where this one is killed. Kept directories are bounded by size and age (`retention`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import trio

from proctor.actors.disk import replace_file
from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.segments import SegmentedFile
from proctor.protocols.lenient import encoded_loosely
from proctor.runtime.processes import (
    is_tagged,
    make_directory,
    make_folder,
    make_temporary_directory,
    open_private,
    renew_folder,
    restore_directory,
    shortage_of,
    tag_folder,
)

LIMIT = 256 * 2**20
"""Bytes that one agent's directory may have by default."""
MIN_LIMIT = 2**20
"""The least that a limit may be: below it hardly a turn has room."""
RUN_TAG = "proctor-run"
"""The kind in the tag of a run directory."""
RUN_NAME = re.compile(r"(?P<begun>\d{8}-\d{6})-(?P<agent>[A-Za-z0-9._-]{1,40})-(?P<id>[a-z0-9_]{8})")
"""The name of a run directory: when it was made, for which agent, and what tells it from others."""
EVENTS = "events.ndjson"
"""The event log in a run directory."""
_STDOUT, _STDIN, _STDERR = "stdout.ndjson", "stdin.ndjson", "stderr.txt"
_TIMES = 10_000
_SEGMENTS = 16
_FOLDER = 16 * 2**10
"""What an incarnation takes on disk beside its bytes: an agent that restarts all the time must be bounded, too."""


FailureListener = Callable[[RecordingFailed | None], None]
"""Called with the reason when nothing is recorded any more, and with None when it is again."""


class RunDirectory:
    """A new directory below `root` (None: a temporary one, removed by `close`), locked until closed, of at most `limit`
    bytes (None: without limit).

    With `listen` a failure to record is no failure of what is recorded: `listen` gets it, and nothing is written until a new
    incarnation can be recorded again, when it gets None. `required`: one that cannot be is refused. Where it could not be
    made for want of room, it is temporary until there is room for a new incarnation: then it moves, with its event log.

    `path` is where it records, `scratch` what its processes have for themselves: always temporary. Both are made again
    where something has removed them, as cleaners of temporary folders do.

    Raises `RecordingFailed` when it cannot be made.
    """

    def __init__(
        self,
        root: Path | None,
        agent: str,
        *,
        limit: int | None = LIMIT,
        listen: FailureListener | None = None,
        required: bool = True,
    ) -> None:
        self.kept = root is not None
        self.failure: RecordingFailed | None = None
        self._homeless: Path | None = None  # where it is to be as soon as there is room
        self._listen, self._required = listen, required
        self._agent = agent
        self._share = None if limit is None else limit // 2
        self._closed: list[tuple[Path, int]] = []
        self._closed_bytes = 0
        self._current: Recording | None = None
        self._lock = -1
        self._log: EventLog | None = None
        self.incarnations = 0
        try:
            self._make(root, agent)
        except RecordingFailed as error:
            if required or root is None or shortage_of(error) is None:
                raise
            self.kept, self.failure, self._homeless = False, error, root
            self._make(None, agent)

    def _make(self, root: Path | None, agent: str) -> None:
        try:
            self.path = self.scratch = _make(root, agent)
            self._lock = _new_lock(self.path)
            # short, because sockets are made in it, and gone with the run, because no replay reads it
            self.scratch = make_folder("proctor-") if self.kept else self.path
        except OSError as error:
            # Gives back the lock and the folder: no object is left that would.
            self.close()
            raise RecordingFailed(_temporary_folder() if root is None else str(root), error) from error

    def open_log(self) -> EventLog:
        """The event log, through all incarnations. Raises `RecordingFailed`."""
        failed = None if self._listen is None else self._tell
        self._log = EventLog(self.path / EVENTS, limit=self._share, failed=failed, lasting=self.kept)
        return self._log

    def open_incarnation(self) -> Recording:
        """The folder of the next incarnation. Raises `RecordingFailed`."""
        if (last := self._current) is not None and last.is_kept:
            self._closed.append((last.path, last.held + _FOLDER))
            self._closed_bytes += last.held + _FOLDER
        self._current = None
        self.incarnations += 1
        try:
            renew_folder(self.scratch)  # a process cannot be without it, recorded or not
        except OSError as error:
            raise RecordingFailed(str(self.scratch), error) from error
        try:
            self._current = self._recording()
        except RecordingFailed as error:
            if self._required:
                raise
            self._current = Recording(None)
            self._tell(error)
        else:
            self._tell(None)
        self._make_room()
        return self._current

    def _recording(self) -> Recording:
        root = self._homeless or self.path
        try:
            if self._homeless is not None:
                self._move_to(self._homeless)
            self._renew()
        except OSError as error:
            raise RecordingFailed(str(root), error) from error
        if self._log is not None:
            self._log.resume()
        path, failed = self.path / str(self.incarnations), None if self._listen is None else self._tell
        return Recording(path, limit=self._share, grown=self._make_room, failed=failed)

    def _move_to(self, root: Path) -> None:
        """Go on below `root`, with all events so far; what its processes have for themselves stays where it is.

        The copy is made at once, before there is another event: at most half of `limit`, once in a life.
        """
        path, lock = _make(root, self._agent), -1
        try:
            lock = _new_lock(path)
            if self._log is not None:
                self._log.move_to(path / EVENTS)
        except (OSError, RecordingFailed):
            if lock >= 0:
                os.close(lock)
            shutil.rmtree(
                path, ignore_errors=True
            )  # the next incarnation tries again, in a folder of its own
            raise
        # Only now: until the copy was complete, the old folder was the recording and stayed locked.
        os.close(self._lock)
        self.path, self._lock, self.kept, self._homeless = path, lock, True, None

    def _tell(self, failure: RecordingFailed | None) -> None:
        before, self.failure = self.failure, failure
        # At a change only: a full disk refuses every frame.
        if self._listen is not None and (before is None) != (failure is None):
            self._listen(failure)

    def _renew(self) -> None:
        """The folder as it was made: a cleaner may have removed it, or what is old in it."""
        if self.kept:
            restore_directory(self.path)
            if not is_tagged(self.path, RUN_TAG, self.path.name):
                tag_folder(self.path, RUN_TAG, self.path.name)
        # Without its lock file the folder would never be pruned.
        if not (self.path / "lock").exists():
            # The new lock is held before the old one is given back.
            old, self._lock = self._lock, _new_lock(self.path)
            os.close(old)

    def _make_room(self) -> None:
        current, share = self._current, self._share
        if current is None or share is None:
            return
        while current.held > (room := share - self._closed_bytes):
            if self._closed:
                path, size = self._closed.pop(0)
                self._closed_bytes -= size
                shutil.rmtree(path, ignore_errors=True)
            elif not current.drop_oldest():
                break
        current.room = room

    def close(self) -> None:
        """Give the lock back; a temporary directory is removed."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            if self.scratch != self.path or not self.kept:
                shutil.rmtree(self.scratch, ignore_errors=True)


def _nothing() -> None:
    return


_HELD = attrgetter("held")


class Recording:
    """The four files of one incarnation; none without a path, where nothing can be recorded. `limit` bounds what its
    directory may have; `grown` is called when there is more than `room`, which it sets; `held` are the bytes on disk.

    Every method raises `RecordingFailed` when the disk does; with `failed`, which gets it, nothing more is written then.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        limit: int | None = None,
        grown: Callable[[], None] = _nothing,
        failed: Callable[[RecordingFailed], None] | None = None,
    ) -> None:
        self._grown = grown
        self._failed = failed
        self._t0 = trio.current_time()
        # by it the times of the lines, which are counted from here, become times of the day
        self._meta: dict[str, Any] = {"begun": round(time.time(), 3)}
        self._hidden: tuple[bytes, ...] = ()
        self._in_times = array("d")
        self._line_times = array("f")  # single precision: to a millisecond over hours
        self._last_read = 0.0
        self._divided = list[str]()
        self._closed = False
        self.held = self.room = 0
        self._files: dict[str, SegmentedFile] = {}
        self._path, self._lost = path, path is None
        if path is None:
            return
        segment = None if limit is None else max(1, limit // _SEGMENTS)
        try:
            make_directory(path)
            for name in (_STDOUT, _STDIN, _STDERR):
                self._files[name] = SegmentedFile(path / name, segment=segment)
        except OSError as error:
            raise RecordingFailed(str(path), error) from error
        except RecordingFailed:
            self._close_files()
            raise

    @property
    def is_kept(self) -> bool:
        """Whether it has a folder."""
        return self._path is not None

    @property
    def path(self) -> Path:
        """The folder. Raises `LookupError` where nothing can be recorded."""
        if self._path is None:
            raise LookupError("nothing is recorded")
        return self._path

    def begin(self, **facts: Any) -> None:
        """Write `meta.json` with what is known at the start (argv, names of the environment, versions): should this host be
        killed, the recording can be played all the same."""
        self._meta.update(facts)
        self._renew_meta()

    def stdout(self, data: bytes, frame: int, now: float | None = None) -> None:
        """Bytes as read (`now`); `frame` is the number of the first line that ends in them."""
        self._append(_STDOUT, data)
        self._time_lines(frame)
        self._last_read = (trio.current_time() if now is None else now) - self._t0

    def _time_lines(self, lines: int) -> None:
        """Note when the lines before this one came, with the last bytes that were read; nothing is noted of too many."""
        times = self._line_times
        if lines > _TIMES:
            del times[:]
        elif lines > len(times):
            times.extend([self._last_read] * (lines - len(times)))

    def hide(self, secrets: Iterable[str]) -> None:
        """Write these texts nowhere: where one is a whole string in the input, stars stand for it."""
        # As JSON with its quotes: only a whole string is hidden, or a short secret would blank out other
        # text.
        self._hidden = tuple(msgspec.json.encode(secret) for secret in secrets)

    def stdin(self, data: bytes) -> None:
        for secret in self._hidden:
            data = data.replace(secret, b'"***"')
        self._append(_STDIN, data)
        if len(self._in_times) < _TIMES:
            self._in_times.append(trio.current_time() - self._t0)

    def stderr(self, data: bytes) -> None:
        self._append(_STDERR, data)

    def drop_oldest(self) -> bool:
        """Remove a segment of the stream that has most on disk; False when there is none but those being written."""
        dropped = any(file.drop_oldest() for file in sorted(self._files.values(), key=_HELD, reverse=True))
        self.held = sum(map(_HELD, self._files.values()))
        return dropped

    def close(self, **facts: Any) -> None:
        """Complete `meta.json` and close the files. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        wall = round(trio.current_time() - self._t0, 4)
        self._meta.update(**facts, wall_s=wall, stdin_times_s=_rounded(self._in_times))
        self._time_lines(facts.get("stdout_lines", 0))
        self._meta.update(line_times_s=_rounded(self._line_times))
        try:
            self._renew_meta()
        finally:
            self._close_files()

    def _append(self, name: str, data: bytes) -> None:
        # Closed: a reply to the last output may be written while its process is reaped, and would open the file again.
        if self._lost or self._closed:
            return
        file = self._files[name]
        try:
            file.append(data)
        except RecordingFailed as error:
            self._lose(error)
            return
        self.held += len(data)
        if file.divided and name not in self._divided:
            self._divided.append(name)
            self.begin(divided=self._divided)  # by which a reader knows whether all parts are there
        if self.held > self.room:
            self._grown()

    def _renew_meta(self) -> None:
        if not self._lost:
            try:
                self._write_meta()
            except RecordingFailed as error:
                self._lose(error)

    def _lose(self, error: RecordingFailed) -> None:
        if self._failed is None:
            raise error
        self._lost = True  # lines without those before them would play something else
        self._failed(error)

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()

    def _write_meta(self) -> None:
        try:
            data = msgspec.json.format(msgspec.json.encode(self._meta, enc_hook=str), indent=1)
        except UnicodeEncodeError:  # a path that is not UTF-8, which JSON has no way to write
            data = encoded_loosely(self._meta, indent=1)
        try:
            restore_directory(self.path)
            # By a rename: a reader finds the old facts or the new ones, never half of them.
            replace_file(self.path / "meta.json", data)
        except OSError as error:
            raise RecordingFailed(str(self.path), error) from error


def _rounded(seconds: array[float]) -> list[float]:
    return [round(each, 4) for each in seconds]


def write_private(path: Path, content: str | bytes) -> None:
    """A file that only its owner may read; one of this name is replaced. Raises `RecordingFailed`."""
    try:
        # Made anew: an old file of this name may be open elsewhere, or be a link.
        path.unlink(missing_ok=True)
        fd = open_private(path, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(fd, "wb") as file:
            file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
    except OSError as error:
        raise RecordingFailed(str(path), error) from error


def _temporary_folder() -> str | None:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # none can be written, as in a container without one
        return None


def _make(root: Path | None, agent: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", agent)[:40] or "agent"
    if root is None:
        return make_folder(f"proctor-{name}-")
    make_directory(root, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = make_temporary_directory(f"{stamp}-{name}-", root)
    try:
        tag_folder(path, RUN_TAG, path.name)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)  # without its tag nothing would ever remove it
        raise
    return path


def _new_lock(folder: Path) -> int:
    fresh = folder / "lock.new"
    fd = open_private(fresh, os.O_RDWR)
    try:
        # held before it has the name that others look at: a prune between the two would remove a live directory
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(fresh, folder / "lock")
    except OSError:
        os.close(fd)
        raise
    return fd
