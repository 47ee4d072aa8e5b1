"""Coding-agent command lines as supervised actors.

The public names; each is documented where it is defined. `proctor.runtime` is the supervision library by itself,
`proctor.protocols` the wire formats, `proctor.actors` the agents. Each name is imported when it is first used: a program, and each command
of the command line, pays for the modules that it needs.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if not (Path(__file__).parent / "runtime").is_dir():  # a checkout without the symbolic links
    __path__.append(str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    __version__: str
    from proctor.actors.agent.approval_queue import Approval, Approvals
    from proctor.actors.agent.handle import Agent
    from proctor.actors.agent.receipts import Fate, Receipt
    from proctor.actors.agent.states import Status
    from proctor.actors.agent.stored_requests import KeyReused
    from proctor.actors.agent.turn import Turn
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
        NoSuchProvider,
        NotExecutable,
        NotExecuted,
        NotInstalled,
        PoolClosed,
        PoolFull,
        PoolTimeout,
        ProviderError,
        RecordingFailed,
        ResourceUnavailable,
        SchemaUnmet,
        ServerLost,
        SessionBusy,
        SessionOwned,
        SessionsClosed,
        SessionsFull,
        SessionTimeout,
        StartKilled,
        StartRefused,
        TransportMisuse,
        Unresponsive,
        UnsupportedPayload,
        VersionCheckFailed,
    )
    from proctor.actors.limits.account_book import AccountBook
    from proctor.actors.opencode_server.server import opencode_server
    from proctor.actors.outcomes import Answer
    from proctor.actors.plan.budgets import Budget
    from proctor.actors.plan.mcp import McpServer
    from proctor.actors.plan.options import SpecOptions
    from proctor.actors.plan.permissions import Rule, Verdict
    from proctor.actors.runs import Run, ask
    from proctor.actors.serving.completion import Completion, CompletionModel, CompletionRequest
    from proctor.actors.serving.pool import Pool, Pools, PoolStatistics, Warm, pool_spec
    from proctor.actors.serving.providers import Provider, Providers, converse, stream_conversation
    from proctor.actors.serving.retry import attempted
    from proctor.actors.serving.sessions import Session, Sessions
    from proctor.actors.specs import (
        DynamicSupervisor,
        Supervisor,
        acp,
        claude,
        codex,
        gemini,
        open_dynamic_supervisor,
        open_supervisor,
        opencode,
        scripted,
        stream,
    )
    from proctor.actors.store.backend import StoreBackend, StoreError, StoreInUse
    from proctor.actors.store.memory import MemoryStore
    from proctor.actors.store.sqlite import Store
    from proctor.actors.structured.payloads import BinaryPayload, FilePayload, JsonPayload
    from proctor.actors.structured.schemas import Schema, Violation, schema_of
    from proctor.actors.structured.structured import Expected
    from proctor.actors.structured.submit import schema_tools
    from proctor.actors.tools.hooks import Hook, HookResult
    from proctor.actors.tools.tools import Tool, ToolContext, tool
    from proctor.protocols.acp import Profile
    from proctor.protocols.stages import Validator
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
    "KeyReused",
    "Killed",
    "LimitReached",
    "MaxChildren",
    "MaxRestartsExceeded",
    "MaybeExecuted",
    "McpServer",
    "MemoryStore",
    "Misplaced",
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
    "PoolClosed",
    "PoolFull",
    "PoolStatistics",
    "PoolTimeout",
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
    "ResourceUnavailable",
    "Retry",
    "Retrying",
    "Rule",
    "Run",
    "Schema",
    "SchemaUnmet",
    "ServerLost",
    "Session",
    "SessionBusy",
    "SessionOwned",
    "SessionTimeout",
    "Sessions",
    "SessionsClosed",
    "SessionsFull",
    "Shutdown",
    "SpecOptions",
    "StartError",
    "StartKilled",
    "StartRefused",
    "Started",
    "Status",
    "Steered",
    "Store",
    "StoreBackend",
    "StoreError",
    "StoreInUse",
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

_NAMES: Mapping[str, str] = {
    "proctor.actors.agent.approval_queue": "Approval Approvals",
    "proctor.actors.agent.handle": "Agent",
    "proctor.actors.agent.receipts": "Fate Receipt",
    "proctor.actors.agent.states": "Status",
    "proctor.actors.agent.stored_requests": "KeyReused",
    "proctor.actors.agent.turn": "Turn",
    "proctor.actors.delivery": "Delivery",
    "proctor.actors.errors": """
        AgentError AskInterrupted AskNotSent AskTimeout BadOption BudgetExceeded CompletionError
        ContextMissing GreetingTimeout MaybeExecuted NoSuchProvider NotExecutable NotExecuted NotInstalled
        PoolClosed PoolFull PoolTimeout ProviderError RecordingFailed ResourceUnavailable SchemaUnmet
        ServerLost SessionBusy SessionOwned SessionTimeout SessionsClosed SessionsFull StartKilled
        StartRefused TransportMisuse Unresponsive UnsupportedPayload VersionCheckFailed
    """,
    "proctor.actors.limits.account_book": "AccountBook",
    "proctor.actors.opencode_server.server": "opencode_server",
    "proctor.actors.outcomes": "Answer",
    "proctor.actors.plan.budgets": "Budget",
    "proctor.actors.plan.mcp": "McpServer",
    "proctor.actors.plan.options": "SpecOptions",
    "proctor.actors.plan.permissions": "Rule Verdict",
    "proctor.actors.runs": "Run ask",
    "proctor.actors.serving.completion": "Completion CompletionModel CompletionRequest",
    "proctor.actors.serving.pool": "Pool PoolStatistics Pools Warm pool_spec",
    "proctor.actors.serving.providers": "Provider Providers converse stream_conversation",
    "proctor.actors.serving.retry": "attempted",
    "proctor.actors.serving.sessions": "Session Sessions",
    "proctor.actors.specs": """
        DynamicSupervisor Supervisor acp claude codex gemini open_dynamic_supervisor open_supervisor
        opencode scripted stream
    """,
    "proctor.actors.store.backend": "StoreBackend StoreError StoreInUse",
    "proctor.actors.store.memory": "MemoryStore",
    "proctor.actors.store.sqlite": "Store",
    "proctor.actors.structured.payloads": "BinaryPayload FilePayload JsonPayload",
    "proctor.actors.structured.schemas": "Schema Violation schema_of",
    "proctor.actors.structured.structured": "Expected",
    "proctor.actors.structured.submit": "schema_tools",
    "proctor.actors.tools.hooks": "Hook HookResult",
    "proctor.actors.tools.tools": "Tool ToolContext tool",
    "proctor.protocols.acp": "Profile",
    "proctor.protocols.stages": "Validator",
    "proctor.protocols.vocabulary": """
        Answered AnyEvent ApprovalRequested ApprovalWithdrawn Exited Garbled HookCalled LimitReached
        Misplaced Notice RequestWithdrawn Retrying Started Steered Text TextDelta Thinking ToolCall
        ToolRequested ToolResult TurnEnded TurnStarted Unrecognized Usage
    """,
    "proctor.runtime": """
        Actor ActorExited Backoff CallTimeout ChildSpec Crash Exit ExitStatus File InvalidSpec Killed
        MaxChildren MaxRestartsExceeded NoProc Normal Notify Output Port Probe Ref Shutdown StartError
        WouldDeadlock check_childspecs dynamic_supervisor_spec process run supervisor_spec
    """,
    "proctor.runtime.retry": "Retry",
}
"""Module → the public names that it has."""
_HOMES: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
_FLOORS = ("actors", "protocols", "runtime")


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        from importlib.metadata import version

        value = version("proctor")
    elif name in _FLOORS:
        value = import_module(f"proctor.{name}")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
