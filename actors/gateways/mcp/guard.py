"""Whoever has no token is not let in. Tokens are compared in constant time, and never told."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = "/healthz"
"""The path that needs no token."""


class Guarded:
    """An application behind `Authorization: Bearer TOKEN`."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != OPEN and not self._knows(Headers(scope=scope)):
            body = {"error": "this server wants a token: Authorization: Bearer TOKEN"}
            refusal = JSONResponse(body, status_code=401, headers={"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        given = headers.get("authorization", "").encode("latin-1")
        return hmac.compare_digest(given, self._expected)
