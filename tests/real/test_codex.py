from __future__ import annotations

import os
import signal

import attrs
import pytest

import proctor
from proctor.actors.agent.messages import Control
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, codex_plan
from proctor.actors.runs import ask, stream
from proctor.actors.specs import agent_spec
from proctor.protocols import vocabulary as v
from proctor.protocols.dialect import HostTool
from tests.actors.far_end import silent
from tests.fakes.responses_api import ResponsesApi, call, escalated
from tests.fakes.steps import Drop, Hang, Repeat, Status, Text, Tool
from tests.real.homes import ClaudeHome, until

BOUND = 60.0
ALIAS = "codex-0.169.0"
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}'
TREE = "(trap '' TERM; sleep 301) & sleep 302"
"""A command whose parts outlive what only kills its shell."""


@pytest.fixture
def api(responses_api: ResponsesApi) -> ResponsesApi:
    return responses_api


@pytest.fixture
def home(codex_home: ClaudeHome) -> ClaudeHome:
    return codex_home


@pytest.fixture
def options(codex_options: AgentOptions) -> AgentOptions:
    return codex_options


def plan_with(options: AgentOptions, more: AgentOptions) -> Plan:
    return codex_plan("a", {**options, **more})


OPEN: AgentOptions = {"sandbox": "danger-full-access", "permission_mode": "never"}


def with_weather(plan: Plan) -> Plan:
    """The plan, with a tool of the host's."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = HostTool(name="weather", description="How it is out there.", schema=schema)
    return attrs.evolve(plan, launch=attrs.evolve(plan.launch, host_tools=(tool,)))


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_a_text_answer(mode: str, options: AgentOptions, api: ResponsesApi, home: ClaudeHome) -> None:
    api.play(Text("Hello from the fake."))
    prompt = "-c --model $HOME `id`\n- and more"  # R187
    plan = plan_with(options, {"mode": "exec" if mode == "exec" else "session"})
    answer = await ask(plan, prompt, timeout=BOUND)
    assert (answer.outcome, answer.text, answer.error) == ("ok", "Hello from the fake.", None)
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.cost_usd) == (100, 20, None)
    assert api.requests[0].user_texts[-1] == prompt
    assert home.leftovers() == []


@pytest.mark.parametrize(("policy", "made"), [("allow", True), ("deny", False)])
async def test_a_tool_call_is_allowed_or_denied_by_policy(
    policy: str, made: bool, options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(escalated("echo x > made.txt"), Text("done"))
    plan = plan_with(options, {"permission": "allow" if policy == "allow" else "deny"})
    async with stream(plan, "make it", timeout=BOUND) as live:
        events = [event async for event in live]
    assert (live.answer.outcome, (home.work / "made.txt").exists()) == ("ok", made)
    [asked] = [e for e in events if isinstance(e, v.ApprovalRequested)]
    [result] = [e for e in events if isinstance(e, v.ToolResult)]
    assert (asked.tool, asked.tool_call, asked.description) == ("shell", result.id, "it must")
    assert result.is_error != made
    assert live.answer.denied_tools == (() if made else ("shell",))


@pytest.mark.covers("L39")
async def test_an_approval_that_nobody_answers_is_denied(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(escalated("echo x > made.txt"), Text("done"))
    plan = plan_with(options, {"permission": silent, "approval_deadline": 0.3})
    answer = await ask(plan, "make it", timeout=BOUND)
    assert (answer.outcome, answer.denied_tools) == ("ok", ("shell",))
    assert not (home.work / "made.txt").exists()


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_an_answer_by_a_schema_is_data_and_prose_is_not(
    mode: str, options: AgentOptions, api: ResponsesApi
) -> None:
    plan = plan_with(options, {"mode": "exec" if mode == "exec" else "session", "json_schema": SCHEMA})
    api.play(Text('{"n": 42}'), Text("forty-two"))
    good = await ask(plan, "how many?", timeout=BOUND)
    assert (good.outcome, good.structured_output) == ("ok", {"n": 42})
    assert api.requests[0].body["text"]["format"]["schema"]["required"] == ["n"]
    bad = await ask(plan, "how many?", timeout=BOUND)
    assert (bad.outcome, bad.ending) == ("failed", "schema_unmet")


@pytest.mark.covers("R017")
@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_the_settings_of_a_thread_reach_its_model(
    mode: str, options: AgentOptions, api: ResponsesApi
) -> None:
    more: AgentOptions = {
        "mode": "exec" if mode == "exec" else "session",
        "effort": "high",
        "append_system_prompt": 'Say "please".',
        "system_prompt": "You are a lamp.",
        "mcp": {"dead": McpServer(command="/bin/false")},
    }
    api.play(Text("lit"))
    async with stream(plan_with(options, more), "shine", timeout=BOUND) as live:
        events = [event async for event in live]
    body = api.requests[0].body
    assert body["reasoning"]["effort"] == "high"
    assert 'Say "please".' in str([item for item in body["input"] if item.get("role") == "developer"])
    notices = [(e.code, e.data.get("server"), e.text) for e in events if isinstance(e, v.Notice)]
    if mode == "exec":
        cannot = {text.split()[-1] for code, _, text in notices if code == "option_ignored"}
        assert cannot == {"system_prompt"}
    else:
        assert "You are a lamp." in str(body["input"])
        assert "dead" in [server for code, server, _ in notices if code == "mcp_server"]


@pytest.mark.parametrize(
    ("step", "outcome", "ending"),
    [
        (Repeat(Status(401)), "authentication", "authentication"),
        (Repeat(Status(429, headers={"retry-after": "1"})), "failed", "overloaded"),
        (Repeat(Status(500)), "failed", "api_error"),
        (Repeat(Drop(Text(size=4000, chunk=400), after=2)), "failed", "api_error"),
    ],
    ids=["401", "429", "500", "drop"],
)
async def test_a_refusal_ends_the_turn_after_a_bounded_number_of_retries(
    step: Repeat, outcome: str, ending: str, options: AgentOptions, api: ResponsesApi
) -> None:
    api.play(step)
    async with stream(codex_plan("a", options), "hi", timeout=BOUND) as live:
        events = [event async for event in live]
    assert (live.answer.outcome, live.answer.ending) == (outcome, ending)
    assert [e.attempt for e in events if isinstance(e, v.Retrying)] == [1]
    assert len(api.requests) == 2
    voids = [e for e in events if isinstance(e, v.Notice) and e.code == "attempt_void"]
    assert len(voids) == (2 if any(isinstance(e, v.TextDelta) for e in events) else 0)


async def test_a_request_that_is_refused_as_wrong_is_not_repeated(
    options: AgentOptions, api: ResponsesApi
) -> None:
    api.play(Status(400))
    answer = await ask(codex_plan("a", options), "hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("failed", "invalid_request")


async def test_leaving_while_a_tool_runs_leaves_nothing_behind(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(call(TREE))
    async with stream(plan_with(options, OPEN), "work", timeout=BOUND) as live:
        async for event in live:
            if isinstance(event, v.ToolCall):
                await until(lambda: any("302" in p.argv for p in home.leftovers()))
                break
    assert home.leftovers() == []


async def test_an_exec_run_that_is_stopped_in_a_tool_leaves_nothing_behind(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(call(TREE))
    async with stream(plan_with(options, {**OPEN, "mode": "exec"}), "work", timeout=BOUND) as live:
        async for event in live:
            if isinstance(event, v.ToolCall):
                await until(lambda: any("302" in p.argv for p in home.leftovers()))
                break
    assert home.leftovers() == []


async def test_an_exec_run_resumes_its_thread_by_its_id(options: AgentOptions, api: ResponsesApi) -> None:
    api.play(Text("one"), Text("two"))
    first = await ask(plan_with(options, {"mode": "exec", "persist": True}), "first", timeout=BOUND)
    again = plan_with(options, {"mode": "exec", "resume": first.session_id})
    second = await ask(again, "second", timeout=BOUND)
    assert (second.text, second.session_id, second.usage) == ("two", first.session_id, None)
    assert "first" in api.requests[1].user_texts


async def test_a_session_id_that_is_no_uuid_is_refused_before_the_start(options: AgentOptions) -> None:
    with pytest.raises(proctor.BadOption, match="must be a thread's UUID, got 'mine'"):
        await ask(plan_with(options, {"mode": "exec", "resume": "mine"}), "hi", timeout=BOUND)


async def test_two_turns_in_one_thread_and_another_model_between(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(Text("one"), Text("two"))
    async with proctor.open_supervisor([agent_spec("a", codex_plan("a", options), {})]) as sup:
        agent = sup.agent("a")
        first = await agent.ask("first", timeout=BOUND)
        assert await agent.set_model("gpt-5.4")
        second = await agent.ask("second", timeout=BOUND)
        status = await agent.status()
    assert [first.text, second.text] == ["one", "two"]
    assert first.session_id == second.session_id == status.session_id
    assert [request.model for request in api.requests] == ["gpt-5.5", "gpt-5.4"]
    assert "first" in api.requests[1].user_texts
    assert second.usage == first.usage
    assert home.leftovers() == []


async def test_interrupt_ends_the_turn_and_what_its_tool_had_started(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(call(TREE), Text("again"))
    async with proctor.open_supervisor([agent_spec("a", plan_with(options, OPEN), {})]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, proctor.ToolCall):
                    await until(lambda: any("302" in p.argv for p in home.leftovers()))
                    assert await agent.interrupt()
        assert turn.answer.outcome == "interrupted"
        await until(lambda: not any("sleep" in p.argv for p in home.leftovers()))
        answer = await agent.ask("two", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.session_id) == ("ok", "again", turn.answer.session_id)
    assert home.leftovers() == []


@pytest.mark.covers("L40")
async def test_steering_is_taken_into_the_running_turn(options: AgentOptions, api: ResponsesApi) -> None:
    api.play(call("sleep 1; echo slept"), Text("both done"))
    async with proctor.open_supervisor([agent_spec("a", plan_with(options, OPEN), {})]) as sup:
        steered = list[str]()
        async with sup.agent("a").stream("one") as turn:
            async for event in turn:
                if isinstance(event, proctor.ToolCall):
                    await sup.name("a").call(Control(v.Steer("steer-1", "also do that")))
                elif isinstance(event, v.Steered):
                    steered.append(event.request)
    assert (steered, turn.answer.text) == (["steer-1"], "both done")
    assert api.requests[1].user_texts[-2:] == ("one", "also do that")


async def test_a_tool_of_the_host_is_called_and_its_result_reaches_the_model(
    options: AgentOptions, api: ResponsesApi
) -> None:
    asked = list[str]()

    @proctor.tool
    async def weather(city: str) -> str:
        """What the weather is like."""
        asked.append(city)
        return "snow"

    given = options.copy()
    given["host_tools"] = [weather]
    api.play(Tool("weather", {"city": "Oslo"}), Text("take a coat"))
    spec = agent_spec("a", codex_plan("a", given), {})
    async with proctor.open_supervisor([spec]) as sup:
        answer = await sup.agent("a").ask("go", timeout=BOUND)
    assert (answer.outcome, answer.text, asked) == ("ok", "take a coat", ["Oslo"])
    assert "weather" in api.requests[0].tools
    assert "snow" in api.requests[1].tool_outputs[0]


async def test_killed_in_mid_turn_the_conversation_goes_on_in_the_same_thread(
    options: AgentOptions, api: ResponsesApi, home: ClaudeHome
) -> None:
    api.play(Text("before"), Hang(Text("never finished"), after=1), Text("after"))
    spec = agent_spec("a", with_weather(codex_plan("a", options)), {})
    async with proctor.open_supervisor([spec], intensity=1, period=60) as sup:
        agent = sup.agent("a")
        before = await agent.ask("first", timeout=BOUND)
        lost = list[proctor.MaybeExecuted]()
        async with agent.stream("second") as turn:
            try:
                async for event in turn:
                    if isinstance(event, proctor.TextDelta):
                        os.killpg(os.getpgid((await agent.status()).pid or 0), signal.SIGKILL)
            except proctor.MaybeExecuted as error:
                lost.append(error)
        after = await agent.ask("third", timeout=BOUND)
        status = await agent.status()
    [gone] = lost
    assert "(killed_by_system): it was killed by SIGKILL" in str(gone)  # whatever stderr warns of
    assert gone.delivery is not None
    assert (gone.delivery.signal, gone.delivery.text[:5]) == ("SIGKILL", "never")
    assert (after.outcome, after.text, after.session_id) == ("ok", "after", before.session_id)
    assert status.incarnation == 2
    assert {"first", "second", "third"} <= {*api.requests[-1].user_texts}
    assert "weather" in api.requests[-1].tools
    assert home.leftovers() == []


@pytest.mark.covers("L37")
async def test_a_thread_that_nobody_knows_is_refused_and_an_agent_starts_afresh(
    options: AgentOptions, api: ResponsesApi
) -> None:
    unknown = "01a1ffbf-0142-71e1-9c8c-000000000000"
    api.play(Text("hello"))
    plan = plan_with(options, {"resume": unknown})
    with pytest.raises(proctor.StartRefused, match="no rollout found"):
        await ask(plan, "hi", timeout=BOUND)
    async with proctor.open_supervisor([agent_spec("a", plan, {})]) as sup:
        answer = await sup.agent("a").ask("hi", timeout=BOUND)
    assert answer.outcome == "ok"
    assert answer.session_id not in (None, unknown)
