"""Files for text payloads that are too long for a prompt.

Codex 0.169 refuses a prompt of more than 1 048 576 characters, Claude Code 2.1.330 one between 2 and 3 MB. When the texts beside
a prompt are longer than `LONGEST` together, the longest become private files, and the prompt names their paths. Reading them is
always allowed, whatever the policy. They are removed with the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.recording import write_private
from proctor.protocols.attachment import Attachment
from proctor.protocols.vocabulary import ApprovalRequested

LONGEST = 512 * 1024
"""Characters of text payloads that stand in a prompt."""

READING = frozenset(("external_directory", "Grep", "grep", "Read", "read"))
"""Tools that read a file and change nothing, as the CLIs call them."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class PayloadFiles:
    """The files of one process, in `folder`, which is made for the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Path] = []

    def place(self, attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """The attachments, with the path in place of each text that is too long. Raises `RecordingFailed`."""
        placed = list(attachments)
        for index in _too_long(attachments):
            attachment = attachments[index]
            path = self._write(attachment)
            text = f"too long to stand here: the whole text, {len(attachment.text or '')} characters, is in the file {path}"
            placed[index] = msgspec.structs.replace(attachment, text=text)
        return tuple(placed)

    def make_folder(self) -> None:
        """Make the folder, if it is not there. Raises `RecordingFailed`."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RecordingFailed(str(self._folder), error) from error

    def may_read(self, question: ApprovalRequested) -> bool:
        """Is this about reading one of these files, and nothing else?"""
        return question.tool in READING and any(_names(question.input, str(path)) for path in self._files)

    def clear(self) -> None:
        """Remove them."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()

    def _write(self, attachment: Attachment) -> Path:
        self.make_folder()
        name = _UNSAFE.sub("_", attachment.name)[-80:]
        path = self._folder / f"{len(self._files) + 1}-{name}"
        # Before the write, so that a file that was written in part is removed as well.
        self._files.append(path)
        write_private(path, (attachment.text or "").encode("utf-8", "replace"))
        return path


def _too_long(attachments: tuple[Attachment, ...]) -> Iterator[int]:
    """The places of the texts that become files, the longest first."""
    sizes = {n: len(a.text) for n, a in enumerate(attachments) if a.text is not None}
    left = sum(sizes.values())
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        if left <= LONGEST:
            return
        left -= sizes[place]
        yield place


def _names(given: Mapping[str, Any], path: str) -> bool:
    return path in (value for value in given.values() if isinstance(value, str))
