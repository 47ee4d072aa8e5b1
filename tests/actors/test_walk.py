"""One prompt, traced through the modules: the drawing in docs/explanation/walk.md has to be that of the code."""

from __future__ import annotations

import dis
import inspect
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import proctor
from proctor.actors.tracing.tracing import TRACER
from tests.actors.far_end import Step, agent_of
from tests.house.tree import ROOT

SCRIPT: Sequence[Step] = ({"reply": "{prompt}"},)
PAGE = ROOT / "docs" / "explanation" / "walk.md"
STDIN = "runtime/processes/pipes"
HANDED_ON = ("Mailbox.offer", "AgentProcess.post")
"""With these a task hands the prompt to the next one: what it does then is not on the way to stdin."""
READERS = ("AgentProcess._read_output", "the hub of pipes")
FLOORS = ("actors", "protocols", "runtime")
SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@cache
def module_of(file: str) -> str | None:
    """The module that a source file is, as a path below the root without its suffix; None for one that is not ours."""
    try:
        path = Path(os.path.realpath(file)).relative_to(ROOT)
    except ValueError:
        return None
    return path.with_suffix("").as_posix() if path.parts[0] in FLOORS else None


@cache
def first_entry(code: CodeType) -> int:
    """The place up to which a suspendable frame has run when it is entered for the first time."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def is_beside() -> bool:
    """Whether the task that runs reads the output, where the end of the turn before may still come in, or has the clocks."""
    return trio.lowlevel.current_task().name.endswith((*READERS, "AgentProcess._watch"))


@attrs.define
class Trace:
    """The calls of ours in order, each as its module: `down` those on the way of the prompt to stdin, `up` the others."""

    down: list[str] = attrs.field(factory=list[str])
    up: list[str] = attrs.field(factory=list[str])
    written: bool = False
    handed_on: set[trio.lowlevel.Task] = attrs.field(factory=set[trio.lowlevel.Task])

    def observe(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        module = module_of(code.co_filename)
        if module is None:
            return
        if event == "c_call" and arg is os.write and module == STDIN:
            self.written = True
        if event == "return" and code.co_qualname in HANDED_ON:
            self.handed_on.add(trio.lowlevel.current_task())
        if event != "call":
            return
        if code.co_flags & SUSPENDABLE and frame.f_lasti > first_entry(code):
            return  # it goes on after a wait, and was counted when it began
        if self.written or trio.lowlevel.current_task() in self.handed_on:
            self.up.append(module)
        elif not is_beside():
            self.down.append(module)

    @contextmanager
    def recording(self) -> Generator[None]:
        before = sys.getprofile()
        sys.setprofile(self.observe)
        try:
            yield
        finally:
            sys.setprofile(before)


def listed(heading: str) -> set[str]:
    """The modules that stand between backticks under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(rf"`((?:{'|'.join(FLOORS)})/[a-z_/]+)\.py`", section))


def bound(what: str) -> int:
    """The number of calls that the page gives for one part of the walk."""
    found = re.search(rf"at most (\d+) calls {what}", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


async def test_a_prompt_takes_the_way_that_the_page_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace()
    monkeypatch.delitem(sys.modules, TRACER, raising=False)  # other tests trace
    async with proctor.open_supervisor([agent_of(tmp_path, SCRIPT)]) as sup:
        agent = sup.agent("a")
        await agent.ask("first")  # what is made once, for the first request
        await trio.testing.wait_all_tasks_blocked(0.05)  # what follows its answer is over
        with trace.recording():
            answer = await agent.ask("hi")
    assert answer.text == "hi"
    assert trace.written
    assert set(trace.down) == listed("Down")
    assert set(trace.up) == listed("Up")
    assert len(trace.down) <= bound("down")
    assert len(trace.down) + len(trace.up) <= bound("in all")
