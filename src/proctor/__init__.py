"""Coding-agent command lines as supervised actors.

The names a user needs; each is documented where it is defined. `proctor.runtime` is the supervision library by
itself, `proctor.protocols` the wire formats, `proctor.actors` the agents. What serves agents (sessions, pools,
completion models) is loaded when it is first named: who runs one agent does not pay for it, nor depend on it.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if not (Path(__file__).parent / "runtime").is_dir():  # a checkout that lost its links
    __path__.append(str(Path(__file__).parents[2]))

from proctor.actors.account_book import AccountBook
from proctor.actors.budgets import Budget
from proctor.actors.delivery import Delivery
from proctor.actors.errors import (
    AgentError,
    AskInterrupted,
    AskNotSent,
    AskTimeout,
    BadOption,
    BudgetExceeded,
    CompletionError,
    ContextMissing,
    GreetingTimeout,
    MaybeExecuted,
    NoPlace,
    NoSuchProvider,
    NotExecutable,
    NotExecuted,
    NotInstalled,
    ProviderError,
    RecordingFailed,
    SchemaUnmet,
    ServerLost,
    SessionOwned,
    StartKilled,
    StartRefused,
    TransportMisuse,
    Unresponsive,
    UnsupportedPayload,
    VersionCheckFailed,
)
from proctor.actors.handle import Agent, Turn
from proctor.actors.hooks import Hook, HookResult
from proctor.actors.mcp import McpServer
from proctor.actors.outcomes import Answer
from proctor.actors.payloads import BinaryPayload, FilePayload, JsonPayload
from proctor.actors.permissions import Rule, Verdict
from proctor.actors.questions import Approval, Approvals
from proctor.actors.receipts import Fate, Receipt
from proctor.actors.runs import Run
from proctor.actors.schema_tools import schema_tools
from proctor.actors.schemas import Schema, Violation, schema_of
from proctor.actors.server import opencode_server
from proctor.actors.states import Status
from proctor.actors.structured import Expected
from proctor.actors.tools import Tool, ToolContext, tool
from proctor.actors.trees import (
    DynamicSupervisor,
    SpecOptions,
    Supervisor,
    acp,
    ask,
    claude,
    codex,
    gemini,
    open_dynamic_supervisor,
    open_supervisor,
    opencode,
    scripted,
    stream,
)
from proctor.protocols.acp import Profile
from proctor.protocols.judging import Validator
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Exited,
    Garbled,
    HookCalled,
    LimitReached,
    Misplaced,
    Notice,
    RequestWithdrawn,
    Retrying,
    Started,
    Steered,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolRequested,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from proctor.runtime import (
    Actor,
    ActorExited,
    Backoff,
    CallTimeout,
    ChildSpec,
    Crash,
    Exit,
    ExitStatus,
    File,
    InvalidSpec,
    Killed,
    MaxChildren,
    MaxRestartsExceeded,
    NoProc,
    Normal,
    Notify,
    Output,
    Port,
    Probe,
    Ref,
    Shutdown,
    StartError,
    WouldDeadlock,
    check_childspecs,
    dynamic_supervisor_spec,
    process,
    run,
    supervisor_spec,
)

if TYPE_CHECKING:
    __version__: str
    from proctor.actors.attempts import attempted
    from proctor.actors.completion import Completion, CompletionModel, CompletionRequest
    from proctor.actors.pool import Pool, Pools, PoolStatistics, Warm, pool_spec
    from proctor.actors.providers import Provider, Providers, converse, stream_conversation
    from proctor.actors.sessions import Session, Sessions
    from proctor.runtime.retry import Retry

__all__ = [
    "AccountBook",
    "Actor",
    "ActorExited",
    "Agent",
    "AgentError",
    "Answer",
    "Answered",
    "AnyEvent",
    "Approval",
    "ApprovalRequested",
    "ApprovalWithdrawn",
    "Approvals",
    "AskInterrupted",
    "AskNotSent",
    "AskTimeout",
    "Backoff",
    "BadOption",
    "BinaryPayload",
    "Budget",
    "BudgetExceeded",
    "CallTimeout",
    "ChildSpec",
    "Completion",
    "CompletionError",
    "CompletionModel",
    "CompletionRequest",
    "ContextMissing",
    "Crash",
    "Delivery",
    "DynamicSupervisor",
    "Exit",
    "ExitStatus",
    "Exited",
    "Expected",
    "Fate",
    "File",
    "FilePayload",
    "Garbled",
    "GreetingTimeout",
    "Hook",
    "HookCalled",
    "HookResult",
    "InvalidSpec",
    "JsonPayload",
    "Killed",
    "LimitReached",
    "MaxChildren",
    "MaxRestartsExceeded",
    "MaybeExecuted",
    "McpServer",
    "Misplaced",
    "NoPlace",
    "NoProc",
    "NoSuchProvider",
    "Normal",
    "NotExecutable",
    "NotExecuted",
    "NotInstalled",
    "Notice",
    "Notify",
    "Output",
    "Pool",
    "PoolStatistics",
    "Pools",
    "Port",
    "Probe",
    "Profile",
    "Provider",
    "ProviderError",
    "Providers",
    "Receipt",
    "RecordingFailed",
    "Ref",
    "RequestWithdrawn",
    "Retry",
    "Retrying",
    "Rule",
    "Run",
    "Schema",
    "SchemaUnmet",
    "ServerLost",
    "Session",
    "SessionOwned",
    "Sessions",
    "Shutdown",
    "SpecOptions",
    "StartError",
    "StartKilled",
    "StartRefused",
    "Started",
    "Status",
    "Steered",
    "Supervisor",
    "Text",
    "TextDelta",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolRequested",
    "ToolResult",
    "TransportMisuse",
    "Turn",
    "TurnEnded",
    "TurnStarted",
    "Unrecognized",
    "Unresponsive",
    "UnsupportedPayload",
    "Usage",
    "Validator",
    "Verdict",
    "VersionCheckFailed",
    "Violation",
    "Warm",
    "WouldDeadlock",
    "acp",
    "ask",
    "attempted",
    "check_childspecs",
    "claude",
    "codex",
    "converse",
    "dynamic_supervisor_spec",
    "gemini",
    "open_dynamic_supervisor",
    "open_supervisor",
    "opencode",
    "opencode_server",
    "pool_spec",
    "process",
    "run",
    "schema_of",
    "schema_tools",
    "scripted",
    "stream",
    "stream_conversation",
    "supervisor_spec",
    "tool",
]

_SERVING: Mapping[str, str] = {
    "Completion": "proctor.actors.completion",
    "CompletionModel": "proctor.actors.completion",
    "CompletionRequest": "proctor.actors.completion",
    "Pool": "proctor.actors.pool",
    "PoolStatistics": "proctor.actors.pool",
    "Pools": "proctor.actors.pool",
    "Provider": "proctor.actors.providers",
    "Providers": "proctor.actors.providers",
    "Retry": "proctor.runtime.retry",
    "Session": "proctor.actors.sessions",
    "Sessions": "proctor.actors.sessions",
    "Warm": "proctor.actors.pool",
    "attempted": "proctor.actors.attempts",
    "converse": "proctor.actors.providers",
    "stream_conversation": "proctor.actors.providers",
    "pool_spec": "proctor.actors.pool",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("proctor")
    if name not in _SERVING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_SERVING[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
