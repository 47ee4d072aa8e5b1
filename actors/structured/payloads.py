"""Payloads: files, binary data and JSON that a caller sends along with a prompt's text.

A payload is a value: it is sent as it was when it was made, whatever happens to the file meanwhile. Text reaches every
command line, in the prompt. The rest travels as the dialect can: content blocks, or a temporary file in the arguments,
which is deleted with its process. What a command line cannot take is refused before anything is sent.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import attrs
import msgspec

from proctor.actors.errors import BadOption, UnsupportedPayload
from proctor.actors.plan.plan import Plan
from proctor.protocols.attachment import Attachment, UnsupportedAttachment, refuse_unsupported_attachments
from proctor.protocols.dialect import Memo

_MIME = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.ASCII | re.IGNORECASE)
_UNKNOWN = "application/octet-stream"


@attrs.frozen
class FilePayload:
    """The content of a file, and the name that the model knows it by. `mime` None: guessed from the name.

    Text, or bytes that are UTF-8, reach every command line; other bytes only where their type is taken.
    """

    name: str
    content: str | bytes = attrs.field(repr=False)
    mime: str | None = None

    @classmethod
    def read(cls, path: str | Path, *, mime: str | None = None) -> FilePayload:
        """Read a file now. Blocks until the disk answers; raises OSError."""
        path = Path(path)
        return cls(path.name, path.read_bytes(), mime)


@attrs.frozen
class BinaryPayload:
    """Bytes of a MIME type, such as a picture of `image/png`."""

    data: bytes = attrs.field(repr=False)
    mime: str
    name: str | None = None


@attrs.frozen
class JsonPayload:
    """A value that JSON can represent, and its JSON schema if the model should see it; the value is checked against it."""

    value: object
    schema: Mapping[str, object] | None = None
    name: str = "data.json"


Payload = FilePayload | BinaryPayload | JsonPayload


def attachments_of(payloads: Iterable[Payload]) -> tuple[Attachment, ...]:
    """The payloads as attachments of a conversation, in their order. Raises `BadOption` for other values."""
    if isinstance(payloads, str) or not isinstance(payloads, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"payloads must be a sequence of payloads, got {payloads!r}")
    return tuple(_MAKERS.get(type(payload), _refused)(payload) for payload in payloads)


def refuse_unsupported(plan: Plan, attachments: Iterable[Attachment], live: Memo | None = None) -> None:
    """Raise `UnsupportedPayload` for the first one that this plan's command line does not accept, as far as is known; `live` is
    the state of a running one, which has reported its capabilities."""
    takes = partial(plan.dialect.takes, live or Memo(mode=plan.launch.mode, launch=plan.launch))
    try:
        refuse_unsupported_attachments(plan.dialect.name, attachments, takes)
    except UnsupportedAttachment as error:
        raise unsupported(error) from error


def unsupported(error: UnsupportedAttachment) -> UnsupportedPayload:
    """The error of a dialect as an error of an agent."""
    return UnsupportedPayload(error.cli, error.attachment.kind, error.attachment.mime, str(error))


def _of_file(payload: FilePayload) -> Attachment:
    text = payload.content if isinstance(payload.content, str) else _text_of(payload.content)
    guessed = mimetypes.guess_type(payload.name)[0]
    if text is not None:
        return Attachment("file", payload.name, payload.mime or guessed or "text/plain", text)
    mime = _checked(payload.mime or guessed or _UNKNOWN)
    return Attachment("file", payload.name, mime, data=bytes(payload.content))  # type: ignore[arg-type]


def _text_of(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _of_binary(payload: BinaryPayload) -> Attachment:
    mime = _checked(payload.mime)
    name = payload.name or f"data{mimetypes.guess_extension(mime) or ''}"
    text = _text_of(payload.data) if mime.startswith("text/") else None
    return Attachment("binary", name, mime, text, b"" if text is not None else payload.data)


def _checked(mime: str) -> str:
    if _MIME.fullmatch(mime) is None:
        raise BadOption(f"a MIME type must look like 'image/png', got {mime!r}")
    return mime.lower()


def _of_json(payload: JsonPayload) -> Attachment:
    text = _dumped(payload.value)
    if payload.schema is not None:
        # load the JSON schemas, which few payloads need
        from proctor.actors.structured.schemas import schema_of
        from proctor.actors.structured.submit import format_violations

        schema = schema_of({"title": payload.name, **payload.schema})
        if wrong := schema.violations(msgspec.json.decode(text)):
            raise BadOption(
                f"the JSON payload {payload.name!r} does not match its schema. {format_violations(wrong)}"
            )
        text = f"{text}\n\nof the JSON schema\n\n{_dumped(payload.schema)}"
    return Attachment("json", payload.name, "application/json", text)


def _dumped(value: object) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadOption(f"a JSON payload must be a JSON value: {error}") from error


def _refused(payload: object) -> Attachment:
    kinds = ", ".join(kind.__name__ for kind in _MAKERS)
    raise BadOption(f"a payload must be one of {kinds}, got {payload!r}")


_MAKERS: Mapping[type, Callable[..., Attachment]] = {
    FilePayload: _of_file,
    BinaryPayload: _of_binary,
    JsonPayload: _of_json,
}
