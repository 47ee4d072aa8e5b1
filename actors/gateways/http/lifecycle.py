"""The commands of an operator to the agents of a running tree."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import attrs
import trio

from proctor.actors.gateways.http.problems import problem
from proctor.actors.specs import Supervisor
from proctor.runtime.errors import Restarting, Running
from proctor.runtime.exits import NoProc
from proctor.runtime.supervision import Supervisor as Nested

Command = Literal["stop", "start", "restart", "park", "unpark", "kill", "reset"]


@attrs.frozen
class Lifecycle:
    """Carries out commands to agents of `tree`; `paths` has the path of each below it, by name.

    The supervisor of an agent stops and starts it itself, so no restart is counted and its other children are not
    affected. Commands to one supervisor run one after the other. A stopped agent stays down until it is started, and a parked
    one is held back until it is let go: also in the next host, where the tree has a store.
    """

    tree: Supervisor
    paths: Mapping[str, str]

    async def stop(self, agent: str) -> None:
        """Stop it step by step. Does nothing when it is down."""
        try:
            # First, so that a restart of its supervisor meanwhile leaves it down.
            await self.tree.overrides.stop(self.paths[agent])
        finally:  # also where that cannot be kept for the next host
            supervisor, id = self._find(agent)
            await supervisor.terminate_child(id)

    async def start(self, agent: str) -> None:
        """Start one that is down. Raises `Running`, `Restarting`, `StartError`; `NotFound` for a temporary one that has ended."""
        await self.tree.overrides.start(self.paths[agent])
        supervisor, id = self._find(agent)
        await supervisor.restart_child(id)

    async def restart(self, agent: str) -> None:
        """Stop it and start it again. Raises as `start` does, and `Problem` for a temporary one, which keeps running."""
        supervisor, id = self._find(agent)
        if (await supervisor.get_childspec(id)).restart == "temporary":
            detail = f"agent {agent!r} is temporary: its supervisor removes it when it ends and cannot start it again"
            raise problem(409, "temporary", detail, "stop it instead")
        await supervisor.terminate_child(id)
        await self.start(agent)

    async def park(self, agent: str, *, reason: str, until: float | None) -> None:
        """Hold it back: a running turn goes on, and what waits is sent when the agent is let go or `until` (Unix seconds) has passed."""
        await self.tree.overrides.hold(self.paths[agent], reason, until)

    async def unpark(self, agent: str) -> None:
        """Let it go. Does nothing when it is not held back."""
        await self.tree.overrides.release(self.paths[agent])

    async def kill(self, agent: str) -> None:
        """Kill it with its processes, at once; its supervisor does what it does after a crash. Raises `NoProc` when it is down."""
        ref = self.tree.child(self.paths[agent]).ref()
        if (state := self.tree.agent(agent).kept_state()) is not None:
            # now: until it is back nothing else says what became of its turn
            state.evolve(evidence="killed by hand", since=trio.current_time())
        with ref.monitor() as monitor:
            ref.kill()
            await monitor

    async def reset(self, agent: str) -> None:
        """Forget its restarts, and start it unless it works: one that was given up with the supervisors above it, that waits for its
        restart, or that has failed. Raises `StartError`."""
        await self.tree.overrides.start(self.paths[agent])
        supervisor: Nested = self.tree
        *above, id = self.paths[agent].split("/")
        for nested in above:
            try:
                supervisor = supervisor.supervisor(nested)
            except NoProc:  # it has given up: its start starts all below it
                return await _revive(supervisor, nested)
        state = self.tree.agent(agent).kept_state()
        if state is not None and state.status.state == "failed":
            await supervisor.terminate_child(id)
        return await _revive(supervisor, id)

    def is_stopped(self, agent: str) -> bool:
        """Whether an operator has stopped it."""
        return agent in self.paths and self.tree.overrides.is_stopped(self.paths[agent])

    def _find(self, agent: str) -> tuple[Nested, str]:
        above, _, id = self.paths[agent].rpartition("/")
        return (self.tree.supervisor(above) if above else self.tree), id


async def _revive(supervisor: Nested, id: str) -> None:
    await supervisor.forget_restarts(id)
    with suppress(Running, Restarting):
        await supervisor.restart_child(id)
