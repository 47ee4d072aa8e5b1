from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import dotted, enclosing, everywhere, listed, name_of, programs, sources, syntax

OWNERLESS = {
    "spawn_system_task",
    "create_task",
    "ensure_future",
    "run_coroutine_threadsafe",
    "start_new_thread",
}
UNBOUNDED_QUEUES = {"queue.Queue", "queue.SimpleQueue", "SimpleQueue", "queue.LifoQueue", "asyncio.Queue"}
INFINITIES = {"math.inf", "inf"}
BLOCKING = {
    *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "os.system"),
    *("os.popen", "time.sleep", "os.fork", "os.forkpty", "pty.fork"),
}
STANDALONE = tuple(name_of(path) for path in programs())

# (file, function): why a thread of its own
THREADS: dict[tuple[str, str], str] = {
    (
        "src/proctor/cli/log.py",
        "Behind.emit",
    ): "the log's writer: a stderr that nobody reads holds up no agent",
}


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            yield node, dotted(called)


def last(name: str) -> str:
    return name.rpartition(".")[2]


def ownerless(tree: ast.Module) -> list[str]:
    return [f"{enclosing(tree, node)}: {name}" for node, name in calls(tree) if last(name) in OWNERLESS]


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


def blocking(tree: ast.Module) -> list[str]:
    return [f"{enclosing(tree, node)}: {name}" for node, name in calls(tree) if name in BLOCKING]


def prints(tree: ast.Module) -> list[str]:
    writes = {
        "print",
        "pprint",
        "pprint.pprint",
        "sys.stdout.write",
        "sys.stderr.write",
        "sys.__stdout__.write",
    }
    return [f"{enclosing(tree, node)}: {name}" for node, name in calls(tree) if name in writes]


def sources_without(*left_out: str) -> list[Path]:
    return [path for path in sources() if not name_of(path).startswith(left_out)]


def test_every_task_has_an_owner() -> None:  # R192
    places = everywhere(ownerless)
    assert places == [], listed(places)


def test_every_thread_is_listed_with_its_reason() -> None:
    found = {
        (name_of(path), enclosing(syntax(path), node))
        for path in sources()
        for node, called in calls(syntax(path))
        if last(called) in {"Thread", "ThreadPoolExecutor", "ProcessPoolExecutor"}
    }
    assert found == set(THREADS)


# R192
def test_no_channel_is_unbounded() -> None:  # R050
    places = everywhere(unbounded)
    assert places == [], listed(places)


# R048
def test_no_call_blocks_the_event_loop() -> None:  # R192
    places = everywhere(blocking, sources_without(*STANDALONE))
    assert places == [], listed(places)


def test_only_the_command_line_prints() -> None:
    places = everywhere(prints, sources_without("src/proctor/cli", *STANDALONE))
    assert places == [], listed(places)


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("trio.open_memory_channel(math.inf)", 1),
        ("trio.open_memory_channel[int](float('inf'))", 1),
        ("open_memory_channel[int](max_buffer_size=inf)", 1),
        ("trio.open_memory_channel[bytes](0)", 0),
        ("trio.open_memory_channel[bytes](limit)", 0),
        ("queue.SimpleQueue()", 1),
        ("queue.Queue(10)", 0),
    ],
)
def test_the_search_finds_an_unbounded_channel(source: str, places: int) -> None:
    assert len(unbounded(ast.parse(source))) == places


def test_the_search_finds_a_task_without_an_owner() -> None:
    tree = ast.parse("def f():\n    trio.lowlevel.spawn_system_task(g)\n    nursery.start_soon(g)\n")
    assert ownerless(tree) == ["f: trio.lowlevel.spawn_system_task"]


def test_the_search_finds_a_blocking_call_and_a_print() -> None:
    tree = ast.parse("async def f():\n    time.sleep(1)\n    await trio.sleep(1)\n    print(1)\n")
    assert (blocking(tree), prints(tree)) == (["f: time.sleep"], ["f: print"])
