"""Programs as children, and a `task_status` without a supervisor, for the tests of readiness."""

from __future__ import annotations

import sys
from typing import Any

import attrs
import pytest
import trio

from proctor.runtime.exits import Exit, Normal
from proctor.runtime.processes.process import Process
from proctor.runtime.processes.readiness import Readiness
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.child import Delegate
from proctor.runtime.supervision.program import process
from tests.runtime.programs import ENV


def shell(script: str, ready: Readiness, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"id": "p", "name": "p", "env": ENV, "restart": "temporary"}
    return process(("sh", "-c", script), ready=ready, **(fields | spec))


def program(source: str, ready: Readiness, *argv: str, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"id": "p", "name": "p", "env": ENV, "restart": "temporary"}
    return process((sys.executable, "-I", "-S", "-c", source, *argv), ready=ready, **(fields | spec))


@attrs.define
class Recorder:
    """A `task_status` that notes what it is told."""

    delegate: Delegate | None = None
    last_words: bytes = b""
    told: list[object] = attrs.field(factory=list[object])
    news: trio.Event = attrs.field(factory=trio.Event)
    process: Process | None = None

    def started(self, value: object = None) -> None:
        assert isinstance(value, Process)
        self.process = value
        self._note("started")

    def beat(self) -> None:
        self._note("beat")

    def extend(self, seconds: float) -> None:
        self._note(seconds)

    def ready(self, is_ready: bool = True) -> None:
        self._note(is_ready)

    def _note(self, what: object) -> None:
        self.told.append(what)
        self.news.set()
        self.news = trio.Event()

    async def until(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.told) < count:
                await self.news.wait()


async def ending_with(reason: object, start: Any, status: Recorder) -> None:
    if reason == Normal():
        await start(task_status=status)
        return
    with pytest.raises(Exit) as ended:
        await start(task_status=status)
    assert ended.value.reason == reason
