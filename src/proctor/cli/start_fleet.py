"""What a fleet brings, started: one order and one way for every command that runs a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from proctor.actors.errors import AgentError, NotExecutable, NotInstalled
from proctor.actors.fleet.fleet import Fleet, Nested
from proctor.actors.fleet.schema import AnyAgentTable, Server
from proctor.actors.plan.plan import Plan
from proctor.actors.specs import Supervisor
from proctor.cli.verdicts import innermost
from proctor.runtime.errors import StartError

Child: TypeAlias = Server | AnyAgentTable | Nested


def children_of(fleet: Fleet) -> tuple[Child, ...]:
    """In starting order: servers stand before the agents on them."""
    return (*fleet.servers, *fleet.agents, *fleet.supervisors)


def agents_of(child: Child) -> Sequence[AnyAgentTable]:
    """The agents that a child brings, at any depth."""
    if isinstance(child, Nested):
        return [member for _, member in child.members("")]
    return [] if isinstance(child, Server) else [child]


def locate_some(plans: Iterable[Plan], *, strict: bool = False) -> None:
    """Look for the command lines of a fleet. Raises `NotInstalled` or `NotExecutable`, as for the first of them, when none is
    there, or `strict` and one is missing."""
    refused: AgentError | None = None
    for plan in plans:
        try:
            plan.locate()
        except (NotInstalled, NotExecutable) as error:
            refused = refused or error
            if strict:
                break
        else:
            if not strict:
                return
    if refused is not None:
        raise refused


async def started(sup: Supervisor, child: Child, record: Path | None) -> Exception | None:
    """Start it: what kept it from starting, None when it runs. Raises `DeliveryError` when `sup` has ended meanwhile."""
    try:
        await sup.start_child(child.spec(record))
    except StartError as error:
        return innermost(error)
    return None
