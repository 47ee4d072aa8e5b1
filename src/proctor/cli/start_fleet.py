"""Starts the children of a fleet, in the same way for every command that runs one.

Neighbours that are parallel start together, every other child when those before it have started or failed, as their supervisor would
start them. A child that fails does not end the starts of the others, unless the command says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio

from proctor.actors.errors import AgentError, NotExecutable, NotInstalled
from proctor.actors.fleet.fleet import Child, Fleet, Nested
from proctor.actors.fleet.schema import AgentTable, Server
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.specs import Supervisor
from proctor.cli.exit_status import innermost
from proctor.runtime.errors import StartError
from proctor.runtime.exits import DeliveryError
from proctor.runtime.spec import ChildSpec

Conclude: TypeAlias = Callable[[Child, Exception | None], Awaitable[bool]]
"""Called with each child whose start is over, and with the cause if it failed: a `DeliveryError` if the supervisor has ended.
Returns whether to go on."""


def agents_of(child: Child) -> Sequence[AgentTable]:
    """The agents in a child, at any depth."""
    if isinstance(child, Nested):
        return [member for _, member in child.members("")]
    return [] if isinstance(child, Server) else [child]


def plans_of(fleet: Fleet, record: Path | None = None) -> dict[str, Plan]:
    """The plans of the agents of a fleet, by name. `record` is the folder for recordings of those that name none. For five hundred agents
    this takes half a second."""
    return {member.name: plan_of(member.spec(record)) for _, member in fleet.members("")}


def locate_agents(plans: Iterable[Plan], *, strict: bool = False) -> None:
    """Find the command lines of a fleet. Raises the first `NotInstalled` or `NotExecutable` when none is installed, or,
    with `strict`, when one is missing."""
    refused: AgentError | None = None
    for plan in plans:
        try:
            plan.locate()
        except (NotInstalled, NotExecutable) as error:
            # the first is shown: it names the agent that stands first in the file
            refused = refused or error
            if strict:
                break
        else:
            # one that is installed is enough; the others are left out when they start
            if not strict:
                return
    if refused is not None:
        raise refused


def is_stopped(sup: Supervisor, path: str) -> bool:
    """Whether an operator has stopped the agent at this path, with the name of the root, so that its start leaves it down."""
    return sup.overrides.is_stopped(path.partition("/")[2])


async def start_children(sup: Supervisor, fleet: Fleet, record: Path | None, conclude: Conclude) -> bool:
    """Start the children of the root `sup`. Returns False as soon as `conclude` does, or raises `DeliveryError`."""
    specs = [child.spec(record) for child in fleet.children]
    for group in _groups(fleet, specs):
        async with trio.open_nursery() as nursery:
            for at in group:
                end = partial(nursery.cancel_scope.cancel, "the command ends its starts")
                await nursery.start(_start, sup, specs[at], partial(conclude, fleet.children[at]), end)
        if nursery.cancel_scope.cancel_called:
            return False
    return True


def _groups(fleet: Fleet, specs: Sequence[ChildSpec]) -> list[list[int]]:
    """The positions of the children that start together; children that depend on each other start one after another."""
    independent = (fleet.strategy or "one_for_one") == "one_for_one"
    parallel = [independent and spec.start_order == "parallel" for spec in specs]
    groups: list[list[int]] = []
    for at in range(len(specs)):
        if at > 0 and parallel[at - 1] and parallel[at]:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


async def _start(
    sup: Supervisor,
    spec: ChildSpec,
    conclude: Callable[[Exception | None], Awaitable[bool]],
    end: Callable[[], object],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    task_status.started()  # the request below is made before the next task begins: the tree keeps the order of the file
    try:
        if not await conclude(await _start_error(sup, spec)):
            end()
    except DeliveryError:
        end()


async def _start_error(sup: Supervisor, spec: ChildSpec) -> Exception | None:
    try:
        await sup.start_child(spec)
    except StartError as error:
        return innermost(error)
    except DeliveryError as error:
        return error
    return None
