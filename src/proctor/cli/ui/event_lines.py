"""The events of one agent as they come from a host, in lines as `up` shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.cli.ui.fleet_log import AgentSummary, FleetNarrator
from proctor.protocols.vocabulary import AnyEvent


def event_lines(agent: str) -> Callable[[Mapping[str, Any]], Sequence[str]]:
    """A function that makes the lines of an event; it keeps what later ones need to know of earlier ones."""
    narrator = FleetNarrator("", time.monotonic, time.time)
    narrator.agents[agent] = AgentSummary()

    def lines(event: Mapping[str, Any]) -> Sequence[str]:
        decoded: Any = msgspec.convert(event, AnyEvent)
        return [line.text for line in narrator.of_agent(agent, [decoded])]

    return lines
