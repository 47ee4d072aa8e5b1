"""Working time: how long an agent has worked on a request, without the waits, as its event log tells.

It runs from the moment at which the prompt is sent to the end of the turn, and stands still while the request is parked. Its limit counts the same
way: an agent that waits five hours for its usage limit is not late.
"""

from __future__ import annotations

import math

import trio

from proctor.actors.agent.handle import Agent
from proctor.protocols.vocabulary import AnyEvent, Exited, Notice, Retrying, TurnEnded


class WorkingTime:
    """The clock of one request; `limit` in seconds. `is_over` is set when that is used up, `exited` is the label of the end of its process, and
    `log_ended` is set when the log of its agent has ended."""

    def __init__(self, limit: float = math.inf) -> None:
        self.is_over = False
        self.exited: str | None = None
        self.log_ended = trio.Event()
        self.retrying = 0.0
        self.waiting = 0.0
        self.starting = 0.0
        self._limit = limit
        self._begun = trio.current_time()
        self._worked = 0.0
        self._since: float | None = None
        self._parked: float | None = None
        self._changed = trio.Event()

    @property
    def seconds(self) -> float:
        """The working time until now."""
        return self._worked + (0.0 if self._since is None else trio.current_time() - self._since)

    async def follow(self, agent: Agent) -> None:
        """Read the log of the agent, from its beginning."""
        async with agent.events(since=0) as log:
            async for event in log:
                self.take(event)
        self.log_ended.set()

    def take(self, event: AnyEvent) -> None:
        """Count an event."""
        match event:
            case Notice(code="sent"):
                self._run()
            case Notice(code="parked"):
                self._stand()
                self._parked = trio.current_time() if self._parked is None else self._parked
            case TurnEnded():
                self._stand()
            case Exited():
                self._stand()
                self.exited = event.outcome
            case Retrying():
                self.retrying += event.delay
            case _:
                pass

    def stop(self) -> None:
        """The request has ended."""
        self._stand()
        if self._parked is not None:
            self._unpark()

    async def wait_over(self) -> None:
        """Return when the limit is used up."""
        while (left := self._limit - self.seconds) > 0 or self._since is None:
            self._changed = trio.Event()
            with trio.move_on_after(math.inf if self._since is None else left):
                await self._changed.wait()
        self.is_over = True

    def _run(self) -> None:
        now = trio.current_time()
        if self._parked is not None:
            self._unpark()
        elif self._since is None and not self._worked:
            self.starting = now - self._begun
        self._since = now if self._since is None else self._since
        self._changed.set()

    def _unpark(self) -> None:
        if self._parked is not None:
            self.waiting += trio.current_time() - self._parked
        self._parked = None

    def _stand(self) -> None:
        if self._since is not None:
            self._worked += trio.current_time() - self._since
        self._since = None
        self._changed.set()
