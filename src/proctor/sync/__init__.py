"""proctor for plain code: the names of `proctor`, which block until they have their result.

Agents run in a Trio thread. Functions of yours (tools, hooks, policies, models) are plain ones, and run in worker threads; `timeout` bounds
what is called in its block. Written by `python -m tests.faces` from the names of `proctor`; docs/reference/faces.md has them in a table.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __all__: tuple[str, ...]
    from proctor import AccountBook as AccountBook
    from proctor import Actor as Actor
    from proctor import ActorExited as ActorExited
    from proctor import AgentError as AgentError
    from proctor import Answer as Answer
    from proctor import Answered as Answered
    from proctor import AnyEvent as AnyEvent
    from proctor import ApprovalRequested as ApprovalRequested
    from proctor import ApprovalWithdrawn as ApprovalWithdrawn
    from proctor import AskInterrupted as AskInterrupted
    from proctor import AskNotSent as AskNotSent
    from proctor import AskTimeout as AskTimeout
    from proctor import Backoff as Backoff
    from proctor import BadOption as BadOption
    from proctor import BatchCheck as BatchCheck
    from proctor import BatchProgress as BatchProgress
    from proctor import BatchResult as BatchResult
    from proctor import BatchTask as BatchTask
    from proctor import BatchTimes as BatchTimes
    from proctor import BatchTry as BatchTry
    from proctor import BinaryPayload as BinaryPayload
    from proctor import Budget as Budget
    from proctor import BudgetExceeded as BudgetExceeded
    from proctor import CallTimeout as CallTimeout
    from proctor import Change as Change
    from proctor import ChildSpec as ChildSpec
    from proctor import Completion as Completion
    from proctor import CompletionError as CompletionError
    from proctor import CompletionRequest as CompletionRequest
    from proctor import ContextMissing as ContextMissing
    from proctor import Crash as Crash
    from proctor import Delivery as Delivery
    from proctor import Exit as Exit
    from proctor import Exited as Exited
    from proctor import ExitStatus as ExitStatus
    from proctor import Expected as Expected
    from proctor import Fate as Fate
    from proctor import File as File
    from proctor import FilePayload as FilePayload
    from proctor import Garbled as Garbled
    from proctor import GreetingTimeout as GreetingTimeout
    from proctor import HookCalled as HookCalled
    from proctor import HookResult as HookResult
    from proctor import HostError as HostError
    from proctor import InvalidSpec as InvalidSpec
    from proctor import JsonPayload as JsonPayload
    from proctor import KeyReused as KeyReused
    from proctor import Killed as Killed
    from proctor import LimitReached as LimitReached
    from proctor import MaxChildren as MaxChildren
    from proctor import MaxRestartsExceeded as MaxRestartsExceeded
    from proctor import MaybeExecuted as MaybeExecuted
    from proctor import McpServer as McpServer
    from proctor import Misplaced as Misplaced
    from proctor import NoProc as NoProc
    from proctor import Normal as Normal
    from proctor import NoSuchFleet as NoSuchFleet
    from proctor import NoSuchProvider as NoSuchProvider
    from proctor import NotExecutable as NotExecutable
    from proctor import NotExecuted as NotExecuted
    from proctor import Notice as Notice
    from proctor import Notify as Notify
    from proctor import NotInstalled as NotInstalled
    from proctor import Output as Output
    from proctor import PoolClosed as PoolClosed
    from proctor import PoolFull as PoolFull
    from proctor import PoolStatistics as PoolStatistics
    from proctor import PoolTimeout as PoolTimeout
    from proctor import Port as Port
    from proctor import Probe as Probe
    from proctor import Profile as Profile
    from proctor import ProviderError as ProviderError
    from proctor import RecordingFailed as RecordingFailed
    from proctor import RemoteError as RemoteError
    from proctor import RequestWithdrawn as RequestWithdrawn
    from proctor import ResourceUnavailable as ResourceUnavailable
    from proctor import Retry as Retry
    from proctor import Retrying as Retrying
    from proctor import Rule as Rule
    from proctor import Schema as Schema
    from proctor import SchemaUnmet as SchemaUnmet
    from proctor import ServerLost as ServerLost
    from proctor import SessionBusy as SessionBusy
    from proctor import SessionOwned as SessionOwned
    from proctor import SessionsClosed as SessionsClosed
    from proctor import SessionsFull as SessionsFull
    from proctor import SessionTimeout as SessionTimeout
    from proctor import Shutdown as Shutdown
    from proctor import SpecOptions as SpecOptions
    from proctor import Started as Started
    from proctor import StartError as StartError
    from proctor import StartKilled as StartKilled
    from proctor import StartRefused as StartRefused
    from proctor import Status as Status
    from proctor import Steered as Steered
    from proctor import StoreBackend as StoreBackend
    from proctor import StoreError as StoreError
    from proctor import StoreInUse as StoreInUse
    from proctor import TaskFaults as TaskFaults
    from proctor import Text as Text
    from proctor import TextDelta as TextDelta
    from proctor import Thinking as Thinking
    from proctor import Tool as Tool
    from proctor import ToolCall as ToolCall
    from proctor import ToolContext as ToolContext
    from proctor import ToolRequested as ToolRequested
    from proctor import ToolResult as ToolResult
    from proctor import TransportMisuse as TransportMisuse
    from proctor import TurnEnded as TurnEnded
    from proctor import TurnStarted as TurnStarted
    from proctor import Unrecognized as Unrecognized
    from proctor import Unresponsive as Unresponsive
    from proctor import UnsupportedPayload as UnsupportedPayload
    from proctor import Usage as Usage
    from proctor import Validator as Validator
    from proctor import Verdict as Verdict
    from proctor import VersionCheckFailed as VersionCheckFailed
    from proctor import Violation as Violation
    from proctor import Warm as Warm
    from proctor import WouldDeadlock as WouldDeadlock
    from proctor import acp as acp
    from proctor import check_childspecs as check_childspecs
    from proctor import claude as claude
    from proctor import codex as codex
    from proctor import dynamic_supervisor_spec as dynamic_supervisor_spec
    from proctor import gemini as gemini
    from proctor import load_results as load_results
    from proctor import load_tasks as load_tasks
    from proctor import opencode as opencode
    from proctor import opencode_server as opencode_server
    from proctor import process as process
    from proctor import schema_of as schema_of
    from proctor import schema_tools as schema_tools
    from proctor import scripted as scripted
    from proctor import supervisor_spec as supervisor_spec
    from proctor.bridge import BridgeClosed as BridgeClosed
    from proctor.bridge import BridgeError as BridgeError
    from proctor.bridge import CallerGone as CallerGone
    from proctor.bridge import TrioThread as TrioThread
    from proctor.bridge import WrongFace as WrongFace
    from proctor.bridge.sync_face import timeout as timeout
    from proctor.sync.agents import Agent as Agent
    from proctor.sync.agents import Approval as Approval
    from proctor.sync.agents import Approvals as Approvals
    from proctor.sync.agents import Batch as Batch
    from proctor.sync.agents import Receipt as Receipt
    from proctor.sync.agents import Run as Run
    from proctor.sync.agents import Turn as Turn
    from proctor.sync.agents import ask as ask
    from proctor.sync.agents import attempted as attempted
    from proctor.sync.agents import batch as batch
    from proctor.sync.agents import stream as stream
    from proctor.sync.client import RemoteAgent as RemoteAgent
    from proctor.sync.client import RemoteApproval as RemoteApproval
    from proctor.sync.client import RemoteFleet as RemoteFleet
    from proctor.sync.client import connect as connect
    from proctor.sync.serving import CompletionModel as CompletionModel
    from proctor.sync.serving import CompletionStream as CompletionStream
    from proctor.sync.serving import Pool as Pool
    from proctor.sync.serving import Pools as Pools
    from proctor.sync.serving import Provider as Provider
    from proctor.sync.serving import Providers as Providers
    from proctor.sync.serving import Session as Session
    from proctor.sync.serving import Sessions as Sessions
    from proctor.sync.serving import converse as converse
    from proctor.sync.serving import pool_spec as pool_spec
    from proctor.sync.serving import stream_conversation as stream_conversation
    from proctor.sync.specs import Hook as Hook
    from proctor.sync.specs import policy as policy
    from proctor.sync.specs import tool as tool
    from proctor.sync.stores import MemoryStore as MemoryStore
    from proctor.sync.stores import Store as Store
    from proctor.sync.supervision import DynamicSupervisor as DynamicSupervisor
    from proctor.sync.supervision import Monitor as Monitor
    from proctor.sync.supervision import Name as Name
    from proctor.sync.supervision import Ref as Ref
    from proctor.sync.supervision import Request as Request
    from proctor.sync.supervision import Supervisor as Supervisor
    from proctor.sync.supervision import open_dynamic_supervisor as open_dynamic_supervisor
    from proctor.sync.supervision import open_supervisor as open_supervisor

_NAMES: Mapping[str, str] = {
    "proctor": """
        AccountBook Actor ActorExited AgentError Answer Answered AnyEvent ApprovalRequested
        ApprovalWithdrawn AskInterrupted AskNotSent AskTimeout Backoff BadOption BatchCheck
        BatchProgress BatchResult BatchTask BatchTimes BatchTry BinaryPayload Budget BudgetExceeded
        CallTimeout Change ChildSpec Completion CompletionError CompletionRequest ContextMissing
        Crash Delivery Exit ExitStatus Exited Expected Fate File FilePayload Garbled GreetingTimeout
        HookCalled HookResult HostError InvalidSpec JsonPayload KeyReused Killed LimitReached
        MaxChildren MaxRestartsExceeded MaybeExecuted McpServer Misplaced NoProc NoSuchFleet
        NoSuchProvider Normal NotExecutable NotExecuted NotInstalled Notice Notify Output PoolClosed
        PoolFull PoolStatistics PoolTimeout Port Probe Profile ProviderError RecordingFailed
        RemoteError RequestWithdrawn ResourceUnavailable Retry Retrying Rule Schema SchemaUnmet
        ServerLost SessionBusy SessionOwned SessionTimeout SessionsClosed SessionsFull Shutdown
        SpecOptions StartError StartKilled StartRefused Started Status Steered StoreBackend
        StoreError StoreInUse TaskFaults Text TextDelta Thinking Tool ToolCall ToolContext
        ToolRequested ToolResult TransportMisuse TurnEnded TurnStarted Unrecognized Unresponsive
        UnsupportedPayload Usage Validator Verdict VersionCheckFailed Violation Warm WouldDeadlock
        acp check_childspecs claude codex dynamic_supervisor_spec gemini load_results load_tasks
        opencode opencode_server process schema_of schema_tools scripted supervisor_spec
    """,
    "proctor.bridge": """
        BridgeClosed BridgeError CallerGone TrioThread WrongFace
    """,
    "proctor.bridge.sync_face": """
        timeout
    """,
    "proctor.sync.agents": """
        Agent Approval Approvals Batch Receipt Run Turn ask attempted batch stream
    """,
    "proctor.sync.client": """
        RemoteAgent RemoteApproval RemoteFleet connect
    """,
    "proctor.sync.serving": """
        CompletionModel CompletionStream Pool Pools Provider Providers Session Sessions converse
        pool_spec stream_conversation
    """,
    "proctor.sync.specs": """
        Hook policy tool
    """,
    "proctor.sync.stores": """
        MemoryStore Store
    """,
    "proctor.sync.supervision": """
        DynamicSupervisor Monitor Name Ref Request Supervisor open_dynamic_supervisor open_supervisor
    """,
}
"""Module → the names that it has."""


if not TYPE_CHECKING:
    _HOMES: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = tuple(sorted(_HOMES))

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
