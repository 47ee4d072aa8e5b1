from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import dotted, enclosing, everywhere, listed, name_of, sources, syntax

UNBOUNDED_QUEUES = {"queue.Queue", "queue.SimpleQueue", "SimpleQueue", "queue.LifoQueue", "asyncio.Queue"}
INFINITIES = {"math.inf", "inf"}
# (file, function): why a thread of its own
THREADS: dict[tuple[str, str], str] = {
    ("src/proctor/cli/log.py", "BackgroundHandler.emit"): "a stderr that nobody reads holds up no agent",
    (
        "src/proctor/cli/top/feed.py",
        "_start_thread",
    ): "the clients of a view block: a host that hangs delays no key",
    ("src/proctor/cli/traces.py", "exported_traces"): "a receiver that is gone holds up no end of a command",
    ("actors/operations/loop_watch.py", "LoopWatch.installed"): "looks at the loop while a task holds it",
    ("src/proctor/bridge/trio_thread.py", "TrioThread.start"): "Trio, for a program that does not run it",
    (
        "src/proctor/bridge/trio_thread.py",
        "_Keeper.keep",
    ): "stops the agents when the main thread has ended: `atexit` comes too late",
    ("actors/store/sqlite.py", "Store.open"): "the store's writer: it lives as long as the store",
}


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            yield node, dotted(called)


def last(name: str) -> str:
    return name.rpartition(".")[2]


def unbounded(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node, name in calls(tree):
        size = node.args[0] if node.args else next((k.value for k in node.keywords), None)
        limitless = size is None or _is_infinite(size)
        if (last(name) == "open_memory_channel" or name in UNBOUNDED_QUEUES) and limitless:
            found.append(f"{enclosing(tree, node)}: {name}")
    return found


def _is_infinite(size: ast.expr) -> bool:
    match size:
        case ast.Call(func=ast.Name(id="float")):
            return True
        case ast.Constant(value=0):
            return False
        case _:
            return dotted(size) in INFINITIES


def test_every_thread_is_listed_with_its_reason() -> None:
    found = {
        (name_of(path), enclosing(syntax(path), node))
        for path in sources()
        for node, called in calls(syntax(path))
        if last(called) in {"Thread", "ThreadPoolExecutor", "ProcessPoolExecutor"}
    }
    assert found == set(THREADS)


@pytest.mark.covers("R192", "R050")
def test_no_channel_is_unbounded() -> None:
    places = everywhere(unbounded)
    assert places == [], listed(places)


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("trio.open_memory_channel[int](float('inf'))", 1),
        ("open_memory_channel[int](max_buffer_size=inf)", 1),
        ("trio.open_memory_channel[bytes](limit)", 0),
        ("queue.SimpleQueue()", 1),
        ("queue.Queue(10)", 0),
    ],
)
def test_the_search_finds_an_unbounded_channel(source: str, places: int) -> None:
    assert len(unbounded(ast.parse(source))) == places
