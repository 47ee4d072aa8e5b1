"""Supervision of anything: actors, mailboxes, supervisors, names.

A public name is imported when it is first used: the supervision of a tree takes longer to import than Trio, and a program that runs
one agent needs none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __all__: tuple[str, ...]
    from proctor.runtime.addresses import AnyAddress as AnyAddress
    from proctor.runtime.addresses import AnyRef as AnyRef
    from proctor.runtime.entry_point import run as run
    from proctor.runtime.errors import ActorExited as ActorExited
    from proctor.runtime.errors import ActorRestarting as ActorRestarting
    from proctor.runtime.errors import AlreadyPresent as AlreadyPresent
    from proctor.runtime.errors import AlreadyRegistered as AlreadyRegistered
    from proctor.runtime.errors import AlreadyStarted as AlreadyStarted
    from proctor.runtime.errors import CallingSelf as CallingSelf
    from proctor.runtime.errors import CallTimeout as CallTimeout
    from proctor.runtime.errors import InvalidSpec as InvalidSpec
    from proctor.runtime.errors import MailboxFull as MailboxFull
    from proctor.runtime.errors import MaxChildren as MaxChildren
    from proctor.runtime.errors import MaxRestartsExceeded as MaxRestartsExceeded
    from proctor.runtime.errors import NoMailbox as NoMailbox
    from proctor.runtime.errors import NoPartitions as NoPartitions
    from proctor.runtime.errors import NotFound as NotFound
    from proctor.runtime.errors import PoolOverloaded as PoolOverloaded
    from proctor.runtime.errors import ProbeFailed as ProbeFailed
    from proctor.runtime.errors import Restarting as Restarting
    from proctor.runtime.errors import ResultTaken as ResultTaken
    from proctor.runtime.errors import Running as Running
    from proctor.runtime.errors import StartError as StartError
    from proctor.runtime.errors import StartTimeout as StartTimeout
    from proctor.runtime.errors import StreamClosed as StreamClosed
    from proctor.runtime.errors import StreamError as StreamError
    from proctor.runtime.errors import SupervisionError as SupervisionError
    from proctor.runtime.errors import TaskTimeout as TaskTimeout
    from proctor.runtime.errors import UnknownMessage as UnknownMessage
    from proctor.runtime.errors import WatchdogTimeout as WatchdogTimeout
    from proctor.runtime.errors import WouldDeadlock as WouldDeadlock
    from proctor.runtime.events import ChildAdopted as ChildAdopted
    from proctor.runtime.events import ChildExited as ChildExited
    from proctor.runtime.events import ChildOrphaned as ChildOrphaned
    from proctor.runtime.events import ChildOverdue as ChildOverdue
    from proctor.runtime.events import ChildReady as ChildReady
    from proctor.runtime.events import ChildRestarting as ChildRestarting
    from proctor.runtime.events import ChildStarted as ChildStarted
    from proctor.runtime.events import ChildTerminated as ChildTerminated
    from proctor.runtime.events import ChildUnresponsive as ChildUnresponsive
    from proctor.runtime.events import DeadLetter as DeadLetter
    from proctor.runtime.events import Deadlock as Deadlock
    from proctor.runtime.events import LateReply as LateReply
    from proctor.runtime.events import MaxRestarts as MaxRestarts
    from proctor.runtime.events import RunSkipped as RunSkipped
    from proctor.runtime.events import ShutdownFailed as ShutdownFailed
    from proctor.runtime.events import StartFailed as StartFailed
    from proctor.runtime.events import Subscription as Subscription
    from proctor.runtime.events import SupervisorEvent as SupervisorEvent
    from proctor.runtime.events import SupervisorStarted as SupervisorStarted
    from proctor.runtime.events import SupervisorStopped as SupervisorStopped
    from proctor.runtime.exits import Crash as Crash
    from proctor.runtime.exits import DeliveryError as DeliveryError
    from proctor.runtime.exits import DoNotRestart as DoNotRestart
    from proctor.runtime.exits import Exit as Exit
    from proctor.runtime.exits import ExitReason as ExitReason
    from proctor.runtime.exits import ExitStatus as ExitStatus
    from proctor.runtime.exits import FinalShutdown as FinalShutdown
    from proctor.runtime.exits import Killed as Killed
    from proctor.runtime.exits import NoProc as NoProc
    from proctor.runtime.exits import Normal as Normal
    from proctor.runtime.exits import RuntimeFault as RuntimeFault
    from proctor.runtime.exits import Shutdown as Shutdown
    from proctor.runtime.exits import TerminateTree as TerminateTree
    from proctor.runtime.exits import TreeShutdown as TreeShutdown
    from proctor.runtime.exits import is_clean as is_clean
    from proctor.runtime.messaging import IDLE as IDLE
    from proctor.runtime.messaging import IGNORE as IGNORE
    from proctor.runtime.messaging import NO_REPLY as NO_REPLY
    from proctor.runtime.messaging import Actor as Actor
    from proctor.runtime.messaging import ActorContext as ActorContext
    from proctor.runtime.messaging import Address as Address
    from proctor.runtime.messaging import Call as Call
    from proctor.runtime.messaging import ChildCounts as ChildCounts
    from proctor.runtime.messaging import ChildInfo as ChildInfo
    from proctor.runtime.messaging import Continue as Continue
    from proctor.runtime.messaging import Down as Down
    from proctor.runtime.messaging import ExitSignal as ExitSignal
    from proctor.runtime.messaging import Monitor as Monitor
    from proctor.runtime.messaging import Name as Name
    from proctor.runtime.messaging import Ref as Ref
    from proctor.runtime.messaging import Registry as Registry
    from proctor.runtime.messaging import Reply as Reply
    from proctor.runtime.messaging import Request as Request
    from proctor.runtime.messaging import Requests as Requests
    from proctor.runtime.messaging import Sink as Sink
    from proctor.runtime.messaging import Stop as Stop
    from proctor.runtime.messaging import Stream as Stream
    from proctor.runtime.messaging import SupervisorHandle as SupervisorHandle
    from proctor.runtime.messaging import TreeNode as TreeNode
    from proctor.runtime.messaging import current_actor as current_actor
    from proctor.runtime.messaging import link as link
    from proctor.runtime.messaging import reply as reply
    from proctor.runtime.messaging import reply_error as reply_error
    from proctor.runtime.messaging import unlink as unlink
    from proctor.runtime.processes import Command as Command
    from proctor.runtime.processes import File as File
    from proctor.runtime.processes import Ledger as Ledger
    from proctor.runtime.processes import Notify as Notify
    from proctor.runtime.processes import Orphan as Orphan
    from proctor.runtime.processes import Output as Output
    from proctor.runtime.processes import Port as Port
    from proctor.runtime.processes import PortTaken as PortTaken
    from proctor.runtime.processes import Process as Process
    from proctor.runtime.processes import ProcessError as ProcessError
    from proctor.runtime.processes import Readiness as Readiness
    from proctor.runtime.processes import Step as Step
    from proctor.runtime.processes import Swept as Swept
    from proctor.runtime.processes import current_ledger as current_ledger
    from proctor.runtime.processes import open_ledger as open_ledger
    from proctor.runtime.processes import open_process as open_process
    from proctor.runtime.spec import Backoff as Backoff
    from proctor.runtime.spec import ChildSpec as ChildSpec
    from proctor.runtime.spec import Flags as Flags
    from proctor.runtime.spec import Probe as Probe
    from proctor.runtime.spec import check_childspecs as check_childspecs
    from proctor.runtime.supervision import AnySupervisor as AnySupervisor
    from proctor.runtime.supervision import DynamicSupervisor as DynamicSupervisor
    from proctor.runtime.supervision import PartitionStatistics as PartitionStatistics
    from proctor.runtime.supervision import PartitionSupervisor as PartitionSupervisor
    from proctor.runtime.supervision import Supervisor as Supervisor
    from proctor.runtime.supervision import Task as Task
    from proctor.runtime.supervision import TaskExit as TaskExit
    from proctor.runtime.supervision import TaskResult as TaskResult
    from proctor.runtime.supervision import TaskStream as TaskStream
    from proctor.runtime.supervision import TaskSupervisor as TaskSupervisor
    from proctor.runtime.supervision import dynamic_supervisor_spec as dynamic_supervisor_spec
    from proctor.runtime.supervision import open_dynamic_supervisor as open_dynamic_supervisor
    from proctor.runtime.supervision import open_partition_supervisor as open_partition_supervisor
    from proctor.runtime.supervision import open_supervisor as open_supervisor
    from proctor.runtime.supervision import open_task_supervisor as open_task_supervisor
    from proctor.runtime.supervision import partition_supervisor_spec as partition_supervisor_spec
    from proctor.runtime.supervision import plain_environment as plain_environment
    from proctor.runtime.supervision import process as process
    from proctor.runtime.supervision import scheduled as scheduled
    from proctor.runtime.supervision import supervisor_spec as supervisor_spec
    from proctor.runtime.supervision import task_supervisor_spec as task_supervisor_spec
    from proctor.runtime.task_status import ChildStatus as ChildStatus

_NAMES: Mapping[str, str] = {
    "proctor.runtime.addresses": "AnyAddress AnyRef",
    "proctor.runtime.entry_point": "run",
    "proctor.runtime.errors": """
        ActorExited ActorRestarting AlreadyPresent AlreadyRegistered AlreadyStarted CallingSelf
        CallTimeout InvalidSpec MailboxFull MaxChildren MaxRestartsExceeded NoMailbox NoPartitions
        NotFound PoolOverloaded ProbeFailed Restarting ResultTaken Running StartError StartTimeout
        StreamClosed StreamError SupervisionError TaskTimeout UnknownMessage WatchdogTimeout
        WouldDeadlock
    """,
    "proctor.runtime.events": """
        ChildAdopted ChildExited ChildOrphaned ChildOverdue ChildReady ChildRestarting ChildStarted
        ChildTerminated ChildUnresponsive DeadLetter Deadlock LateReply MaxRestarts RunSkipped
        ShutdownFailed StartFailed Subscription SupervisorEvent SupervisorStarted SupervisorStopped
    """,
    "proctor.runtime.exits": """
        Crash DeliveryError DoNotRestart Exit ExitReason ExitStatus FinalShutdown Killed NoProc Normal
        RuntimeFault Shutdown TerminateTree TreeShutdown is_clean
    """,
    "proctor.runtime.messaging": """
        IDLE IGNORE NO_REPLY Actor ActorContext Address Call ChildCounts ChildInfo Continue Down
        ExitSignal Monitor Name Ref Registry Reply Request Requests Sink Stop Stream SupervisorHandle
        TreeNode current_actor link reply reply_error unlink
    """,
    "proctor.runtime.processes": """
        Command File Ledger Notify Orphan Output Port PortTaken Process ProcessError Readiness Step
        Swept current_ledger open_ledger open_process
    """,
    "proctor.runtime.spec": "Backoff ChildSpec Flags Probe check_childspecs",
    "proctor.runtime.supervision": """
        AnySupervisor DynamicSupervisor PartitionStatistics PartitionSupervisor Supervisor Task TaskExit
        TaskResult TaskStream TaskSupervisor dynamic_supervisor_spec open_dynamic_supervisor
        open_partition_supervisor open_supervisor open_task_supervisor partition_supervisor_spec
        plain_environment process scheduled supervisor_spec task_supervisor_spec
    """,
    "proctor.runtime.task_status": "ChildStatus",
}
"""Module → the public names that it has."""


if not TYPE_CHECKING:
    _HOMES: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = tuple(sorted(_HOMES))

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
