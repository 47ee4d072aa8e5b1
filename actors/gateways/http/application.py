"""The routes of a gateway as one ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.actors.gateways.http.document import body_schemas
from proctor.actors.gateways.http.endpoints import Endpoints
from proctor.actors.gateways.http.gateway import Gateway
from proctor.actors.gateways.http.operations import OPERATIONS
from proctor.actors.gateways.http.problems import NAMES, Problem, on_error, on_http

Endpoint = Callable[[Request], Awaitable[Response]]


def application(gateway: Gateway) -> Starlette:
    """The application of a gateway, to be wrapped in an `AuthMiddleware`. Raises `BadOption` without the extra `http`."""
    endpoints = Endpoints(gateway, body_schemas())
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = getattr(endpoints, operation.endpoint)
    routes = [Route(path, _by_method(methods), methods=list(methods)) for path, methods in paths.items()]
    kinds: tuple[type[Exception], ...] = (Problem, *NAMES, Exception)
    handlers: dict[Any, Any] = {HTTPException: on_http, **dict.fromkeys(kinds, on_error)}
    return Starlette(routes=[*routes, *gateway.hooks.routes], exception_handlers=handlers)


def _by_method(endpoints_by_method: Mapping[str, Endpoint]) -> Endpoint:
    """One route for all methods of a path, so that the 405 response lists all of them."""

    async def dispatch(request: Request) -> Response:
        return await endpoints_by_method["GET" if request.method == "HEAD" else request.method](request)

    return dispatch
