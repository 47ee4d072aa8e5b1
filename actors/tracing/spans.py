"""The spans of one request: `invoke_agent`, and below it one `chat` for each answer of the model and one `execute_tool` for each tool.

Guarantees: the shape is the same for all kinds of agents, because it is made of their common events; every span that has begun ends with the request, also
when its reader leaves early or the agent dies. The parent is what is current where the request was made.

Times are those at which the reader of the turn got the events: a caller that reads late has late spans, and nothing else is slowed. Command lines do
not report each call of their model, so a `chat` is, as near as the events tell, the time in which no tool ran. Reads no log
and keeps no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from proctor.actors.expense import prompt_tokens
from proctor.actors.tracing.conventions import Conventions
from proctor.protocols import vocabulary as v

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from proctor.actors.outcomes import Answer

Attributes = Mapping[str, str | bool | int | float]


class TurnTrace:
    """The trace of one request with this `prompt`; begins where it is made."""

    def __init__(self, prompt: str) -> None:
        self._names = Conventions.from_environment()
        self._tracer = trace.get_tracer("proctor")
        self._kind, self._model = "", ""
        first = {"gen_ai.operation.name": "invoke_agent"}
        self._turn = self._tracer.start_span("invoke_agent", kind=SpanKind.INTERNAL, attributes=first)
        self._below: Context = trace.set_span_in_context(self._turn)
        self._chat: Span | None = None
        self._chats = 0
        self._tools: dict[str, tuple[Span, Context]] = {}
        self._is_over = False
        self._add_message(self._turn, "user", prompt)

    def serve(self, agent: str, kind: str, model: str | None) -> None:
        """Name the agent that takes the request; `model` is the one of its options."""
        self._kind, self._model = kind, model or ""
        self._turn.update_name(f"invoke_agent {agent}")
        self._turn.set_attributes({"gen_ai.agent.name": agent, **self._names.provider(kind)})
        if model:
            self._turn.set_attribute("gen_ai.request.model", model)

    def take(self, event: v.AnyEvent) -> None:
        """Follow the turn by an event that its reader got."""
        if self._is_over:
            return
        match event:
            case v.TurnStarted():
                self._begin_chat()
            case v.Started():
                self._model = event.model or self._model
                self._turn.set_attribute("gen_ai.conversation.id", event.session_id)
            case v.ToolCall():
                self._begin_tool(event)
            case v.ToolResult():
                self._end_tool(event)
            case v.Text(parent=None) if self._chat is not None:
                self._add_message(self._chat, "assistant", event.text)
            case v.Exited():  # what it was doing has ended with it; the request may go on in another process
                self._end_parts()
            case v.Retrying() | v.LimitReached() | v.ApprovalRequested():
                facts = (
                    {"attempt": event.attempt, "delay": event.delay} if isinstance(event, v.Retrying) else {}
                )
                self._turn.add_event(str(event.__struct_config__.tag), facts)
            case _:
                pass

    # -- ends

    def end(self, answer: Answer) -> None:
        """End the trace with the answer of the request."""
        if self._is_over:
            return
        found: dict[str, str | int | float] = {"proctor.outcome": answer.outcome}
        if answer.model:
            found["gen_ai.response.model"] = answer.model
        if answer.session_id:
            found["gen_ai.conversation.id"] = answer.session_id
        if answer.cost_usd is not None:
            found["proctor.cost_usd"] = answer.cost_usd
        usage = self._usage(answer.usage)
        if self._chat is not None and self._chats == 1:
            self._chat.set_attributes(usage)
        self._turn.set_attributes({**found, **usage})
        if answer.text:
            self._add_message(self._turn, "assistant", answer.text)
        self._close(None if answer.ok else answer.outcome, answer.error or "")

    def fail(self, outcome: str, why: str) -> None:
        """End the trace of a request without an answer."""
        if not self._is_over:
            self._turn.set_attribute("proctor.outcome", outcome)
            self._close(outcome, why)

    def _close(self, error: str | None, why: str) -> None:
        self._is_over = True
        self._end_parts()
        if error is not None:
            self._turn.set_attribute("error.type", error)
            # the text may have some of the prompt in it
            self._turn.set_status(Status(StatusCode.ERROR, why if self._names.content else error))
        self._turn.end()

    def _end_parts(self) -> None:
        for span, _ in self._tools.values():
            span.end()
        self._tools.clear()
        self._end_chat()

    def _usage(self, usage: v.Usage | None) -> Attributes:
        if usage is None:
            return {}
        found = {
            "gen_ai.usage.input_tokens": prompt_tokens(usage, self._kind),
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        known = {name: number for name, number in found.items() if number is not None}
        return known | self._names.cached(usage.cache_read_tokens, usage.cache_write_tokens)

    # -- parts

    def _begin_chat(self) -> None:
        if self._chat is not None:
            return
        facts = {"gen_ai.operation.name": "chat", **self._names.provider(self._kind)}
        if self._model:
            facts["gen_ai.request.model"] = self._model
        name = f"chat {self._model}" if self._model else "chat"
        self._chat = self._tracer.start_span(name, self._below, SpanKind.CLIENT, facts)
        self._chats += 1

    def _end_chat(self) -> None:
        if self._chat is not None:
            self._chat.end()
            self._chat = None

    def _begin_tool(self, event: v.ToolCall) -> None:
        if event.id in self._tools:
            return
        if event.parent is None:
            self._end_chat()
        _, below = self._tools.get(event.parent or "", (None, self._below))
        facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.call.id": event.id,
        }
        if self._names.content:
            facts["gen_ai.tool.call.arguments"] = msgspec.json.encode(event.input).decode()
        span = self._tracer.start_span(f"execute_tool {event.name}", below, SpanKind.INTERNAL, facts)
        self._tools[event.id] = span, trace.set_span_in_context(span)

    def _end_tool(self, event: v.ToolResult) -> None:
        span, _ = self._tools.pop(event.id, (None, None))
        if span is None:
            return
        if self._names.content:
            span.set_attribute("gen_ai.tool.call.result", event.text)
        if event.is_error:
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        if not self._tools:
            self._begin_chat()

    def _add_message(self, span: Span, role: str, text: str) -> None:
        if self._names.content:
            event, name, value = self._names.message(role, text)
            if event:
                span.add_event(event, {name: value})
            else:
                span.set_attribute(name, value)
