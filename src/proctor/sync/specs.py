"""proctor for plain code: tools, hooks and policies.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from proctor.actors.plan.permissions import Asker, Verdict
from proctor.actors.tools.hooks import Hook as _Hook
from proctor.actors.tools.hooks import HookResult
from proctor.actors.tools.tools import Tool
from proctor.actors.tools.tools import tool as _tool
from proctor.bridge.sync_face import hosted
from proctor.protocols.vocabulary import ApprovalRequested, HookCalled


@overload
def tool(
    function: Callable[..., Any],
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
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Any:
    """Make a typed plain function a `Tool`, bare or with options. It runs in a worker thread."""

    def made(function: Callable[..., Any]) -> Tool:
        return _tool(hosted(function), name=name, description=description, timeout=timeout)

    return made if function is None else made(function)


class Hook(_Hook):
    """A hook whose function is a plain function, which runs in a worker thread."""

    def __init__(
        self,
        point: str,
        function: Callable[[HookCalled], bool | HookResult | None],
        *,
        matcher: str | None = None,
        timeout: float = 60.0,
        blocking: bool = True,
    ) -> None:
        super().__init__(point, hosted(function), matcher=matcher, timeout=timeout, blocking=blocking)


def policy(function: Callable[[ApprovalRequested], bool | Verdict]) -> Asker:
    """Make a plain function the `permission` of an agent. It runs in a worker thread."""
    return hosted(function)
