"""The tools of `proctor serve --schema FILE`, with which a client submits answers that match a schema.

An answer is accepted when it is on disk as a line of JSON of its own. One that cannot be written is not accepted and
leaves nothing in the file; the client gets the reason.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec

from proctor.actors.errors import AgentError, BadOption
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.actors.structured.submit import schema_tools
from proctor.actors.tools.tools import Tool
from proctor.protocols.lenient import Refusal
from proctor.runtime.processes import open_private, write_all

SUBMISSION_TOOLS = frozenset(("submit", "validate", "example"))
"""The names of the tools."""


class SubmissionNotWritten(AgentError):
    """A valid answer could not be written, so it is not accepted."""


@attrs.define
class Submissions:
    """The file of accepted answers. It is opened once, so a file that replaces it later is not written."""

    path: Path
    fd: int

    @classmethod
    def opened(cls, name: str) -> Submissions:
        """Open this file for appending, and create it if needed. Raises `BadOption`."""
        path = Path(name).expanduser().absolute()
        try:
            # opened at the start, so that a bad path is a usage error and not the loss of the first answer
            return cls(path, open_private(path, os.O_WRONLY | os.O_APPEND))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadOption(f"--submit-to {name!r} cannot be written: {why}") from None

    def accept(self, value: Any) -> None:
        """Append a line. Raises `SubmissionNotWritten`."""
        # for the truncation below: the file is meant to have no other writer
        before = os.fstat(self.fd).st_size
        try:
            write_all(self.fd, msgspec.json.encode(value) + b"\n")
            os.fsync(self.fd)  # an accepted answer must survive a crash
        except OSError as error:
            with suppress(OSError):
                # half a line would make the next answer's line unreadable
                os.ftruncate(self.fd, before)
            raise SubmissionNotWritten(
                f"{str(self.path)!r} cannot be written: {error.strerror}; submit it again later"
            ) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def submission_tools(schema: Schema, submissions: Submissions) -> tuple[Tool, ...]:
    """`submit`, `validate` and `example` for a JSON schema. Raises `BadOption`."""
    return schema_tools(schema, submissions.accept)


def read_schema(name: str) -> Schema:
    """The JSON schema in this file. Raises `BadOption`."""
    try:
        declared = msgspec.json.decode(Path(name).expanduser().read_bytes())
    except OSError as error:
        raise BadOption(f"--schema {name!r} cannot be read: {error.strerror}") from None
    except Refusal as error:
        raise BadOption(f"--schema {name!r} is not JSON: {error}") from None
    if not isinstance(declared, dict):
        raise BadOption(f"--schema {name!r} must hold a JSON schema, an object")
    return schema_of(cast("dict[str, Any]", declared))
