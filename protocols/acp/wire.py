"""The frames of the Agent Client Protocol, version 1, as types, with the fields that proctor reads.

Every field has a default, so that a frame decodes without a field that changed its type.
"""

from __future__ import annotations

from typing import Any

import msgspec

NO_RAW = msgspec.Raw(b"")


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The protocol writes its names in camel case."""


class Block(Wire, frozen=True, gc=False):
    """A piece of content; in the content of a tool a text stands one level deeper, in `content`."""

    type: str = ""
    text: str = ""
    content: msgspec.Raw = NO_RAW


class Cost(Wire, frozen=True, gc=False):
    amount: float | None = None
    currency: str = ""


class Update(Wire, frozen=True, gc=False):
    """Any `session/update`, and the tool call of a question. `content` is a block, or a list of a tool's."""

    session_update: str = ""
    message_id: str | None = None
    content: Block | list[msgspec.Raw] | None = None
    tool_call_id: str = ""
    name: str = ""
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    raw_input: msgspec.Raw = NO_RAW
    raw_output: msgspec.Raw = NO_RAW
    cost: Cost | None = None
    used: int | None = None
    size: int | None = None
    entries: list[dict[str, Any]] = []
    meta: msgspec.Raw = msgspec.field(default=NO_RAW, name="_meta")


class Updated(Wire, frozen=True, gc=False):
    """The parameters of `session/update`."""

    session_id: str = ""
    update: Update = Update()


class Choice(Wire, frozen=True, gc=False):
    """One way to answer a question; ids differ per agent, kinds do not."""

    option_id: str = ""
    name: str = ""
    kind: str = ""


class Question(Wire, frozen=True, gc=False):
    """The parameters of `session/request_permission`."""

    session_id: str = ""
    tool_call: Update = Update()
    options: list[Choice] = []


class Cancelled(Wire, frozen=True, gc=False):
    """The parameters of `$/cancel_request`: the id of a question, as it was written."""

    request_id: msgspec.Raw = NO_RAW


class Info(Wire, frozen=True, gc=False):
    name: str = ""
    version: str | None = None


class Reached(Wire, frozen=True, gc=False):
    """Transports of MCP servers besides a command."""

    http: bool = False


class Parts(Wire, frozen=True, gc=False):
    """Kinds of content that a prompt may hold beside text."""

    image: bool = False
    audio: bool = False


class Abilities(Wire, frozen=True, gc=False):
    """`session_capabilities` has a member for each optional method."""

    load_session: bool = False
    session_capabilities: dict[str, Any] = {}
    mcp_capabilities: Reached = Reached()
    prompt_capabilities: Parts = Parts()


class Initialized(Wire, frozen=True, gc=False):
    protocol_version: int = 1
    agent_capabilities: Abilities = Abilities()
    agent_info: Info | None = None


class Option(Wire, frozen=True, gc=False):
    """A setting of the session; `category` says what it is about."""

    id: str = ""
    category: str | None = None
    current_value: str | bool | None = None


class Modes(Wire, frozen=True, gc=False):
    current_mode_id: str | None = None


class Models(Wire, frozen=True, gc=False):
    current_model_id: str | None = None


class Opened(Wire, frozen=True, gc=False):
    """The reply to `session/new`, `load`, `resume` and `fork`; and, its options alone, to a setting."""

    session_id: str | None = None
    modes: Modes | None = None
    models: Models | None = None
    config_options: list[Option] | None = None


class Tokens(Wire, frozen=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class Count(msgspec.Struct, frozen=True, gc=False):
    """Tokens as Gemini writes them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class ModelCount(msgspec.Struct, frozen=True, gc=False):
    model: str | None = None


class Quota(msgspec.Struct, frozen=True, gc=False):
    token_count: Count | None = None
    model_usage: list[ModelCount] | None = None


class PromptMeta(msgspec.Struct, frozen=True, gc=False):
    quota: Quota | None = None


class Prompted(Wire, frozen=True, gc=False):
    """The reply to `session/prompt`, when the turn is over."""

    stop_reason: str = ""
    usage: Tokens | None = None
    meta: PromptMeta | None = msgspec.field(default=None, name="_meta")
