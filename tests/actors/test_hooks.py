from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.actors.errors import BadOption
from proctor.actors.tools.hooks import Hook, HookFunction, HookResult
from proctor.protocols.vocabulary import HookCalled, HookVerdict
from tests.actors.far_end import silent

CALLED = HookCalled(3, "t1", "h1", "PreToolUse.1", "PreToolUse", {"tool_name": "Bash"})


async def yes(called: HookCalled) -> bool:
    return bool(called.input["tool_name"] == "Bash")


async def no(called: HookCalled) -> bool:
    return False


async def nothing(called: HookCalled) -> None:
    return None


async def rewrite(called: HookCalled) -> HookResult:
    return HookResult(input={"command": "true"}, context="be brief")


async def object_(called: HookCalled) -> HookResult:
    return HookResult(False, "no shells", context="be brief", input={})


async def broken(called: HookCalled) -> bool:
    raise RuntimeError("boom")


async def truthy(called: HookCalled) -> Any:
    return "yes"


@pytest.mark.covers("L20", "L39")
@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (yes, HookVerdict("h1")),
        (rewrite, HookVerdict("h1", input={"command": "true"}, context="be brief")),
        (no, HookVerdict("h1", False, "it did not allow it")),
        (nothing, HookVerdict("h1", False, "it did not allow it")),
        (truthy, HookVerdict("h1", False, "it did not allow it")),
        (object_, HookVerdict("h1", False, "no shells", context="be brief")),
        (broken, HookVerdict("h1", False, "it failed: RuntimeError('boom')")),
        (silent, HookVerdict("h1", False, "it gave no verdict within 60 s")),
    ],
)
async def test_a_blocking_hook_lets_on_only_what_it_says_so(
    function: HookFunction, verdict: HookVerdict, autojump_clock: MockClock
) -> None:
    assert await Hook("PreToolUse", function).judge(CALLED) == verdict


@pytest.mark.parametrize("function", [yes, no, nothing, object_, broken, silent])
async def test_a_hook_that_does_not_block_lets_everything_on(
    function: HookFunction, autojump_clock: MockClock
) -> None:
    assert (await Hook("PreToolUse", function, blocking=False).judge(CALLED)).allow


async def test_cancelling_a_hook_is_no_verdict(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await Hook("PreToolUse", silent).judge(CALLED)
    assert scope.cancelled_caught


def test_a_deadline_is_above_zero() -> None:
    with pytest.raises(BadOption, match="timeout of a hook must be above 0 seconds, got -1"):
        Hook("Stop", yes, timeout=-1)
