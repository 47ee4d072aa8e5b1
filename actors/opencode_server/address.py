"""The address of an opencode server, and HTTP clients for it.

Needs the extra `opencode` where a client is made, not before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import trio

from proctor.protocols.opencode.serve.launch import DISPOSE

if TYPE_CHECKING:
    import httpx

DISPOSAL = 2.0
"""Seconds in which the server ends its sessions."""
SILENCE = 30.0
"""Seconds without a byte, heartbeats included, after which the event stream counts as broken."""
REQUEST = 30.0
"""Time limit of a request, in seconds."""


@attrs.frozen
class GetAddress:
    """A call to the actor of a server; the reply is its `Address`."""


@attrs.frozen
class Address:
    """The URL of a server, its credentials, and the id of its process."""

    url: str
    user: str
    password: str = attrs.field(repr=False)
    pid: int | None = None


def client_of(address: Address) -> httpx.AsyncClient:
    """A client for one server, which is on this machine: no proxy, no certificates."""
    import httpx

    return httpx.AsyncClient(
        base_url=address.url,
        auth=httpx.BasicAuth(address.user, address.password),
        timeout=httpx.Timeout(REQUEST, read=SILENCE),
        trust_env=False,
        verify=False,  # plain HTTP: loading the certificates would delay the first turn
    )


async def dispose(address: Address) -> None:
    """End all sessions of a server, within `DISPOSAL` seconds; a server that does not reply is left to its guard."""
    import httpx

    # the guard ends the server in any case; this only lets it close its sessions first
    with trio.move_on_after(DISPOSAL), suppress(httpx.HTTPError):
        async with client_of(address) as client:
            await client.post(DISPOSE)
