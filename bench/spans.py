"""What a trace costs: a turn of many tools, traced into the SDK of OpenTelemetry and not traced.

    python -m bench.spans [--tools 2000] [--rounds 5]

Each tool is two spans, `execute_tool` and `chat`; the processor keeps nothing, so an export has no part in it. `SDK alone` makes as many spans
with as many attributes by itself: what is above it is ours. The limit is 50 microseconds a span.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from bench.contest import options
from proctor.actors.tracing.spans import TurnTrace
from proctor.protocols import vocabulary as v

LIMIT = 50.0
"""Microseconds a span."""


def ours(tools: int) -> int:
    """A turn with so many tools; how many spans it has."""
    turn = TurnTrace("hi")
    turn.serve("a", "claude", "m")
    turn.take(v.TurnStarted(0, "1.1"))
    for number in range(tools):
        turn.take(v.ToolCall(number, "1.1", str(number), "Bash", {"command": "ls"}))
        turn.take(v.ToolResult(number, "1.1", str(number), "a.txt"))
    turn.fail("left", "")
    return 2 * tools + 2


def sdk_alone(tools: int) -> int:
    """As many spans, made one by one."""
    tracer = trace.get_tracer("bench")
    facts = {"gen_ai.operation.name": "chat", "gen_ai.system": "anthropic", "gen_ai.request.model": "m"}
    spans = 2 * tools + 2
    for _ in range(spans):
        tracer.start_span("chat m", attributes=facts).end()
    return spans


CONTENDERS: Mapping[str, Callable[[int], int]] = {"ours": ours, "SDK alone": sdk_alone}


def rows(tools: int, rounds: int) -> Mapping[str, Sequence[float]]:
    """Microseconds a span, of each round; they take turns."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(TracerProvider())
    taken: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for work in CONTENDERS.values():
        work(max(1, tools // 20))
    for _ in range(rounds):
        for name, work in CONTENDERS.items():
            began = time.perf_counter()
            spans = work(tools)
            taken[name].append((time.perf_counter() - began) / spans * 1e6)
    return taken


def table(taken: Mapping[str, Sequence[float]]) -> str:
    """Markdown."""
    lines = ["| spans | us a span | lowest | highest | limit |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, each in taken.items():
        lines.append(f"| {name} | {median(each):.1f} | {min(each):.1f} | {max(each):.1f} | {LIMIT:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    chosen = options("Spans", tools=2000, rounds=5)
    print(table(rows(int(chosen.tools), int(chosen.rounds))))


if __name__ == "__main__":
    main()
