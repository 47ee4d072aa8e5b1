"""What a CLI asked the fake: one record per HTTP request, with the parts of the body that tests look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import msgspec
import trio

from tests.fakes.wire import Head

# Seen: 0.5 to 1.2 KB for titles and tool summaries, 6.9 KB for a conversation that was started with no tools.
SIDE_BYTES = 4096

Kind = Literal["scripted", "side", "count_tokens", "other"]
Outcome = Literal["open", "answered", "cut", "client gone", "cancelled"]


class Part(msgspec.Struct, frozen=True):
    """A content block; fields that its type does not have are empty."""

    type: str
    text: str = ""
    name: str = ""
    tool_use_id: str = ""
    is_error: bool = False
    content: str | list[Part] | dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class Turn(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: str | list[Part]


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool the model may call."""

    name: str = ""


class Body(msgspec.Struct, frozen=True):
    """The body of a messages or count_tokens request."""

    model: str = ""
    messages: list[Turn] = []
    tools: list[OfferedTool] = []
    stream: bool = False
    max_tokens: int = 0
    system: str | list[Part] = ""


@attrs.frozen
class ToolResult:
    """What a tool gave back to the model."""

    id: str
    text: str
    is_error: bool


@attrs.define(eq=False)
class Request:
    """One request. `outcome` tells how the answer ended and is final once `finished` is set."""

    kind: Kind
    head: Head
    body: Body
    size: int
    at: float
    outcome: Outcome = "open"
    finished: trio.Event = attrs.field(factory=trio.Event)

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.head.method

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.head.path

    @property
    def headers(self) -> Mapping[str, str]:
        """Header values by lower-case name."""
        return self.head.headers

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.body.model

    @property
    def stream(self) -> bool:
        """Whether server-sent events were asked for."""
        return self.body.stream

    @property
    def n_messages(self) -> int:
        """The length of the conversation sent."""
        return len(self.body.messages)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools offered to the model."""
        return tuple(tool.name for tool in self.body.tools)

    @property
    def user_texts(self) -> tuple[str, ...]:
        """All text blocks of user messages, oldest first; the CLI's own reminders are among them."""
        return tuple(part.text for part in self._user_parts() if part.type == "text")

    @property
    def last_user_text(self) -> str:
        """The newest text of a user message, empty when there is none."""
        return next(reversed(self.user_texts), "")

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """All tool results in the conversation, oldest first."""
        return tuple(
            ToolResult(part.tool_use_id, "".join(_texts(part)), part.is_error)
            for part in self._user_parts()
            if part.type == "tool_result"
        )

    @property
    def session_id(self) -> str:
        """The CLI's session, from the only place that names it."""
        return self.headers.get("x-claude-code-session-id", "")

    @property
    def api_key(self) -> str:
        """The key or bearer token sent."""
        return self.headers.get("x-api-key", "") or self.headers.get("authorization", "").removeprefix(
            "Bearer "
        )

    def _user_parts(self) -> list[Part]:
        return [part for turn in self.body.messages if turn.role == "user" for part in _parts(turn.content)]


def decoded(head: Head, body: bytes, at: float) -> Request:
    """The record of one request; raises `msgspec.MalformedError` or `ValidationError` on a body no CLI should send."""
    parsed = msgspec.json.decode(body, type=Body) if body else Body()
    return Request(_kind(head, parsed, len(body)), head, parsed, len(body), at)


def _kind(head: Head, body: Body, size: int) -> Kind:
    if head.method == "POST" and head.path == "/v1/messages":
        return "side" if _is_side(body, size) else "scripted"
    return "count_tokens" if head.path == "/v1/messages/count_tokens" else "other"


def _is_side(body: Body, size: int) -> bool:
    return not body.tools and len(body.messages) == 1 and size < SIDE_BYTES


def _parts(content: str | list[Part] | dict[str, Any] | None) -> list[Part]:
    if isinstance(content, str):
        return [Part("text", text=content)]
    return content if isinstance(content, list) else []


def _texts(part: Part) -> list[str]:
    return [inner.text for inner in _parts(part.content)]
