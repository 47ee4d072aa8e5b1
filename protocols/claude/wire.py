"""The frames of Claude Code 2.1.197 to 2.1.330 as types: what proctor reads of them, and nothing else.

Every field has a default, so that a frame in which one of them changed its shape can still be decoded without it.
Lists of unions are left undecoded (`Raw`): one new kind of block must not cost its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.protocols.vocabulary import Usage

NO_RAW = msgspec.Raw(b"")


class Wire(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """A line of stdout; its `type` is the tag."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""


class Attempt(msgspec.Struct, frozen=True, gc=False):
    id: str | None = None


class ApiEvent(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    delta: Delta = Delta()
    message: Attempt = Attempt()


class StreamEvent(Wire, frozen=True, gc=False, tag="stream_event"):
    event: ApiEvent = ApiEvent()
    parent_tool_use_id: str | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """`content` is a string or a list of blocks, `usage` the tokens so far."""

    id: str | None = None
    model: str | None = None
    content: msgspec.Raw = NO_RAW
    usage: msgspec.Raw = NO_RAW


class Assistant(Wire, frozen=True, gc=False, tag="assistant"):
    message: Message = Message()
    parent_tool_use_id: str | None = None
    error: str | None = None
    api_error: str | None = None
    api_error_status: int | None = None
    api_error_params: msgspec.Raw = NO_RAW


class User(Wire, frozen=True, gc=False, tag="user"):
    message: Message = Message()
    parent_tool_use_id: str | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw()
    uuid: str | None = None
    is_replay: bool = msgspec.field(default=False, name="isReplay")


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block of `message.content`, of any kind."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: msgspec.Raw = NO_RAW
    is_error: bool | None = False


class System(Wire, frozen=True, gc=False, tag="system"):
    subtype: str = ""


class McpServer(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    status: str = ""


class Init(msgspec.Struct, frozen=True, gc=False):
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    permission_mode: str | None = msgspec.field(default=None, name="permissionMode")
    claude_code_version: str | None = None
    tools: list[str] = []
    mcp_servers: list[McpServer] = []
    user_message_uuids: list[str] = []


class ApiRetry(msgspec.Struct, frozen=True, gc=False):
    attempt: int = 0
    max_retries: int | None = None
    retry_delay_ms: float = 0.0
    error_status: int | None = None
    error: str | None = None


class Status(msgspec.Struct, frozen=True, gc=False):
    status: str | None = None
    compact_result: str | None = None
    compact_error: str | None = None


class HookResponse(msgspec.Struct, frozen=True, gc=False):
    hook_name: str | None = None
    outcome: str | None = None
    exit_code: int | None = None
    stderr: str | None = None


class Tokens(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    @property
    def usage(self) -> Usage:
        """The same in our words."""
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
        )


class ModelUsage(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    context_window: int | None = None


class Denial(msgspec.Struct, frozen=True, gc=False):
    tool_name: str = ""


class Origin(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None


class Result(Wire, frozen=True, gc=False, tag="result"):
    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    errors: list[str] = []
    terminal_reason: str | None = None
    startup_failure_reason: str | None = None
    stop_reason: str | None = None
    api_error: str | None = None
    api_error_status: int | None = None
    num_turns: int | None = None
    duration_ms: float | None = None
    total_cost_usd: float | None = None
    usage: Tokens | None = None
    model_usage: msgspec.Raw = msgspec.field(default=NO_RAW, name="modelUsage")
    structured_output: Any = None
    permission_denials: list[Denial] = []
    session_id: str | None = None
    origin: Origin | None = None
    user_message_uuids: list[str] = []
    user_message_uuid: str | None = None


class AskedOfHost(msgspec.Struct, frozen=True, gc=False):
    subtype: str = ""
    tool_name: str = ""
    input: dict[str, Any] = {}
    description: str | None = None
    decision_reason: str | None = None
    tool_use_id: str | None = None
    agent_id: str | None = None
    callback_id: str | None = None
    server_name: str | None = None
    message: msgspec.Raw = NO_RAW
    permission_suggestions: msgspec.Raw = NO_RAW
    requires_user_interaction: bool = False


class ControlRequest(Wire, frozen=True, gc=False, tag="control_request"):
    request_id: str = ""
    request: AskedOfHost = AskedOfHost()


class ControlCancel(Wire, frozen=True, gc=False, tag="control_cancel_request"):
    request_id: str = ""


class Reply(msgspec.Struct, frozen=True, gc=False):
    subtype: str = ""
    request_id: str = ""
    response: dict[str, Any] | None = None
    error: str | None = None


class ControlResponse(Wire, frozen=True, gc=False, tag="control_response"):
    response: Reply = Reply()


class LimitInfo(msgspec.Struct, frozen=True, gc=False):
    status: str = ""
    resets_at: float | None = msgspec.field(default=None, name="resetsAt")
    kind: str | None = msgspec.field(default=None, name="rateLimitType")
    overage: bool | None = msgspec.field(default=None, name="isUsingOverage")
    windows: dict[str, dict[str, Any]] | None = msgspec.field(default=None, name="unifiedWindows")


class LimitParams(msgspec.Struct, frozen=True, gc=False):
    rate_limit_info: LimitInfo = LimitInfo()


class RateLimit(Wire, frozen=True, gc=False, tag="rate_limit_event"):
    rate_limit_info: LimitInfo = LimitInfo()


class Timing(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The duration of a tool; a sub-agent's run is its total."""

    duration_ms: float | None = None
    total_duration_ms: float | None = None

    @property
    def seconds(self) -> float | None:
        """The same in seconds, None where it is not known."""
        milliseconds = self.duration_ms if self.total_duration_ms is None else self.total_duration_ms
        return None if milliseconds is None else milliseconds / 1000


class Lifecycle(Wire, frozen=True, gc=False, tag="command_lifecycle"):
    command_uuid: str = ""
    state: str = ""


class Reset(Wire, frozen=True, gc=False, tag="conversation_reset"):
    trigger: str | None = None


class Untyped(msgspec.Struct, frozen=True, gc=False):
    """The kind of any object."""

    type: str = ""
    subtype: str = ""


AnyWire = (
    StreamEvent
    | Assistant
    | User
    | System
    | Result
    | ControlRequest
    | ControlCancel
    | ControlResponse
    | RateLimit
    | Lifecycle
    | Reset
)

WIRE: Mapping[str, type[Wire]] = {str(kind.__struct_config__.tag): kind for kind in Wire.__subclasses__()}
"""The frame types by the `type` of their lines."""
