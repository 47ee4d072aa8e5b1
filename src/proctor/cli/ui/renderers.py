"""The two faces of a run: the answer as text with notes beside it, or every event as a line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
import msgspec

from proctor.actors.errors import delivery_of
from proctor.actors.outcomes import Answer
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import json_printable
from proctor.cli.ui.transcript import Shown, Transcript
from proctor.protocols.vocabulary import AnyEvent


class Presentation(Protocol):
    """What a run is shown by."""

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Show a batch. Raises `BrokenPipeError` when the reader has gone."""
        ...

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """Show the end."""
        ...

    async def failure(self, error: Exception) -> None:
        """Show, if this face has a place for it, that there is no answer."""
        ...


class AsText:
    """The answer on `out`, piece by piece; notes on `screen`."""

    def __init__(self, out: Output, screen: Output, *, quiet: bool) -> None:
        self._out, self._screen = out, screen
        self._transcript = Transcript(
            safe=out.is_terminal,
            shared=out.is_terminal and screen.is_terminal,
            dim=screen.is_terminal,
            quiet=quiet,
        )

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Show what is new in them."""
        for shown in self._transcript.take(events):
            await self._show(shown)

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """The end of the last line, or the whole answer when nothing was shown yet."""
        await self._show(self._transcript.finish(answer.text))

    async def failure(self, error: Exception) -> None:
        """A person reads of it on stderr."""

    async def _show(self, shown: Shown) -> None:
        out, err = shown.out.encode("utf-8", "replace"), shown.err.encode("utf-8", "replace")
        if (
            self._transcript.shared
        ):  # on one terminal what was said stands before the note about what followed
            await self._out.write(out)
            await self._screen.note(err)
        else:  # a reader of the answer that is slow keeps no note from a person
            await self._screen.note(err)
            await self._out.write(out)


class AsJson:
    """NDJSON on `out`; the last line is the answer record (`type` "answer"), or `type` "failure" without one."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode_lines

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Every event, a line each, in one write."""
        await self._write(self._encode(events))

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """The answer record."""
        await self._write(_line(answer_record(answer, recording)))

    async def failure(self, error: Exception) -> None:
        """Why there is no answer."""
        failure: dict[str, Any] = {"type": "failure", "error": type(error).__name__, "text": str(error)}
        if (delivery := delivery_of(error)) is not None:
            failure["delivery"] = delivery.facts()
        await self._write(_line(failure))

    async def _write(self, lines: bytes) -> None:
        if self._out.is_terminal:
            lines = json_printable(lines.decode()).encode()
        await self._out.write(lines)


def answer_record(answer: Answer, recording: Path | None) -> dict[str, Any]:
    """The last line of `--json`: every field of the answer, `ok`, and where the recording is (None: not kept)."""
    fields = attrs.asdict(answer, recurse=False)
    exit_reason = None if answer.exit is None else str(answer.exit)
    kept = None if recording is None else str(recording)
    delivery = None if answer.delivery is None else answer.delivery.facts()
    told = {"exit": exit_reason, "recording": kept, "delivery": delivery}
    return {"type": "answer", "ok": answer.ok, **fields, **told}


def _line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"
