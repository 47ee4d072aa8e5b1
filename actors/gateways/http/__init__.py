"""Agents of a running tree over HTTP: their states, turns, events and open approvals; see docs/guides/serve-over-http.md.

async with open_gateway({"a": sup.agent("a")}) as gateway:
    await serve(AuthMiddleware(application(gateway), where), bound, shutdown=shutdown)
"""

from __future__ import annotations

from proctor.actors.gateways.http.auth import AuthMiddleware, check_listen_address
from proctor.actors.gateways.http.endpoints import application
from proctor.actors.gateways.http.gateway import Gateway, Hooks, open_gateway
from proctor.actors.gateways.http.lifecycle import Lifecycle
from proctor.actors.gateways.http.probes import CanAnswer, Check, HealthChecks, Probes
from proctor.actors.gateways.http.session_turns import SessionTurns

__all__ = [
    "AuthMiddleware",
    "CanAnswer",
    "Check",
    "Gateway",
    "HealthChecks",
    "Hooks",
    "Lifecycle",
    "Probes",
    "SessionTurns",
    "application",
    "check_listen_address",
    "open_gateway",
]
