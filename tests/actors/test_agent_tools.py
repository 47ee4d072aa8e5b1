from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from mcp import Client

from proctor.actors.errors import AgentError, BadOption, NotInstalled, StartRefused
from proctor.actors.gateways.mcp.server import ToolsetServer
from proctor.actors.outcomes import OUTCOMES, Answer, Outcome
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.agent_tools import CallPaths, Progress, Terms, failure, one_shot, report, standing
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.actors.serving.toolset import Call, Toolset
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.actors.structured.schemas import schema_of
from proctor.actors.structured.submit import schema_tools
from proctor.actors.tools.tools import ToolResult, tool
from proctor.protocols import vocabulary as v
from tests.actors.far_end import plan_of
from tests.actors.spoken import spoken_plan
from tests.tables import each_row


def spoken(options: AgentOptions) -> Plan:
    """A kind of agent whose far end is a function; its home is its own."""
    return spoken_plan(**options)


def terms_of(tmp_path: Path, **more: Any) -> Terms:
    (tmp_path / "root").mkdir(exist_ok=True)
    return Terms(roots=AllowedDirs([tmp_path / "root"]), **more)


def tools_of(terms: Terms) -> Toolset:
    return Toolset([one_shot("speaker", "It speaks.", spoken, terms)])


async def called(tools: Toolset, name: str = "speaker", **arguments: Any) -> ToolResult:
    return await tools.call(name, arguments, Call())


async def followed(tools: Toolset, told: list[str], **arguments: Any) -> ToolResult:
    call = Call()

    async def send(seconds: float, text: str) -> None:
        told.append(text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.follow, send)
        result = await tools.call("speaker", arguments, call)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return result


async def test_a_call_is_a_prompt_and_its_result_the_answer(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    terms = terms_of(tmp_path)
    result = await called(tools_of(terms), prompt="hello")
    assert (result.text, result.is_error) == ("1: hello", False)
    assert (result.facts["outcome"], result.facts["cost_usd"]) == ("ok", 0.5)
    assert not terms.live


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, '"prompt" is a required property'),
        ({"prompt": ""}, "/prompt"),
        ({"prompt": "x", "permission": "allow"}, "'permission' was unexpected"),
        ({"prompt": "x", "timeout": 0}, "/timeout"),
        ({"prompt": "x", "cwd": ".."}, "outside of the allowed directories"),
        ({"prompt": "x", "cwd": "/etc"}, "outside of the allowed directories"),
        ({"prompt": "x", "schema": {"type": "strin"}}, "cannot be used"),
        ({"prompt": "x", "session_id": ""}, "session_id"),
    ],
)
async def test_a_caller_chooses_what_the_schema_says_and_no_more(
    arguments: dict[str, Any], text: str, autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    result = await called(tools_of(terms_of(tmp_path)), **arguments)
    assert result.is_error
    assert text in result.text


@pytest.mark.covers("R112", "R113")
async def test_a_failure_says_what_where_and_what_to_do(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    terms = terms_of(tmp_path, options={"record": tmp_path / "runs"})
    result = await called(tools_of(terms), prompt="crash")
    assert result.is_error
    what, why, where, advice, stderr = result.text.splitlines()
    assert what == "agent did not finish: crashed"
    ended = "no answer before its process ended (exit status 3; stderr ends 'out of luck')"
    assert why == f"why: {ended}"
    assert where.startswith(f"where: {tmp_path}/root (recording: {tmp_path}/runs/")
    assert advice == f"what to do: {OUTCOMES['crashed'].remedy}"
    assert stderr == "stderr ends: out of luck"


async def test_a_turn_that_takes_too_long_is_ended_and_says_so(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    result = await called(tools_of(terms_of(tmp_path)), prompt="hang", timeout=3)
    assert result.is_error
    assert (result.text.splitlines()[0], trio.current_time() < 10) == ("agent did not finish: deadline", True)


async def test_a_call_that_is_cancelled_takes_its_turn_with_it(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    terms = terms_of(tmp_path)
    tools = tools_of(terms)
    with trio.move_on_after(3) as scope:
        await called(tools, prompt="hang")
    assert scope.cancelled_caught
    assert not terms.live
    assert tools.counts["speaker"].cancelled == 1


async def test_who_cannot_wait_for_a_ladder_kills_what_runs(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    terms = terms_of(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(called, tools_of(terms), prompt="hang"))
        await trio.sleep(1)
        [live] = terms.live
        live.kill()
    assert not terms.live


async def test_only_so_many_run_at_a_time_and_who_waits_is_told(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    tools, told = tools_of(terms_of(tmp_path, pools=Pools(limit=1))), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(called, tools, prompt="hang", timeout=5))
        await trio.sleep(1)
        result = await followed(tools, told, prompt="hello", timeout=60)
    assert result.text == "1: hello"
    assert told[0] == "waits for one of 1 places; 0 wait before this call"


async def test_who_has_no_place_in_time_is_told_so(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    tools = tools_of(terms_of(tmp_path, pools=Pools(limit=1)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(called, tools, prompt="hang", timeout=30))
        await trio.sleep(1)
        result = await called(tools, prompt="hello", timeout=2)
        nursery.cancel_scope.cancel()
    assert result.is_error
    assert "what to do: " in result.text


async def test_who_waits_too_long_for_a_session_is_told_so(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with Sessions(tmp_path / "sessions") as sessions, trio.open_nursery() as nursery:
        tools = tools_of(terms_of(tmp_path, sessions=sessions))
        nursery.start_soon(partial(called, tools, prompt="hang", session_id="s", timeout=30))
        await trio.sleep(1)
        result = await called(tools, prompt="hello", session_id="s", timeout=2)
        assert trio.current_time() == pytest.approx(3)
        nursery.cancel_scope.cancel()
    assert result.is_error
    assert "waiting for the session; 1 request was ahead" in result.text
    assert "what to do: " in result.text


async def test_a_missing_command_line_is_a_result_that_says_how_to_get_it(tmp_path: Path) -> None:
    def absent(options: AgentOptions) -> Plan:
        raise NotInstalled("speaker", ["PATH"], "npm install speaker")

    tools = Toolset([one_shot("speaker", "It speaks.", absent, terms_of(tmp_path))])
    result = await called(tools, prompt="x")
    assert result.is_error
    assert "npm install speaker" in result.text


# -- sessions


@pytest.mark.covers("R127")
async def test_a_call_may_carry_a_session_and_goes_on_with_it_or_stands_alone(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [
        {"tool": "Bash", "input": {}, "run": "echo x >> found; wc -l < found"},
        {"reply": "turn {turn} of {session} in {cwd}"},
    ]
    kept = plan_of(tmp_path, script)

    def scripted(options: AgentOptions) -> Plan:
        env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "home")}
        there = Path(options.get("cwd") or "")
        return attrs.evolve(kept, workplace=attrs.evolve(kept.workplace, home="user", env=env, cwd=there))

    async with Sessions(tmp_path / "sessions") as sessions:
        tools = Toolset([one_shot("speaker", "It speaks.", scripted, terms_of(tmp_path, sessions=sessions))])
        here = {"session_id": "c", "cwd": "."}
        first, second, other, alone, placed, again = [
            (await called(tools, prompt="go", **session)).text.split()
            for session in ({"session_id": "a"}, {"session_id": "a"}, {"session_id": "../b"}, {}, here, here)
        ]
        assert ("a" in sessions, "../b" in sessions, len(sessions)) == (True, True, 3)
    assert [each[1] for each in (first, second, other, alone, placed, again)] == [
        "1",
        "2",
        "1",
        "1",
        "1",
        "2",
    ]
    assert (first[3:], placed[3:]) == (second[3:], again[3:])
    assert len({each[3] for each in (first, other, alone, placed)}) == 4
    root = str(tmp_path / "root")
    assert [each[5] == root for each in (first, other, alone, placed)] == [False, False, True, True]
    assert not await trio.Path(first[5]).exists()  # it goes with the server


@pytest.mark.covers("R151")
async def test_other_tools_are_served_together_with_those_of_agents(tmp_path: Path) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    schema = schema_of({"type": "object", "properties": {"n": {"type": "integer"}}})
    speaker = one_shot("speaker", "It speaks.", spoken, terms_of(tmp_path))
    tools = Toolset([speaker, add, *schema_tools(schema, lambda value: None)])
    async with Client(ToolsetServer("all", tools).sdk) as client:
        listed = [each.name for each in (await client.list_tools()).tools]
        assert listed == ["speaker", "add", "submit", "validate", "example"]
        assert (await client.call_tool("submit", {"n": "x"})).is_error
        assert not (await client.call_tool("example")).is_error


# -- what is heard meanwhile


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([v.TextDelta(1, "t", "He"), v.TextDelta(2, "t", "llo"), v.Text(3, "t", "Hello")], "Hello"),
        ([v.Text(1, "t", "Whole")], "Whole"),
        ([v.Text(1, "t", "Of another", parent="c1")], None),
        ([v.ToolCall(1, "t", "c1", "Bash", {"command": "ls"})], 'uses Bash {"command":"ls"}'),
        (
            [v.ToolCall(1, "t", "c1", "Write", {"text": "x" * 500})],
            "uses Write " + '{"text":"' + "x" * 111 + "…",
        ),
        (
            [v.Retrying(1, "t", 2, delay=1.5, error="overloaded")],
            "tries again in 1.5 s (attempt 2): overloaded",
        ),
        ([v.LimitReached(1, "t")], "has reached a usage limit"),
        ([v.Notice(-1, None, "parked", "waits until noon")], "waits until noon"),
        ([v.Notice(-1, None, "sent", "attempt 1")], None),
        ([v.TextDelta(1, "t", "I look."), v.ToolCall(2, "t", "c1", "Read")], "I look.\nuses Read"),
    ],
)
async def test_what_an_agent_does_is_told_in_words(
    events: list[v.AnyEvent], told: str | None, autojump_clock: trio.testing.MockClock
) -> None:
    call, heard = Call(), list[str]()

    async def send(seconds: float, text: str) -> None:
        heard.append(text)

    Progress(call).take(events)
    with trio.move_on_after(1):
        await call.follow(send)
    assert heard == ([] if told is None else [told])


# -- agents of a tree


async def test_an_agent_of_a_tree_is_asked_and_its_failures_are_results(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    terms = terms_of(tmp_path)
    child = agent_spec("agent", spoken_plan(), {"restart": "temporary"})
    async with open_supervisor([child]) as sup:
        tools = Toolset([standing("ask_agent", "It speaks.", sup.agent("agent"), terms)])
        ask = partial(called, tools, "ask_agent")
        assert (await ask(prompt="one")).text == "1: one"
        assert (await ask(prompt="two")).text == "2: two"
        late = await ask(prompt="hang", timeout=2)
        assert late.is_error
        assert "longer timeout" in late.text
        assert (await ask(prompt="three")).text == "4: three"
        lost = await ask(prompt="crash")
        assert "look at what it has done" in lost.text
        gone = await ask(prompt="four")
        assert gone.is_error


async def test_calls_of_one_agent_are_answered_one_after_the_other(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    answers, told = list[str](), list[str]()
    async with open_supervisor([agent_spec("agent", spoken_plan(), {})]) as sup:
        tools = Toolset([standing("speaker", "It speaks.", sup.agent("agent"), terms_of(tmp_path))])

        async def ask(prompt: str) -> None:
            answers.append((await called(tools, prompt=prompt, timeout=5)).text.splitlines()[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "hang")
            await trio.sleep(1)
            answers.append((await followed(tools, told, prompt="later")).text)
    assert answers[-1] == "2: later"
    assert told[0].startswith("waits: agent is working")


# -- reports


@each_row("outcome", [name for name in OUTCOMES if name != "ok"])
def test_every_bad_end_has_its_advice(outcome: Outcome) -> None:
    answer = Answer(agent="a", outcome=outcome, error="it said no", stderr="oops")
    result = report(answer, CallPaths(cwd=Path("/w")), "half a sentence")
    assert result.is_error
    head, why, where, advice, stderr, said = result.text.splitlines()
    assert head == f"a did not finish: {outcome.replace('_', ' ')}"
    assert (why, where, stderr) == ("why: it said no", "where: /w", "stderr ends: oops")
    assert advice == f"what to do: {OUTCOMES[outcome].remedy}"
    assert said == "partial answer: half a sentence"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (BadOption("model 'x' is none"), "correct the arguments"),
        (StartRefused("a", "no login", stderr="oops"), "login"),
        (AgentError("odd"), "see what it says, and the agent's events"),
    ],
)
def test_every_error_has_its_remedy(error: Exception, advice: str) -> None:
    result = failure("a", error, CallPaths(), "")
    assert result.text.startswith("a failed: ")
    assert advice in result.text
    assert ("stderr ends: oops" in result.text) is isinstance(error, StartRefused)


def test_a_value_is_told_as_json_and_as_data() -> None:
    value: Mapping[str, Any] = {"n": 1}
    result = report(Answer(agent="a", outcome="ok", text="here", value=value), CallPaths())
    assert (result.text, result.data) == ('{"n":1}', value)
