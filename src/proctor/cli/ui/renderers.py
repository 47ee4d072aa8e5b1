"""Renderers of a run: the answer as text with notes beside it, or every event as a line of JSON."""

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


class Renderer(Protocol):
    """Renderer of a run."""

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Show a batch. Raises `BrokenPipeError` when the reader has gone."""
        ...

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """Show the answer."""
        ...

    async def failure(self, error: Exception) -> None:
        """Show that there is no answer, where the format has a place for it."""
        ...


class TextRenderer:
    """Renderer of text: the answer on `out` as it is written, notes on `screen`."""

    def __init__(self, out: Output, screen: Output, *, quiet: bool) -> None:
        self._out, self._screen = out, screen
        self._transcript = Transcript(
            safe=out.is_terminal,
            shared=out.is_terminal and screen.is_terminal,
            dim=screen.is_terminal,
            quiet=quiet,
        )

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Show the new text and notes."""
        for shown in self._transcript.take(events):
            await self._show(shown)

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """End the last line, or show the whole answer when nothing was shown yet."""
        await self._show(self._transcript.finish(answer.text))

    async def failure(self, error: Exception) -> None:
        """Nothing to do: the reason is on stderr."""

    async def _show(self, shown: Shown) -> None:
        out, err = shown.out.encode("utf-8", "replace"), shown.err.encode("utf-8", "replace")
        if self._transcript.shared:  # on one terminal, text stands before the note about what followed it
            await self._out.write(out)
            await self._screen.note(err)
        else:  # a slow reader of the answer must not delay the notes
            await self._screen.note(err)
            await self._out.write(out)


class JsonRenderer:
    """Renderer of NDJSON; the last line is the answer record (`type` "answer"), or has `type` "failure"."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode_lines

    async def events(self, events: Sequence[AnyEvent]) -> None:
        """Write the events, a line each."""
        await self._write(self._encode(events))

    async def answer(self, answer: Answer, recording: Path | None) -> None:
        """Write the answer record."""
        await self._write(_line(answer_record(answer, recording)))

    async def failure(self, error: Exception) -> None:
        """Write the reason why there is no answer."""
        failure: dict[str, Any] = {"type": "failure", "error": type(error).__name__, "text": str(error)}
        if (delivery := delivery_of(error)) is not None:
            failure["delivery"] = delivery.facts()
        await self._write(_line(failure))

    async def _write(self, lines: bytes) -> None:
        if self._out.is_terminal:
            lines = json_printable(lines.decode()).encode()
        await self._out.write(lines)


def answer_record(answer: Answer, recording: Path | str | None) -> dict[str, Any]:
    """The last record of `--json`: every field of the answer, `ok`, and the folder of the recording (None: not kept)."""
    fields = attrs.asdict(answer, recurse=False)
    exit_reason = None if answer.exit is None else str(answer.exit)
    kept = None if recording is None else str(recording)
    delivery = None if answer.delivery is None else answer.delivery.facts()
    extra = {"exit": exit_reason, "recording": kept, "delivery": delivery}
    return {"type": "answer", "ok": answer.ok, **fields, **extra}


def _line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def renderer(out: Output, screen: Output, *, as_json: bool, quiet: bool) -> Renderer:
    """The renderer that the flags `--json` and `--quiet` name; notes go to `screen`."""
    return JsonRenderer(out) if as_json else TextRenderer(out, screen, quiet=quiet)
