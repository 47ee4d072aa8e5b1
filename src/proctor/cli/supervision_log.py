"""What the supervisors of a fleet do, in the program's log: a line each, with its facts as fields."""

from __future__ import annotations

import logging
import time

import trio

from proctor.actors.fleet.fleet import Fleet
from proctor.actors.specs import Supervisor
from proctor.cli.absent import Absent
from proctor.cli.ui.fleet_log import Story, told
from proctor.runtime.events import ChildRestarting, SupervisorEvent

BUFFER = 10_000
"""Events that may wait to be logged."""


class FleetLog:
    """Follows the tree of `fleet` for `absent`, too. The records are those of `logger`, `event` is the event's kind."""

    def __init__(self, fleet: Fleet, absent: Absent, logger: logging.Logger) -> None:
        self._story = Story(fleet, trio.current_time, time.time)
        self._absent = absent
        self._log = logger

    async def follow(
        self, sup: Supervisor, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Log what happens until the tree has ended."""
        with sup.events(BUFFER) as events:
            task_status.started()
            async for event in events:
                self._absent.hear(event)
                self._write(event)

    def _write(self, event: SupervisorEvent) -> None:
        line = self._story.of_tree(event)
        if line is None:
            return
        reason = getattr(event, "reason", None)
        facts: dict[str, object] = {
            "event": event.kind,
            "child": line.who,
            "cause": None if reason is None else told(reason),
        }
        if isinstance(event, ChildRestarting):
            facts.update(attempt=event.attempt, delay=event.delay)
        bad = line.tone == "bad" or isinstance(event, ChildRestarting)
        self._log.log(logging.WARNING if bad else logging.INFO, "%s: %s", line.who, line.text, extra=facts)
