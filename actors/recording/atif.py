"""The types of a trajectory: the Agent Trajectory Interchange Format (ATIF), version 1.8, as far as proctor writes it.

Fields and their rules are those of the format's own models, to which the tests hold them. A field that is None is left out of the JSON.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proctor.protocols.lenient import encoded_loosely

VERSION = "ATIF-v1.8"

Extra = dict[str, Any]


class ToolCall(msgspec.Struct, omit_defaults=True):
    """A call of a tool. `tool_call_id` is the one that results refer to."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra | None = None


class SubagentRef(msgspec.Struct, omit_defaults=True):
    """A reference to the trajectory of a subagent, by its `trajectory_id` among the `subagent_trajectories`."""

    trajectory_id: str


class Result(msgspec.Struct, omit_defaults=True):
    """A result of a tool call of the same step; without `source_call_id` of no call that the trajectory has."""

    source_call_id: str | None = None
    content: str | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Extra | None = None


class Observation(msgspec.Struct):
    """The results of the tool calls of a step."""

    results: list[Result]


class Metrics(msgspec.Struct, omit_defaults=True):
    """Tokens and dollars. `prompt_tokens` has the cached ones in it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    extra: Extra | None = None


class Step(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One step: a prompt (`user`), what the agent wrote and did (`agent`), or what happened to it (`system`). `timestamp` is ISO 8601."""

    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: str
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = None
    extra: Extra | None = None


class AgentInfo(msgspec.Struct, omit_defaults=True):
    """The command line: its kind, its version ("unknown" where it named none), and the model of its first turn."""

    name: str
    version: str
    model_name: str | None = None
    extra: Extra | None = None


class FinalMetrics(msgspec.Struct, omit_defaults=True):
    """The sums over all turns."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: Extra | None = None


class Trajectory(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A run as a trajectory. `subagent_trajectories` are those of the subagents that its CLI reported."""

    schema_version: str
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AgentInfo
    steps: list[Step]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    extra: Extra | None = None
    subagent_trajectories: list[Trajectory] | None = None

    def to_json(self) -> bytes:
        """The trajectory as JSON, indented."""
        try:
            return msgspec.json.format(msgspec.json.encode(self), indent=1)
        except UnicodeEncodeError:  # a path in it is not UTF-8, which JSON has no way to write
            return encoded_loosely(self, indent=1)
