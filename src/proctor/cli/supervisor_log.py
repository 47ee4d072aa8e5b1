"""Writes the events of a fleet's supervisors to the log of the program, one record each, with its facts as fields."""

from __future__ import annotations

import logging
import time

import trio

from proctor.actors.fleet.fleet import Fleet
from proctor.actors.specs import Supervisor
from proctor.cli.ui.fleet_log import FleetNarrator, describe_exit
from proctor.cli.unavailable import UnavailableAgents
from proctor.runtime.events import ChildRestarting, SupervisorEvent

BUFFER = 10_000
"""Events that may wait to be logged."""


class SupervisorLogger:
    """Logs the events of one fleet with `logger`, and updates `unavailable` from them."""

    def __init__(self, fleet: Fleet, unavailable: UnavailableAgents, logger: logging.Logger) -> None:
        self.narrator = FleetNarrator.of_fleet(fleet, trio.current_time, time.time)
        self._unavailable = unavailable
        self._log = logger

    async def follow(
        self, sup: Supervisor, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Log what happens until the tree has ended."""
        with sup.events(BUFFER) as events:
            # subscribed before the caller starts the first child, whose start would else be missed
            task_status.started()
            async for event in events:
                # before the line is written: who reads the log and then asks /readyz must see the same
                self._unavailable.on_event(event)
                self._write(event)

    def _write(self, event: SupervisorEvent) -> None:
        line = self.narrator.of_tree(event)
        if line is None:
            return
        reason = getattr(event, "reason", None)
        facts: dict[str, object] = {
            "event": event.kind,
            "child": line.who,
            "cause": None if reason is None else describe_exit(reason),
        }
        if isinstance(event, ChildRestarting):
            facts.update(attempt=event.attempt, delay=event.delay)
        bad = line.tone == "bad" or isinstance(event, ChildRestarting)
        self._log.log(logging.WARNING if bad else logging.INFO, "%s: %s", line.who, line.text, extra=facts)
