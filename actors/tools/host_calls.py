"""Calls of a CLI to this host: its tools are run, its hooks are called.

Each request gets one answer, or is withdrawn, which cancels it. Each runs in a task of its process, so reading never waits, and
under the deadline of the tool or hook. While one is open the clock of silence does not run (`Memo.calls`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import trio

from proctor.actors.errors import BadOption, NotExecuted
from proctor.actors.tools.hooks import Hook
from proctor.actors.tools.tools import NO_CONTEXT, Tool, ToolContext
from proctor.protocols.dialect import HostHook, HostTool, Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    AnyRequest,
    HookCalled,
    HookVerdict,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
)

HostCall = ToolRequested | HookCalled
Send = Callable[[AnyRequest], Awaitable[None]]


class Note(Protocol):
    """Writes a notice of the host into the log: `code` is stable, `text` is for people."""

    def __call__(self, code: str, text: str, **data: Any) -> None: ...


def tool_context(agent: str, values: Mapping[str, str], memo: Memo, call: ToolRequested) -> ToolContext:
    """The context of a tool's call in the conversation of `memo`."""
    prompts = next((turn.prompts for turn in memo.open_turns if turn.id == call.turn), memo.prompts)
    return ToolContext(
        agent=agent,
        values=values,
        session_id=memo.session_id,
        turn=call.turn,
        prompts=tuple(prompts),
        call=call.id,
    )


def _no_context(call: ToolRequested) -> ToolContext:
    return NO_CONTEXT


class HostCalls:
    """Runs the tools and hooks of one incarnation; `send` writes an answer and raises `Misuse` or `NotExecuted`;
    `context` is for the tools that ask who calls."""

    def __init__(
        self,
        tools: Iterable[Tool],
        hooks: Sequence[Hook],
        send: Send,
        note: Note,
        context: Callable[[ToolRequested], ToolContext] = _no_context,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._hooks = {hook.name: call for hook, call in zip(declare_hooks(hooks), hooks, strict=True)}
        self._send = send
        self._note = note
        self._context = context
        self._scopes: dict[str, trio.CancelScope] = {}

    def take(self, call: HostCall, nursery: trio.Nursery) -> None:
        """Start a call; never waits."""
        # Noted before the task runs: a withdrawal may come at once.
        scope = self._scopes[call.id] = trio.CancelScope()
        nursery.start_soon(self._serve, call, scope)

    def withdraw(self, withdrawn: RequestWithdrawn) -> None:
        """Cancel a call whose answer is not needed any more."""
        if (scope := self._scopes.get(withdrawn.id)) is not None:
            scope.cancel("the CLI withdrew the request")

    async def _serve(self, call: HostCall, scope: trio.CancelScope) -> None:
        answer: ToolReturn | HookVerdict | None = None
        try:
            with scope:
                answer = await self._answer(call)
        finally:
            self._scopes.pop(call.id, None)  # before the answer: half a written answer cannot be withdrawn
        if answer is not None:
            await self._give(call, answer)

    async def _give(self, call: HostCall, answer: ToolReturn | HookVerdict) -> None:
        try:
            await self._send(answer)
        except (Misuse, NotExecuted):
            return  # withdrawn meanwhile, or the process is gone: the answer is not needed
        if isinstance(call, HookCalled) and isinstance(answer, HookVerdict):
            text = f"{'let it go on' if answer.allow else 'blocked'}{answer.reason and ': '}{answer.reason}"
            self._note("hook", f"{call.hook} {text}", id=answer.id, allow=answer.allow)

    async def _answer(self, call: HostCall) -> ToolReturn | HookVerdict:
        if isinstance(call, HookCalled):
            hook = self._hooks.get(call.hook)
            unknown = HookVerdict(call.id, allow=False, reason=f"this host has no hook {call.hook!r}")
            return unknown if hook is None else await hook.judge(call)
        tool = self._tools.get(call.tool)
        if tool is None:
            return ToolReturn(call.id, f"this host has no tool {call.tool!r}", is_error=True)
        result = await tool.run(call.input, self._context(call))
        return ToolReturn(call.id, result.text, result.is_error)


def declare_tools(tools: Iterable[object]) -> tuple[HostTool, ...]:
    """The declarations of these tools for a dialect. Raises `BadOption` for other values, and for a name used twice."""
    found: dict[str, HostTool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise BadOption(f"host_tools holds what the tool decorator made, got {tool!r}")
        if tool.name in found:
            raise BadOption(f"two host_tools are named {tool.name!r}")
        found[tool.name] = tool.declared
    return tuple(found.values())


def declare_hooks(hooks: Iterable[object]) -> tuple[HostHook, ...]:
    """The declarations of these hooks for a dialect, each with a name of its own. Raises `BadOption` for other values."""
    found: list[HostHook] = []
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise BadOption(f"hooks holds records of Hook, got {hook!r}")
        found.append(hook.declared(f"{hook.point}.{len(found) + 1}"))
    return tuple(found)
