"""The records that `opencode run --format json` and `opencode serve` 1.18.33 share, and the lines of the first, as types.

Every field has a default, as in the other dialects.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.protocols.vocabulary import Usage


class Span(msgspec.Struct, frozen=True, gc=False):
    """When something was begun and ended, in milliseconds."""

    start: int | None = None
    end: int | None = None

    @property
    def seconds(self) -> float | None:
        """The duration, None where one of both is not known."""
        return None if self.start is None or self.end is None else (self.end - self.start) / 1000


class State(msgspec.Struct, frozen=True, gc=False):
    """The state of a tool call; `opencode run` reports it only when it is over."""

    status: str = ""
    input: dict[str, Any] | None = None
    output: str = ""
    error: str = ""
    time: Span = Span()


class Cache(msgspec.Struct, frozen=True, gc=False):
    """Tokens read from the cache and written to it."""

    read: int = 0
    write: int = 0


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Of one model call."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: Cache = Cache()

    @property
    def usage(self) -> Usage:
        """The same in our words. Tokens of thought are billed as output."""
        return Usage(self.input, self.output + self.reasoning, self.cache.read, self.cache.write)


class Part(msgspec.Struct, frozen=True, gc=False):
    """A piece of a message, of any type."""

    id: str = ""
    messageID: str = ""
    type: str = ""
    text: str = ""
    time: Span | None = None
    tool: str = ""
    call: str = msgspec.field(default="", name="callID")
    state: State = State()
    reason: str = ""
    tokens: Tokens = Tokens()
    cost: float | None = None


class ErrorData(msgspec.Struct, frozen=True, gc=False):
    """The text of an error; `status` and `body` are of the model's API."""

    message: str = ""
    status: int | None = msgspec.field(default=None, name="statusCode")
    body: str | None = msgspec.field(default=None, name="responseBody")


class Error(msgspec.Struct, frozen=True, gc=False):
    """The error of a session, of a message, or of a refused request."""

    name: str = ""
    data: ErrorData = ErrorData()


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of `opencode run`."""

    type: str = ""
    session: str = msgspec.field(default="", name="sessionID")
    part: Part = Part()
    error: Error = Error()
