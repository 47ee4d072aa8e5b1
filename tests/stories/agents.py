"""Agents that speak one of the dialects, by the way in which each is held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import scripted_plan
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.actors.specs import agent_spec
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, write_script
from tests.stories.rows import words_of

SESSIONS = [name for name, wire in SCRIPTED_WIRES.items() if wire.mode == "session"]
RUNS = [name for name, wire in SCRIPTED_WIRES.items() if wire.mode == "oneshot"]
RESUMING = [name for name in SESSIONS if "resume" in words_of(name)]
LIMIT = 30.0


def child(
    folder: Path, dialect: str, steps: Sequence[Step], *faults: str, **options: Any
) -> tuple[ChildSpec, ...]:
    """One agent that speaks this dialect, with clocks short enough for a test."""
    chosen = cast(
        "AgentOptions",
        {"env": {"CLAUDE_CONFIG_DIR": str(folder / "state")}, "silence": 20.0, "final": 0.5, **options},
    )
    script = write_script(folder, steps)
    plan = scripted_plan("a", script, chosen, dialect=dialect, faults=faults, shutdown=3.0)
    return (agent_spec("a", plan, {"shutdown": 3.0}),)
