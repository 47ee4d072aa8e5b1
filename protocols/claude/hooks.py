"""The host's hooks as Claude Code calls them back, and the replies that each of its points takes.

Guarantees: a blocking hook is either kept or the session is refused. It is kept where its point is called
back at all, where the CLI can be stopped there, and where the CLI blocks when the hook's reply is an error
(`hook_on_failure_supported` in the reply to `initialize`; 2.1.197 lets the tool run instead). The CLI's own clock for
a hook is longer than the host's, so that the host's verdict comes first and says why.

What a verdict becomes depends on the point alone: see `POINTS`. An input where none can be replaced, and a context
where none is taken, are left out. `continue: false` is never used: the tool that the hook stands before would run.

Not here: running a hook, and its deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs

from proctor.protocols.claude.replies import agreed
from proctor.protocols.claude.turns import state_of
from proctor.protocols.claude.wire import ControlRequest
from proctor.protocols.dialect import HostHook, Launch, Memo, Out
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import HookCalled, HookVerdict

GRACE = 5.0
"""Seconds that the CLI waits for a hook longer than the host does."""


@attrs.frozen(kw_only=True)
class Point:
    """The replies that the CLI takes at a point. `stop`: how it is stopped there (None: it cannot be); `rewrites`: the
    tool's input can be replaced; `context`: text can be added for the model."""

    stop: Literal["permission", "decision"] | None = None
    rewrites: bool = False
    context: bool = False


POINTS: Mapping[str, Point] = {
    "PreToolUse": Point(stop="permission", rewrites=True, context=True),
    "PostToolUse": Point(stop="decision", context=True),
    "PostToolUseFailure": Point(context=True),
    "UserPromptSubmit": Point(stop="decision", context=True),
    "Stop": Point(stop="decision"),
    "SubagentStart": Point(context=True),
    "SubagentStop": Point(stop="decision"),
}
"""By the CLI's word. After a tool, `stop` means that the model reads the reason; at a stop, that the agent goes on."""

NEVER_CALLED = frozenset({"SessionStart", "SessionEnd"})
"""Points outside of the life of the connection: the CLI takes such a hook and never calls it."""

NO_POINT = Point()
PROMPTED = "UserPromptSubmit"


def registered(launch: Launch) -> dict[str, list[dict[str, Any]]]:
    """The hooks of a launch, for `initialize`: by point, in the order they were given."""
    points: dict[str, list[dict[str, Any]]] = {}
    for hook in launch.host_hooks:
        entry: dict[str, Any] = {
            "matcher": hook.matcher,
            "hookCallbackIds": [hook.name],
            # Longer than the host's own time-out: else the CLI cancels first, and the host's reason is lost.
            "timeout": hook.timeout + GRACE,
        }
        if hook.blocking:
            # Without it an error in the hook lets the tool run (wire page, section 6).
            entry["onFailure"] = "block"
        points.setdefault(hook.point, []).append(entry)
    return points


def refusal(launch: Launch, greeted: Mapping[str, Any]) -> str | None:
    """Why the hooks cannot be kept under a CLI that greeted so; None when they can."""
    safe = greeted.get("hook_on_failure_supported") is True
    return next((why for hook in launch.host_hooks for why in _objections(hook, safe)), None)


def _objections(hook: HostHook, safe: bool) -> Iterator[str]:
    if hook.point in NEVER_CALLED:
        yield f"a hook at {hook.point!r} would never be called: the CLI has no connection to the host then"
    if not hook.blocking:
        return
    if POINTS.get(hook.point, NO_POINT).stop is None:
        yield f"a hook at {hook.point!r} cannot block; give it blocking=False, or one of {_stoppable()}"
    if not safe:
        yield (
            f"the hook at {hook.point!r} must block, but this version lets the tool run when a hook fails"
            " (no hook_on_failure_supported): use a newer version, or blocking=False"
        )


def _stoppable() -> str:
    return ", ".join(name for name, point in POINTS.items() if point.stop is not None)


def is_registered(memo: Memo, frame: ControlRequest) -> bool:
    """Is this the call of a hook that was registered?"""
    return frame.request.callback_id in [hook.name for hook in memo.launch.host_hooks]


def read_callback(memo: Memo, frame: ControlRequest) -> Out:
    """The CLI stands at a point that the host has a hook for."""
    call_data, request = frame.request, frame.request_id
    name = call_data.callback_id or ""
    point = next(hook.point for hook in memo.launch.host_hooks if hook.name == name)
    call = call_data.input.get("tool_use_id")  # the frame's own is made up where no tool is concerned
    memo.calls[request] = name
    state_of(memo).hook_points[request] = point
    tool_call = call if isinstance(call, str) else None
    return (HookCalled(memo.frame, memo.turn, request, name, point, call_data.input, tool_call),)


def write_verdict(memo: Memo, verdict: HookVerdict) -> bytes:
    """The reply to a hook's call. Raises Misuse where it was none, and for a block where nothing can be stopped."""
    kept = state_of(memo)
    name = kept.hook_points.get(verdict.id)
    if name is None:
        raise Misuse(f"{verdict.id!r} is not a hook call", request="hook_verdict")
    point = POINTS.get(name, NO_POINT)
    if not verdict.allow and point.stop is None:
        raise Misuse(f"nothing can be blocked at {name!r}", request="hook_verdict")
    # Only now: a verdict that was refused above can still be given anew.
    del kept.hook_points[verdict.id]
    if name == PROMPTED and not verdict.allow:
        kept.prompt_blocked = verdict.reason or "blocked by a hook of the host"
    return agreed(memo, verdict.id, _answer(name, point, verdict))


def _answer(name: str, point: Point, verdict: HookVerdict) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    specific: dict[str, Any] = {}
    reason = verdict.reason or "blocked by a hook of the host"
    if not verdict.allow and point.stop == "permission":
        specific |= {"permissionDecision": "deny", "permissionDecisionReason": reason}
    elif not verdict.allow:
        answer |= {"decision": "block", "reason": reason}
    elif verdict.input is not None and point.rewrites:
        specific["updatedInput"] = verdict.input
    if verdict.context and point.context:
        specific["additionalContext"] = verdict.context
    return answer | ({"hookSpecificOutput": {"hookEventName": name, **specific}} if specific else {})
