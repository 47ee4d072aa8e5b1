"""Starts the children of a fleet, in the same order for every command that runs one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from proctor.actors.errors import AgentError, NotExecutable, NotInstalled
from proctor.actors.fleet.fleet import Child, Nested
from proctor.actors.fleet.schema import AgentTable, Server
from proctor.actors.plan.plan import Plan
from proctor.actors.specs import Supervisor
from proctor.cli.exit_status import innermost
from proctor.runtime.errors import StartError


def agents_of(child: Child) -> Sequence[AgentTable]:
    """The agents in a child, at any depth."""
    if isinstance(child, Nested):
        return [member for _, member in child.members("")]
    return [] if isinstance(child, Server) else [child]


def locate_agents(plans: Iterable[Plan], *, strict: bool = False) -> None:
    """Find the command lines of a fleet. Raises the first `NotInstalled` or `NotExecutable` when none is installed, or,
    with `strict`, when one is missing."""
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


async def start(sup: Supervisor, child: Child, record: Path | None) -> Exception | None:
    """Start a child and return the cause of a failure, None when it runs. Raises `DeliveryError` when `sup` has ended."""
    try:
        await sup.start_child(child.spec(record))
    except StartError as error:
        return innermost(error)
    return None
