"""Stops and starts agents of a running tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from proctor.actors.gateways.http.problems import problem
from proctor.actors.specs import Supervisor
from proctor.runtime.supervision import Supervisor as Nested

Command = Literal["stop", "start", "restart"]


@attrs.frozen
class Lifecycle:
    """Stops and starts agents of `tree`; `paths` has the path of each below it, by name.

    The supervisor of an agent carries out the command itself, so no restart is counted and its other children are not
    affected. Commands to one supervisor run one after the other. A stopped agent stays down until it is started; `stopped` has those.
    """

    tree: Supervisor
    paths: Mapping[str, str]
    stopped: set[str] = attrs.field(factory=set[str])

    async def stop(self, agent: str) -> None:
        """Stop it step by step. Does nothing when it is down."""
        supervisor, id = self._find(agent)
        self.stopped.add(agent)
        await supervisor.terminate_child(id)

    async def start(self, agent: str) -> None:
        """Start one that is down. Raises `Running`, `Restarting`, `StartError`; `NotFound` for a temporary one that has ended."""
        supervisor, id = self._find(agent)
        await supervisor.restart_child(id)
        self.stopped.discard(agent)

    async def restart(self, agent: str) -> None:
        """Stop it and start it again. Raises as `start` does, and `Problem` for a temporary one, which keeps running."""
        supervisor, id = self._find(agent)
        if (await supervisor.get_childspec(id)).restart == "temporary":
            detail = f"agent {agent!r} is temporary: its supervisor removes it when it ends and cannot start it again"
            raise problem(409, "temporary", detail, "stop it instead")
        await supervisor.terminate_child(id)
        await supervisor.restart_child(id)
        self.stopped.discard(agent)

    def _find(self, agent: str) -> tuple[Nested, str]:
        above, _, id = self.paths[agent].rpartition("/")
        return (self.tree.supervisor(above) if above else self.tree), id
