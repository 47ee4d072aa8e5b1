from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, get_args

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors import errors as e
from proctor.actors.delivery import Delivery
from proctor.actors.error_kinds import RESPONSES, chain, fault_of, is_retryable, response_of
from proctor.actors.errors import (
    AskTimeout,
    BadOption,
    CompletionError,
    GreetingTimeout,
    NotInstalled,
    ProviderError,
)
from proctor.actors.plan.plan import claude_plan
from proctor.actors.recording.eventlog import Cursor
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.actors.serving.chunks import (
    Chunk,
    ChunkBuilder,
    Complete,
    Failed,
    TextChunk,
    ToolOutput,
    ToolUse,
    Void,
)
from proctor.actors.serving.completion import CompletionModel, CompletionRequest
from proctor.actors.serving.pool import Pool
from proctor.actors.specs import agent_spec
from proctor.actors.structured.payloads import FilePayload, JsonPayload, Payload
from proctor.actors.transport.memory import PeerStreams
from proctor.actors.transport.transport import Start, Transport
from proctor.protocols import vocabulary as v
from proctor.protocols.prompt import Message
from proctor.protocols.vocabulary import Usage
from proctor.runtime.error_facts import Fault
from proctor.runtime.exits import RuntimeFault
from tests.actors.far_end import write_script
from tests.actors.spoken import GOOD, TALK, deaf, saying, spec_of, spoken_plan, unwanted
from tests.protocols.lines import assistant, delta, text
from tests.tables import each_row


async def chunks_of(model: CompletionModel, prompt: str = "hi", **more: Any) -> list[Chunk]:
    async with model.stream(CompletionRequest(prompt=prompt, **more)) as said:
        return [chunk async for chunk in said]


class Sum(msgspec.Struct):
    sum: int


OPEN = {"codex-exec": "danger-full-access"}
"""Where a tool that would have to ask is refused, unless nothing has to."""


@pytest.mark.covers("R135", "R140")
async def test_a_response_has_choice_usage_and_the_raw_answer(autojump_clock: MockClock) -> None:
    made = await CompletionModel.make(spec_of(TALK), "small").completion(CompletionRequest(prompt="2 + 2?"))
    assert (made.choice, made.usage, made.raw.outcome) == ("It is 4.", Usage(3, 5), "ok")
    assert [(call.name, call.input) for call in made.tool_calls] == [("Read", {"path": "a"})]


@pytest.mark.covers("R135")
@pytest.mark.parametrize("wire", SCRIPTED_WIRES)
async def test_every_command_line_answers_alike(wire: str, tmp_path: Path) -> None:
    script = write_script(
        tmp_path, [{"tool": "Read", "input": {"path": "a"}, "result": "4"}, {"reply": "It is 4."}]
    )
    spec = proctor.scripted(
        "agent", script, dialect=wire, home="private", permission="allow", sandbox=OPEN.get(wire)
    )
    async with CompletionModel.make(spec).stream(CompletionRequest(prompt="hi")) as stream:
        said = [chunk async for chunk in stream]
    [used, out, end] = [chunk for chunk in said if not isinstance(chunk, TextChunk)]
    assert isinstance(used, ToolUse)
    assert isinstance(out, ToolOutput)
    assert isinstance(end, Complete)
    assert (out.id, out.name, out.text.strip(), out.is_error) == (used.id, used.name, "4", False)
    assert stream.response.tool_outputs == (out,)
    assert "".join(c.text for c in said if isinstance(c, TextChunk)) == "It is 4."
    assert (stream.response.choice, stream.response.raw.outcome) == ("It is 4.", "ok")


@pytest.mark.covers("R139")
async def test_a_schema_makes_the_choice_a_value_and_without_one_it_is_the_text(
    autojump_clock: MockClock,
) -> None:
    model = CompletionModel.make(spec_of(saying(**GOOD, structured_output={"sum": 4})))
    asked = CompletionRequest(prompt="2 + 2?")
    shaped = await model.completion(attrs.evolve(asked, schema=Sum))
    assert (shaped.choice, shaped.value) == (Sum(4), Sum(4))
    plain = await CompletionModel.make(spec_of(saying(**GOOD))).completion(asked)
    assert (plain.choice, plain.value) == ("It is 4.", None)


@pytest.mark.covers("R135")
async def test_a_held_agent_is_the_same_model_and_keeps_its_process(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor([spec_of(TALK)]) as sup:
        model = CompletionModel.make(sup.agent("agent"))
        twice = [(await model.completion(CompletionRequest(prompt=p))).choice for p in "ab"]
        status = await sup.agent("agent").status()
    assert (twice, status.turns, status.incarnation) == (["It is 4."] * 2, 2, 1)
    assert model.statistics().completed == 2


@pytest.mark.covers("R084", "R088", "R141")
async def test_chunks_are_a_closed_set_in_order_with_usage_and_metadata(
    autojump_clock: MockClock,
) -> None:
    said = await chunks_of(CompletionModel.make(spec_of(TALK)))
    assert said == [
        TextChunk("Let me see."),
        ToolUse("c1", "Read", {"path": "a"}),
        ToolOutput("c1", "Read", "4"),
        TextChunk("\n\nIt is 4."),
        Complete(Usage(3, 5)),
    ]
    assert said[-1].metadata["session_id"] == "s"
    assert said[0].metadata["turn"] == "1.1"


@pytest.mark.covers("R088")
async def test_a_text_that_came_in_pieces_is_not_told_again_whole(autojump_clock: MockClock) -> None:
    frames = (delta("It "), delta(""), delta("is 4"), assistant(text("It is 4.")), assistant(text("Yes.")))
    said = await chunks_of(CompletionModel.make(spec_of(saying(*frames, **GOOD))))
    assert [c.text for c in said if isinstance(c, TextChunk)] == ["It ", "is 4", ".", "\n\nYes."]


@pytest.mark.covers("R088")
@each_row(
    "event",
    [
        v.TextDelta(0, "t", ""),
        v.Text(0, "t", ""),
        v.TextDelta(0, "t", "of a subagent", parent="c1"),
        v.Text(0, "t", "of a subagent", parent="c1"),
        v.Thinking(0, "t", ""),
        v.Thinking(0, "t", "of a subagent", parent="c1"),
        v.Notice(0, "t", "attempt_void", data={"parent": None}),
        v.Notice(0, "t", "sent", data={"attempt": 1}),
        v.Notice(0, "t", "x"),
    ],
)
def test_an_event_that_means_nothing_to_an_application_gives_nothing(event: v.AnyEvent) -> None:
    assert ChunkBuilder().add(event) == []


async def test_pieces_that_no_block_goes_on_from_are_taken_back(autojump_clock: MockClock) -> None:
    frames = (delta("Wro"), assistant(text("It is 4.")))
    said = await chunks_of(CompletionModel.make(spec_of(saying(*frames, **GOOD))))
    assert said[:-1] == [TextChunk("Wro"), Void("Wro"), TextChunk("It is 4.")]


@pytest.mark.covers("R141")
async def test_a_reader_that_takes_its_time_loses_nothing_and_holds_up_nobody(
    autojump_clock: MockClock,
) -> None:
    frames = [assistant(text(f"n{n}")) for n in range(3000)]
    async with CompletionModel.make(spec_of(saying(*frames, **GOOD))).stream(
        CompletionRequest(prompt="hi")
    ) as said:
        await trio.sleep(30)  # all of it has come by now
        found, most = list[Chunk](), 0
        async for chunk in said:
            found.append(chunk)
            most = max(most, said.pending)
    assert most <= 1
    assert [c.text.strip() for c in found if isinstance(c, TextChunk)] == [f"n{n}" for n in range(3000)]
    assert isinstance(found[-1], Complete)


@pytest.mark.covers("R135")
async def test_a_pool_bounds_the_processes_of_a_model(autojump_clock: MockClock) -> None:
    pool, said, waiting = Pool("one", limit=1), list[object](), list[int]()
    model = CompletionModel.make(spec_of(TALK), pool=pool)

    async def ask(*payloads: Payload) -> None:
        request = CompletionRequest(prompt="hi", payloads=payloads)
        said.append((await model.completion(request)).choice)
        waiting.append(pool.statistics().waiting)

    async with trio.open_nursery() as nursery:
        for payloads in ((), (FilePayload("a.txt", "a"),), ()):
            nursery.start_soon(ask, *payloads)
    assert (said, waiting, pool.statistics().used) == (["It is 4."] * 3, [1, 0, 0], 0)
    async with proctor.open_supervisor([spec_of(TALK)]) as sup:
        with pytest.raises(BadOption, match="is held, and needs no place"):
            CompletionModel.make(sup.agent("agent"), pool=pool)


@pytest.mark.covers("R142")
async def test_leaving_the_stream_ends_the_run(autojump_clock: MockClock) -> None:
    ended = trio.Event()

    async def far_end(side: PeerStreams) -> int | None:
        try:
            return await saying(assistant(text("so far")))(side)
        finally:
            ended.set()

    model = CompletionModel.make(spec_of(far_end))
    async with model.stream(CompletionRequest(prompt="hi")) as said:
        assert await anext(said) == TextChunk("so far")
        assert not ended.is_set()
    assert ended.is_set()
    assert (model.statistics().completed, model.statistics().failed) == (0, {})


@pytest.mark.covers("R142")
async def test_leaving_the_stream_of_a_held_agent_interrupts_its_turn(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor([spec_of(saying())]) as sup:
        agent = sup.agent("agent")
        async with agent.events(0) as log:
            async with CompletionModel.make(agent).stream(CompletionRequest(prompt="hi")) as said:
                with trio.move_on_after(1):
                    await anext(said)
            ends = [event.ending async for event in first_end(log)]
    assert ends == ["interrupted"]


async def first_end(log: Cursor) -> AsyncGenerator[proctor.TurnEnded]:
    async for event in log:
        if isinstance(event, proctor.TurnEnded):
            yield event
            return


@pytest.mark.covers("R110")
async def test_an_exit_status_behind_a_valid_answer_is_an_answer(autojump_clock: MockClock) -> None:
    model = CompletionModel.make(spec_of(saying(**GOOD, status=3)))
    made = await model.completion(CompletionRequest(prompt="hi"))
    assert (made.choice, made.raw.ok) == ("It is 4.", True)


@pytest.mark.covers("R110", "R114", "C25")
async def test_an_exit_status_without_one_is_an_error_with_code_and_stderr(
    autojump_clock: MockClock,
) -> None:
    model = CompletionModel.make(spec_of(saying(assistant(text("so far")), status=3)))
    said = await chunks_of(model)
    assert said[0] == TextChunk("so far")
    last = said[-1]
    assert isinstance(last, Failed)
    provider = last.error.__cause__
    assert isinstance(provider, ProviderError)
    assert (provider.provider, provider.outcome, provider.code) == ("agent", "crashed", 3)
    assert "the last words" in provider.stderr
    assert model.statistics().failed == {"peer": 1}


@pytest.mark.covers("R114", "C25")
async def test_a_failure_before_the_first_event_is_one_error_chunk(
    autojump_clock: MockClock,
) -> None:
    model = CompletionModel.make(spec_of(saying(), executable="/nowhere/claude"))
    missing = attrs.evolve(claude_plan("agent", {"executable": "/nowhere/claude"}))
    model = CompletionModel.make(agent_spec("agent", missing, {}))
    [only] = await chunks_of(model)
    assert isinstance(only, Failed)
    assert [type(error) for error in chain(only.error)][:3] == [CompletionError, ProviderError, NotInstalled]


@pytest.mark.covers("R105")
async def test_a_timeout_in_the_agent_is_seen_through_every_layer(autojump_clock: MockClock) -> None:
    model = CompletionModel.make(spec_of(deaf, greeting=3.0))
    with pytest.raises(
        CompletionError, match="provider 'agent': agent did not answer the greeting"
    ) as caught:
        await model.completion(CompletionRequest(prompt="hi"))
    layers = [type(error) for error in chain(caught.value)]
    assert layers == [CompletionError, ProviderError, GreetingTimeout]


@pytest.mark.parametrize("held", [True, False])
async def test_the_deadline_of_a_request_is_an_error_that_says_so(
    held: bool, autojump_clock: MockClock
) -> None:
    spec = spec_of(saying())
    async with proctor.open_supervisor([spec] if held else []) as sup:
        model = CompletionModel.make(sup.agent("agent") if held else spec)
        with pytest.raises(CompletionError) as caught:
            await model.completion(CompletionRequest(prompt="hi", timeout=5.0))
    assert not is_retryable(caught.value)
    assert isinstance(caught.value.__cause__, ProviderError)
    assert isinstance(caught.value.__cause__.__cause__, AskTimeout if held else type(None))
    delivery = e.delivery_of(caught.value)
    assert delivery is not None
    assert (delivery.stage, delivery.sent) == ("streaming", "yes")


@pytest.mark.covers("R137")
async def test_nothing_to_answer_is_refused_and_starts_nothing(autojump_clock: MockClock) -> None:
    with pytest.raises(CompletionError, match="nothing to answer"):
        await CompletionModel.make(spec_of(unwanted)).completion(CompletionRequest(preamble="Be short."))


@pytest.mark.covers("R138", "L16")
async def test_the_whole_history_reaches_the_agent(autojump_clock: MockClock) -> None:
    heard: list[str] = []

    history = tuple(m for n in "123" for m in (Message("user", f"ask {n}"), Message("assistant", f"say {n}")))
    await CompletionModel.make(spec_of(saying(heard=heard, **GOOD))).completion(
        CompletionRequest(prompt="now", history=history)
    )
    order = [heard[0].index(word) for n in "123" for word in (f"ask {n}", f"say {n}")]
    assert order == sorted(order)


@pytest.mark.covers("R144")
def test_payloads_are_added_by_chained_calls_in_their_order() -> None:
    one, two = FilePayload("a.txt", "a"), JsonPayload({"b": 1})
    request = CompletionRequest(prompt="hi")
    assert request.with_payload(one).with_payload(two).payloads == (one, two)
    assert request.payloads == ()


UNSENT = Delivery(sent="no", stage="queued", elapsed=1.0)
FAULTS: list[tuple[Exception, Fault, bool]] = [
    (e.AskTimeout("a", 1.0), "peer", False),
    (e.AskNotSent("a", 1.0, delivery=UNSENT), "peer", True),
    (e.AskInterrupted("a", 1.0, acknowledged=True, delivery=UNSENT), "peer", False),
    (e.BadOption("x"), "caller", False),
    (e.BudgetExceeded("a", "x"), "caller", False),
    (e.ContextMissing("a", ("user",)), "caller", False),
    (e.GreetingTimeout("a", 1.0, ""), "peer", True),
    (e.MaybeExecuted("a", "crashed", "x"), "peer", False),
    (e.NotExecuted("a", "x"), "peer", True),
    (e.NotInstalled("a", ["/b"], "npm"), "machine", False),
    (e.SessionOwned("a", "s", 1, "b"), "peer", True),
    (e.StartKilled("a", "SIGKILL", ""), "machine", True),
    (e.StartRefused("a", "x"), "machine", False),
    (e.Unresponsive("a", "no sign of life"), "peer", True),
    (e.UnsupportedPayload("a", "binary", "x/y", "x"), "caller", False),
    (e.ProviderError("a", "x", outcome="limited", ending="limit"), "peer", True),
    (e.ProviderError("a", "x", outcome="failed", ending="overloaded"), "peer", True),
    (e.ProviderError("a", "x", outcome="failed", ending="prompt_too_long"), "caller", False),
    (e.ProviderError("a", "x", outcome="authentication", ending="authentication"), "machine", False),
    (e.ProviderError("a", "x", outcome="crashed"), "peer", True),
    (RuntimeFault("x"), "us", False),
    (KeyError("x"), "us", False),
]


@pytest.mark.covers("R111")
@each_row(("error", "fault", "again"), FAULTS, ids=lambda value: getattr(value, "args", value))
def test_whose_fault_an_error_is_and_whether_to_try_again(
    error: Exception, fault: Fault, again: bool
) -> None:
    assert (fault_of(error), is_retryable(error)) == (fault, again)
    whole = CompletionError("no")
    whole.__cause__ = ProviderError("p", "no")
    whole.__cause__.__cause__ = error
    assert fault_of(whole) == fault


@pytest.mark.covers("R111")
def test_every_fault_has_its_own_reaction() -> None:
    assert RESPONSES == {"caller": "return", "machine": "refuse_start", "peer": "report", "us": "report"}
    assert set(RESPONSES) == set(get_args(Fault))
    assert response_of(e.GreetingTimeout("a", 1.0, "")) == "retry"


async def test_a_preamble_is_an_instruction_of_the_cli_and_no_part_of_the_prompt(
    autojump_clock: MockClock,
) -> None:
    heard, argvs = list[str](), list[tuple[str, ...]]()
    plan = spoken_plan(saying(heard=heard, **GOOD), append_system_prompt="Be kind.")

    def reach(start: Start) -> Transport:
        argvs.append(tuple(start.command.argv))
        return plan.reach(start)

    model = CompletionModel.make(agent_spec("agent", attrs.evolve(plan, reach=reach), {}))
    await model.completion(CompletionRequest(prompt="hi", preamble="Be short."))
    assert "--append-system-prompt=Be kind.\n\nBe short." in argvs[0]
    assert heard == ["User:\nhi"]
    await model.completion(CompletionRequest(prompt="hi", preamble="x" * 70_000))
    assert "--append-system-prompt=Be kind." in argvs[1]
    assert heard[1].startswith("System:\nxxx")


async def test_a_held_agent_hears_the_preamble_in_the_prompt(autojump_clock: MockClock) -> None:
    heard = list[str]()
    async with proctor.open_supervisor([spec_of(saying(heard=heard, **GOOD))]) as sup:
        model = CompletionModel.make(sup.agent("agent"))
        await model.completion(CompletionRequest(prompt="hi", preamble="Be short."))
    assert heard == ["System:\nBe short.\n\nUser:\nhi"]
