"""Hooks that run in the host: async functions that the CLI calls before or after its actions.

Each call gets a verdict within its deadline. A blocking hook allows something only explicitly (True, or a `HookResult` that
allows): an error, a timeout or any other value blocks, with the reason. A hook that does not block only observes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from proctor.actors.errors import BadOption
from proctor.protocols.dialect import HostHook
from proctor.protocols.vocabulary import HookCalled, HookVerdict


@attrs.frozen
class HookResult:
    """The decision of a hook. The model sees `reason` when it does not allow; `input` replaces the tool's input and
    `context` is added to the conversation, at points that accept them."""

    allow: bool = True
    reason: str = ""
    input: dict[str, Any] | None = None
    context: str = ""


HookFunction = Callable[[HookCalled], Awaitable[bool | HookResult | None]]


def _positive(instance: Hook, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadOption(f"the timeout of a hook must be above 0 seconds, got {value!r}")


def _is_point(instance: Hook, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise BadOption(f"the point of a hook is a word such as 'PreToolUse', got {value!r}")


def _is_function(instance: Hook, attribute: attrs.Attribute[HookFunction], value: object) -> None:
    if not callable(value):
        raise BadOption(f"a hook is an async function, got {value!r}")


@attrs.frozen
class Hook:
    """A hook at a `point`, in the CLI's word (Claude Code: `PreToolUse`, `PostToolUse`, `UserPromptSubmit`, `Stop`,
    ...), for the tools that `matcher` names in the CLI's pattern (None: all). `timeout` is in seconds."""

    point: str = attrs.field(validator=_is_point)
    function: HookFunction = attrs.field(validator=_is_function)
    matcher: str | None = attrs.field(default=None, kw_only=True)
    timeout: float = attrs.field(default=60.0, kw_only=True, validator=_positive)
    blocking: bool = attrs.field(default=True, kw_only=True)

    def declared(self, name: str) -> HostHook:
        """Its declaration for a dialect."""
        return HostHook(
            name=name, point=self.point, matcher=self.matcher, timeout=self.timeout, blocking=self.blocking
        )

    async def judge(self, called: HookCalled) -> HookVerdict:
        """The verdict on one call. Raises no `Exception`."""
        with trio.move_on_after(self.timeout):
            return self._verdict(called, await self._call(called))
        # Fails closed: no verdict in time blocks.
        return self._verdict(called, HookResult(False, f"it gave no verdict within {self.timeout:g} s"))

    async def _call(self, called: HookCalled) -> HookResult:
        try:
            result = await self.function(called)
        except Exception as error:  # noqa: BLE001  # the user's own function: it fails closed
            return HookResult(False, f"it failed: {error!r}")
        if isinstance(result, HookResult):
            return result
        # Only True allows: a hook that returns nothing has not decided.
        return HookResult(result is True, "" if result is True else "it did not allow it")

    def _verdict(self, called: HookCalled, result: HookResult) -> HookVerdict:
        allow = result.allow or not self.blocking
        return HookVerdict(called.id, allow, result.reason, result.input if allow else None, result.context)
