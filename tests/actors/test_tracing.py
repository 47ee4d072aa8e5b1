"""Spans of turns: the same shape for every kind of agent, below the caller's span, without content unless it is asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import proctor
import proctor.aio
import proctor.sync
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import scripted_plan
from proctor.actors.runs import ask
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.actors.serving.sessions import Sessions
from tests.actors.far_end import Step, agent_of, write_script
from tests.actors.gateways.http.serving import served

STEPS: Sequence[Step] = (
    {"tool": "Bash", "input": {"command": "ls secret"}, "result": "a.txt"},
    {"reply": "There is one file."},
)
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Memory:
    """The spans that were exported. The provider of a program is set once, so all tests have the same."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, prefix: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(prefix)]

    def tree(self) -> list[tuple[str, str | None]]:
        """Each span's name with that of its parent, in the order of their beginnings."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        began = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in began]


@pytest.fixture
def memory() -> Iterator[Memory]:
    found = Memory()
    with provider(found.provider):
        yield found


@contextmanager
def provider(chosen: trace.TracerProvider) -> Iterator[None]:
    """The library lets a provider be set once in a program, which is of no use to tests."""
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = chosen
    try:
        yield
    finally:
        trace._TRACER_PROVIDER = before


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("dialect", SCRIPTED_WIRES)
async def test_a_turn_has_the_same_spans_for_every_kind_of_agent(
    dialect: str, tmp_path: Path, memory: Memory
) -> None:
    options: AgentOptions = {"home": "private", "silence": 20.0, "final": 0.5, "permission": "allow"}
    plan = scripted_plan("a", write_script(tmp_path, STEPS), options, dialect=dialect)
    with trace.get_tracer("test").start_as_current_span("caller"):
        answer = await ask(plan, "What is there?", timeout=30)
    assert answer.outcome == "ok"
    [tool] = memory.named("execute_tool")
    shapes = [(name.split()[0], parent and parent.split()[0]) for name, parent in memory.tree()]
    assert shapes == [
        ("caller", None),
        ("invoke_agent", "caller"),
        ("chat", "invoke_agent"),
        ("execute_tool", "invoke_agent"),
        ("chat", "invoke_agent"),
    ]
    [turn] = memory.named("invoke_agent a")
    assert (turn.kind, tool.kind) == (SpanKind.INTERNAL, SpanKind.INTERNAL)
    assert {span.kind for span in memory.named("chat")} == {SpanKind.CLIENT}
    assert attributes(turn)["proctor.outcome"] == "ok"
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 1


async def test_an_agent_of_a_tree_and_a_session_have_the_spans_of_a_run(
    tmp_path: Path, memory: Memory
) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, STEPS, permission="allow")]) as sup:
        with trace.get_tracer("test").start_as_current_span("first"):
            await sup.agent("a").ask("one")
        with trace.get_tracer("test").start_as_current_span("second"):
            async with sup.agent("a").stream("two") as turn:
                async for _ in turn:
                    pass
    inner = ["invoke_agent a", "chat scripted", "execute_tool Bash", "chat scripted"]
    assert [name for name, _ in memory.tree()] == ["first", *inner, "second", *inner]
    first, second = memory.named("invoke_agent")
    assert attributes(first)["gen_ai.conversation.id"] == attributes(second)["gen_ai.conversation.id"]


async def test_a_held_session_has_the_spans_of_a_run(tmp_path: Path, memory: Memory) -> None:
    spec = agent_of(tmp_path, STEPS, permission="allow")
    async with Sessions(tmp_path / "sessions") as sessions, sessions.hold() as session:
        for prompt in ("one", "two"):
            with trace.get_tracer("test").start_as_current_span(prompt):
                await session.run(spec, prompt)
    names = [(name.split()[0], parent) for name, parent in memory.tree() if name.startswith("invoke_agent")]
    assert names == [("invoke_agent", "one"), ("invoke_agent", "two")]
    assert len(memory.named("execute_tool")) == 2


async def test_requests_with_a_key_and_queued_ones_stand_below_their_callers(
    tmp_path: Path, memory: Memory
) -> None:
    agent = agent_of(tmp_path, STEPS, permission="allow")
    async with proctor.open_supervisor([agent], store=proctor.MemoryStore()) as sup:
        with trace.get_tracer("test").start_as_current_span("kept"):
            await sup.agent("a").ask("one", key="order-1")
        with trace.get_tracer("test").start_as_current_span("queued"):
            receipt = await sup.agent("a").queue("two")
        await receipt.answer()
    tops = [parent for name, parent in memory.tree() if name.startswith("invoke_agent")]
    assert tops == ["kept", "queued"]
    assert len(memory.named("execute_tool")) == 2


async def test_a_request_that_is_sent_again_after_a_crash_is_one_trace(
    tmp_path: Path, memory: Memory
) -> None:
    steps: Sequence[Step] = (
        {"turn": "after", "incarnation": 2},
        {"reply": "Done."},
        {"turn": "before"},
        {"tool": "Bash", "input": {"command": "ls"}, "result": "a"},
        {"fault": "crash@once"},
        {"reply": "never"},
    )
    agent = agent_of(tmp_path, steps, permission="allow", on_crash="retry")
    async with proctor.open_supervisor([agent]) as sup:
        answer = await sup.agent("a").ask("hi", timeout=60)
    assert answer.outcome == "ok"
    [turn] = memory.named("invoke_agent")
    assert turn.status.status_code is StatusCode.UNSET
    below = [name.split()[0] for name, parent in memory.tree() if parent == turn.name]
    assert below == ["chat", "execute_tool", "chat", "chat"]


async def test_the_spans_of_other_faces_stand_below_their_callers(tmp_path: Path, memory: Memory) -> None:
    def plainly() -> None:
        with trace.get_tracer("test").start_as_current_span("plain"):
            proctor.sync.ask(agent_of(tmp_path, STEPS, permission="allow"), "hi", timeout=30)

    def in_asyncio() -> None:
        async def main() -> None:
            with trace.get_tracer("test").start_as_current_span("asyncio"):
                await proctor.aio.ask(agent_of(tmp_path, STEPS, permission="allow"), "hi", timeout=30)

        asyncio.run(main())

    await trio.to_thread.run_sync(plainly)
    await trio.to_thread.run_sync(in_asyncio)
    tops = [parent for name, parent in memory.tree() if name.startswith("invoke_agent")]
    assert tops == ["plain", "asyncio"]


async def test_a_turn_that_is_asked_for_over_http_stands_below_the_span_of_its_client(memory: Memory) -> None:
    caller, above = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"traceparent": f"00-{caller}-{above}-01"}
    async with served() as server:
        await server.client.post("/agents/a/turns", json={"prompt": "hello"}, headers=headers)
        await server.client.post(
            "/agents/a/turns", json={"prompt": "hello"}, headers={"traceparent": "nonsense"}
        )
    first, second = memory.named("invoke_agent")
    assert first.parent is not None
    assert (f"{first.parent.trace_id:032x}", f"{first.parent.span_id:016x}") == (caller, above)
    assert second.parent is None


@pytest.mark.parametrize("latest", [False, True])
async def test_the_names_are_those_of_the_generation_that_was_chosen(
    latest: bool, tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPT_IN, "http,gen_ai_latest_experimental" if latest else "http")
    plan = scripted_plan("a", write_script(tmp_path, STEPS), {"permission": "allow"})
    answer = await ask(plan, "hi", timeout=30)
    assert answer.usage is not None
    [turn] = memory.named("invoke_agent")
    found = attributes(turn)
    assert found["gen_ai.provider.name" if latest else "gen_ai.system"] == "scripted"
    assert ("gen_ai.system" in found, "gen_ai.provider.name" in found) == (not latest, latest)
    assert ("gen_ai.usage.cache_read.input_tokens" in found) == latest
    assert found["gen_ai.usage.output_tokens"] == answer.usage.output_tokens
    assert found["gen_ai.agent.name"] == "a"
    assert found["proctor.cost_usd"] == answer.cost_usd


async def test_no_content_is_in_a_span_unless_it_is_asked_for(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scripted_plan("a", write_script(tmp_path, STEPS), {"permission": "allow"})
    await ask(plan, "my prompt", timeout=30)
    whole = "".join(span.to_json() for span in memory.spans)
    assert [word for word in ("my prompt", "secret", "a.txt", "There is one") if word in whole] == []
    for chosen, latest in (("true", ""), ("SPAN_ONLY", "gen_ai_latest_experimental")):
        memory.exporter.clear()
        monkeypatch.setenv(CONTENT, chosen)
        monkeypatch.setenv(OPT_IN, latest)
        await ask(plan, "my prompt", timeout=30)
        whole = "".join(span.to_json() for span in memory.spans)
        assert [word for word in ("my prompt", "secret", "a.txt", "There is one") if word not in whole] == []
    [turn] = memory.named("invoke_agent")
    assert json.loads(attributes(turn)["gen_ai.input.messages"])[0]["parts"][0]["content"] == "my prompt"


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [(({"end": "api_error", "status": 500},), "failed"), (({"fault": "crash"},), "killed_by_system")],
)
async def test_a_turn_that_fails_is_an_error_without_content(
    steps: Sequence[Step], outcome: str, tmp_path: Path, memory: Memory
) -> None:
    plan = scripted_plan("a", write_script(tmp_path, steps), {})
    answer = await ask(plan, "hi", timeout=30)
    assert answer.outcome == outcome
    [turn] = memory.named("invoke_agent")
    assert (turn.status.status_code, turn.status.description) == (StatusCode.ERROR, outcome)
    assert attributes(turn)["error.type"] == outcome
    assert len(memory.spans) == len(memory.tree())


async def test_the_spans_of_a_turn_that_its_caller_leaves_have_ended(tmp_path: Path, memory: Memory) -> None:
    hangs = agent_of(tmp_path, ({"say": "I begin."}, {"sleep": 60}))
    async with proctor.open_supervisor([hangs]) as sup, sup.agent("a").stream("hi") as turn:
        async for event in turn:
            if isinstance(event, proctor.TurnStarted):
                break
    assert {name.split()[0] for name, _ in memory.tree()} == {"invoke_agent", "chat"}
    [left] = memory.named("invoke_agent")
    assert attributes(left)["proctor.outcome"] == "left"


async def test_an_agent_that_does_not_run_leaves_a_span_that_failed(tmp_path: Path, memory: Memory) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path)]) as sup:
        agent = sup.agent("a")
        await sup.terminate_child("a")
        with pytest.raises(proctor.NoProc), trio.fail_after(10):
            await agent.ask("hi")
    [turn] = memory.named("invoke_agent")
    assert turn.status.status_code is StatusCode.ERROR


def test_nothing_of_it_is_imported_where_no_provider_is_set(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    script = write_script(tmp_path, STEPS)
    program.write_text(
        "import sys, proctor\n"
        f"answer = proctor.run(proctor.ask, proctor.scripted('a', {str(script)!r}, permission='allow'), 'hi')\n"
        "print(answer.outcome, [name for name in sys.modules if 'opentelemetry' in name or 'tracing.spans' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("ok []\n", "")
