"""The recorded runs of all command lines, as events, with what was sent to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

from proctor.actors.recording.sent_prompts import SentPrompts, Sort
from proctor.actors.recording.trajectory import RecordedProcess, read_process
from proctor.protocols.vocabulary import AnyEvent
from tests.protocols.acp import player as acp
from tests.protocols.claude import player as claude
from tests.protocols.codex import player as codex
from tests.protocols.opencode import player as opencode
from tests.protocols.opencode import server
from tests.protocols.recorded import TRANSCRIPTS, names_in

BEGUN = 1_795_000_000.0
"""When each of them began, in Unix seconds: the recordings have only the times since then."""

PLAYERS: Mapping[str, Callable[[str], tuple[object, list[AnyEvent]]]] = {
    "claude": claude.play,
    "codex": codex.play,
    "opencode": opencode.play,
    "acp": acp.play,
}


@attrs.frozen
class OneProcess:
    """What a trajectory needs beside the events, of a recording of one process."""

    process: RecordedProcess

    def text_of(self, _incarnation: int, request: str, sort: Sort) -> str | None:
        return self.process.prompts.take(request, sort)

    def time_of(self, _incarnation: int, frame: int) -> float | None:
        return self.process.time_of(frame)


@attrs.frozen
class RecordedRun:
    """`kind` is that of the command line."""

    name: str
    kind: str
    events: list[AnyEvent]
    source: OneProcess


def recorded_runs(folder: str) -> Iterator[RecordedRun]:
    """All recordings in a folder of `tests/transcripts`."""
    if folder == "opencode_serve":
        for name in ("serve_text", "serve_abort_tool_errors"):
            for session in server.sessions(name):
                texts = RecordedProcess("opencode", (), BEGUN, (), SentPrompts(()))
                yield RecordedRun(name, folder, server.replayed(name, session)[1], OneProcess(texts))
        return
    for name in names_in(TRANSCRIPTS / folder):
        yield recorded_run(folder, name)


def recorded_run(folder: str, name: str) -> RecordedRun:
    """One of them."""
    process = read_process(f"{Path(TRANSCRIPTS, folder, name)}.")
    assert process is not None
    process.begun = BEGUN
    kind = name.partition("_")[0] if folder == "acp" else folder
    return RecordedRun(name, kind, PLAYERS[folder](name)[1], OneProcess(process))
