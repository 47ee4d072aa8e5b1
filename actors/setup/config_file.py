"""The configuration file of another program, read whole and replaced atomically.

A reader sees the old text or the new one, whenever this process dies. A symbolic link stays: its target is replaced,
and keeps its mode and its owner. A foreign owner that cannot be kept, a read-only file, and a file that changed since
it was read are refused. `locked` takes the lock of a program that writes its own file while it runs.

Not here: access lists, extended attributes, and hard links, whose other names keep the old text.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import trio

from proctor.actors.errors import ConfigRefused
from proctor.runtime.processes import make_directory, write_all

LOCK_TIMEOUT = 5.0
"""Seconds to wait for another program's lock."""

STALE = 10.0
"""Seconds after which a lock that was not renewed is free."""

_POLL = 0.05
_EFFECTIVE = os.access in os.supports_effective_ids


@attrs.frozen
class ConfigFile:
    """`path` as it was given, `target` behind its links, and its content `data`; None: the file does not exist."""

    path: Path
    target: Path
    data: bytes | None

    @property
    def text(self) -> str | None:
        """The content. Raises `ConfigRefused` when it is not UTF-8."""
        try:
            return None if self.data is None else self.data.decode()
        except UnicodeDecodeError as error:
            raise ConfigRefused(str(self.path), f"it is not UTF-8 (byte {error.start})") from None


def read(path: Path) -> ConfigFile:
    """Read the file. Raises `ConfigRefused`."""
    try:
        target = path.resolve(strict=path.exists())
        return ConfigFile(path, target, target.read_bytes())
    except FileNotFoundError:
        return ConfigFile(path, path.resolve(), None)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go in a circle
        raise _refused(path, "cannot be read", error) from error


def write(file: ConfigFile, text: str | None, *, anchor: Path) -> None:
    """Replace what was read by `text`; None deletes the file. Makes the folders below `anchor`, which must exist.

    Raises `ConfigRefused`, and then the file is unchanged.
    """
    check(file, anchor=anchor)
    if read(file.path) != file:
        raise ConfigRefused(str(file.path), "another program changed it just now; try again")
    try:
        if text is None:
            file.target.unlink()
        else:
            make_directory(file.target.parent, parents=True, exist_ok=True)
            _replace(file, text.encode())
    except OSError as error:
        raise _refused(file.path, "cannot be written", error) from error


def check(file: ConfigFile, *, anchor: Path) -> None:
    """Raise `ConfigRefused` unless the file can be written."""
    if not os.path.isdir(anchor):
        raise ConfigRefused(str(file.path), f"the folder {str(anchor)!r} does not exist")
    folder = next(above for above in file.target.parents if os.path.lexists(above))
    needed = [folder, *([file.target] if file.data is not None else [])]
    for path in needed:
        if not os.access(path, os.W_OK, effective_ids=_EFFECTIVE):
            raise ConfigRefused(str(file.path), f"no permission to write {str(path)!r}")


def _replace(file: ConfigFile, data: bytes) -> None:
    # In the same folder: a rename works within one file system only.
    fd, name = tempfile.mkstemp(dir=file.target.parent, prefix=f".{file.target.name}.")
    try:
        try:
            write_all(fd, data)
            os.fchmod(fd, 0o600)  # the umask may have taken the owner's rights
            _copy_mode_and_owner(file.target, fd)
            os.fsync(fd)  # before the rename: after a power failure the name must not lead to an empty file
        finally:
            os.close(fd)
        Path(name).replace(file.target)
    except BaseException:
        # An interrupt as well: no temporary file may stay beside the user's own.
        Path(name).unlink()
        raise


def _copy_mode_and_owner(old: Path, fd: int) -> None:
    """Give the new file the mode and the owner of the old one; without an old one only its owner can read it."""
    with suppress(FileNotFoundError):
        old_stat, new_stat = old.stat(), os.fstat(fd)
        if (old_stat.st_uid, old_stat.st_gid) != (new_stat.st_uid, new_stat.st_gid):
            # under sudo the new file would belong to root, and the client could not write its own
            # configuration
            os.chown(fd, old_stat.st_uid, old_stat.st_gid)
        # After the change of the owner, which clears the set-user bits.
        os.chmod(fd, old_stat.st_mode & 0o7777)


def _refused(path: Path, what: str, error: Exception) -> ConfigRefused:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigRefused(str(path), f"it {what}: {(why or str(error)).lower()}")


@asynccontextmanager
async def locked(path: Path, *, wall: Callable[[], float] = time.time) -> AsyncGenerator[None]:
    """Hold the lock of the program that owns this file within the block; no lock where its folder does not exist.

    The lock is a folder beside the file, as npm's proper-lockfile makes it. Raises `ConfigRefused` when it is not free
    within `LOCK_TIMEOUT` seconds. `wall` is the clock of files.
    """
    lock = _lock_of(path)
    taken: bool | None = False
    with trio.move_on_after(LOCK_TIMEOUT) as waiting:
        while (taken := _take(path, lock, wall)) is None:  # noqa: ASYNC110  # a lock has no event for its end
            await trio.sleep(_POLL)
    if waiting.cancelled_caught:
        raise ConfigRefused(str(path), f"another program holds {str(lock)!r}; try again")
    try:
        yield
    finally:
        if taken:
            with suppress(OSError):
                lock.rmdir()


def _lock_of(path: Path) -> Path:
    try:
        return Path(f"{path.resolve()}.lock")
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go in a circle
        raise _refused(path, "cannot be locked", error) from error


def _take(path: Path, lock: Path, wall: Callable[[], float]) -> bool | None:
    """True when it was taken, None when another program holds it, False where there is no folder for it."""
    try:
        make_directory(lock)
    except FileNotFoundError:
        return False
    except FileExistsError:
        with suppress(OSError):
            # proper-lockfile renews the time of a lock that is held: an old one has lost its owner.
            if wall() - lock.stat().st_mtime > STALE:
                lock.rmdir()
        # Not taken at once, even if it was stale: of several that find it so, the next attempt decides.
        return None
    except OSError as error:
        raise _refused(path, "cannot be locked", error) from error
    return True
