"""Authentication and origin checks, before the body of a request is read.

Every page in the user's browser can send requests to a server on loopback: from its own origin, or without one after DNS
rebinding. So a foreign `Host` is refused on loopback, and an `Origin` that is neither this server nor allowed is refused everywhere. With a
token, every request must carry it but `GET /healthz` and the files of the web page. `AuthMiddleware` refuses to serve a public address without a token.
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
from proctor.actors.gateways.http.problems import Problem, problem, to_response
from proctor.actors.tracing.tracing import below_caller
from proctor.actors.web_server.connections import admit, admit_by_request
from proctor.actors.web_server.listening import Endpoint

OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::[0-9]*)?")
PUBLIC_PATHS = re.compile(r"/(healthz|static/.*)?")
"""What needs no token: the sign of life, and the files of the web page, in which the token is then typed."""
PREFLIGHT: Mapping[str, str] = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type, last-event-id, prefer",
    "access-control-max-age": "600",
}


def check_listen_address(where: Endpoint, token: str | None) -> None:
    """Raise `BadOption` for a public address without a token, and for a token that is too short."""
    if token is None and not where.private:
        raise BadOption(f"{where} can be reached from other machines: it needs a token")
    if token is not None and len(token) < 16:
        raise BadOption("the token is too short: use 16 characters or more")


class AuthMiddleware:
    """An ASGI application that checks each request at `where` before it reaches `application`.

    `origins` are the allowed origins of web pages, `hosts` are further names of this server. Raises `BadOption` as
    `check_listen_address` does.
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
        check_listen_address(where, token)
        self._application = application
        self._token = None if token is None else _digest(token.encode())
        self._origins = frozenset(origins)
        self._hosts = frozenset((*OWN_NAMES, where.host, *hosts))
        self._host_is_checked = where.private and where.path is None

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
            self._check_origin(origin, headers.get("host", ""))
            if origin is not None and scope["method"] == "OPTIONS":
                # A preflight has no token: browsers send none with it.
                response = Response(status_code=204, headers=PREFLIGHT)
                await response(scope, receive, _with_cors(origin, send))
                return
            authenticated = self._check_token(scope["path"], headers)
        except Problem as error:
            await to_response(error)(scope, receive, send)
            return
        if authenticated:
            # Only now: the connection counts as authenticated, and leaves the limit for strangers.
            admit(scope)
        with below_caller(headers):
            await self._application(scope, receive, send if origin is None else _with_cors(origin, send))

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._host_is_checked and _name(host) not in self._hosts:
            # Against DNS rebinding: a page of another site must not reach this server under its own name.
            raise problem(421, "foreign-host", f"unknown Host {host!r}", "use localhost", where="Host")

    def _check_origin(self, origin: str | None, host: str) -> None:
        if origin is None or origin in self._origins or self._is_own(origin, host):
            return
        raise problem(
            403,
            "foreign-origin",
            f"origin {origin!r} is not allowed",
            "allow this origin on the server, or send the request from outside a browser",
            where="Origin",
        )

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether this server sent the page of that origin: then it is the host that the page now asks."""
        # A foreign name that was made to point here is its own host, too: only the token keeps its pages out, which
        # they do not have, or the name itself.
        trusted = self._token is not None or _name(host) in self._hosts
        return trusted and origin in (f"http://{host}", f"https://{host}")

    def _check_token(self, path: str, headers: Headers) -> bool:
        """Whether the client is authenticated; False for a path that needs no token."""
        if self._token is None:
            return True
        if PUBLIC_PATHS.fullmatch(path):
            return False
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # digests have one length, so the time of the comparison says nothing about the token
        same = hmac.compare_digest(_digest(token.strip().encode("latin-1")), self._token)
        if scheme.lower() != "bearer" or not same:
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
    """The host of `name:port` or `[address]:port`, empty for other texts."""
    match = _HOST.fullmatch(host)
    return "" if match is None else (match["address"] or match["name"]).lower()


def _with_cors(origin: str, send: Send) -> Send:
    async def send_with_cors(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return send_with_cors
