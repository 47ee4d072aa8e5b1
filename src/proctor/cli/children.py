"""What a fleet brings, started: one order and one way for every command that runs a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from proctor.actors.fleet import Fleet, Nested
from proctor.actors.members import AnyMember, Server
from proctor.actors.trees import Supervisor
from proctor.cli.verdicts import innermost
from proctor.runtime.errors import StartError

Child: TypeAlias = Server | AnyMember | Nested


def children_of(fleet: Fleet) -> tuple[Child, ...]:
    """In starting order: servers stand before the agents on them."""
    return (*fleet.servers, *fleet.agents, *fleet.supervisors)


def agents_of(child: Child) -> Sequence[AnyMember]:
    """The agents that a child brings, at any depth."""
    if isinstance(child, Nested):
        return [member for _, member in child.members("")]
    return [] if isinstance(child, Server) else [child]


async def started(sup: Supervisor, child: Child, record: Path | None) -> Exception | None:
    """Start it: what kept it from starting, None when it runs. Raises `DeliveryError` when `sup` has ended meanwhile."""
    try:
        await sup.start_child(child.spec(record))
    except StartError as error:
        return innermost(error)
    return None
