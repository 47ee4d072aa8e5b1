"""A trajectory as Markdown, to be read by people: for a pull request, an issue, a report.

The answers stand as the agent wrote them; tools, reasoning and subagents are folded. Long inputs and outputs are cut in the middle.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proctor.actors.recording.atif import FinalMetrics, Result, Step, ToolCall, Trajectory
from proctor.actors.tool_summary import describe_tool

LIMIT = 4000
"""Characters of an input or an output that are shown."""
_SUMMARY = 120


def markdown_of(trajectory: Trajectory) -> str:
    """The trajectory as Markdown."""
    parts = ["\n".join(_facts(trajectory)), *_steps(trajectory)]
    return "\n\n".join(parts) + "\n"


def _facts(trajectory: Trajectory) -> Iterator[str]:
    agent, extra = trajectory.agent, trajectory.agent.extra or {}
    final = trajectory.final_metrics or FinalMetrics()
    name = extra.get("name")
    yield f"# {_inline(name or agent.name)}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    facts = {
        "agent": " ".join(part for part in (agent.name, agent.version) if part != "unknown"),
        "model": agent.model_name,
        "session": trajectory.session_id,
        "folder": extra.get("cwd"),
        "turns": (final.extra or {}).get("turns"),
        "tokens": _tokens(final),
        "cost": None if final.total_cost_usd is None else f"${final.total_cost_usd:.4f}",
    }
    for key, value in facts.items():
        if value not in (None, ""):
            yield f"| {key} | {_inline(str(value))} |"


def _tokens(final: FinalMetrics) -> str | None:
    if final.total_prompt_tokens is None:
        return None
    cached = f" ({final.total_cached_tokens} cached)" if final.total_cached_tokens else ""
    return f"{final.total_prompt_tokens} in{cached}, {final.total_completion_tokens or 0} out"


def _steps(trajectory: Trajectory) -> Iterator[str]:
    inner = {one.trajectory_id: one for one in trajectory.subagent_trajectories or ()}
    for step in trajectory.steps:
        match step.source:
            case "user":
                yield "## Prompt"
                yield _quoted(step.message or "(not recorded)")
            case "system":
                yield f"> *{_inline(_cut(step.message))}*"
            case "agent":
                yield from _agent_step(step, inner)


def _agent_step(step: Step, inner: Mapping[str | None, Trajectory]) -> Iterator[str]:
    if step.reasoning_content:
        yield _folded("Reasoning", _quoted(_cut(step.reasoning_content)))
    if step.message:
        yield step.message
    results = step.observation.results if step.observation is not None else []
    for call in step.tool_calls or ():
        yield _call(call, [result for result in results if result.source_call_id == call.tool_call_id], inner)
    for result in results:
        if result.source_call_id is None:
            yield _folded("Result of a tool", _fenced(result.content or ""))


def _call(call: ToolCall, results: list[Result], inner: Mapping[str | None, Trajectory]) -> str:
    parts = [_fenced(msgspec.json.format(msgspec.json.encode(call.arguments), indent=2).decode(), "json")]
    failed = ""
    for result in results:
        failed = " (failed)" if (result.extra or {}).get("is_error") else failed
        if result.content:
            parts.append(_fenced(result.content))
        for ref in result.subagent_trajectory_ref or ():
            if (subagent := inner.get(ref.trajectory_id)) is not None:
                parts += [_folded("Subagent", "\n\n".join(_steps(subagent)))]
    return _folded(f"{_shown(call.function_name, call.arguments)}{failed}", "\n\n".join(parts))


def _shown(name: str, arguments: Mapping[str, Any]) -> str:
    line = " ".join(describe_tool(name, arguments).split())
    return line if len(line) <= _SUMMARY else f"{line[: _SUMMARY - 1]}…"


def _folded(summary: str, content: str) -> str:
    # blank lines, or what is inside is not read as Markdown
    return f"<details><summary>{html.escape(summary)}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str, language: str = "") -> str:
    # longer than any fence in the text, which would end this one
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{_cut(text)}\n{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _inline(text: str) -> str:
    """On one line, without what Markdown would read as something else."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _cut(text: str) -> str:
    if len(text) <= LIMIT:
        return text
    half = LIMIT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"
