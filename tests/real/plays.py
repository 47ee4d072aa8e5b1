"""Scenes that every agent of a protocol without a version of its own goes through: a start costs ten seconds of
processor time, so all scenes of a CLI share one agent, and each begins with an empty script.

What CLIs differ in is on the `Stage`: how its shell tool is called.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import trio

import proctor
from proctor.actors.agent.handle import Agent
from proctor.actors.outcomes import Answer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.specs import Supervisor
from tests.fakes.model_api import ModelApi
from tests.fakes.responses_api import ResponsesApi
from tests.fakes.steps import Drop, Hang, Repeat, Status, Text, Tool
from tests.real.agents import by_word
from tests.real.homes import ClaudeHome, until

BOUND = 120.0
FOREVER = "tail -f /dev/null"
WORDS = {"allowed": True, FOREVER: True, "denied": False}
"""Which of the scenes' tools are allowed and denied; any other question is left unanswered."""


@attrs.frozen
class Stage:
    """One agent, the fake it asks, where it works, a call of its shell tool, and that tool's name."""

    agent: Agent
    api: ModelApi | ResponsesApi
    home: ClaudeHome
    shell: Callable[[str], Tool]
    tool: str


def options_in(home: ClaudeHome) -> AgentOptions:
    """Options of an agent that works in this home, and is answered by the words above within half a second."""
    return {
        "cwd": home.work,
        "env": home.environment,
        "permission": by_word(WORDS),
        "approval_deadline": 0.5,
        "greeting": BOUND,
    }


def shell(name: str) -> Callable[[str], Tool]:
    """Calls of a shell tool of this name, of the usual arguments."""
    return lambda command: Tool(name, {"command": command, "description": "x"})


Scene = Callable[[Stage], Awaitable[None]]


async def it_answers_with_text_and_counts(stage: Stage) -> None:
    stage.api.play(Text("Hello from the fake.", chunk=6))
    answer = await stage.agent.ask("say hello", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "Hello from the fake.")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)


async def it_remembers_the_turn_before(stage: Stage) -> None:
    stage.api.play(Text("again"))
    answer = await stage.agent.ask("and again", timeout=BOUND)
    assert answer.text == "again"
    assert "say hello" in stage.api.scripted[0].text
    assert "Hello from the fake." in stage.api.scripted[0].text


async def an_allowed_tool_runs(stage: Stage) -> None:
    stage.api.play(stage.shell("echo yes > allowed.txt"), Text("made"))
    answer = await stage.agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "made", ())
    assert (stage.home.work / "allowed.txt").read_text() == "yes\n"


async def refused(stage: Stage, file: str) -> Answer:
    """It is to make this file, is not allowed to, and does not; where its turn goes on, the model says `then not`."""
    stage.api.play(stage.shell(f"touch {file}"), Text("then not"))
    answer = await stage.agent.ask("make it", timeout=BOUND)
    assert answer.denied_tools == (stage.tool,)
    assert not (stage.home.work / file).exists()
    return answer


async def a_denied_tool_does_not_run_and_the_model_is_told(stage: Stage) -> None:
    answer = await refused(stage, "denied.txt")
    assert (answer.outcome, answer.text) == ("ok", "then not")


async def a_question_that_nobody_answers_is_denied(stage: Stage) -> None:  # L39
    answer = await refused(stage, "unanswered.txt")
    assert answer.outcome == "ok"


async def an_interrupt_ends_the_turn_and_keeps_the_session(stage: Stage) -> None:
    stage.api.play(Hang(Text("never finished", chunk=2), after=3), Text("on it"))
    async with stage.agent.stream("one") as turn:
        async for event in turn:
            if isinstance(event, proctor.TextDelta):
                await stage.agent.interrupt()
    assert turn.answer.outcome == "interrupted"
    answer = await stage.agent.ask("two", timeout=BOUND)
    assert (answer.text, answer.session_id) == ("on it", turn.answer.session_id)


async def a_wrong_key_is_told_apart_and_the_next_request_tries_again(stage: Stage) -> None:
    stage.api.play(Status(401, "API key not valid."), Text("let in"))
    answer = await stage.agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("authentication", "authentication")
    assert (await stage.agent.ask("hi again", timeout=BOUND)).text == "let in"


async def a_refused_request_is_told_with_its_cause(stage: Stage) -> None:
    stage.api.play(Repeat(Status(400, "Bad request from the fake.")))
    answer = await stage.agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("failed", "invalid_request")
    assert "Bad request from the fake." in (answer.error or "")


async def faults_that_pass_are_got_over(stage: Stage) -> None:
    at_once = {"retry-after": "0"}
    stage.api.play(
        Status(429, "slow down", headers=at_once), Status(500, "oh", headers=at_once), Text("well")
    )
    answer = await stage.agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "well")
    assert len(stage.api.scripted) == 3


async def what_a_broken_stream_had_said_is_no_part_of_the_answer(stage: Stage) -> None:
    await broken_in_mid_stream(stage)


async def a_broken_stream_is_told_when_it_is_tried_again(stage: Stage) -> None:
    told = await broken_in_mid_stream(stage)
    assert [event.attempt for event in told if isinstance(event, proctor.Retrying)] == [1]
    assert "attempt_void" in [event.code for event in told if isinstance(event, proctor.Notice)]


async def broken_in_mid_stream(stage: Stage) -> list[proctor.AnyEvent]:
    """What is told of an answer whose first attempt breaks when its pieces have long been passed on."""
    stage.api.play(Drop(Text("never finished", chunk=2), after=3, linger=0.5), Text("whole"))
    async with stage.agent.stream("hi") as turn:
        told = [event async for event in turn]
    assert (turn.answer.outcome, turn.answer.text) == ("ok", "whole")
    assert "".join(event.text for event in told if isinstance(event, proctor.TextDelta)) == "never whole"
    return told


async def killed_between_two_turns_it_comes_back_and_answers(stage: Stage) -> None:
    before = await stage.agent.status()
    os.killpg(os.getpgid(before.pid or 0), signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{before.pid}").exists())
    await trio.sleep(0.5)  # the agent is told of the death after the guard has swept
    stage.api.play(Text("after"))
    answer = await stage.agent.ask("third", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "after")
    assert (await stage.agent.status()).incarnation == 2


async def killed_in_mid_turn_the_conversation_goes_on_in_the_same_session(stage: Stage) -> None:
    before = await stage.agent.status()
    stage.api.play(Hang(Text("never finished", chunk=2), after=3), Text("after"))
    lost = list[str]()
    async with stage.agent.stream("second") as turn:
        try:
            async for event in turn:
                if isinstance(event, proctor.TextDelta):
                    os.killpg(os.getpgid((await stage.agent.status()).pid or 0), signal.SIGKILL)
        except proctor.MaybeExecuted as error:
            lost.append(error.outcome)
    assert lost == ["killed_by_system"]
    answer = await stage.agent.ask("third", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.session_id) == ("ok", "after", before.session_id)
    assert (await stage.agent.status()).incarnation == 2
    assert "say hello" in stage.api.scripted[-1].text


async def play_all(stage: Stage, scenes: tuple[Scene, ...]) -> None:
    """Each scene in turn; none may have asked the fake for more than it had to say."""
    for scene in scenes:
        stage.api.begin_anew()
        await scene(stage)
        assert stage.api.unexpected == [], scene


async def stopped_while_a_tool_runs(stage: Stage, sup: Supervisor) -> None:
    """The tree is stopped in mid-tool; what is left is for the caller to look at."""
    stage.api.begin_anew()
    stage.api.play(stage.shell(FOREVER), Text("not wanted any more"))
    async with stage.agent.stream("work") as turn:
        async for event in turn:
            if isinstance(event, proctor.ToolCall):
                await until(lambda: any("tail" in each.argv for each in stage.home.leftovers()))
                break
        await sup.stop()
