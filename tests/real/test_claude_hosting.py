from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import pytest
import trio

from proctor.actors.errors import StartRefused
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.permissions import Verdict
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.runs import ask, stream
from proctor.actors.tools.hooks import Hook, HookResult
from proctor.actors.tools.tools import Tool as HostedTool
from proctor.actors.tools.tools import tool
from proctor.protocols import vocabulary as v
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Text, Tool
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome

BOUND = 60.0
ONE, TWO, THREE, FOUR = (f"00000000-0000-4000-8000-{number:012d}" for number in range(1, 5))
E = TypeVar("E", bound=v.Event)


@tool
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool
async def explode(why: str) -> str:
    raise RuntimeError(why)


async def test_a_tool_of_the_host_is_called_and_its_error_is_read(
    claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(
        Tool("mcp__host__add", {"a": 2, "b": 3}),
        Tool("mcp__host__add", {"a": "2"}),
        Tool("mcp__host__explode", {"why": "no fuse"}),
        Text("done"),
    )
    plan = claude_plan("a", {**claude_options, "host_tools": [add, explode]})
    async with stream(plan, "work", timeout=BOUND) as live:
        events = [event async for event in live]
    assert (live.answer.outcome, live.answer.denied_tools) == ("ok", ())
    asked = [event.tool for event in events if isinstance(event, v.ToolRequested)]
    assert asked == ["add", "add", "explode"]
    offered = {offer.name for offer in messages_api.scripted[0].body.tools}
    assert {"mcp__host__add", "mcp__host__explode"} <= offered
    good, wrong, broken = [event for event in events if isinstance(event, v.ToolResult)]
    assert (good.text, good.is_error) == ('{"sum":5}', False)
    assert wrong.text.startswith("wrong arguments for 'add': Object missing required field `b`")
    assert broken.text.startswith("RuntimeError: no fuse")
    assert (wrong.is_error, broken.is_error) == (True, True)
    assert claude_home.leftovers() == []


async def before_shells(called: v.HookCalled) -> bool | HookResult:
    command: str = called.input["tool_input"]["command"]
    if "raise" in command:
        raise RuntimeError("the hook is broken")
    if "rewrite" in command:
        return HookResult(input={"command": "touch rewritten.txt", "description": "x"})
    return "deny" not in command


def shell(name: str) -> Tool:
    return Tool("Bash", {"command": f"touch {name}.txt", "description": "x"})


@pytest.mark.covers("L20", "L39")
async def test_a_blocking_hook_denies_rewrites_and_blocks_when_it_raises_or_is_refused(
    claude_cli: Cli, claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    hook = Hook("PreToolUse", before_shells, matcher="Bash")
    plan = claude_plan("a", {**claude_options, "hooks": [hook], "permission": "allow"})
    if claude_cli.version == "2.1.197":
        with pytest.raises(StartRefused, match="lets the tool run when a hook fails"):
            await ask(plan, "work", timeout=BOUND)
        return
    messages_api.play(shell("allowed"), shell("deny"), shell("raise"), shell("rewrite"), Text("done"))
    async with stream(plan, "work", timeout=BOUND) as live:
        events = [event async for event in live]
    assert live.answer.outcome == "ok"
    assert {path.name for path in claude_home.work.iterdir()} == {"allowed.txt", "rewritten.txt"}
    results = [event for event in events if isinstance(event, v.ToolResult)]
    assert [result.is_error for result in results] == [False, True, True, False]
    assert "RuntimeError('the hook is broken')" in results[2].text


async def test_a_prompt_that_a_hook_keeps_out_is_no_good_answer(
    claude_cli: Cli, claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    async def never(called: v.HookCalled) -> HookResult:
        return HookResult(False, f"not {called.input['prompt']!r}")

    blocking = claude_cli.version != "2.1.197"
    messages_api.play(*(() if blocking else [Text("done")]))
    plan = claude_plan("a", {**claude_options, "hooks": [Hook("UserPromptSubmit", never, blocking=blocking)]})
    answer = await ask(plan, "work", timeout=BOUND)
    kept_out = ("failed", "", "not 'work'")
    assert (answer.outcome, answer.text, answer.error) == (kept_out if blocking else ("ok", "done", None))


@attrs.frozen
class Held:
    """A session of its own: what it says is read with `until`."""

    live: AgentProcess
    log: Cursor

    async def until(self, kind: type[E]) -> E:
        """The next event of this kind."""
        while True:
            event = await anext(self.log)
            if isinstance(event, kind):
                return event


@asynccontextmanager
async def held(plan: Plan) -> AsyncGenerator[Held]:
    directory = RunDirectory(plan.workplace.record, plan.name)
    log = EventLog(directory.path / "events.ndjson")
    live = AgentProcess(plan, log, directory)
    try:
        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                await nursery.start(live.serve)
                yield Held(live, log.cursor(0))
                await live.stop("owner")
    finally:
        log.release()
        directory.close()


def hold_until(free: trio.Event) -> HostedTool:
    async def hold() -> str:
        await free.wait()
        return "let go"

    return tool(hold)


@newest_claude
@pytest.mark.covers("L40")
async def test_a_turn_is_steered_and_one_that_is_interrupted_leaves_what_is_queued(
    claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    free, never = trio.Event(), trio.Event()
    tools = [hold_until(free), tool(name="wait")(hold_until(never).function)]
    hold, wait = Tool("mcp__host__hold", {}), Tool("mcp__host__wait", {})
    messages_api.play(hold, Text("steered"), wait, Text("queued"))
    async with held(claude_plan("a", {**claude_options, "host_tools": tools})) as agent:
        send, until = agent.live.send, agent.until
        await send(v.Prompt(ONE, "first"))
        await until(v.ToolRequested)
        await send(v.Steer(TWO, "faster, please"))
        free.set()
        assert (await until(v.Steered)).request == TWO
        assert (await until(v.TurnEnded)).prompts == (ONE, TWO)

        await send(v.SetModel("m1", "claude-haiku-4-5"))
        assert (await until(v.Answered)).request == "m1"

        await send(v.Prompt(THREE, "third"))
        held_up = await until(v.ToolRequested)
        await send(v.Prompt(FOUR, "fourth"))
        await send(v.Interrupt("i1"))
        withdrawn, ends = await until(v.RequestWithdrawn), [await until(v.TurnEnded)]
        ends.append(await until(v.TurnEnded))
    assert withdrawn.id == held_up.id
    assert [(end.ending, end.prompts, end.text) for end in ends] == [
        ("interrupted", (THREE,), None),
        ("completed", (FOUR,), "queued"),
    ]
    assert [request.model for request in messages_api.scripted][-1] == "claude-haiku-4-5"
    assert claude_home.leftovers() == []


async def test_what_is_allowed_for_always_is_not_asked_about_again_in_its_session(
    claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    touch = Tool("Bash", {"command": "touch made.txt", "description": "x"})
    first, second = (
        Tool("Write", {"file_path": str(claude_home.work / name), "content": "x"}) for name in ("1", "2")
    )
    messages_api.play(touch, touch, first, second, Text("done"))
    asked: list[str] = []

    async def always(question: v.ApprovalRequested) -> Verdict:
        asked.append(question.tool)
        return Verdict(True, always=True)

    plan = claude_plan("a", {**claude_options, "permission": always})
    answer = await ask(plan, "work", timeout=BOUND)
    assert answer.outcome == "ok"
    # the command by the rule that Claude Code suggests, the tool as a whole where it suggests none
    assert asked == ["Bash", "Write"]
    assert {file.name for file in claude_home.work.iterdir()} >= {"made.txt", "1", "2"}
