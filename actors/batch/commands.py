"""Commands of a batch: set-up and check, run to their end in a workspace. They leave no process behind, on any path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec
import trio

from proctor.actors.batch.tasks import Argv
from proctor.actors.plan.option_checks import is_number
from proctor.protocols.lenient import decoded_or
from proctor.runtime.exits import ExitStatus, Normal
from proctor.runtime.processes import Command, ProcessError, Step, open_process

KEPT = 64 * 1024
"""Bytes of a command's output that are kept: the last."""
SHOWN = 2000
"""Characters of it that a result has."""
_LADDER = (Step("terminate", 2.0), Step("kill", 2.0))


@attrs.frozen
class CommandEnd:
    """The end of a command: its exit `status` (128 and the number for a signal, None when its time was up), the end of what it wrote to
    stdout and stderr together, the last line of stdout, and the seconds that it took."""

    status: int | None
    output: str
    last_line: str
    seconds: float


class _Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        del self._data[:-KEPT]

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


async def run_command(
    command: Argv, cwd: Path, facts: Mapping[str, str], timeout: float, stdin: str = ""
) -> CommandEnd:
    """Run a command in `cwd` with `stdin`, and with `facts` beside the variables of this process. Raises `ProcessError` where it cannot
    be started."""
    argv = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
    begun, both, out = trio.current_time(), _Tail(), _Tail()

    def on_stdout(data: bytes) -> None:
        out.add(data)
        both.add(data)

    started = Command(argv, {**os.environ, **facts}, str(cwd))
    status: int | None = None
    with trio.move_on_after(timeout):
        # guarded: what a test run leaves in the background must not outlive it
        async with open_process(
            started, ladder=_LADDER, guard=True, on_stdout=on_stdout, on_stderr=both.add
        ) as process:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process, stdin)
                exit = await process.wait()
                nursery.cancel_scope.cancel("the command has ended")
            status = _status(exit)
    lines = out.text.strip().splitlines()
    return CommandEnd(status, both.text[-SHOWN:], lines[-1] if lines else "", trio.current_time() - begun)


async def _feed(process: Any, text: str) -> None:
    # a command need not read its input
    with suppress(ProcessError):
        await process.send(text.encode("utf-8", "replace"))
    process.close_stdin()


def _status(exit: object) -> int:
    match exit:
        case Normal():
            return 0
        case ExitStatus(code=int() as code):
            return code
        case ExitStatus(signal=int() as number):
            return 128 + number
        case _:
            return 1


def score_of(end: CommandEnd) -> tuple[float, dict[str, Any] | None]:
    """The score of a check, and the object in which it wrote one: its last line of stdout, where that is a JSON object with a number `score`
    from 0 to 1; else 1 for exit status 0, and 0 for any other."""
    report = decoded_or(None, dict[str, Any], end.last_line.encode())
    score: object = (report or {}).get("score")
    if end.status is not None and is_number(score) and 0 <= cast("float", score) <= 1:
        return float(cast("float", score)), report
    return float(end.status == 0), None


def as_text(value: object, text: str) -> str:
    """What the check reads at stdin: the answer as JSON where it was declared by a schema, else its text."""
    return text if value is None else msgspec.json.encode(value).decode()
