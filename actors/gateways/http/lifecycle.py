"""Stopping and starting agents of the tree, by their supervisors.

Guarantees: it is their own supervisor that does it, so that nothing it watches over is disturbed and no restart is counted;
what is asked at one time is done one after the other. An agent that is stopped stays down until it is started.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from proctor.actors.gateways.http.problems import problem
from proctor.actors.specs import Supervisor
from proctor.runtime.supervision import Supervisor as Nested


@attrs.frozen
class Steering:
    """The agents of `tree` that can be steered: `paths` has the path of each below it, by name."""

    tree: Supervisor
    paths: Mapping[str, str]

    async def stop(self, agent: str) -> None:
        """Down its ladder. Does nothing to one that is down."""
        supervisor, id = self._place(agent)
        await supervisor.terminate_child(id)

    async def start(self, agent: str) -> None:
        """One that is down. Raises `Running`, `Restarting`, `StartError`; `NotFound` for a temporary one: it is forgotten."""
        supervisor, id = self._place(agent)
        await supervisor.restart_child(id)

    async def restart(self, agent: str) -> None:
        """Stop it and start it again. Raises as `start` does, and `Problem` for a temporary one, which goes on."""
        supervisor, id = self._place(agent)
        if (await supervisor.get_childspec(id)).restart == "temporary":
            detail = f"agent {agent!r} is temporary: its supervisor forgets it with its end, and could not start it again"
            raise problem(409, "temporary", detail, "stop it, if it is to end")
        await supervisor.terminate_child(id)
        await supervisor.restart_child(id)

    def _place(self, agent: str) -> tuple[Nested, str]:
        above, _, id = self.paths[agent].rpartition("/")
        return (self.tree.supervisor(above) if above else self.tree), id
