"""The children of a program on the real runtime: they live as their `Life` says."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from proctor.runtime import (
    IGNORE,
    Actor,
    Continue,
    Exit,
    ExitReason,
    ExitStatus,
    Normal,
    Shutdown,
    current_actor,
)
from tests.simulation.program import Life, Program, Worker

ENDS: Mapping[str, ExitReason] = {
    "normal": Normal(),
    "shutdown": Shutdown("on purpose"),
    "status": ExitStatus(1),
}


class Boom(Exception):
    """A failure on purpose."""


def _fail(end: str) -> None:
    if end == "interrupt":
        raise KeyboardInterrupt
    raise Exit(ENDS[end]) if end in ENDS else Boom(end)


class Played(Actor):
    """An actor that can be killed while it cleans up."""

    async def init(self, program: Program, node: Worker) -> object:
        self.program, self.life = program, node.life(self.incarnation)
        return await _start(program, self.life) or Continue()

    async def handle_continue(self, arg: object) -> None:
        if self.life.lasts is not None:
            await trio.sleep(_length(self.program, max(1, self.life.lasts), "life"))
            _fail(self.life.end)

    async def terminate(self, reason: ExitReason) -> None:
        await _clean_up(self.program, self.life)


async def stubborn(program: Program, node: Worker, *, task_status: trio.TaskStatus[None]) -> object:
    """A function that nobody can kill while it cleans up."""
    life = node.life(current_actor().incarnation)
    try:
        if await _start(program, life):
            return IGNORE
        task_status.started()
        await _last(program, life)
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await _clean_up(program, life)
        raise
    _fail(life.end)
    return None


async def _start(program: Program, life: Life) -> object:
    if life.start == "shielded":
        with trio.CancelScope(shield=True):
            await trio.sleep(_length(program, life.after, "start"))
    elif life.after:
        await trio.sleep(_length(program, life.after, "start"))
    if life.start == "hangs":
        await trio.sleep_forever()
    if life.start == "fails":
        raise Boom("start")
    return IGNORE if life.start == "ignores" else None


async def _last(program: Program, life: Life) -> None:
    if life.lasts is None:
        await trio.sleep_forever()
    else:
        await trio.sleep(_length(program, max(1, life.lasts), "life"))


async def _clean_up(program: Program, life: Life) -> None:
    if life.cleanup:
        await trio.sleep(_length(program, life.cleanup, "cleanup"))
    if life.spoiled:
        raise Boom("cleanup")


def _length(program: Program, ticks: int, what: str) -> float:
    actor = current_actor()
    return program.moment(ticks, actor.path, actor.incarnation, what)
