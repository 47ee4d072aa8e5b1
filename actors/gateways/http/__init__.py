"""Agents of a running tree over HTTP: their states, turns, events and open questions; see docs/guides/serve-over-http.md.

async with open_gateway({"a": sup.agent("a")}) as gateway:
    await serve(Entrance(application(gateway), where), bound, shutdown=shutdown)
"""

from __future__ import annotations

from proctor.actors.gateways.http.application import application
from proctor.actors.gateways.http.auth import Entrance, check_door
from proctor.actors.gateways.http.gateway import Gateway, Hooks, open_gateway
from proctor.actors.gateways.http.health_checks import Check, Looks
from proctor.actors.gateways.http.lifecycle import Steering
from proctor.actors.gateways.http.probes import Probes
from proctor.actors.gateways.http.session_turns import Rooms

__all__ = [
    "Check",
    "Entrance",
    "Gateway",
    "Hooks",
    "Looks",
    "Probes",
    "Rooms",
    "Steering",
    "application",
    "check_door",
    "open_gateway",
]
