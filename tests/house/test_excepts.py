from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.house.tree import dotted, enclosing, listed, name_of, sources, syntax
from tests.tables import each_row

# (file, function): why it takes every error
REASONS: Mapping[tuple[str, str], str] = {
    ("runtime/supervision/child.py", "Incarnation.run"): "a child's body: any error is a crash of the child (T4)",
    ("runtime/supervision/child.py", "Incarnation._run_before_background"): "an actor's hooks: the same, and `terminate` still runs (T8)",
    ("runtime/supervision/child.py", "Incarnation._contained"): "its other code: `terminate`, a check, a function (T4)",
    ("runtime/supervision/children.py", "Children._call"): "what a child left to be called, in the supervisor's task: an event (T4)",
    ("runtime/processes/outputs.py", "Outputs.call"): "the owner's callback: an error in it ends no reader (L20)",
    ("runtime/processes/pipes.py", "OutputPipe._read_for"): "the owner's function: raised in the task that gave it, and ends no other's reading",
    ("runtime/entry_point.py", "run"): "raised again, an interrupt in it bare (T5)",
    ("runtime/supervision/root.py", "Root.supervised"): "raised again after the children have stopped (T2)",
    ("runtime/supervision/task_stream.py", "TaskStream.feed"): "the owner's items: raised from the owner's block (S71)",
    ("runtime/supervision/task_stream.py", "open_task_stream"): "raised again outside the nursery, so that it leaves bare",
    ("actors/transport/memory.py", "_Task._play"): "the user's far end: an error in it is its crash, as a program's is",
    ("actors/tools/hooks.py", "Hook._call"): "the user's hook fails closed: an error in it blocks (L20)",
    ("actors/plan/permissions.py", "_asked"): "the user's rule fails closed: an error in it denies",
    ("actors/tools/tools.py", "Tool._called"): "the user's tool: an error in it is a result that the model reads (L20)",
    ("actors/serving/toolset.py", "_run"): "a tool's function is not ours: an error in it is a result that the model reads (L18)",
    ("actors/structured/schemas.py", "Schema._converted"): "the declared class's own code: its fault is a violation of the answer",
    ("actors/web_server/server.py", "_Connections._connection"): "what breaks in one connection ends that, not the server",
    ("actors/web_server/http1.py", "HttpConnection._serve_next"): "an application that fails ends its request, not the server",
    ("actors/web_server/lifespan.py", "lifespan.live"): "an application without a lifespan raises what it likes; it is served as it is",
    ("actors/runs.py", "_recorded"): "raised again outside the nursery, so that it leaves bare",
    ("actors/agent/stored_requests.py", "_kept_requests"): "the same",
    ("actors/batch/batch.py", "_Work.run"): "raised from the iterator, in the task that reads the results",
    ("actors/serving/providers.py", "_carry"): "a model of the caller's own: its error is the response's",
    ("actors/serving/providers.py", "_relayed"): "raised again outside the nursery, so that it leaves bare",
    ("src/proctor/bridge/trio_thread.py", "Job.run"): "a call from another thread: raised there",
    ("src/proctor/bridge/trio_thread.py", "TrioThread._run"): "the failure of the thread: the cause of what each of its callers gets",
    ("src/proctor/cli/__init__.py", "main"): "the last resort: one line instead of a traceback",
}  # fmt: skip

# (file, function): where an interrupt or a group that may hold a cancellation goes instead of up
EDGES: Mapping[tuple[str, str], str] = {
    ("src/proctor/bridge/trio_thread.py", "Job.run"): "an interrupt that a task raised: raised in the thread of its caller",
    ("src/proctor/bridge/trio_thread.py", "TrioThread._run"): "there is no thread above it: its callers get it",
    ("runtime/supervision/child.py", "Incarnation.run"): "an interrupt goes to the root, which stops the tree (T5)",
    ("runtime/supervision/child.py", "Incarnation._run_before_background"): "the same",
    ("runtime/supervision/child.py", "Incarnation._contained"): "the same",
    ("runtime/entry_point.py", "run"): "raised again, bare (T5)",
    ("runtime/supervision/child.py", "Incarnation._terminate"): "came before the hook's first instruction: the root is told, the hook runs (T5)",
    ("runtime/supervision/children.py", "Children._call"): "the same; a function that is called gets no cancellation",
    ("runtime/supervision/root.py", "Root.wait"): "the root is told and stops the tree in order (T5)",
    ("runtime/supervision/root.py", "Root.supervised"): "raised again after the children have stopped (T2)",
    ("runtime/processes/pipes.py", "OutputPipe._read_for"): "the owner's function: raised in the task that gave it",
    ("actors/agent/stored_requests.py", "_kept_requests"): "raised again outside the nursery",
}  # fmt: skip

GROUPS = {"ExceptionGroup", "BaseExceptionGroup"}
EVERYTHING = {"Exception", "BaseException", "<bare>", *GROUPS}
NEVER = {"Cancelled", "KeyboardInterrupt", "SystemExit", "GeneratorExit"}
ABOVE = {"BaseException", "BaseExceptionGroup", "<bare>"} | NEVER


def names(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {"<bare>"}
    parts = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return {dotted(part).rpartition(".")[2] for part in parts}


def caught(tree: ast.Module) -> Iterator[tuple[ast.AST, set[str], bool]]:
    """Each place that takes errors: the node, the names taken and kept, whether it always raises the same again."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=kind, body=body):
                taken = names(kind)
                yield node, taken - GROUPS if always_raises(body) else taken, raises_again(body)
            case ast.Call(func=func, args=args) if dotted(func).rpartition(".")[2] == "suppress":
                yield node, set[str]().union(*(names(arg) for arg in args)), False
            case _:
                pass


def always_raises(body: list[ast.stmt]) -> bool:
    """It ends in a `raise` and leaves by no other way."""
    leaves = (ast.Return, ast.Break, ast.Continue)
    inside = (node for statement in body for node in ast.walk(statement))
    return isinstance(body[-1], ast.Raise) and not any(isinstance(node, leaves) for node in inside)


def raises_again(body: list[ast.stmt]) -> bool:
    return always_raises(body) and isinstance(body[-1], ast.Raise) and body[-1].exc is None


def broad(tree: ast.Module) -> list[str]:
    return [enclosing(tree, node) for node, taken, again in caught(tree) if taken & EVERYTHING and not again]


def swallowed(tree: ast.Module) -> list[str]:
    return [enclosing(tree, node) for node, taken, again in caught(tree) if taken & ABOVE and not again]


def places(search: Callable[[ast.Module], list[str]]) -> set[tuple[str, str]]:
    return {(name_of(path), where) for path in sources() for where in search(syntax(path))}


@pytest.mark.covers("R192", "T3", "T4", "T5")
@pytest.mark.parametrize(
    ("search", "table"), [(broad, REASONS), (swallowed, EDGES)], ids=["errors", "interrupts"]
)
def test_every_place_that_takes_everything_is_listed_with_its_reason(
    search: Callable[[ast.Module], list[str]], table: Mapping[tuple[str, str], str]
) -> None:
    found = places(search)
    unlisted, stale = found - set(table), set(table) - found
    assert not unlisted | stale, listed(
        [f"not listed: {p}" for p in unlisted] + [f"gone: {p}" for p in stale]
    )


@each_row(
    ("body", "found"),
    [
        ("except Exception: pass", (1, 0)),
        ("except (ValueError, Exception): pass", (1, 0)),
        ("except BaseException:\n        clean()\n        raise", (0, 0)),
        ("except BaseException:\n        if a: return\n        raise", (1, 1)),
        ("except trio.Cancelled: pass", (0, 1)),
        ("except* Exception: pass", (1, 0)),
        ("except Exception as e:\n        raise Other from e", (1, 0)),
        ("except BaseExceptionGroup as e:\n        raise e.exceptions[0]", (0, 0)),
        ("except OSError: pass", (0, 0)),
        ("except ValueError:\n        with suppress(BaseException): pass", (1, 1)),
    ],
)
def test_the_search_finds(body: str, found: tuple[int, int]) -> None:
    tree = ast.parse(f"def f():\n    try: pass\n    {textwrap.dedent(body)}\n")
    assert (len(broad(tree)), len(swallowed(tree))) == found
