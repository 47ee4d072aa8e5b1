from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AskInterrupted, BadOption, MaybeExecuted
from proctor.actors.opencode_server.plan import served_plan
from proctor.actors.outcomes import Answer, answer_of
from proctor.actors.plan.options import AgentMode, AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import ask, stream
from proctor.actors.specs import agent_spec
from proctor.actors.structured.schemas import schema_of
from proctor.actors.structured.strategies import Case, Route, route_of
from proctor.actors.structured.structured import Expected, StructuredRequest
from proctor.actors.tools.tools import tool
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation
from proctor.protocols.errors import Misuse
from tests.actors.shaped import Step, shaped_plan
from tests.tables import each_row


class Bill(msgspec.Struct):
    total: int
    note: str = ""


SCHEMA = schema_of(Bill)
BILL = Bill(7, "paid")
GOOD = {"total": 7, "note": "paid"}
TEXT = '{"total": 7, "note": "paid"}'
BAD = {"total": "seven"}
WHY = '/total: "seven" is not of type "integer"'
NATIVE = ("structured_output",)
TOOLLESS = ("structured_output", "host_tools")


async def held(plan: Plan, *prompts: str, schema: object = Bill) -> list[Answer]:
    """The answers of a held agent to these prompts, one after the other."""
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        return [await sup.agent("agent").ask(prompt, schema=schema, timeout=60) for prompt in prompts]


# -- by which way

FRESH: Sequence[tuple[str, AgentMode, bool, AgentOptions, Route]] = [
    ("claude", "session", True, {}, "launch"),
    ("claude", "oneshot", True, {}, "launch"),
    ("claude", "session", False, {}, "text"),
    ("claude", "session", False, {"schemas": True}, "standing_tools"),
    ("claude", "session", False, {"json_schema": SCHEMA.text}, "launch"),
    ("claude", "session", True, {"json_schema": '{"type": "null"}'}, "tools"),
    ("codex", "session", True, {}, "turn"),
    ("codex", "session", False, {"schemas": True}, "turn"),
    ("codex", "exec", True, {}, "launch"),
    ("serve", "serve", False, {}, "turn"),
]


def made(kind: str, mode: AgentMode, options: AgentOptions) -> Plan:
    chosen: AgentOptions = {**options, "mode": mode}
    match kind:
        case "claude":
            return claude_plan("a", chosen)
        case "codex":
            return codex_plan("a", chosen)
        case "serve":
            return served_plan("a", options, server="hub")
        case _:
            return opencode_plan("a", chosen)


@each_row(("kind", "mode", "fresh", "options", "route"), FRESH)
def test_the_way_is_the_first_that_the_agent_has(
    kind: str, mode: AgentMode, fresh: bool, options: AgentOptions, route: Route
) -> None:
    assert route_of(Case(made(kind, mode, options), SCHEMA, fresh)) == route


@pytest.mark.parametrize(("kind", "route"), [("claude", "tools"), ("codex", "tools")])
def test_a_schema_that_a_model_takes_in_no_form_goes_another_way(kind: str, route: Route) -> None:
    case = Case(made(kind, "session", {}), schema_of({"anyOf": [{"type": "integer"}]}), True)
    assert case.form is None
    assert route_of(case) == route


def test_a_prompt_with_a_schema_is_refused_where_it_cannot_travel() -> None:
    talk = Conversation(shaped_plan()[0].dialect)
    talk.greet()
    with pytest.raises(Misuse, match="with its own schema is not supported by claude"):
        talk.send(v.Prompt("p1", "hi", schema={"type": "object"}))


# -- a run

SHAPED: list[Step] = [{"shape": GOOD}]
RUNS: Sequence[tuple[str, Sequence[str], list[Step]]] = [
    ("launch", (), SHAPED),
    ("launch, but in words", (), [{"say": TEXT}]),
    ("tools", NATIVE, [{"submit": GOOD}, {"say": "I am done"}]),
    ("tools, but in words", NATIVE, [{"say": TEXT}]),
    (
        "tools, corrected",
        NATIVE,
        [{"submit": {"total": 1}}, {"submit": GOOD}, {"submit": BAD}, {"say": "so"}],
    ),
    ("text", TOOLLESS, [{"say": TEXT}]),
    ("text in a fence", TOOLLESS, [{"say": f"Here:\n```json\n{TEXT}\n```\nAnything else?"}]),
    ("text in the last fence", TOOLLESS, [{"say": f'```\n{{"total": 1}}\n```\nno:\n```\n{TEXT}\n```'}]),
]


@pytest.mark.covers("R139")
@pytest.mark.parametrize(("way", "lacking", "turn"), RUNS, ids=[way for way, *_ in RUNS])
async def test_a_run_answers_with_what_was_declared_by_every_way(
    way: str, lacking: Sequence[str], turn: list[Step], autojump_clock: MockClock
) -> None:
    plan, talk = shaped_plan(turn, lacking=lacking)
    answer = await ask(plan, "How much?", schema=Bill)
    assert (answer.outcome, answer.value, answer.structured_output) == ("ok", BILL, GOOD)
    assert answer.error is None
    assert len(talk.prompts) == 1
    assert (SCHEMA.text in talk.prompts[0]) == way.startswith("text")
    assert talk.tools == ([["submit", "validate", "example"]] if way.startswith("tools") else [])


@pytest.mark.covers("R139")
async def test_without_a_schema_the_result_is_the_text(autojump_clock: MockClock) -> None:
    plan, _ = shaped_plan([{"say": TEXT}])
    answer = await ask(plan, "How much?")
    assert (answer.text, answer.value, answer.structured_output, answer.attempts) == (TEXT, None, None, 1)


WRONG: Sequence[tuple[str, Sequence[str], Step]] = [
    ("launch", (), {"shape": BAD}),
    ("launch", (), {"say": "seven"}),
    ("launch", (), {"end": "error_max_structured_output_retries"}),
    ("tools", NATIVE, {"say": "seven"}),
    ("text", TOOLLESS, {"say": "seven"}),
    ("text", TOOLLESS, {"say": '{"total": "seven"}'}),
]


@pytest.mark.covers("L11")
@pytest.mark.parametrize("where", ["run", "held"])
@pytest.mark.parametrize(("way", "lacking", "wrong"), WRONG)
async def test_wrong_twice_then_right_is_three_attempts_and_their_cost_is_summed(
    where: str, way: str, lacking: Sequence[str], wrong: Step, autojump_clock: MockClock
) -> None:
    tooled: Step = {"submit": GOOD if where == "run" else {"value": GOOD}}
    right = tooled if way == "tools" else {"say": TEXT}
    plan, talk = shaped_plan(
        [wrong], [wrong], [right, {"say": "done"}], lacking=lacking, schemas=way == "tools"
    )
    [answer] = (
        [await ask(plan, "How much?", schema=Bill)] if where == "run" else await held(plan, "How much?")
    )
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", BILL, 3)
    assert (answer.cost_usd, answer.duration, answer.model_turns) == (0.75, 1.5, 6)
    assert len(talk.prompts) == 3
    assert all("Errors (1):" in prompt for prompt in talk.prompts[1:])
    assert (WHY in talk.prompts[1]) == (BAD in wrong.values() or "total" in str(wrong))


@pytest.mark.covers("L11")
async def test_what_is_submitted_wrongly_is_told_at_once_and_is_an_attempt(
    autojump_clock: MockClock,
) -> None:
    turn: list[Step] = [{"submit": BAD}, {"validate": BAD}, {"submit": {}}, {"submit": GOOD}, {"say": "done"}]
    plan, talk = shaped_plan(turn, lacking=NATIVE)
    answer = await ask(plan, "How much?", schema=Bill)
    assert (answer.value, answer.attempts, len(talk.prompts)) == (BILL, 3, 1)
    assert WHY in talk.results[0]
    assert talk.results[0].startswith("Not accepted.")
    assert WHY in talk.results[1]
    assert '"total" is a required property' in talk.results[2]
    assert talk.results[3].startswith("Accepted.")


@pytest.mark.covers("L11")
async def test_a_turn_in_which_something_was_submitted_is_no_attempt_besides(
    autojump_clock: MockClock,
) -> None:
    wrong: list[Step] = [{"submit": BAD}, {"say": "done"}]
    plan, talk = shaped_plan(wrong, wrong, [{"submit": GOOD}, {"say": "done"}], lacking=NATIVE)
    answer = await ask(plan, "How much?", schema=Bill)
    assert (answer.value, answer.attempts, len(talk.prompts)) == (BILL, 3, 3)
    assert WHY in talk.prompts[2]


OUT: Sequence[tuple[Expected, int, str]] = [
    (Expected(Bill), 3, "in 3 of 3 attempts"),
    (Expected(Bill, attempts=1), 1, "in 1 of 1 attempts"),
    (Expected(Bill, attempts=9, max_cost_usd=0.5), 2, "in 2 of 9 attempts, $0.5 spent"),
]


@pytest.mark.covers("L11")
@pytest.mark.parametrize("where", ["run", "held"])
@pytest.mark.parametrize(("expected", "prompts", "why"), OUT)
async def test_out_of_attempts_or_money_it_fails_with_the_last_violations(
    where: str, expected: Expected, prompts: int, why: str, autojump_clock: MockClock
) -> None:
    plan, talk = shaped_plan(
        *([{"say": "{}"}] for _ in range(prompts - 1)), [{"shape": BAD}], [{"say": "on"}]
    )
    if where == "run":
        answer = await ask(plan, "How much?", schema=expected)
    else:
        [answer] = await held(plan, "How much?", schema=expected)
    assert (answer.outcome, answer.ending, answer.value) == ("failed", "schema_unmet", None)
    assert (answer.attempts, len(talk.prompts), answer.cost_usd) == (prompts, prompts, prompts * 0.25)
    assert answer.error is not None
    assert why in answer.error
    assert WHY in answer.error


@pytest.mark.parametrize(
    ("subtype", "outcome"), [("error_max_turns", "exhausted"), ("error_during_execution", "failed")]
)
async def test_a_turn_that_ends_for_another_reason_is_not_repeated(
    subtype: str, outcome: str, autojump_clock: MockClock
) -> None:
    plan, talk = shaped_plan([{"end": subtype}])
    answer = await ask(plan, "How much?", schema=Bill)
    value: object = answer.value
    assert (answer.outcome, value, len(talk.prompts)) == (outcome, None, 1)


AFTER: Sequence[tuple[list[Step], str]] = [
    ([{"die": 1}], "crashed"),
    ([{"die": 0}], "no_answer"),
    ([{"end": "error_during_execution"}], "failed"),
    ([{"end": "error_max_turns"}, {"die": 1}], "exhausted"),
    ([{"wait": 0}], "deadline"),
]


@pytest.mark.covers("R152")
@pytest.mark.parametrize("where", ["run", "held", "retrying"])
@pytest.mark.parametrize(("after", "outcome"), AFTER)
async def test_a_valid_submission_is_success_whatever_comes_after_it(
    where: str, after: list[Step], outcome: str, autojump_clock: MockClock
) -> None:
    options: AgentOptions = {
        "on_crash": "retry" if where == "retrying" else "fail",
        "schemas": True,
        "silence": 999.0,
    }
    plan, talk = shaped_plan(
        [{"submit": GOOD if where == "run" else {"value": GOOD}}, *after], lacking=NATIVE, **options
    )
    [answer] = (
        [await ask(plan, "How much?", schema=Bill)] if where == "run" else await held(plan, "How much?")
    )
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", BILL, 1)
    assert answer.error is None
    assert outcome in answer.notes[-1]
    assert len(talk.prompts) == 1


@pytest.mark.covers("R152")
async def test_a_process_that_is_killed_after_a_submission_has_answered(
    autojump_clock: MockClock,
) -> None:
    plan, _ = shaped_plan([{"submit": GOOD}, {"wait": 0}], lacking=NATIVE)
    async with stream(plan, "How much?", schema=Bill) as live:
        async for event in live:
            if isinstance(event, v.ToolRequested):
                await trio.testing.wait_all_tasks_blocked()
                live.kill()
    assert (live.answer.outcome, live.answer.value) == ("ok", BILL)
    assert "killed" in live.answer.notes[-1]


@pytest.mark.covers("R152")
async def test_what_was_answered_by_a_submission_is_not_asked_again_after_a_crash(
    autojump_clock: MockClock,
) -> None:
    turns: list[list[Step]] = [[{"submit": {"value": GOOD}}, {"die": 1}], [{"say": "on"}]]
    plan, talk = shaped_plan(*turns, lacking=NATIVE, schemas=True, on_crash="retry")
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        answer = await sup.agent("agent").ask("How much?", schema=Bill)
        after = await sup.agent("agent").ask("Next?")
    assert (answer.value, after.text) == (BILL, "on")
    assert talk.prompts[1:] == ["Next?"]


async def test_without_a_submission_an_end_in_mid_turn_is_one(autojump_clock: MockClock) -> None:
    plan, _ = shaped_plan([{"submit": {"value": BAD}}, {"die": 1}], lacking=NATIVE, schemas=True)
    with pytest.raises(MaybeExecuted):
        await held(plan, "How much?")


async def test_a_deadline_holds_for_all_attempts_together(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan([{"say": "seven"}], [{"wait": 0}])
    with pytest.raises(AskInterrupted):
        await ask(plan, "How much?", timeout=10, schema=Bill)
    assert len(talk.prompts) == 2
    plan, _ = shaped_plan([{"say": "seven"}], [{"wait": 0}])
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        with pytest.raises(AskInterrupted):
            await sup.agent("agent").ask("How much?", timeout=10, schema=Bill)


@pytest.mark.covers("R151")
async def test_the_three_are_listed_together_with_the_tools_of_the_agent(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def weigh(article: str) -> int:
        return 7

    plan, talk = shaped_plan(
        [{"weigh": {"article": "nut"}}, {"submit": GOOD}, {"say": "done"}], lacking=NATIVE, host_tools=[weigh]
    )
    answer = await ask(plan, "How much?", schema=Bill)
    assert (answer.value, talk.results[0]) == (BILL, "7")
    assert talk.tools == [["weigh", "submit", "validate", "example"]]


# -- a held agent


async def test_an_agent_is_asked_for_one_thing_after_another(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan(
        [{"submit": {"value": GOOD}}, {"say": "a"}],
        [{"submit": {"value": [1]}}, {"example": {}}, {"submit": {"value": 3}}, {"say": "b"}],
        [{"submit": {"value": 3}}, {"say": "c"}],
        schemas=True,
    )
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        agent = sup.agent("agent")
        bill = await agent.ask("How much?", schema=Bill)
        number = await agent.ask("How many?", schema=int)
        words = await agent.ask("And in words?")
    assert (bill.value, number.value, number.attempts) == (BILL, 3, 2)
    assert (words.value, words.text, words.ok) == (None, "c", True)
    assert talk.results[-1].startswith("No structured answer is expected now")
    assert talk.tools == [["submit", "validate", "example"]]


async def test_the_next_attempt_comes_before_what_others_asked_meanwhile(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan([{"rest": 5}, {"say": "seven"}], [{"say": TEXT}], [{"say": "other"}])
    answers: dict[str, Answer] = {}

    async def asks(agent: Agent, prompt: str, schema: object = None) -> None:
        answers[prompt] = await agent.ask(prompt, schema=schema)

    async with (
        proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(asks, sup.agent("agent"), "How much?", Bill)
        await trio.sleep(1)
        nursery.start_soon(asks, sup.agent("agent"), "And you?")
    assert (answers["How much?"].value, answers["And you?"].text) == (BILL, "other")
    assert [prompt.splitlines()[0] for prompt in talk.prompts] == [
        "How much?",
        "Errors (1):",
        "And you?",
    ]


async def test_a_stream_tells_of_every_attempt(autojump_clock: MockClock) -> None:
    plan, _ = shaped_plan([{"say": "seven"}], [{"say": TEXT}])
    async with (
        proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup,
        sup.agent("agent").stream("How much?", schema=Bill) as turn,
    ):
        events = [event async for event in turn]
    assert turn.answer.value == BILL
    unmet = [event for event in events if isinstance(event, v.Notice) and event.code == "unmet"]
    assert len(unmet) == 1
    assert [event.ending for event in events if isinstance(event, v.TurnEnded)] == ["completed", "completed"]


async def test_who_leaves_between_two_attempts_is_asked_nothing_more(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan([{"say": "seven"}], [{"wait": 0}], [{"say": "on"}])
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        with trio.move_on_after(5):
            await sup.agent("agent").ask("How much?", schema=Bill)
        answer = await sup.agent("agent").ask("Next?")
        status = await sup.agent("agent").status()
    assert (answer.text, status.state, status.incarnation) == ("on", "idle", 1)
    assert [prompt.splitlines()[0] for prompt in talk.prompts] == [
        "How much?",
        "Errors (1):",
        "Next?",
    ]


async def test_a_crash_in_an_attempt_goes_by_the_spec_of_the_agent(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan([{"say": "seven"}], [{"die": 1}], [{"say": TEXT}], on_crash="retry")
    [answer] = await held(plan, "How much?")
    assert (answer.value, len(talk.prompts)) == (BILL, 3)
    assert talk.prompts[1] == talk.prompts[2]


# -- declarations


async def test_a_schema_that_is_none_is_refused_before_anything_starts() -> None:
    plan, talk = shaped_plan()
    with pytest.raises(BadOption, match="cannot be used"):
        await ask(plan, "How much?", schema={"type": "objekt"})
    assert talk.prompts == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"attempts": 0}, "attempts must be a whole number of at least 1, got 0"),
        ({"attempts": True}, "attempts must be"),
        ({"max_cost_usd": 0}, "max_cost_usd must be a number of US dollars above 0, got 0"),
    ],
)
def test_bounds_are_checked(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        Expected(Bill, **options)


async def test_a_tool_of_the_same_name_is_refused() -> None:
    @tool
    async def submit(value: int) -> None:
        return

    plan, _ = shaped_plan(lacking=NATIVE, host_tools=[submit])
    with pytest.raises(BadOption, match="two host_tools are named 'submit'"):
        await ask(plan, "How much?", schema=Bill)


# -- the account


def ended(**facts: Any) -> v.TurnEnded:
    return v.TurnEnded(1, "t1", facts.pop("ending", "completed"), **facts)


@pytest.mark.covers("L11")
def test_what_the_attempts_took_is_summed_as_far_as_it_was_told() -> None:
    request = StructuredRequest(Expected(Bill))
    request.judge(ended(text="no", usage=v.Usage(1, 2), cost_usd=0.5))
    request.judge(ended(text="no", usage=v.Usage(10, None, 5)))
    last = ended(text=TEXT, usage=None, cost_usd=0.25)
    assert request.judge(last) is None
    answer = request.settled(answer_of("a", last))
    assert (answer.usage, answer.cost_usd, answer.attempts) == (v.Usage(11, 2, 5), 0.75, 3)
    assert answer.duration is None


def test_an_agent_without_a_memory_is_asked_the_whole_again() -> None:
    plan = shaped_plan(mode="oneshot", persist=False)[0]
    request = StructuredRequest(Expected(Bill))
    request.choose(plan, fresh=True)
    request.worded("How much?")
    again = request.judge(ended(text='{"total": "seven"}'))
    assert again is not None
    assert again.startswith("How much?")
    assert '{"total": "seven"}' in again
    assert WHY in again
