"""The ledger of a host: what it has started, on disk, for the next host.

    FOLDER/                 0700, one file a host, 0600
        KEY.ledger          held under a lock while its host lives
            proctor-ledger 1 KEY MACHINE BOOT NAMESPACE
            PID START MARKER                            a line a process
            folder PATH                                 a line a temporary folder, percent-encoded

Guarantees. A host is dead when its lock is free, which the system sees to however it died; no number is guessed at.
Its key is on disk before its first process is born, so that nothing can be started unnoted: what carries the key in
its marker is the host's, what does not is a stranger, even under a number that a line names. `sweep` kills what dead
hosts of this place have left and removes their files. Two that sweep at once share the work: a ledger is settled by
the host that gets its lock. One that could not be settled stays for the next. Leaving the block kills what still carries
the own key and removes the own file.

A temporary folder is noted before it is made and has the key in a tag. A sweep removes the folders of dead hosts, which may
hold secrets, after their processes: only what has the tag with that key, or is empty and was ours to make.

Lines serve the report. A half-written one is passed over, and a disk that refuses them costs no process its start.
They are weeded when they have become many, into a new file that replaces the old one whole.

Not handled: a host that forked without exec (its child inherits the lock); hosts of other namespaces or machines on
one folder, whose ledgers are left to them until they are old. On systems other than Linux nothing is found.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Self
from urllib.parse import quote_from_bytes, unquote_to_bytes

import attrs
import trio

from proctor.runtime.processes import procfs
from proctor.runtime.processes.fork_server import ForkServer
from proctor.runtime.processes.orphans import SWEEP_LIMIT, Orphan, SweepResult, key_of, kill_marked
from proctor.runtime.processes.private import make_directory, make_temporary_directory, open_private
from proctor.runtime.processes.procfs import PidNamespace
from proctor.runtime.processes.shortage import remedy_of
from proctor.runtime.processes.spawning import MARKER, Command
from proctor.runtime.processes.tags import (
    is_own_directory,
    is_tagged,
    read_tag,
    remove_tree,
    restore_directory,
    tag_folder,
    write_all,
)

WEEDED = 1000
"""Lines a ledger holds before it is weeded."""
KEPT = 30 * 86400.0
"""Seconds a ledger of another place is kept."""
FOLDER = "proctor-folder"
"""The kind in the tag of a temporary folder; its name is the key of its host."""
_TITLE = "proctor-ledger"
_FOLDER_WORD = "folder"
_CLOSING = 5.0
_KEY = re.compile("[0-9a-f]{32}")
_NOT_FOR_US = frozenset({errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})
_UNFIT = re.compile(r"[^A-Za-z0-9._/@:+-]")
_LEDGER: ContextVar[Ledger | None] = ContextVar("proctor.ledger", default=None)


@attrs.frozen
class Entry:
    """A line: the process with this number that started at `start` was born with `marker`."""

    pid: int
    start: int
    marker: str

    def __str__(self) -> str:
        return f"{self.pid} {self.start} {self.marker}\n"


@attrs.frozen(kw_only=True)
class Swept:
    """The result of a sweep. `hosts` died and are settled; `killed` they had left, `left` could not be killed, each with
    its reason; `folders` of theirs were removed, `folders_left` could not be; `strangers` are numbers that lines name and
    that belong to others now, who were not touched. Not `sure`: it could not be looked everywhere, for `cause` where
    one is known, and the ledgers stay. `seconds` it took."""

    hosts: int = 0
    killed: tuple[Orphan, ...] = ()
    left: tuple[Orphan, ...] = ()
    folders: tuple[Path, ...] = ()
    folders_left: tuple[Path, ...] = ()
    strangers: tuple[int, ...] = ()
    sure: bool = True
    seconds: float = 0.0
    cause: Exception | None = None


class Ledger:
    """A host's own ledger, made and entered by `open_ledger`; `key` is the host's, `path` the file, `guards` forks
    the guards of what is started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._choose_key()
        self._place = PidNamespace("-", "-", "-")
        self._fd = -1
        self._born = self._lines = 0
        self._room = WEEDED
        self._torn = False
        self._folders = list[Path]()
        self._unnoted = list[Path]()
        self._around: Ledger | None = None
        self.guards = ForkServer(self.marker, self.note)

    def _choose_key(self) -> None:
        # Random, not made of pid and time: a key that could come twice would make a sweep kill another host's
        # processes.
        self.key = secrets.token_hex(16)
        self.path = self.folder / f"{self.key}.ledger"

    def marker(self, label: str) -> str:
        """A marker for one process to be born, that no other has: `KEY/NUMBER/label`."""
        self._born += 1
        return f"{self.key}/{self._born}/{_UNFIT.sub('_', label)[:80]}"

    def note(self, pid: int, marker: str) -> None:
        """Note the birth of a process; at once, and without ever failing."""
        with contextlib.suppress(OSError):  # the key finds it without
            stat = procfs.stat_of(pid)
            # A process that has ended already needs no line; without a start time a line could not tell it
            # from a later namesake.
            if stat is not None:
                self._append(str(Entry(pid, stat.start, marker)))

    def make_folder(self, prefix: str) -> Path:
        """Make a temporary folder, mode 0700, that a sweep removes once this host is dead. Raises OSError."""
        while True:
            path = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(4)}")
            try:
                # before the folder is there: a kill between the two must leave none that is not noted
                self._append(_folder_line(path))
            except OSError:  # as for a process: a full disk there forbids nothing here
                self._unnoted.append(path)
            # Before the folder is made, too: leaving the block removes it also where `make_directory` is
            # interrupted.
            self._folders.append(path)
            with contextlib.suppress(FileExistsError):
                make_directory(path)
                break
        try:
            tag_folder(path, FOLDER, self.key)
        except OSError:
            with contextlib.suppress(OSError):
                path.rmdir()
            # Not swallowed: without a tag the folder, which may get secrets, would outlive a killed host.
            raise
        return path

    def _append(self, line: str) -> None:
        # The block was left: a task that outlives it writes to no file, and above all not to a reused number.
        if self._fd == -1:
            return
        line = "".join(map(_folder_line, self._unnoted)) + line
        data = f"\n{line}".encode() if self._torn else line.encode()
        # a line that was cut short must not swallow the next one
        # Set before the write and cleared behind it: an error in between leaves a half line, and the next one
        # starts anew.
        self._torn = True
        write_all(self._fd, data)
        self._torn = False
        # Only once they are on the disk: a failed write keeps them for the next line.
        self._unnoted.clear()
        self._lines += 1
        if self._lines > self._room:
            self._room += WEEDED  # a disk that refuses is not asked again for each line
            self._weed()

    async def sweep(self, *, limit: float = SWEEP_LIMIT) -> Swept:
        """Kill what dead hosts have left and remove their temporary folders, within `limit` seconds, and say what was
        found. Safe to call at any time."""
        began = trio.current_time()
        refusals = list[Exception]()
        # The locks are held to the end, so that a second host which sweeps at once does not settle the same
        # ledgers.
        with ExitStack() as locks:
            dead = self._dead(locks, refusals)
            # Numbers and markers of another machine, boot or namespace mean nothing here: those ledgers are
            # left alone.
            here = [found for found in dead if found.place == self._place and found.key != _key_above()]
            # Processes first, folders after them: a process that lives would write into a folder that is
            # being removed.
            toll = await kill_marked({found.key for found in here}, limit=limit)
            looked = _look_up(here, toll, refusals)
            strangers, unseen = looked or ((), ())
            left = toll.left + unseen
            unsettled = {key_of(orphan.marker) for orphan in left}
            known = toll.sure and looked is not None
            # Only where all was looked at: a ledger that goes too early takes the last trace of a survivor
            # with it.
            settled = [found for found in here if known and found.key not in unsettled]
            over = settled + [found for found in dead if self._is_void(found)]
            named = [(ledger.key, path) for ledger in over for path in ledger.folders]
            emptied = await _remove_folders(named, limit=limit)
            for ledger in over:
                # The file is the only note of these folders, so it goes last and only when they are gone.
                if ledger.key not in emptied.unsettled:
                    ledger.remove()
        seconds = trio.current_time() - began
        return Swept(
            hosts=len(settled),
            killed=toll.killed,
            left=left,
            folders=emptied.removed,
            folders_left=emptied.left,
            strangers=strangers,
            sure=toll.sure and emptied.sure and not refusals,
            seconds=seconds,
            cause=next(iter(refusals), toll.cause),
        )

    def _dead(self, locks: ExitStack, refusals: list[Exception]) -> list[_Dead]:
        # the ledgers of dead hosts, under our locks; `refusals` gets why one could not be looked at
        dead = list[_Dead]()
        try:
            paths = list(self.folder.glob("*.ledger"))
        except OSError as error:
            refusals.append(error)
            return dead
        for path in paths:
            try:
                found = _take(path, locks)
            except OSError as error:
                refusals.append(error)
                continue
            if found is not None:
                dead.append(found)
        return dead

    def _is_void(self, found: _Dead) -> bool:
        """Nothing of it can be alive, or no later host will clean it up."""
        if not found.key:
            return True
        boots = {found.place.boot, self._place.boot} - {"-"}  # an unknown boot may be this one
        if found.place.machine == self._place.machine and len(boots) == 2:
            return True
        # The own file's time, not the local clock: on a network folder the server's clock stamps both.
        return found.place != self._place and os.fstat(self._fd).st_mtime - found.written > KEPT

    def _weed(self) -> None:
        found = _parse(self.path, self.path.read_bytes(), 0.0)
        kept = list[str]()
        if found is not None:
            kept += [str(entry) for entry in found.entries if _is_alive(entry)]
            kept += [_folder_line(path) for path in found.folders if os.path.lexists(path)]
        # A new file under a rename: a host killed in the midst leaves the old ledger whole, never a half one.
        fresh = self.path.with_suffix(".new")
        fd = open_private(fresh, os.O_RDWR | os.O_TRUNC | os.O_APPEND)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before it has the name that others look at
            write_all(fd, self._title() + "".join(kept).encode())
            # After the write: from here on other hosts read this file, and it must be complete.
            os.rename(fresh, self.path)
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        # The old descriptor is closed last; its lock held the name until the new file had it.
        self._fd, self._lines, self._room = fd, len(kept), max(WEEDED, 2 * len(kept))
        self._folders = [path for path in self._folders if os.path.lexists(path)]

    def _title(self) -> bytes:
        place = self._place
        return f"{_TITLE} 1 {self.key} {place.machine} {place.boot} {place.namespace}\n".encode()

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        # Before anything is made: a cancellation here leaves no file behind.
        await trio.lowlevel.checkpoint()
        try:
            self._place = procfs.pid_namespace()
            _own(self.folder)
            # A sweep between the creation and the lock removes the empty file; then a new key is tried.
            while (fd := _claim(self.path, self._title())) is None:
                self._choose_key()
        except OSError as error:
            remedy = remedy_of(error, "name a folder of your own that can be written")
            text = f"no ledger of processes can be kept: {error.strerror}; {remedy}"
            raise OSError(error.errno, text, str(self.folder)) from error
        self._fd = fd
        # Set last: what fails above must not leave a ledger without a file in the context.
        self._around = _LEDGER.get()
        _LEDGER.set(self)
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First of all: what is started during the end belongs to the ledger around, since this one is being
        # settled.
        _LEDGER.set(self._around)
        toll, emptied = SweepResult(), _Emptied()
        try:
            self.guards.close()
            # shielded: a cancelled host must leave nothing behind
            with trio.CancelScope(shield=True):
                # Without a birth there is nothing to look for, and the search reads all of /proc.
                if self._born:
                    toll = await kill_marked({self.key}, limit=_CLOSING)
                # A process that could not be killed still uses its folders; the next host's sweep gets both.
                if toll.sure and not toll.left:
                    emptied = await _remove_folders(
                        [(self.key, path) for path in self._folders], limit=_CLOSING
                    )
        finally:
            # Otherwise the file stays, without its lock: a later host takes it for a dead one and goes on.
            if toll.sure and not toll.left and not emptied.unsettled:
                with contextlib.suppress(OSError):  # the next sweep takes it for the dead one that it is
                    self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def open_ledger(folder: Path) -> Ledger:
    """The ledger of this host in `folder`: `async with open_ledger(folder) as ledger`, then `await ledger.sweep()`.

    Every process that is opened in the block, by whatever task below, carries a marker of it and is noted. Leaving
    kills what still carries one. Entering raises OSError when the folder is not ours or cannot be written.
    """
    return Ledger(folder)


def current_ledger() -> Ledger | None:
    """The ledger of the innermost block around this task, None outside of one."""
    return _LEDGER.get()


def make_folder(prefix: str) -> Path:
    """A temporary folder, mode 0700, noted in the innermost ledger where one is open. Raises OSError."""
    ledger = _LEDGER.get()
    return make_temporary_directory(prefix) if ledger is None else ledger.make_folder(prefix)


def renew_folder(path: Path) -> None:
    """Make a folder of `make_folder`, or its tag, again where something has removed it, as cleaners of temporary folders do.

    Raises OSError, also where another's folder is in its place.
    """
    restore_directory(path)
    ledger = _LEDGER.get()
    if ledger is not None and not is_tagged(path, FOLDER, ledger.key):
        tag_folder(path, FOLDER, ledger.key)


def marked(command: Command, marker: str | None) -> tuple[Command, Callable[[int], None]]:
    """`command` with `marker` in its environment, made one of the ledger's where a ledger is open; and the callback for the
    number of the process that it becomes."""
    ledger = _LEDGER.get()
    if ledger is not None:
        marker = ledger.marker(marker or os.path.basename(command.argv[0]))
    if marker is not None:
        command = attrs.evolve(command, env={**command.env, MARKER: marker})
    return command, partial(_note, ledger, marker or "")


def _note(ledger: Ledger | None, marker: str, pid: int) -> None:
    if ledger is not None:
        ledger.note(pid, marker)


@attrs.frozen
class _Dead:
    path: Path
    key: str
    place: PidNamespace
    entries: tuple[Entry, ...]
    written: float
    folders: tuple[Path, ...] = ()

    def remove(self) -> None:
        # one that stays is read again by the next sweep, which finds nothing left to kill
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".new").unlink(missing_ok=True)


def _own(folder: Path) -> None:
    make_directory(folder, parents=True, exist_ok=True)
    # Another user's folder could be filled with forged ledgers, and a sweep acts on what they name.
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(13, "it belongs to another user", str(folder))
    # A folder that was there may be open to others, who could read the markers.
    folder.chmod(0o700)


def _claim(path: Path, title: bytes) -> int | None:
    """A new file under a lock, None when a sweep took it for a dead one meanwhile: it holds nothing yet."""
    fd = open_private(path, os.O_RDWR | os.O_APPEND)
    claimed = False
    try:
        # Between open and lock a sweep can lock the empty file, take it for a dead host's, and unlink it.
        if _locked(fd):
            write_all(fd, title)
            # Looked at under the lock: without a link the title went into a file that no sweep can find.
            claimed = os.fstat(fd).st_nlink > 0
    finally:
        if not claimed:
            os.close(fd)
            with contextlib.suppress(OSError):  # a file without a title is removed by any sweep
                path.unlink(missing_ok=True)
    return fd if claimed else None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # somebody else has it
        return False
    return True


def _take(path: Path, locks: ExitStack) -> _Dead | None:
    """The ledger of a dead host, under our lock until `locks` are given back; None when it is not for us. Raises OSError
    when it could not be looked at."""
    try:
        # O_NOFOLLOW against a link planted in the folder; O_NONBLOCK, or a FIFO of that name would hang the
        # sweep.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NOT_FOR_US:
            return None
        raise
    locks.callback(os.close, fd)
    if not _locked(fd):  # its host lives, or somebody else settles it
        return None
    found = os.fstat(fd)
    # Of the open descriptor, under the lock. No link: another sweep has settled and removed it.
    if not S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or not found.st_nlink:
        return None
    with open(fd, "rb", closefd=False) as file:
        return _parse(path, file.read(), found.st_mtime)


def _parse(path: Path, text: bytes, written: float) -> _Dead | None:
    title, *lines = text.decode("utf-8", "replace").split("\n")
    match title.split(" "):
        case [str(known), "1", key, *place] if known == _TITLE and lines and _fits(key, place):
            # Without the last element: it is empty, or a line cut short by a kill or a full disk.
            read = (_entry(line, key) for line in lines[:-1])
            entries = tuple(entry for entry in read if entry is not None)
            # A folder that was noted twice is removed once, in the order of the lines.
            folders = tuple(dict.fromkeys(_folders(lines[:-1])))
            return _Dead(path, key, PidNamespace(*place), entries, written, folders)
        case [str(known), str(version), *_] if known == _TITLE and version not in ("", "1"):
            return None  # of a later proctor
        case _:
            # No title: its host died between creation and title, and has started nothing.
            return _Dead(path, "", PidNamespace("", "", ""), (), written)


def _fits(key: str, place: list[str]) -> bool:
    return bool(_KEY.fullmatch(key)) and len(place) == 3


def _entry(line: str, key: str) -> Entry | None:
    match line.split(" "):
        case [pid, start, marker] if pid.isdecimal() and start.isdecimal() and key_of(marker) == key:
            return Entry(int(pid), int(start), marker)
        case _:
            return None


def _folder_line(path: Path) -> str:
    return f"{_FOLDER_WORD} {quote_from_bytes(os.fsencode(path))}\n"


def _folders(lines: list[str]) -> Iterator[Path]:
    for line in lines:
        match line.split(" "):
            case [str(word), path] if word == _FOLDER_WORD and path.startswith("/"):
                yield Path(os.fsdecode(unquote_to_bytes(path)))
            case _:
                pass


@attrs.define
class _Emptied:
    """`unsettled` are the keys of hosts of which a folder is still there."""

    removed: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    unsettled: frozenset[str] = frozenset()
    sure: bool = True


async def _remove_folders(named: list[tuple[str, Path]], *, limit: float) -> _Emptied:
    """`named` are the folders, each with the key of its host."""
    # most are gone, removed by those that made them: a thread would cost more than the look
    named = [(key, path) for key, path in named if os.path.lexists(path)]  # noqa: ASYNC240
    if not named:
        return _Emptied()
    removed, left, keys = list[Path](), list[Path](), {key for key, _ in named}

    def remove() -> None:
        for key, path in named:
            if (done := _remove_folder(path, key)) is not None:
                (removed if done else left).append(path)

    # Time runs out for the wait only: the thread goes on, so `removed` and `left` may still grow.
    with trio.move_on_after(limit) as late:
        # a disk that does not answer must not hold up a start: the next one goes on
        await trio.to_thread.run_sync(remove, abandon_on_cancel=True)
    if late.cancelled_caught:
        return _Emptied(tuple(removed), tuple(left), frozenset(keys), sure=False)
    unsettled = frozenset(key for key, path in named if path in left)
    return _Emptied(tuple(removed), tuple(left), unsettled)


def _remove_folder(path: Path, key: str) -> bool | None:
    """Whether it was removed; None when it was gone or is another's by now, and was not touched."""
    try:
        # The tag decides, not the path: a name in /tmp can be another program's folder by now.
        if read_tag(path, FOLDER) == key:
            return remove_tree(path)
        if not is_own_directory(path) or any(path.iterdir()):
            return None
        path.rmdir()  # killed between making and tagging it
    except FileNotFoundError:
        return None
    except OSError:  # what it is cannot be seen: it stays noted
        return False
    return True


def _key_above() -> str:
    """The key that we carry ourselves: a sweep would be suicide."""
    return key_of(os.environ.get(MARKER, ""))


def _is_alive(entry: Entry) -> bool:
    stat = procfs.stat_of(entry.pid)
    # The start time tells a process from a later one under the same number.
    return stat is not None and stat.start == entry.start and stat.state not in "ZX"


def _look_up(
    ledgers: list[_Dead], toll: SweepResult, refusals: list[Exception]
) -> tuple[tuple[int, ...], tuple[Orphan, ...]] | None:
    try:
        return _looked_up(ledgers, toll)
    except OSError as error:  # our own shortage, of descriptors for one
        refusals.append(error)
        return None


def _looked_up(ledgers: list[_Dead], toll: SweepResult) -> tuple[tuple[int, ...], tuple[Orphan, ...]]:
    """Of what lines name: the numbers that are others' now, and the processes that the system hides."""
    # With the start time: a number alone may have been given away during the sweep.
    known = {(orphan.pid, orphan.start) for orphan in (*toll.killed, *toll.left)}
    strangers, unseen = list[int](), list[Orphan]()
    for entry in _named(ledgers):
        stat = procfs.stat_of(entry.pid)
        if stat is None or stat.state in "ZX" or (entry.pid, entry.start) in known:
            continue
        if stat.start != entry.start:
            strangers.append(entry.pid)
            continue
        try:
            # Same number and start, but no marker found by the search: either it cannot be read, or the
            # program erased it.
            procfs.marker_of(entry.pid)
        except PermissionError:
            why = "its environment may not be read"
            unseen.append(Orphan(entry.pid, entry.start, stat.name, entry.marker, why))
        else:
            strangers.append(entry.pid)
    return tuple(strangers), tuple(unseen)


def _named(ledgers: list[_Dead]) -> Iterator[Entry]:
    for ledger in ledgers:
        yield from ledger.entries
