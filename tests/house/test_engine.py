"""What every command line shares exists once, and is what every command line goes through."""

from __future__ import annotations

import ast

import pytest

import proctor
from proctor.actors.agent.agent import AgentActor
from proctor.actors.plan.plan import plan_of
from proctor.protocols.dialect import Dialect, StopStep
from proctor.runtime.spec import ChildSpec
from tests.house.tree import everywhere, floor, listed, name_of, syntax

ROOTS = {"Exception", "BaseException", "ProcessError", "AgentError", "ProtocolError"}
LOCKS = {"Lock", "RLock", "StrictFIFOLock", "Semaphore", "Condition"}
# the files that may have a lock, which orders writers or callers, and never data
ORDERED = {
    "actors/batch/results.py": "one line of a file of results at a time",
    "actors/process/start_slots.py": "one agent opens its files in a pass of the loop",
    "actors/tools/toolsocket.py": "one message to a client at a time",
    "actors/serving/sessions.py": "one call of a session at a time",
    "actors/operations/health.py": "one check at a time; the second caller gets its result",
}


def raised(tree: ast.Module) -> list[str]:
    """Errors of a class that does not say what failed."""
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    names = (call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name))
    return [name for name in names if name in ROOTS]


def locks(tree: ast.Module) -> list[str]:
    attributes = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return [name for name in attributes if name in LOCKS]


@pytest.fixture
def kinds() -> list[ChildSpec]:
    return [
        *(proctor.claude("a"), proctor.claude("a", mode="oneshot"), proctor.codex("a")),
        *(proctor.codex("a", mode="exec"), proctor.opencode("a"), proctor.opencode("a", mode="run")),
        proctor.acp("a", ["gemini"]),
    ]


@pytest.mark.covers("R004")
def test_every_command_line_goes_through_the_same_functions(kinds: list[ChildSpec]) -> None:
    assert {spec.start for spec in kinds} == {AgentActor}
    assert {type(plan_of(spec).dialect) for spec in kinds} == {Dialect}
    assert {plan_of(spec).reach for spec in kinds} == {plan_of(kinds[0]).reach}
    assert {type(step) for spec in kinds for step in plan_of(spec).dialect.stop} == {StopStep}


@pytest.mark.covers("R107")
def test_no_error_is_raised_that_only_says_that_something_failed() -> None:
    places = everywhere(raised)
    assert places == [], listed(places)


@pytest.mark.covers("R058")
def test_data_is_shared_under_no_lock() -> None:
    found = {name_of(path) for path in floor("actors") + floor("protocols") if locks(syntax(path))}
    assert found == set(ORDERED), listed(sorted(found ^ set(ORDERED)))


def test_the_searches_find() -> None:
    tree = ast.parse("raise AgentError('no')\nraise BadOption('x')\nlock = trio.Lock()\n")
    assert (raised(tree), locks(tree)) == (["AgentError"], ["Lock"])
