"""Results of a batch, and the file that keeps them: JSON Lines, one line for each attempt, on disk before its caller has it.

Guarantees: a line is written at once and synced, so a host that is killed leaves all lines whole but perhaps the last, which the next
host cuts off; what that attempt had cost is not paid again, because its end is in the batch's store. A line that cannot be read, or is of another version of
its task or agent, is refused with its number. Not here: who may write, which the lock of the store decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import trio

from proctor.actors.errors import BadOption
from proctor.protocols.lenient import Refusal
from proctor.protocols.vocabulary import Usage
from proctor.runtime.processes import write_all

Key: TypeAlias = tuple[str, str, int]
"""Task, agent and repetition."""


class BatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of an attempt went, in seconds. `working` is that of the turns, without waits; None where a host died meanwhile.
    `waiting` is that for a usage limit, a budget, and between tries; `retrying` is the part of `working` for which the command line
    announced that it waits for its model's API."""

    working: float | None = 0.0
    starting: float = 0.0
    waiting: float = 0.0
    retrying: float = 0.0
    setup: float = 0.0
    check: float = 0.0


class BatchTry(msgspec.Struct, frozen=True, kw_only=True):
    """One try at an attempt: a process, a conversation and a workspace of its own. `outcome` is the label of its end, or the name of an error's class.
    `resumed` counts the hosts that took it up after another had died; a `cost_usd` of None is unknown."""

    outcome: str
    error: str | None = None
    cost_usd: float | None = None
    usage: Usage | None = None
    working: float | None = None
    session_id: str | None = None
    recording: str | None = None
    resumed: int = 0


class BatchCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the check command came to: its exit `status` (None when its time was up), the end of its output, and the object with its score, if it wrote one."""

    status: int | None
    output: str = ""
    report: dict[str, Any] | None = None


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one attempt: a task, an agent and a repetition (from 1).

    `score` is from 0 to 1. `cause` says why an attempt failed before it could be checked: a label such as "deadline" or "crashed", the name of an
    error's class, "setup" or "check" where that command could not be run to its end; None otherwise. Cost (US dollars, None: unknown) and tokens are those of all `tries`. `at` is
    its end in Unix seconds. `digest` stands for what was asked of whom. `recording` is the folder with every frame of the last try, `workspace`
    the folder in which it worked, where it was kept.
    """

    task: str
    agent: str
    repetition: int
    score: float
    cause: str | None = None
    error: str | None = None
    text: str = ""
    structured_output: Any = None
    cost_usd: float | None = None
    usage: Usage | None = None
    model: str | None = None
    times: BatchTimes = msgspec.field(default_factory=BatchTimes)
    tries: tuple[BatchTry, ...] = ()
    check: BatchCheck | None = None
    recording: str | None = None
    workspace: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    at: float = 0.0
    digest: str = ""

    @property
    def key(self) -> Key:
        """What no other result of a batch has."""
        return self.task, self.agent, self.repetition

    @property
    def ok(self) -> bool:
        """Whether it was answered and checked, whatever the score."""
        return self.cause is None

    @property
    def resumed(self) -> int:
        """How often another host took it up."""
        return sum(one.resumed for one in self.tries)


def load_results(path: str | Path) -> list[BatchResult]:
    """Read a file of results. A last line that was cut off by a kill is left out. Raises `BadOption` naming the line."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[list[BatchResult], int]:
    """The results, and the bytes of the file that are whole lines."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadOption(f"{path}: cannot be read: {error.strerror or error}") from None
    whole = data.rfind(b"\n") + 1
    decoder, found = msgspec.json.Decoder(BatchResult), list[BatchResult]()
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
        try:
            found.append(decoder.decode(line))
        except Refusal as error:
            text = (
                f"{path}:{number}: is no result of a batch ({error}): remove the line, or name another file"
            )
            raise BadOption(text) from None
    return found, whole


class ResultsFile:
    """The results of a batch by key, in a file at `path`, or in memory alone where that is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd = -1
        self._lock = trio.Lock()
        self._kept: dict[Key, tuple[int, BatchResult]] = {}

    def open(self) -> None:
        """Read what is there, and cut off what a kill left of a line. Raises `BadOption`, also for a file that cannot be written."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            found, whole = _read(self._path)
            os.ftruncate(self._fd, whole)
        except OSError as error:
            raise BadOption(f"{self._path}: cannot be written: {error.strerror or error}") from None
        for number, result in enumerate(found, 1):
            self._kept[result.key] = (number, result)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def kept(self) -> Mapping[Key, BatchResult]:
        """The results that were there when it was opened."""
        return {key: result for key, (_, result) in self._kept.items()}

    def find(self, key: Key, digest: str) -> BatchResult | None:
        """The result that an earlier host has kept. Raises `BadOption` where it is that of another task or agent under the same name."""
        if (found := self._kept.get(key)) is None:
            return None
        number, result = found
        if result.digest != digest:
            task, agent, _ = key
            raise BadOption(
                f"{self._path}:{number}: is a result of another version of task {task!r} or agent {agent!r}: "
                "name another file for the results, or change them back"
            )
        return result

    async def append(self, result: BatchResult) -> None:
        """Keep a result. Raises OSError when the disk does not take it."""
        if self._fd < 0:
            return
        line = msgspec.json.encode(result) + b"\n"
        # one after the other: two halves must never mix
        async with self._lock:
            # in a thread, and to its end: an fsync may take a while, and half a line would be cut off by the next host
            await trio.to_thread.run_sync(_write_and_sync, self._fd, line)


def _write_and_sync(fd: int, line: bytes) -> None:
    write_all(fd, line)
    os.fsync(fd)
