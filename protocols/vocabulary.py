"""The events and requests of a conversation, the same for every CLI.

Events come out of a conversation, requests go in. Each event names its frame, a line number of the run's `stdout.ndjson`
counted from 0 (-1 when the host itself is the source), and its turn.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from proctor.protocols.attachment import Attachment

HOST = -1
"""The `frame` of an event that no line of the CLI caused."""

Ending = Literal[
    "completed",
    "interrupted",
    "refused_start",
    "authentication",
    "limit",
    "overloaded",
    "api_error",
    "invalid_request",
    "prompt_too_long",
    "model_not_found",
    "model_refused",
    "max_turns",
    "budget",
    "schema_unmet",
    "error",
]
"""What ended a turn. `completed` alone is a good end; `limit` is a usage limit, not a fault."""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens as the CLI counted them; None where it gave no number."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None

    def __add__(self, more: Usage) -> Usage:
        """The sum; a number that is missing counts as 0."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(more), strict=True)
        return Usage(*((one or 0) + (other or 0) for one, other in pairs))

    @property
    def total(self) -> int:
        """All of them, for a CLI that counts what it has read from a cache apart."""
        return sum(number or 0 for number in msgspec.structs.astuple(self))


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag=_snake):
    """`frame`: the line it came from, or HOST. `turn`: the id of its turn, None outside of any."""

    frame: int
    turn: str | None


class Started(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI named its session: at the first turn, and again when the session id changes."""

    session_id: str
    model: str | None = None
    cwd: str | None = None
    version: str | None = None
    permission_mode: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: dict[str, str] = {}


class TurnStarted(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """`solicited` is False for a turn that the CLI began by itself (background work that ended)."""

    solicited: bool = True
    prompts: tuple[str, ...] = ()


class TextDelta(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A piece of text as the model writes it; the whole block follows as `Text`, unless the attempt is void."""

    text: str
    parent: str | None = None


class Text(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A finished block of the agent's text. `parent`: the tool call of the subagent that wrote it."""

    text: str
    parent: str | None = None


class Thinking(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """Reasoning that the CLI shows; `partial` pieces come before the whole block."""

    text: str
    parent: str | None = None
    partial: bool = False


class ToolCall(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The agent uses a tool. `id` is the CLI's, or made of frame and place when it gave none."""

    id: str
    name: str
    input: dict[str, Any] = {}
    parent: str | None = None


class ToolResult(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """`text` joins the textual parts of the result; pictures and documents stay in the frame.

    `metadata` is what came beside it, as far as the CLI passes it on: for a tool of MCP `structuredContent` and `_meta`,
    which no model need have seen. `duration` is in seconds, None where the CLI does not say how long the tool ran.
    """

    id: str
    text: str
    is_error: bool = False
    parent: str | None = None
    metadata: dict[str, Any] = {}
    duration: float | None = None


class ApprovalRequested(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI waits for a `Decision` with this id; it has no clock of its own.

    `lasting`: it takes a decision for the rest of its session (`Decision.always`). `options`: the answers that it offers, where a yes and a no are not
    all of them. `changes`: the file changes that it asks about, where it describes them beside the input.
    """

    id: str
    tool: str
    input: dict[str, Any] = {}
    description: str | None = None
    tool_call: str | None = None
    lasting: bool = False
    options: tuple[str, ...] = ()
    changes: tuple[dict[str, Any], ...] = ()


class ApprovalWithdrawn(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The question with this id needs no answer any more."""

    id: str


class ToolRequested(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI asks the host to run one of the host's own tools, and waits for a `ToolReturn` with this id."""

    id: str
    tool: str
    input: dict[str, Any] = {}
    tool_call: str | None = None


class HookCalled(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI has come to a point that the host has a hook for, and waits for a `HookVerdict` with this id.

    `hook` is the name of the host's hook, `point` where the CLI stands, `input` what it tells about it.
    """

    id: str
    hook: str
    point: str
    input: dict[str, Any] = {}
    tool_call: str | None = None


class RequestWithdrawn(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The `ToolRequested` or `HookCalled` with this id needs no answer any more."""

    id: str


class Steered(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A `Steer` or a `Prompt` with this id, sent while a turn ran, was taken into that turn."""

    request: str


class Retrying(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI will repeat a request to its model by itself in `delay` seconds."""

    attempt: int
    max_attempts: int | None = None
    delay: float = 0.0
    status: int | None = None
    error: str | None = None


class LimitReached(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A usage limit was hit. `resets_at`: Unix seconds, None when the CLI does not know."""

    kind: str | None = None
    resets_at: float | None = None


class Notice(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """Something a person may want to know, by the CLI or by us. `code` is stable, `text` is not."""

    code: str
    text: str = ""
    data: dict[str, Any] = {}


class TurnEnded(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The end of a turn, with the CLI's own account of it.

    `cost_usd` is this turn's share, `total_cost_usd` the session's so far (US dollars); `duration` is in seconds.
    `prompts` are the ids of the requests it answers, empty for an unsolicited turn. `detail` is the CLI's own word.
    """

    ending: Ending
    text: str | None = None
    error: str | None = None
    detail: str | None = None
    status: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    model: str | None = None
    model_turns: int | None = None
    duration: float | None = None
    structured_output: Any = None
    denied_tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    solicited: bool = True
    session_id: str | None = None


class Garbled(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A line that is not a frame: `not_json`, `not_utf8`, `not_object`, `oversized` or `cut` (no newline at the end); or an
    event that a validator `refused`, for what `error` says.

    `head` is its first 100 characters, or the type of the refused event, `size` its length and `offset` its place in
    `stdout.ndjson`, in bytes. `stage` is the one that it did not pass.
    """

    reason: Literal["not_json", "not_utf8", "not_object", "oversized", "cut", "refused"]
    head: str = ""
    size: int = 0
    offset: int = 0
    error: str | None = None

    @property
    def stage(self) -> Literal["parse", "meaning"]:
        """The stage of decoding at which it failed."""
        return "meaning" if self.reason == "refused" else "parse"


class Unrecognized(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """JSON that this version does not model, at any depth; `kind` is a path such as `assistant.content.hologram`."""

    kind: str
    error: str | None = None

    @property
    def stage(self) -> Literal["shape"]:
        """The stage of decoding at which it failed."""
        return "shape"


class Misplaced(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """A known frame in a phase where it means nothing, such as a reply without a request."""

    kind: str
    phase: str


class Answered(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The CLI's reply to a request of ours. `error` is its refusal, None when it agreed."""

    request: str
    error: str | None = None
    data: dict[str, Any] = {}


class Exited(Event, frozen=True, gc=False, tag=_snake, omit_defaults=True):
    """The last event of an incarnation: how its process ended, and the label that the outcome table gives it.

    `turn` is the one that it ended in the midst of, None where none ran; `usage` and `cost_usd` are what was reported of that
    turn until then. `lines` were read of its output.
    """

    outcome: str
    code: int | None = None
    signal: str | None = None
    stderr: str = ""
    incarnation: int = 1
    usage: Usage | None = None
    cost_usd: float | None = None
    lines: int = 0


AnyEvent = (
    Started
    | TurnStarted
    | TextDelta
    | Text
    | Thinking
    | ToolCall
    | ToolResult
    | ApprovalRequested
    | ApprovalWithdrawn
    | ToolRequested
    | HookCalled
    | RequestWithdrawn
    | Steered
    | Retrying
    | LimitReached
    | Notice
    | TurnEnded
    | Garbled
    | Unrecognized
    | Misplaced
    | Answered
    | Exited
)
"""Every event there is; a `match` over it can be checked for completeness."""


class Request(msgspec.Struct, frozen=True, tag_field="type", tag=_snake):
    """A message of the host to the CLI. `id` is the host's, a UUID where the CLI asks for one."""

    id: str


class Prompt(Request, frozen=True, tag=_snake, omit_defaults=True):
    """A user message: plain text, or content blocks in the shape of the CLI's own API.

    `commands` lets the CLI take a leading slash as one of its commands and `@path` as a file. Without it the text is
    only text, where the CLI has a flag for that. `attachments` are translated to what the CLI takes; what of them travels
    by the arguments of a process is named in its launch as well. `schema` is the JSON schema of the answer to this prompt,
    for a CLI that takes one with each (the capability `turn_schema`).
    """

    text: str
    blocks: tuple[dict[str, Any], ...] = ()
    commands: bool = False
    attachments: tuple[Attachment, ...] = ()
    schema: dict[str, Any] | None = None


class Decision(Request, frozen=True, tag=_snake, omit_defaults=True):
    """The answer to the `ApprovalRequested` with this id. `input` replaces the tool's input when allowed. `always`: for the rest of the session, where the
    question was `lasting`; `option`: one of its `options`."""

    allow: bool
    message: str = ""
    input: dict[str, Any] | None = None
    always: bool = False
    option: str | None = None


class Interrupt(Request, frozen=True, tag=_snake):
    """End the running turn; the session lives on."""


class SetModel(Request, frozen=True, tag=_snake):
    """Let the session go on with another model, named as the CLI names it."""

    model: str


class SetPermissionMode(Request, frozen=True, tag=_snake):
    """Let the session go on under another permission mode, named as the CLI names it."""

    mode: str


class Steer(Request, frozen=True, tag=_snake):
    """Text for the turn that runs now. `Steered` tells when it was taken in; a refusal is an `Answered`."""

    text: str


class StopTask(Request, frozen=True, tag=_snake):
    """End one piece of background work, by the CLI's id of it; the turn goes on."""

    task: str


class ToolReturn(Request, frozen=True, tag=_snake, omit_defaults=True):
    """The answer to the `ToolRequested` with this id."""

    text: str
    is_error: bool = False


class HookVerdict(Request, frozen=True, tag=_snake, omit_defaults=True):
    """The answer to the `HookCalled` with this id: go on, or block with a `reason` for the model.

    `input` replaces the tool's input and `context` is added to the conversation, where the point allows it.
    """

    allow: bool = True
    reason: str = ""
    input: dict[str, Any] | None = None
    context: str = ""


class EndSession(Request, frozen=True, tag=_snake):
    """Ask the CLI to leave, by the politest way it has."""


AnyRequest = (
    Prompt
    | Decision
    | Interrupt
    | SetModel
    | SetPermissionMode
    | Steer
    | StopTask
    | ToolReturn
    | HookVerdict
    | EndSession
)
