"""Functions of the caller that agents call: tools, policies and hooks run where the program of each face is."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio

import proctor
from proctor import aio, sync
from proctor.bridge import asyncio_face, sync_face
from proctor.protocols.vocabulary import HookCalled, HookVerdict
from tests.faces.three import Face

USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")
FACES = pytest.mark.parametrize("module", [proctor, aio, sync], ids=lambda module: module.__name__)
STEPS = [
    {"host": "stock", "input": {"article": "nails"}},
    {"tool": "Bash", "input": {"command": "ls"}, "ask": True, "result": "none"},
    {"tool": "Read", "input": {"path": "x"}, "ask": True, "result": "none"},
    {"reply": "done"},
]


def where() -> tuple[str, str]:
    """The loop or the thread that this runs in, and whose context variables."""
    try:
        place = f"loop {id(asyncio.get_running_loop())}"
    except RuntimeError:
        is_main = threading.current_thread() is threading.main_thread()
        place = "main thread" if is_main else "worker" if "proctor-trio" not in _name() else "Trio thread"
    return place, USER.get()


def _name() -> str:
    return threading.current_thread().name


@FACES
def test_tools_and_policies_run_where_the_program_is(module: ModuleType, tmp_path: Path) -> None:
    places: list[tuple[str, str]] = []
    asked: list[str] = []
    face = Face(module)

    def stock(article: str) -> int:
        "How many there are."
        places.append(where())
        return 7

    def decide(question: proctor.ApprovalRequested) -> bool:
        places.append(where())
        asked.append(question.tool)
        return question.tool == "Read"

    async def exercise() -> None:
        USER.set("ada")
        expected = where()
        policy: Any = face.function(decide)
        agent = proctor.scripted(
            "a",
            path,
            shutdown=3.0,
            host_tools=(module.tool(face.function(stock)),),
            permission=policy if module is proctor else module.policy(policy),
        )
        tree = face.entered(module.open_supervisor([agent]))
        async with tree as sup, face.entered(sup.agent("a").stream("go")) as turn:
            events = [event async for event in face.each(turn)]
        results = {event.text for event in events if isinstance(event, proctor.ToolResult)}
        assert "7" in results
        if module is sync:
            expected = ("worker", "ada")
        assert {*places} == {expected}

    path = tmp_path / "script.ndjson"
    path.write_text("\n".join(map(json.dumps, STEPS)))
    contextvars.copy_context().run(face.run, exercise)
    assert asked == ["Bash", "Read"]


CALLED = HookCalled(0, None, "1", "hook", "PreToolUse", {})


@pytest.mark.parametrize(
    ("verdict", "allows"), [(True, True), (None, False), (proctor.HookResult(False, "no"), False)]
)
def test_a_hook_decides_where_the_program_is(verdict: Any, allows: bool) -> None:
    async def judge() -> Any:
        return verdict

    async def in_the_loop(called: HookCalled) -> Any:
        return await judge()

    async def main() -> HookVerdict:
        return await asyncio_face.call(thread, aio.Hook("PreToolUse", in_the_loop).judge, CALLED)

    with sync.TrioThread() as thread:
        assert asyncio.run(main()).allow is allows
        plain = sync.Hook("PreToolUse", lambda called: verdict, matcher="Bash")
        assert sync_face.call(thread, plain.judge, CALLED).allow is allows
        assert isinstance(plain, proctor.Hook)


def test_functions_that_hang_take_no_threads_of_agents() -> None:
    release = threading.Event()

    @sync.tool(timeout=0.05)
    def hang() -> None:
        release.wait()

    async def look() -> int:
        with trio.fail_after(5):
            return await trio.to_thread.run_sync(lambda: 5)

    async def hang_often() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(hang.run, {})

    with sync.TrioThread() as thread:
        sync_face.call(thread, hang_often)
        assert sync_face.call(thread, look) == 5
        release.set()
