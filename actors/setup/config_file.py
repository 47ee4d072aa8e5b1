"""Another program's configuration file: read whole, and replaced whole in one instant.

Guaranteed: a reader sees the file as it was or as it is to be, never half of it, whenever we die. A symbolic link stays
one: what it leads to is replaced, and keeps its mode and its owner. What cannot be kept (a foreign owner), or was not
allowed (a file that is read-only), is refused, and so is a file that changed since it was read. Nothing is ever made of
a file that cannot be read.

`held` is the lock of a program that writes its own file while it runs: a folder beside it, as npm's proper-lockfile has
it. A lock older than its holder's promise to renew it is nobody's.

Not here: access lists and extended attributes; hard links, of which the others keep the old text.
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
from proctor.runtime.processes.private import make_directory
from proctor.runtime.processes.tags import write_all

PATIENCE = 5.0
"""Seconds to wait for another program's lock."""

STALE = 10.0
"""Seconds after which a lock that was not renewed is nobody's."""

_LOOK = 0.05
_EFFECTIVE = os.access in os.supports_effective_ids


@attrs.frozen
class ConfigFile:
    """`path` as it was named, `target` where its links lead, `data` what was in it; None: it is not there."""

    path: Path
    target: Path
    data: bytes | None

    @property
    def text(self) -> str | None:
        """What is in it. Raises `ConfigRefused` when that is not UTF-8."""
        try:
            return None if self.data is None else self.data.decode()
        except UnicodeDecodeError as error:
            raise ConfigRefused(str(self.path), f"it is not UTF-8 (byte {error.start})") from None


def read(path: Path) -> ConfigFile:
    """The file as it is now. Raises `ConfigRefused`."""
    try:
        target = path.resolve(strict=path.exists())
        return ConfigFile(path, target, target.read_bytes())
    except FileNotFoundError:
        return ConfigFile(path, path.resolve(), None)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go in a circle
        raise _refused(path, "cannot be read", error) from error


def write(file: ConfigFile, text: str | None, *, anchor: Path) -> None:
    """Put `text` in the place of what was read, or nothing (None). Folders up to `anchor`, which must be there, are made.

    Raises `ConfigRefused`; then the file is as it was.
    """
    check(file, anchor=anchor)
    if read(file.path) != file:
        raise ConfigRefused(str(file.path), "it was changed by another program just now; try again")
    try:
        if text is None:
            file.target.unlink()
        else:
            make_directory(file.target.parent, parents=True, exist_ok=True)
            _replace(file, text.encode())
    except OSError as error:
        raise _refused(file.path, "cannot be written", error) from error


def check(file: ConfigFile, *, anchor: Path) -> None:
    """Could it be written? Raises `ConfigRefused` when not."""
    if not os.path.isdir(anchor):
        raise ConfigRefused(str(file.path), f"the folder {str(anchor)!r} does not exist")
    folder = next(above for above in file.target.parents if os.path.lexists(above))
    needed = [folder, *([file.target] if file.data is not None else [])]
    for path in needed:
        if not os.access(path, os.W_OK, effective_ids=_EFFECTIVE):
            raise ConfigRefused(str(file.path), f"no permission to write {str(path)!r}")


def _replace(file: ConfigFile, data: bytes) -> None:
    fd, name = tempfile.mkstemp(dir=file.target.parent, prefix=f".{file.target.name}.")
    try:
        try:
            write_all(fd, data)
            os.fchmod(fd, 0o600)  # the umask may have taken the owner's rights
            _look_alike(file.target, fd)
            os.fsync(fd)  # before the rename: a lost machine must not leave an empty file under the name
        finally:
            os.close(fd)
        Path(name).replace(file.target)
    except BaseException:
        Path(name).unlink()
        raise


def _look_alike(old: Path, fd: int) -> None:
    """Mode and owner of the old file; a new one is its owner's alone."""
    with suppress(FileNotFoundError):
        was, made = old.stat(), os.fstat(fd)
        if (was.st_uid, was.st_gid) != (made.st_uid, made.st_gid):
            os.chown(fd, was.st_uid, was.st_gid)
        os.chmod(fd, was.st_mode & 0o7777)


def _refused(path: Path, what: str, error: Exception) -> ConfigRefused:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigRefused(str(path), f"it {what}: {(why or str(error)).lower()}")


@asynccontextmanager
async def held(path: Path, *, wall: Callable[[], float] = time.time) -> AsyncGenerator[None]:
    """The lock of the program whose file this is, for as long as the block lasts; none where its folder is not there.

    Raises `ConfigRefused` when it is not free within `PATIENCE` seconds. `wall` is the clock of files.
    """
    lock, whose = _lock_of(path), "another's"
    with trio.move_on_after(PATIENCE) as waiting:
        while (whose := _taken(path, lock, wall)) == "another's":  # noqa: ASYNC110  # nobody tells of its end
            await trio.sleep(_LOOK)
    if waiting.cancelled_caught:
        raise ConfigRefused(str(path), f"another program holds {str(lock)!r}; try again")
    try:
        yield
    finally:
        if whose == "ours":
            _let_go(lock)


def _lock_of(path: Path) -> Path:
    try:
        return Path(f"{path.resolve()}.lock")
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go in a circle
        raise _refused(path, "cannot be locked", error) from error


def _let_go(lock: Path) -> None:
    with suppress(OSError):
        lock.rmdir()


def _taken(path: Path, lock: Path, wall: Callable[[], float]) -> str:
    """`ours`, `another's`, or `nobody's` where there is no folder for it."""
    try:
        make_directory(lock)
    except FileNotFoundError:
        return "nobody's"
    except FileExistsError:
        with suppress(OSError):
            if wall() - lock.stat().st_mtime > STALE:
                lock.rmdir()
        return "another's"
    except OSError as error:
        raise _refused(path, "cannot be locked", error) from error
    return "ours"
