"""Attachments of a prompt, before a dialect translates them.

Text attachments reach every model, in the prompt itself; `to_text` writes them so that their content cannot end them.
Others are bytes of a MIME type: each dialect says which it takes (`Dialect.takes`) and how it sends them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from proctor.protocols.errors import Misuse

Kind = Literal["file", "binary", "json"]

PICTURES = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))
"""The pictures that models of today see."""

PDF = "application/pdf"

PAYLOADS = "payloads"
"""The folder in `Launch.scratch` for texts that are too long for a prompt."""

_FENCE = re.compile("`{3,}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """`kind` is the caller's word for it, `name` what the model knows it by; `text` is whole, or None and `data` is."""

    kind: Kind
    name: str
    mime: str
    text: str | None = None
    data: bytes = b""

    @property
    def base64(self) -> str:
        """The data as JSON carries it."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The data as a URL that holds it."""
        return f"data:{self.mime};base64,{self.base64}"


class UnsupportedAttachment(Misuse):
    """This command line has no way to take an attachment; `cli` and `attachment` say which."""

    def __init__(self, cli: str, attachment: Attachment) -> None:
        text = (
            f"{cli} cannot take a {attachment.kind} payload of type {attachment.mime} ({attachment.name!r})"
        )
        super().__init__(text, request="prompt")
        self.cli = cli
        self.attachment = attachment


def refuse_unsupported_attachments(
    cli: str, attachments: Iterable[Attachment], takes: Callable[[Attachment], bool]
) -> None:
    """Raises `UnsupportedAttachment` for the first that is no text and that `takes` does not take."""
    for attachment in attachments:
        if attachment.text is None and not takes(attachment):
            raise UnsupportedAttachment(cli, attachment)


def to_text(attachment: Attachment) -> str:
    """A textual attachment as a part of a prompt: its name, its type, and its content behind a fence it does not hold."""
    content = attachment.text or ""
    longest = max((len(run) for run in _FENCE.findall(content)), default=2)
    fence = "`" * (longest + 1)
    return f"{attachment.name} ({attachment.mime}):\n{fence}\n{content}\n{fence}"


def whole_text(text: str, attachments: Sequence[Attachment]) -> str:
    """The prompt with its textual attachments behind it, for who takes nothing but text."""
    return "\n\n".join([*([text] if text else []), *(to_text(a) for a in attachments if a.text is not None)])


def is_picture_or_pdf(memo: object, attachment: Attachment) -> bool:
    """`Dialect.takes` of a CLI that takes pictures and PDF documents."""
    return attachment.mime in PICTURES or attachment.mime == PDF


def text_part(text: str) -> dict[str, Any]:
    """A text as a part of a message, in the shape that all CLIs share."""
    return {"type": "text", "text": text}


def parts(
    text: str,
    attachments: Sequence[Attachment],
    blocks: Sequence[dict[str, Any]],
    other_part: Callable[[Attachment], dict[str, Any]],
) -> list[dict[str, Any]]:
    """The prompt as parts in their order: attachments that are no text by `other_part`, then the CLI's own `blocks`.
    Never empty: CLIs refuse a message of no parts."""
    own = [text_part(text)] if text else []
    carried = [other_part(a) if a.text is None else text_part(to_text(a)) for a in attachments]
    return [*own, *carried, *blocks] or [text_part("")]


def files(attachments: Sequence[Attachment]) -> dict[str, bytes]:
    """Names of files, no two alike, and their content, for those that are no text."""
    other_part = [a for a in attachments if a.text is None]
    return {f"{n}-{_UNSAFE.sub('_', a.name)[-80:]}": a.data for n, a in enumerate(other_part, 1)}
