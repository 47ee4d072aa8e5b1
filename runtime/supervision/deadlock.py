"""Deadlock check: the actors that cannot stop before the current task returns.

A task counts for the child in whose task it runs or that waits for it, and so for every supervisor above. What an
actor runs in its own nurseries does not count: that is cancelled when the actor ends, and delays no end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Protocol

import trio

from proctor.runtime.messaging import CONTEXT
from proctor.runtime.supervision.child import Incarnation


class StandIn(Protocol):
    """A task that stands in for the supervisor whose children it owns, and the incarnation of that supervisor."""

    task: trio.lowlevel.Task
    incarnation: Incarnation | None


STAND_IN: Final[ContextVar[StandIn | None]] = ContextVar("proctor.stand_in", default=None)
"""What the current task stands in for."""


def waited_for() -> Iterator[Incarnation]:
    """The incarnations that cannot end before the current task goes on, innermost first."""
    # Up the tree of tasks: a task belongs to the child in whose task its nurseries hang.
    task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
    nursery: trio.Nursery | None = None
    while task is not None:
        incarnation = _living_in(task)
        if incarnation is not None:
            # Tasks in the actor's own nurseries are cancelled by its end, so they do not hold it up; nor does
            # anything above.
            if nursery is not None and incarnation.owns(nursery):
                return
            yield incarnation
        nursery = task.parent_nursery
        task = None if nursery is None else nursery.parent_task


def _living_in(task: trio.lowlevel.Task) -> Incarnation | None:
    stand_in = task.context.get(STAND_IN)
    if stand_in is not None and stand_in.task is task:
        return stand_in.incarnation
    context = task.context.get(CONTEXT)
    control = None if context is None else context.ref.endpoint.control
    # A task inherits its parent's context, so the context alone does not say that this is the child's main
    # task.
    if isinstance(control, Incarnation) and control.endpoint.task is task:
        return control
    return None
