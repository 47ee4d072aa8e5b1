"""The messages of `codex app-server` 0.169.0 as types, with only the fields that proctor reads.

Every field has a default, so that a message in which one of them changed its shape can still be decoded without it.
What may be one of several shapes is left undecoded (`Raw`): a new one must not cost its neighbours.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.protocols.vocabulary import Usage

NO_RAW = msgspec.Raw(b"")


class Record(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A part of a message. The wire writes its names in camel case, and so must each kind say again."""


class Item(Record, frozen=True, gc=False, rename="camel"):
    """A piece of a turn, of any kind: fields that its kind does not have are empty."""

    type: str = ""
    id: str = ""
    text: str = ""
    status: str | None = None
    summary: list[str] = []
    content: msgspec.Raw = NO_RAW
    command: str = ""
    cwd: str | None = None
    aggregated_output: str | None = None
    changes: list[dict[str, Any]] = []
    server: str = ""
    tool: str = ""
    arguments: Any = None
    result: msgspec.Raw = NO_RAW
    error: msgspec.Raw = NO_RAW
    content_items: list[dict[str, Any]] | None = None
    success: bool | None = None
    prompt: str | None = None
    receiver_thread_ids: list[str] = []
    agent_thread_id: str = ""
    agent_path: str = ""
    kind: str = ""
    query: str = ""
    action: Any = None
    path: str = ""
    duration_ms: float | None = None
    review: str = ""
    revised_prompt: str | None = None
    saved_path: str | None = None
    message: str = ""


class ItemMoved(Record, frozen=True, gc=False, rename="camel"):
    """`item/started`, `item/completed`."""

    thread_id: str = ""
    turn_id: str = ""
    item: Item = Item()


class Delta(Record, frozen=True, gc=False, rename="camel"):
    """A piece of text that an item grows by."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    delta: str = ""


class Failure(Record, frozen=True, gc=False, rename="camel"):
    """`codex_error_info` is a word, or an object of one word and what it says more."""

    message: str = ""
    codex_error_info: msgspec.Raw = NO_RAW
    additional_details: str | None = None


class HttpCause(Record, frozen=True, gc=False, rename="camel"):
    """The HTTP status beside a word of `codex_error_info`."""

    http_status_code: int | None = None


class ErrorMessage(msgspec.Struct, frozen=True, gc=False):
    """The error of a tool, or of the turn of an `exec` run."""

    message: str = ""


class Failed(Record, frozen=True, gc=False, rename="camel"):
    """`error`."""

    thread_id: str = ""
    turn_id: str = ""
    error: Failure = Failure()
    will_retry: bool = False


class Turn(Record, frozen=True, gc=False, rename="camel"):
    id: str = ""
    status: str = ""
    error: Failure | None = None
    duration_ms: float | None = None


class TurnMoved(Record, frozen=True, gc=False, rename="camel"):
    """`turn/started`, `turn/completed`; and the reply to `turn/start`, which has no thread."""

    thread_id: str = ""
    turn: Turn = Turn()


class ThreadInfo(Record, frozen=True, gc=False, rename="camel"):
    id: str = ""
    parent_thread_id: str | None = None
    agent_nickname: str | None = None


class ThreadStarted(Record, frozen=True, gc=False, rename="camel"):
    """`thread/started`."""

    thread: ThreadInfo = ThreadInfo()


class Opened(Record, frozen=True, gc=False, rename="camel"):
    """The reply to `thread/start`, `thread/resume` and `thread/fork`."""

    thread: ThreadInfo = ThreadInfo()
    model: str | None = None
    cwd: str | None = None
    approval_policy: msgspec.Raw = NO_RAW


class Hello(Record, frozen=True, gc=False, rename="camel"):
    """The reply to `initialize`."""

    user_agent: str = ""


class ThreadTokens(msgspec.Struct, frozen=True, gc=False):
    """The tokens of a thread so far, as `codex exec` writes them."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None


class Tokens(Record, frozen=True, gc=False, rename="camel"):
    """The tokens of one model call, as the app server writes them."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0


def usage_of(tokens: ThreadTokens | Tokens) -> Usage:
    """The tokens in our words."""
    return Usage(
        tokens.input_tokens,
        tokens.output_tokens,
        tokens.cached_input_tokens,
        tokens.cache_write_input_tokens,
    )


class TokenUsage(Record, frozen=True, gc=False, rename="camel"):
    last: Tokens = Tokens()
    model_context_window: int | None = None


class UsageUpdated(Record, frozen=True, gc=False, rename="camel"):
    """`thread/tokenUsage/updated`: `last` is one call of the model."""

    thread_id: str = ""
    turn_id: str = ""
    token_usage: TokenUsage = TokenUsage()


class Window(Record, frozen=True, gc=False, rename="camel"):
    """`resets_at` is in Unix seconds."""

    used_percent: float = 0.0
    resets_at: float | None = None


class Limits(Record, frozen=True, gc=False, rename="camel"):
    limit_id: str | None = None
    primary: Window | None = None
    secondary: Window | None = None
    rate_limit_reached_type: str | None = None


class LimitsUpdated(Record, frozen=True, gc=False, rename="camel"):
    """`account/rateLimits/updated`."""

    rate_limits: Limits = Limits()


class ServerStatus(Record, frozen=True, gc=False, rename="camel"):
    """`mcpServer/startupStatus/updated`."""

    name: str = ""
    status: str = ""
    error: str | None = None


class Resolved(Record, frozen=True, gc=False, rename="camel"):
    """`serverRequest/resolved`: `request_id` is the server's own, a number or a text."""

    thread_id: str = ""
    request_id: msgspec.Raw = NO_RAW


class Question(Record, frozen=True, gc=False, rename="camel"):
    """Any request of the server that is about the use of a tool; fields that it does not have are empty."""

    thread_id: str = ""
    turn_id: str | None = None
    item_id: str | None = None
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    grant_root: str | None = None
    network_approval_context: Any = None
    permissions: dict[str, Any] = {}
    server_name: str = ""
    message: str = ""
    requested_schema: Any = None
    url: str | None = None
    meta: msgspec.Raw = msgspec.field(default=NO_RAW, name="_meta")
    tool: str = ""
    call_id: str | None = None
    arguments: Any = None
    questions: list[dict[str, Any]] = []


class ToolMeta(msgspec.Struct, frozen=True, gc=False):
    """The `_meta` of an elicitation that stands for the approval of an MCP tool."""

    codex_approval_kind: str = ""
    tool_name: str = ""
    tool_params: dict[str, Any] | None = None
    persist: list[str] = []


class McpResult(Record, frozen=True, gc=False, rename="camel"):
    """The result of an MCP tool: its parts are of many kinds."""

    content: list[dict[str, Any]] = []
