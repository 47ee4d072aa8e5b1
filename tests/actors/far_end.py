"""Scripts and runs that several tests of agents share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import trio

import proctor
from proctor.actors.outcomes import Answer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, scripted_plan
from proctor.actors.runs import stream
from proctor.protocols.vocabulary import AnyEvent, Notice
from proctor.runtime.spec import ChildSpec

Step = Mapping[str, Any]
HELLO: Sequence[Step] = ({"reply": "Hello! You said: {prompt}"},)


def write_script(folder: Path, steps: Sequence[Step]) -> Path:
    path = folder / f"script-{len(list(folder.glob('script-*')))}.ndjson"
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return path


def plan_of(
    folder: Path,
    steps: Sequence[Step] = HELLO,
    *faults: str,
    shutdown: float = 5.0,
    **options: Unpack[AgentOptions],
) -> Plan:
    """A scripted plan with a home of its own and clocks short enough for a test."""
    chosen: AgentOptions = {"home": "private", "silence": 20.0, "final": 0.5, **options}
    return scripted_plan("agent", write_script(folder, steps), chosen, faults=faults, shutdown=shutdown)


async def played(plan: Plan, prompt: str = "hi", *, timeout: float = 30.0) -> tuple[Answer, list[AnyEvent]]:
    """A run to its end: the answer and all events."""
    async with stream(plan, prompt, timeout=timeout) as live:
        events = [event async for event in live]
    return live.answer, events


def agent_of(
    folder: Path, steps: Sequence[Step] = HELLO, *faults: str, **options: Unpack[proctor.SpecOptions]
) -> ChildSpec:
    """A scripted agent `a` that remembers its sessions in the folder, with clocks short enough for a test."""
    chosen: proctor.SpecOptions = {"shutdown": 3, "silence": 20.0, "final": 0.5, **options}
    chosen.setdefault("env", {"CLAUDE_CONFIG_DIR": str(folder / "state")})
    return proctor.scripted("a", write_script(folder, steps), faults=faults, **chosen)


async def silent(_asked: object) -> bool:
    """Whoever is asked and never answers."""
    await trio.sleep_forever()
    return True


async def log_of(agent: proctor.Agent) -> list[AnyEvent]:
    """All that its log holds by now."""
    seen = list[AnyEvent]()
    async with agent.events(since=0) as log:
        while batch := log.batch_nowait():
            seen += batch
    return seen


def codes(events: Sequence[AnyEvent]) -> list[str]:
    """The codes of the notices among them."""
    return [event.code for event in events if isinstance(event, Notice)]
