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
    __all__: tuple[str, ...]
    from proctor.actors.agent.approval_queue import Approval as Approval
    from proctor.actors.agent.approval_queue import Approvals as Approvals
    from proctor.actors.agent.handle import Agent as Agent
    from proctor.actors.agent.receipts import Fate as Fate
    from proctor.actors.agent.receipts import Receipt as Receipt
    from proctor.actors.agent.states import Status as Status
    from proctor.actors.agent.stored_requests import KeyReused as KeyReused
    from proctor.actors.agent.turn import Turn as Turn
    from proctor.actors.batch.batch import Batch as Batch
    from proctor.actors.batch.batch import BatchProgress as BatchProgress
    from proctor.actors.batch.batch import batch as batch
    from proctor.actors.batch.results import BatchCheck as BatchCheck
    from proctor.actors.batch.results import BatchResult as BatchResult
    from proctor.actors.batch.results import BatchTimes as BatchTimes
    from proctor.actors.batch.results import BatchTry as BatchTry
    from proctor.actors.batch.results import load_results as load_results
    from proctor.actors.batch.tasks import BatchTask as BatchTask
    from proctor.actors.batch.tasks import TaskFaults as TaskFaults
    from proctor.actors.batch.tasks import load_tasks as load_tasks
    from proctor.actors.client.connection import HostError as HostError
    from proctor.actors.client.connection import NoSuchFleet as NoSuchFleet
    from proctor.actors.client.fleet import Change as Change
    from proctor.actors.client.fleet import RemoteAgent as RemoteAgent
    from proctor.actors.client.fleet import RemoteApproval as RemoteApproval
    from proctor.actors.client.fleet import RemoteFleet as RemoteFleet
    from proctor.actors.client.fleet import connect as connect
    from proctor.actors.client.problems import RemoteError as RemoteError
    from proctor.actors.delivery import Delivery as Delivery
    from proctor.actors.errors import AgentError as AgentError
    from proctor.actors.errors import AskInterrupted as AskInterrupted
    from proctor.actors.errors import AskNotSent as AskNotSent
    from proctor.actors.errors import AskTimeout as AskTimeout
    from proctor.actors.errors import BadOption as BadOption
    from proctor.actors.errors import BudgetExceeded as BudgetExceeded
    from proctor.actors.errors import CompletionError as CompletionError
    from proctor.actors.errors import ContextMissing as ContextMissing
    from proctor.actors.errors import GreetingTimeout as GreetingTimeout
    from proctor.actors.errors import MaybeExecuted as MaybeExecuted
    from proctor.actors.errors import NoSuchProvider as NoSuchProvider
    from proctor.actors.errors import NotExecutable as NotExecutable
    from proctor.actors.errors import NotExecuted as NotExecuted
    from proctor.actors.errors import NotInstalled as NotInstalled
    from proctor.actors.errors import PoolClosed as PoolClosed
    from proctor.actors.errors import PoolFull as PoolFull
    from proctor.actors.errors import PoolTimeout as PoolTimeout
    from proctor.actors.errors import ProviderError as ProviderError
    from proctor.actors.errors import RecordingFailed as RecordingFailed
    from proctor.actors.errors import ResourceUnavailable as ResourceUnavailable
    from proctor.actors.errors import SchemaUnmet as SchemaUnmet
    from proctor.actors.errors import ServerLost as ServerLost
    from proctor.actors.errors import SessionBusy as SessionBusy
    from proctor.actors.errors import SessionOwned as SessionOwned
    from proctor.actors.errors import SessionsClosed as SessionsClosed
    from proctor.actors.errors import SessionsFull as SessionsFull
    from proctor.actors.errors import SessionTimeout as SessionTimeout
    from proctor.actors.errors import StartKilled as StartKilled
    from proctor.actors.errors import StartRefused as StartRefused
    from proctor.actors.errors import TransportMisuse as TransportMisuse
    from proctor.actors.errors import Unresponsive as Unresponsive
    from proctor.actors.errors import UnsupportedPayload as UnsupportedPayload
    from proctor.actors.errors import VersionCheckFailed as VersionCheckFailed
    from proctor.actors.limits.account_book import AccountBook as AccountBook
    from proctor.actors.opencode_server.server import opencode_server as opencode_server
    from proctor.actors.outcomes import Answer as Answer
    from proctor.actors.plan.budgets import Budget as Budget
    from proctor.actors.plan.mcp import McpServer as McpServer
    from proctor.actors.plan.options import SpecOptions as SpecOptions
    from proctor.actors.plan.permissions import Rule as Rule
    from proctor.actors.plan.permissions import Verdict as Verdict
    from proctor.actors.runs import Run as Run
    from proctor.actors.runs import ask as ask
    from proctor.actors.serving.completion import Completion as Completion
    from proctor.actors.serving.completion import CompletionModel as CompletionModel
    from proctor.actors.serving.completion import CompletionRequest as CompletionRequest
    from proctor.actors.serving.pool import Pool as Pool
    from proctor.actors.serving.pool import Pools as Pools
    from proctor.actors.serving.pool import PoolStatistics as PoolStatistics
    from proctor.actors.serving.pool import Warm as Warm
    from proctor.actors.serving.pool import pool_spec as pool_spec
    from proctor.actors.serving.providers import Provider as Provider
    from proctor.actors.serving.providers import Providers as Providers
    from proctor.actors.serving.providers import converse as converse
    from proctor.actors.serving.providers import stream_conversation as stream_conversation
    from proctor.actors.serving.retry import attempted as attempted
    from proctor.actors.serving.sessions import Session as Session
    from proctor.actors.serving.sessions import Sessions as Sessions
    from proctor.actors.specs import DynamicSupervisor as DynamicSupervisor
    from proctor.actors.specs import Supervisor as Supervisor
    from proctor.actors.specs import acp as acp
    from proctor.actors.specs import claude as claude
    from proctor.actors.specs import codex as codex
    from proctor.actors.specs import gemini as gemini
    from proctor.actors.specs import open_dynamic_supervisor as open_dynamic_supervisor
    from proctor.actors.specs import open_supervisor as open_supervisor
    from proctor.actors.specs import opencode as opencode
    from proctor.actors.specs import scripted as scripted
    from proctor.actors.specs import stream as stream
    from proctor.actors.store.backend import StoreBackend as StoreBackend
    from proctor.actors.store.backend import StoreError as StoreError
    from proctor.actors.store.backend import StoreInUse as StoreInUse
    from proctor.actors.store.memory import MemoryStore as MemoryStore
    from proctor.actors.store.sqlite import Store as Store
    from proctor.actors.structured.payloads import BinaryPayload as BinaryPayload
    from proctor.actors.structured.payloads import FilePayload as FilePayload
    from proctor.actors.structured.payloads import JsonPayload as JsonPayload
    from proctor.actors.structured.schemas import Schema as Schema
    from proctor.actors.structured.schemas import Violation as Violation
    from proctor.actors.structured.schemas import schema_of as schema_of
    from proctor.actors.structured.structured import Expected as Expected
    from proctor.actors.structured.submit import schema_tools as schema_tools
    from proctor.actors.tools.hooks import Hook as Hook
    from proctor.actors.tools.hooks import HookResult as HookResult
    from proctor.actors.tools.tools import Tool as Tool
    from proctor.actors.tools.tools import ToolContext as ToolContext
    from proctor.actors.tools.tools import tool as tool
    from proctor.protocols.acp import Profile as Profile
    from proctor.protocols.stages import Validator as Validator
    from proctor.protocols.vocabulary import Answered as Answered
    from proctor.protocols.vocabulary import AnyEvent as AnyEvent
    from proctor.protocols.vocabulary import ApprovalRequested as ApprovalRequested
    from proctor.protocols.vocabulary import ApprovalWithdrawn as ApprovalWithdrawn
    from proctor.protocols.vocabulary import Exited as Exited
    from proctor.protocols.vocabulary import Garbled as Garbled
    from proctor.protocols.vocabulary import HookCalled as HookCalled
    from proctor.protocols.vocabulary import LimitReached as LimitReached
    from proctor.protocols.vocabulary import Misplaced as Misplaced
    from proctor.protocols.vocabulary import Notice as Notice
    from proctor.protocols.vocabulary import RequestWithdrawn as RequestWithdrawn
    from proctor.protocols.vocabulary import Retrying as Retrying
    from proctor.protocols.vocabulary import Started as Started
    from proctor.protocols.vocabulary import Steered as Steered
    from proctor.protocols.vocabulary import Text as Text
    from proctor.protocols.vocabulary import TextDelta as TextDelta
    from proctor.protocols.vocabulary import Thinking as Thinking
    from proctor.protocols.vocabulary import ToolCall as ToolCall
    from proctor.protocols.vocabulary import ToolRequested as ToolRequested
    from proctor.protocols.vocabulary import ToolResult as ToolResult
    from proctor.protocols.vocabulary import TurnEnded as TurnEnded
    from proctor.protocols.vocabulary import TurnStarted as TurnStarted
    from proctor.protocols.vocabulary import Unrecognized as Unrecognized
    from proctor.protocols.vocabulary import Usage as Usage
    from proctor.runtime import Actor as Actor
    from proctor.runtime import ActorExited as ActorExited
    from proctor.runtime import Backoff as Backoff
    from proctor.runtime import CallTimeout as CallTimeout
    from proctor.runtime import ChildSpec as ChildSpec
    from proctor.runtime import Crash as Crash
    from proctor.runtime import Exit as Exit
    from proctor.runtime import ExitStatus as ExitStatus
    from proctor.runtime import File as File
    from proctor.runtime import InvalidSpec as InvalidSpec
    from proctor.runtime import Killed as Killed
    from proctor.runtime import MaxChildren as MaxChildren
    from proctor.runtime import MaxRestartsExceeded as MaxRestartsExceeded
    from proctor.runtime import NoProc as NoProc
    from proctor.runtime import Normal as Normal
    from proctor.runtime import Notify as Notify
    from proctor.runtime import Output as Output
    from proctor.runtime import Port as Port
    from proctor.runtime import Probe as Probe
    from proctor.runtime import Ref as Ref
    from proctor.runtime import Shutdown as Shutdown
    from proctor.runtime import StartError as StartError
    from proctor.runtime import WouldDeadlock as WouldDeadlock
    from proctor.runtime import check_childspecs as check_childspecs
    from proctor.runtime import dynamic_supervisor_spec as dynamic_supervisor_spec
    from proctor.runtime import process as process
    from proctor.runtime import run as run
    from proctor.runtime import supervisor_spec as supervisor_spec
    from proctor.runtime.retry import Retry as Retry

_NAMES: Mapping[str, str] = {
    "proctor.actors.agent.approval_queue": "Approval Approvals",
    "proctor.actors.agent.handle": "Agent",
    "proctor.actors.agent.receipts": "Fate Receipt",
    "proctor.actors.agent.states": "Status",
    "proctor.actors.agent.stored_requests": "KeyReused",
    "proctor.actors.agent.turn": "Turn",
    "proctor.actors.batch.batch": "Batch BatchProgress batch",
    "proctor.actors.batch.results": "BatchCheck BatchResult BatchTimes BatchTry load_results",
    "proctor.actors.batch.tasks": "BatchTask TaskFaults load_tasks",
    "proctor.actors.client.connection": "HostError NoSuchFleet",
    "proctor.actors.client.fleet": "Change RemoteAgent RemoteApproval RemoteFleet connect",
    "proctor.actors.client.problems": "RemoteError",
    "proctor.actors.delivery": "Delivery",
    "proctor.actors.errors": """
        AgentError AskInterrupted AskNotSent AskTimeout BadOption BudgetExceeded CompletionError
        ContextMissing GreetingTimeout MaybeExecuted NoSuchProvider NotExecutable NotExecuted
        NotInstalled PoolClosed PoolFull PoolTimeout ProviderError RecordingFailed ResourceUnavailable
        SchemaUnmet ServerLost SessionBusy SessionOwned SessionsClosed SessionsFull SessionTimeout
        StartKilled StartRefused TransportMisuse Unresponsive UnsupportedPayload VersionCheckFailed
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
    "proctor.actors.serving.pool": "Pool Pools PoolStatistics Warm pool_spec",
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


if not TYPE_CHECKING:
    _HOMES: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = tuple(sorted(_HOMES))

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name in ("actors", "protocols", "runtime"):
            value = import_module(f"{__name__}.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version(__name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
