from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.tree import ROOT, Function, everywhere, listed, name_of, programs, sources, syntax

# The public faces. A name that is added, renamed or gone is a change users see: change it here, on purpose.
FACES: Mapping[str, tuple[str, ...]] = {
    "proctor": (
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
    ),
    "proctor.testing": (
        "SimulationOverran",
        "simulate",
    ),
    "proctor.protocols": (),
    "proctor.protocols.claude": ("CLAUDE",),
    "proctor.runtime": (
        "Actor",
        "ActorContext",
        "ActorExited",
        "ActorRestarting",
        "Address",
        "AlreadyPresent",
        "AlreadyRegistered",
        "AlreadyStarted",
        "AnyAddress",
        "AnyRef",
        "AnySupervisor",
        "Backoff",
        "Call",
        "CallTimeout",
        "CallingSelf",
        "ChildAdopted",
        "ChildCounts",
        "ChildExited",
        "ChildInfo",
        "ChildOrphaned",
        "ChildReady",
        "ChildRestarting",
        "ChildSpec",
        "ChildStarted",
        "ChildStatus",
        "ChildTerminated",
        "ChildOverdue",
        "ChildUnresponsive",
        "Command",
        "Continue",
        "Crash",
        "DeadLetter",
        "Deadlock",
        "DeliveryError",
        "DoNotRestart",
        "Down",
        "DynamicSupervisor",
        "Exit",
        "ExitReason",
        "ExitSignal",
        "ExitStatus",
        "File",
        "FinalShutdown",
        "Flags",
        "IDLE",
        "IGNORE",
        "InvalidSpec",
        "Killed",
        "LateReply",
        "Ledger",
        "MailboxFull",
        "MaxChildren",
        "MaxRestarts",
        "MaxRestartsExceeded",
        "Monitor",
        "NO_REPLY",
        "Name",
        "NoMailbox",
        "NoPartitions",
        "NoProc",
        "Normal",
        "NotFound",
        "Notify",
        "Orphan",
        "Output",
        "PartitionStatistics",
        "PartitionSupervisor",
        "PoolOverloaded",
        "Port",
        "PortTaken",
        "Probe",
        "ProbeFailed",
        "Process",
        "ProcessError",
        "Readiness",
        "Ref",
        "Registry",
        "Reply",
        "Request",
        "Requests",
        "Restarting",
        "ResultTaken",
        "RunSkipped",
        "Running",
        "RuntimeFault",
        "Shutdown",
        "ShutdownFailed",
        "Sink",
        "StartError",
        "StartFailed",
        "StartTimeout",
        "Step",
        "Stop",
        "Stream",
        "StreamClosed",
        "StreamError",
        "Subscription",
        "SupervisionError",
        "Supervisor",
        "SupervisorEvent",
        "SupervisorHandle",
        "SupervisorStarted",
        "SupervisorStopped",
        "Swept",
        "Task",
        "TaskExit",
        "TaskResult",
        "TaskStream",
        "TaskSupervisor",
        "TaskTimeout",
        "TerminateTree",
        "TreeNode",
        "TreeShutdown",
        "UnknownMessage",
        "WatchdogTimeout",
        "WouldDeadlock",
        "check_childspecs",
        "current_actor",
        "current_ledger",
        "dynamic_supervisor_spec",
        "is_clean",
        "link",
        "open_dynamic_supervisor",
        "open_ledger",
        "open_partition_supervisor",
        "open_process",
        "open_supervisor",
        "open_task_supervisor",
        "partition_supervisor_spec",
        "plain_environment",
        "process",
        "reply",
        "reply_error",
        "run",
        "scheduled",
        "supervisor_spec",
        "task_supervisor_spec",
        "unlink",
    ),
    "proctor.actors": (),
    "proctor.actors.scripted": (
        "PROGRAM",
        "ScriptError",
        "check_script",
        "scripted_dialect",
        "scripted_executable",
    ),
}


def exported(module: ModuleType) -> tuple[str, ...]:
    return tuple(getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", FACES)
def test_a_face_is_what_was_agreed(name: str) -> None:
    assert sorted(exported(importlib.import_module(name))) == sorted(FACES[name])


@pytest.mark.parametrize("name", FACES)
def test_a_face_exports_each_name_once_and_has_it(name: str) -> None:
    module = importlib.import_module(name)
    names = exported(module)
    assert len(set(names)) == len(names)
    assert [missing for missing in names if not hasattr(module, missing)] == []


@pytest.mark.parametrize("name", FACES)
def test_a_face_leaks_no_name_it_does_not_export(name: str) -> None:
    module = importlib.import_module(name)
    public = {
        key for key, value in vars(module).items() if not key.startswith("_") and not _is_incidental(value)
    }
    assert public - set(exported(module)) == set()


def _is_incidental(value: object) -> bool:
    """A submodule, what `from __future__` leaves, and the standard library's names."""
    origin = getattr(value, "__module__", "")
    return isinstance(value, ModuleType) or not str(origin).startswith("proctor")


@pytest.mark.parametrize("name", FACES)
def test_every_public_method_is_documented(name: str) -> None:  # R193
    module = importlib.import_module(name)
    classes = [value for key in exported(module) if inspect.isclass(value := getattr(module, key))]
    places = [method for cls in classes for method in undocumented_methods(cls)]
    assert places == [], listed(places)


SERVING = ("attempts", "completion", "gateways", "pool", "providers", "sessions", "webserver")
EXTRAS = ("mcp", "starlette", "hypercorn", "pydantic", "httpx", "jsonschema_rs", "prometheus_client")
NAMED = """
import sys, proctor
before = set(sys.modules)
for name in proctor.__all__:
    getattr(proctor, name)
print(sorted(name for name in before if name.split(".")[2:3] and name.split(".")[2] in {serving!r}))
print(sorted(set(sys.modules) & set({extras!r})))
"""


def test_what_serves_agents_is_loaded_when_it_is_named_and_no_extra_by_any_name() -> None:
    program = NAMED.format(serving=SERVING, extras=EXTRAS)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n[]\n"), done.stderr


def undocumented_methods(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        own = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        if own and not name.startswith("_") and not any(_documents(above, name) for above in cls.__mro__):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def _documents(cls: type, name: str) -> bool:
    return bool(getattr(vars(cls).get(name), "__doc__", None))


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes and functions at a module's top that have no docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            public = not node.name.startswith("_") and not _is_overload(node)
            if public and not ast.get_docstring(node):
                yield f"{node.lineno} {node.name}"


def _is_overload(node: Function | ast.ClassDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def documented_by_its_module(path: Path) -> bool:
    """A program's face is its command line; a frame's type says what the wire page says."""
    return path in programs() or path.name == "wire.py"


def test_every_public_name_is_documented() -> None:  # R193
    places = everywhere(undocumented, [path for path in sources() if not documented_by_its_module(path)])
    assert places == [], listed(places)


def test_every_module_says_what_it_is() -> None:
    silent = [
        path for path in sources() if path.name != "__init__.py" and not ast.get_docstring(syntax(path))
    ]
    assert [name_of(path) for path in silent] == []


def test_the_search_finds_a_name_without_docstring() -> None:
    tree = ast.parse('def a(): pass\ndef _b(): pass\nclass C: pass\ndef d():\n    """D."""\n')
    assert list(undocumented(tree)) == ["1 a", "3 C"]


def test_a_documented_base_method_documents_the_override() -> None:
    class Above:
        def serve(self) -> None:
            """Serve."""

    class Below(Above):
        def serve(self) -> None:
            pass

        def rest(self) -> None:
            pass

    assert [name.rpartition(".")[2] for name in undocumented_methods(Below)] == ["rest"]
