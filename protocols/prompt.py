"""A completion request written as one prompt: the history with labels.

The whole history is there, in its order, with all text content; an empty history makes an empty prompt. A line of content
that looks like a label is escaped with a backslash, so that no message can pretend to be another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from proctor.protocols.attachment import Attachment, to_text
from proctor.protocols.dialect import HostTool

Role = Literal["system", "user", "assistant", "tool"]
Content = str | Sequence[str | Mapping[str, Any]]

LABELS: Mapping[Role, str] = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
"""Role → label before its text."""

_LABEL = re.compile(
    r"^\\*(?:System|User|Assistant|Tool|Documents|Tools)(?: \([^\n]*\))?:[ \t]*$", re.MULTILINE
)


class Called(msgspec.Struct, frozen=True):
    """A call of a tool that the assistant made."""

    id: str
    name: str
    input: Mapping[str, Any] = {}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of one role: text, or parts of it. A part is a text, or an object with a `text`; any other is named only.

    `calls` are the tools that an assistant called in it; `name` says of whom a tool's result is.
    """

    role: Role
    content: Content = ""
    calls: tuple[Called, ...] = ()
    name: str | None = None


class Document(msgspec.Struct, frozen=True):
    """Something to know, and what it is called."""

    name: str
    text: str


def prompt_of(
    prompt: Content = "",
    *,
    preamble: str = "",
    history: Sequence[Message] = (),
    documents: Sequence[Document] = (),
    tools: Sequence[HostTool] = (),
) -> str:
    """One prompt with role labels; "" where neither the history nor the prompt says anything."""
    own = Message("user", prompt)
    messages = [messages for message in (*history, own) if (messages := _message(message))]
    return "\n\n".join([*_before(preamble, documents, tools), *messages]) if messages else ""


def text_of(content: Content) -> str:
    """The text of a content: its parts, a blank line between any two."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part for part in map(_part, content) if part)


def _part(part: str | Mapping[str, Any]) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


def _before(preamble: str, documents: Sequence[Document], tools: Sequence[HostTool]) -> Iterator[str]:
    if preamble:
        yield _labelled("System", preamble)
    if documents:
        texts = (
            to_text(Attachment("file", document.name, "text/plain", document.text)) for document in documents
        )
        yield _labelled("Documents", "\n\n".join(texts))
    if tools:
        yield _labelled("Tools", "\n".join(map(_tool, tools)))


def _tool(tool: HostTool) -> str:
    return f"- {tool.name}: {tool.description}\n  input: {json.dumps(tool.schema, ensure_ascii=False)}"


def _message(message: Message) -> str:
    calls = (
        f"[called {call.name} with {json.dumps(call.input, ensure_ascii=False)}]" for call in message.calls
    )
    text = "\n".join(piece for piece in (text_of(message.content), *calls) if piece)
    label = LABELS[message.role] + (f" ({message.name})" if message.name else "")
    return _labelled(label, text) if text else ""


def _labelled(label: str, text: str) -> str:
    marked = _LABEL.sub(r"\\\g<0>", text)
    return f"{label}:\n{marked}"
