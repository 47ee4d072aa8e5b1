"""What every command line shares exists once, and is what every command line goes through."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import pytest

import proctor
from proctor.actors import runs
from proctor.actors.agent import agent, handle
from proctor.actors.agent.agent import AgentActor
from proctor.actors.outcomes import answer_of, label
from proctor.actors.process import agent_process, ends
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.process.launch import prepare_launch
from proctor.actors.process.stop_sequence import stop_steps
from proctor.actors.specs import plan_of
from proctor.protocols.dialect import Dialect, StopStep
from proctor.runtime.spec import ChildSpec
from tests.house.tree import everywhere, floor, listed, name_of, sources, syntax

# the function: the one file that has it
SHARED: Mapping[str, str] = {
    "run_ladder": "runtime/processes/stopping.py",
    "stop_steps": "actors/process/stop_sequence.py",
    "prepare_launch": "actors/process/launch.py",
    "build_environment": "actors/plan/environment.py",
    "answer_of": "actors/outcomes.py",
    "exited_of": "actors/outcomes.py",
    "label": "actors/outcomes.py",
    "shaped": "actors/plan/plan.py",
    "attempted": "actors/serving/retry.py",
}
USED: Mapping[Callable[..., object], tuple[ModuleType, ...]] = {
    AgentProcess: (agent, runs),
    stop_steps: (agent_process,),
    label: (ends, agent_process),
    answer_of: (handle, ends),
    prepare_launch: (agent_process,),
}
"""What is shared, and who uses it: one object, whatever the command line."""
ROOTS = {"Exception", "BaseException", "ProcessError", "AgentError", "ProtocolError"}
# file: what its lock orders, which is nothing that was said
TURNS: Mapping[str, str] = {
    "actors/gateways/mcp/wire.py": "who writes to a client: a message is written whole",
    "actors/tools/toolsocket.py": "who writes to a client: a message is written whole",
    "actors/serving/sessions.py": "who works in a session: one call after the other",
    "actors/operations/health.py": "who looks: the second one is given what the first one found",
}
LOCKS = {"Lock", "RLock", "StrictFIFOLock", "Semaphore", "Condition"}


def defined(tree: ast.Module) -> Iterator[str]:
    return (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def raised(tree: ast.Module) -> list[str]:
    """What is raised that says nothing of what failed."""
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    names = (call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name))
    return [name for name in names if name in ROOTS]


def locks(tree: ast.Module) -> list[str]:
    attributes = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return [name for name in attributes if name in LOCKS]


@pytest.fixture
def kinds() -> list[ChildSpec]:
    return [
        proctor.claude("a"),
        proctor.claude("a", mode="oneshot"),
        proctor.codex("a"),
        proctor.codex("a", mode="exec"),
        proctor.opencode("a"),
        proctor.opencode("a", mode="run"),
        proctor.acp("a", ["gemini"]),
    ]


def test_every_command_line_goes_through_the_same_functions_R004(kinds: list[ChildSpec]) -> None:
    assert {spec.start for spec in kinds} == {AgentActor}
    assert {type(plan_of(spec).dialect) for spec in kinds} == {Dialect}
    assert {plan_of(spec).reach for spec in kinds} == {plan_of(kinds[0]).reach}
    assert {type(step) for spec in kinds for step in plan_of(spec).dialect.stop} == {StopStep}
    for function, users in USED.items():
        assert [vars(user)[function.__name__] for user in users] == [function] * len(users)


def test_what_is_shared_is_defined_once_R004() -> None:
    found = {
        (function, name_of(path))
        for path in sources()
        for function in defined(syntax(path))
        if function in SHARED
    }
    assert found == {*SHARED.items()}


def test_no_error_is_raised_that_only_says_that_something_failed_R107() -> None:
    places = everywhere(raised)
    assert places == [], listed(places)


def test_what_was_said_is_shared_under_no_lock_R058() -> None:
    found = {name_of(path) for path in floor("actors") + floor("protocols") if locks(syntax(path))}
    assert found == set(TURNS), listed(sorted(found ^ set(TURNS)))


def test_the_searches_find() -> None:
    tree = ast.parse("def ladder(): ...\nraise AgentError('no')\nraise BadOption('x')\nlock = trio.Lock()\n")
    assert (list(defined(tree)), raised(tree), locks(tree)) == (["ladder"], ["AgentError"], ["Lock"])
