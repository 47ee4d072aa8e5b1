from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.actors.errors import BadOption, NotExecuted
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import claude_plan, scripted_plan
from proctor.actors.scripted.launch import scripted_dialect
from proctor.actors.tools.hooks import Hook
from proctor.actors.tools.host_calls import HostCall, HostCalls, tool_context
from proctor.actors.tools.tools import tool
from proctor.protocols.dialect import HostHook, Launch, Memo, OpenTurn
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    AnyRequest,
    HookCalled,
    HookVerdict,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
)
from tests.actors.far_end import HELLO, write_script


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool(timeout=100)
async def nap(seconds: float) -> str:
    await trio.sleep(seconds)
    return "rested"


async def allow(called: HookCalled) -> bool:
    return called.input == {"ok": True}


HOOK = Hook("PreToolUse", allow)


@attrs.define
class FarEnd:
    """Takes the answers of a host, with the time of each; `error` is what writing one meets."""

    answers: list[tuple[float, AnyRequest]] = attrs.field(factory=list[tuple[float, AnyRequest]])
    notices: list[tuple[str, str, dict[str, Any]]] = attrs.field(
        factory=list[tuple[str, str, dict[str, Any]]]
    )
    error: Exception | None = None

    async def send(self, request: AnyRequest) -> None:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        self.answers.append((trio.current_time(), request))

    def note(self, code: str, text: str, **data: Any) -> None:
        self.notices.append((code, text, data))

    def host(self) -> HostCalls:
        return HostCalls([add, nap], [HOOK], self.send, self.note)


async def answered(*asked: HostCall) -> tuple[list[AnyRequest], FarEnd]:
    """All answers to these requests, which came together."""
    end = FarEnd()
    host = end.host()
    async with trio.open_nursery() as nursery:
        for request in asked:
            host.take(request, nursery)
    return [answer for _, answer in end.answers], end


def naps(id: str, seconds: float) -> ToolRequested:
    return ToolRequested(1, "t1", id, "nap", {"seconds": seconds})


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (ToolRequested(1, "t1", "r1", "add", {"a": 1, "b": 2}), ToolReturn("r1", "3")),
        (ToolRequested(1, "t1", "r1", "gone"), ToolReturn("r1", "this host has no tool 'gone'", True)),
        (naps("r1", 101), ToolReturn("r1", "'nap' gave no result within 100 s", True)),
        (HookCalled(1, "t1", "h1", "PreToolUse.1", "PreToolUse", {"ok": True}), HookVerdict("h1")),
        (
            HookCalled(1, "t1", "h1", "other", "PreToolUse"),
            HookVerdict("h1", False, "this host has no hook 'other'"),
        ),
    ],
)
async def test_each_request_is_answered(
    asked: HostCall, answer: AnyRequest, autojump_clock: MockClock
) -> None:
    assert (await answered(asked))[0] == [answer]


async def test_requests_do_not_wait_for_each_other(autojump_clock: MockClock) -> None:
    answers, end = await answered(naps("slow", 9), naps("quick", 1))
    assert [answer.id for answer in answers] == ["quick", "slow"]
    assert [time - end.answers[0][0] for time, _ in end.answers] == [0, 8]


async def test_what_a_hook_said_is_in_the_log() -> None:
    _, end = await answered(
        HookCalled(1, "t1", "h1", "PreToolUse.1", "PreToolUse", {}),
        HookCalled(1, "t1", "h2", "PreToolUse.1", "PreToolUse", {"ok": True}),
    )
    assert sorted(end.notices, key=lambda notice: notice[2]["id"]) == [
        ("hook", "PreToolUse.1 blocked: it did not allow it", {"id": "h1", "allow": False}),
        ("hook", "PreToolUse.1 let it go on", {"id": "h2", "allow": True}),
    ]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_is_withdrawn_is_cancelled_and_not_answered(
    begun: bool, autojump_clock: MockClock
) -> None:
    end = FarEnd()
    host = end.host()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        host.take(naps("r1", 50), nursery)
        host.take(naps("r2", 1), nursery)
        if begun:
            await trio.testing.wait_all_tasks_blocked()
        host.withdraw(RequestWithdrawn(2, "t1", "r1"))
        host.withdraw(RequestWithdrawn(2, "t1", "never asked"))
    assert [answer.id for _, answer in end.answers] == ["r2"]
    assert trio.current_time() - start == 1


@pytest.mark.parametrize("error", [Misuse("withdrawn", request="tool_return"), NotExecuted("a", "gone")])
async def test_an_answer_that_nobody_takes_ends_nothing(error: Exception) -> None:
    end = FarEnd(error=error)
    async with trio.open_nursery() as nursery:
        end.host().take(HookCalled(1, "t1", "h1", "PreToolUse.1", "PreToolUse"), nursery)
    assert (end.answers, end.notices) == ([], [])


def test_a_plan_tells_the_cli_of_its_tools_and_hooks() -> None:
    watch = Hook("Stop", allow, matcher="*", timeout=3, blocking=False)
    plan = claude_plan("a", {"host_tools": [add], "hooks": [HOOK, watch]})
    assert plan.launch.host_tools == (add.declared,)
    assert plan.launch.host_hooks == (
        HostHook(name="PreToolUse.1", point="PreToolUse"),
        HostHook(name="Stop.2", point="Stop", matcher="*", timeout=3, blocking=False),
    )
    assert (plan.conduct.host_tools, plan.conduct.hooks) == ((add,), (HOOK, watch))


def bad(**options: Any) -> AgentOptions:
    given: AgentOptions = {}
    given.update(options)  # type: ignore[typeddict-item]
    return given


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (bad(host_tools=[add, add]), "two host_tools are named 'add'"),
        (bad(host_tools=[add.function]), "host_tools holds what the tool decorator made"),
        (bad(hooks=[allow]), "hooks holds records of Hook"),
        (bad(hooks=[HOOK], mode="oneshot"), "hooks cannot block in claude in mode 'oneshot'"),
    ],
)
def test_what_could_not_be_kept_is_refused_before_anything_starts(options: AgentOptions, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        claude_plan("a", options)


def test_a_hook_that_only_watches_is_no_reason_to_refuse() -> None:
    watch: Sequence[Hook] = [Hook("Stop", allow, blocking=False)]
    assert claude_plan("a", {"hooks": watch, "mode": "oneshot"}).conduct.hooks == (*watch,)


def test_a_script_can_call_the_hosts_tools_and_says_that_it_asks_no_hook(tmp_path: Any) -> None:
    script = write_script(tmp_path, HELLO)
    with pytest.raises(BadOption, match="hooks cannot block in scripted"):
        scripted_plan("a", script, {"hooks": [HOOK]})
    watching = HostHook(name="h", point="PreToolUse", blocking=False)
    wanted = Launch(executable=(), host_tools=(add.declared,), host_hooks=(watching,))
    command = scripted_dialect(script).launch(wanted)
    assert command.ignored == ("host_hooks",)
    assert [word for word in command.argv if "mcp__host__add" in word] != []


@pytest.mark.covers("R164")
def test_a_caller_is_known_by_the_requests_that_its_turn_answers() -> None:
    memo = Memo(session_id="s", turn="t2")
    memo.prompts.append("p9")
    memo.open_turns.append(OpenTurn("t2", ["p1", "p2"]))
    asked = ToolRequested(1, "t2", "r1", "add")
    who = tool_context("a", {"project": "x"}, memo, asked)
    assert (who.agent, who.values, who.session_id, who.turn) == ("a", {"project": "x"}, "s", "t2")
    assert (who.prompts, who.call) == (("p1", "p2"), "r1")
    assert tool_context("a", {}, memo, ToolRequested(1, None, "r2", "add")).prompts == ("p9",)
