"""The lines of `opencode run --format json`, 1.18.33, as types. Every field has a default, as in the other dialects."""

from __future__ import annotations

from typing import Any

import msgspec


class Span(msgspec.Struct, frozen=True, gc=False):
    """When something was begun and ended, in milliseconds."""

    start: int | None = None
    end: int | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took, None where one of both is not known."""
        return None if self.start is None or self.end is None else (self.end - self.start) / 1000


class State(msgspec.Struct, frozen=True, gc=False):
    """How a tool call went; it is told only when it is over."""

    status: str = ""
    input: dict[str, Any] | None = None
    output: str = ""
    error: str = ""
    time: Span = Span()


NO_STATE = State()


class Cache(msgspec.Struct, frozen=True, gc=False):
    read: int = 0
    write: int = 0


NO_CACHE = Cache()


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Of one model call."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: Cache = NO_CACHE


NO_TOKENS = Tokens()


class Part(msgspec.Struct, frozen=True, gc=False):
    text: str = ""
    tool: str = ""
    call: str = msgspec.field(default="", name="callID")
    state: State = NO_STATE
    reason: str = ""
    tokens: Tokens = NO_TOKENS
    cost: float | None = None


NO_PART = Part()


class Failure(msgspec.Struct, frozen=True, gc=False):
    message: str = ""
    status: int | None = msgspec.field(default=None, name="statusCode")
    body: str = msgspec.field(default="", name="responseBody")


NO_FAILURE = Failure()


class Error(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    data: Failure = NO_FAILURE


NO_ERROR = Error()


class Line(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    session: str = msgspec.field(default="", name="sessionID")
    part: Part = NO_PART
    error: Error = NO_ERROR
