"""Who may come in, before anything is read: the token, the name that was asked for, the page that asks.

A server on loopback is reached by every page of the user's browser: by its own origin, and, once a foreign name was
made to point here, without one. So a `Host` that is not ours is refused there, and an `Origin` everywhere, unless it
is allowed. With a token, every request but `GET /healthz` carries it.

Guarantees: a token is compared in a time that tells nothing of it; `Entrance` cannot be made for an open address
without one. A WebSocket is refused: there is none here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor.actors.errors import BadOption
from proctor.actors.gateways.http.problems import Problem, problem, told
from proctor.actors.web_server.connections import admit, admit_by_request
from proctor.actors.web_server.listening import Endpoint

OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::[0-9]*)?")
WITHOUT_TOKEN = "/healthz"
PREFLIGHT: Mapping[str, str] = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type, last-event-id, prefer",
    "access-control-max-age": "600",
}


def check_door(where: Endpoint, token: str | None) -> None:
    """Raises `BadOption` for an address that others can reach without a token, and for a token that can be guessed."""
    if token is None and not where.private:
        raise BadOption(f"{where} can be reached from other machines: that needs a token")
    if token is not None and len(token) < 16:
        raise BadOption("a token has 16 characters or more")


class Entrance:
    """`application` behind the door of `where`. `origins` are those of pages that may ask, `hosts` further names of ours.

    Raises `BadOption` as `check_door` does.
    """

    def __init__(
        self,
        application: ASGIApp,
        where: Endpoint,
        *,
        token: str | None = None,
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
    ) -> None:
        check_door(where, token)
        self._application = application
        self._token = None if token is None else _digest(token.encode())
        self._origins = frozenset(origins)
        checked = where.private and where.path is None
        self._hosts = frozenset((*OWN_NAMES, where.host, *hosts)) if checked else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] == "lifespan":
            admit_by_request(scope)
            await self._application(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        try:
            self._check_host(headers)
            self._check_origin(origin)
            if origin is not None and scope["method"] == "OPTIONS":
                response = Response(status_code=204, headers=PREFLIGHT)
                await response(scope, receive, _naming(origin, send))
                return
            known = self._check_token(scope["path"], headers)
        except Problem as error:
            await told(error)(scope, receive, send)
            return
        if known:
            admit(scope)
        await self._application(scope, receive, send if origin is None else _naming(origin, send))

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            raise problem(
                421, "foreign-host", f"this server is not {host!r}", "ask for it by localhost", where="Host"
            )

    def _check_origin(self, origin: str | None) -> None:
        if origin is not None and origin not in self._origins:
            raise problem(
                403,
                "foreign-origin",
                f"pages of {origin!r} may not ask this server",
                "let the server allow this origin, or ask from outside of a browser",
                where="Origin",
            )

    def _check_token(self, path: str, headers: Headers) -> bool:
        """Whether the client has shown all that is asked for; False where nothing is asked for this path alone."""
        if self._token is None:
            return True
        if path == WITHOUT_TOKEN:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            _digest(given.strip().encode("latin-1")), self._token
        ):
            raise problem(
                401,
                "unauthorized",
                "the token is missing or wrong",
                "send the header Authorization: Bearer TOKEN",
                where="Authorization",
                headers={"www-authenticate": 'Bearer realm="proctor"'},
            )
        return True


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _name(host: str) -> str:
    """Of `name:port` or `[address]:port`, empty for what is neither."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"]).lower()


def _naming(origin: str, send: Send) -> Send:
    async def named(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return named
