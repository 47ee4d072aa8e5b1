"""proctor for asyncio programs: tools, hooks and policies.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, overload

from proctor.actors.plan.permissions import Asker, Verdict
from proctor.actors.tools.hooks import Hook as _Hook
from proctor.actors.tools.hooks import HookResult
from proctor.actors.tools.tools import Tool
from proctor.actors.tools.tools import tool as _tool
from proctor.bridge.asyncio_face import hosted
from proctor.protocols.vocabulary import ApprovalRequested, HookCalled


@overload
def tool(
    function: Callable[..., Awaitable[Any]],
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Tool: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Callable[[Callable[..., Awaitable[Any]]], Tool]: ...


def tool(
    function: Callable[..., Awaitable[Any]] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Any:
    """Make a typed coroutine function a `Tool`, bare or with options. It runs in the loop that opened the agents."""

    def made(function: Callable[..., Awaitable[Any]]) -> Tool:
        return _tool(hosted(function), name=name, description=description, timeout=timeout)

    return made if function is None else made(function)


class Hook(_Hook):
    """A hook whose function is a coroutine function, which runs in the loop that opened the agents."""

    def __init__(
        self,
        point: str,
        function: Callable[[HookCalled], Awaitable[bool | HookResult | None]],
        *,
        matcher: str | None = None,
        timeout: float = 60.0,
        blocking: bool = True,
    ) -> None:
        super().__init__(point, hosted(function), matcher=matcher, timeout=timeout, blocking=blocking)


def policy(function: Callable[[ApprovalRequested], Awaitable[bool | Verdict]]) -> Asker:
    """Make a coroutine function the `permission` of an agent. It runs in the loop that opened the agents."""
    return hosted(function)
