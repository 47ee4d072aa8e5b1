"""Results of agents that are called as tools: the answer, or what failed, where, and what to do."""

from __future__ import annotations

from pathlib import Path

import attrs
import msgspec

from proctor.actors.error_kinds import facts_of
from proctor.actors.errors import delivery_of
from proctor.actors.outcomes import OUTCOMES, Answer, facts_of_end
from proctor.actors.tools.tools import ToolResult

STDERR = 500
"""Most characters of an agent's stderr in a result."""
PARTIAL = 4000
"""Most characters of a partial answer in a result."""


@attrs.frozen(kw_only=True)
class CallPaths:
    """Working directory and recording of a call, None where there is none."""

    cwd: Path | None = None
    recording: Path | None = None

    def __str__(self) -> str:
        cwd = "" if self.cwd is None else str(self.cwd)
        return cwd if self.recording is None else f"{cwd} (recording: {self.recording})".lstrip()


def report(answer: Answer, paths: CallPaths, partial: str = "") -> ToolResult:
    """Make the result of an answer; `partial` is the text that had come when it was cut short."""
    facts = _facts(answer, paths)
    if not answer.ok:
        advice = (facts_of_end(answer.outcome, answer.ending) or OUTCOMES[answer.outcome]).remedy
        lines = [
            f"{answer.agent} did not finish: {answer.outcome.replace('_', ' ')}",
            _line("why", answer.error or answer.detail or ""),
            *_ending(advice, paths, answer.stderr, partial or answer.text),
        ]
        return ToolResult(_joined(lines), is_error=True, facts=facts)
    if answer.value is None:
        return ToolResult(answer.text, facts=facts)
    return ToolResult(msgspec.json.encode(answer.value).decode(), data=answer.value, facts=facts)


def failure(agent: str, error: Exception, paths: CallPaths, partial: str = "") -> ToolResult:
    """Make the result of an error."""
    advice = facts_of(error).remedy
    stderr = str(getattr(error, "stderr", ""))
    delivery = delivery_of(error)
    facts: dict[str, object] = {"agent": agent, "outcome": "error", "error": type(error).__name__}
    if delivery is not None:
        stderr, partial = stderr or delivery.stderr, partial or delivery.text
        facts["delivery"] = delivery.facts()
    lines = [f"{agent} failed: {' '.join(str(error).split())}", *_ending(advice, paths, stderr, partial)]
    return ToolResult(_joined(lines), is_error=True, facts=facts)


def _ending(advice: str, paths: CallPaths, stderr: str, partial: str) -> list[str]:
    return [
        _line("where", str(paths)),
        _line("what to do", advice),
        _line("stderr ends", stderr.strip()[-STDERR:]),
        _line("partial answer", partial.strip()[-PARTIAL:]),
    ]


def _line(head: str, text: str) -> str:
    return f"{head}: {text}" if text else ""


def _joined(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line)


def _facts(answer: Answer, paths: CallPaths) -> dict[str, object]:
    facts: dict[str, object] = {
        "agent": answer.agent,
        "outcome": answer.outcome,
        "conversation": answer.session_id,
        "model": answer.model,
        "usage": None if answer.usage is None else msgspec.to_builtins(answer.usage),
        "cost_usd": answer.cost_usd,
        "duration": answer.duration,
        "attempts": answer.attempts if answer.attempts > 1 else None,
        "denied_tools": list(answer.denied_tools) or None,
        "resets_at": answer.resets_at,
        "recording": None if paths.recording is None else str(paths.recording),
        "delivery": None if answer.delivery is None else answer.delivery.facts(),
    }
    return {name: value for name, value in facts.items() if value is not None}
