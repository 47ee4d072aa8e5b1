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
"""Characters of an agent's stderr that are told, at most."""
PARTIAL = 4000
"""Characters of an answer that was cut short that are told, at most."""


@attrs.frozen(kw_only=True)
class Place:
    """Where a call was carried out: its folder, and its recording, None where there is none."""

    cwd: Path | None = None
    recording: Path | None = None

    def __str__(self) -> str:
        cwd = "" if self.cwd is None else str(self.cwd)
        return cwd if self.recording is None else f"{cwd} (recording: {self.recording})".lstrip()


def report(answer: Answer, place: Place, said: str = "") -> ToolResult:
    """The result that an answer makes; `said` is what the agent had said when it was cut short."""
    facts = _facts(answer, place)
    if not answer.ok:
        lines = [
            f"{answer.agent} did not finish: {answer.outcome.replace('_', ' ')}",
            _line("why", answer.error or answer.detail or ""),
            *_ending(_advice(answer), place, answer.stderr, said or answer.text),
        ]
        return ToolResult(_joined(lines), is_error=True, facts=facts)
    if answer.value is None:
        return ToolResult(answer.text, facts=facts)
    return ToolResult(msgspec.json.encode(answer.value).decode(), data=answer.value, facts=facts)


def failure(agent: str, error: Exception, place: Place, said: str = "") -> ToolResult:
    """The result that an error makes which kept a request from its answer."""
    advice = facts_of(error).remedy
    stderr = str(getattr(error, "stderr", ""))
    delivery = delivery_of(error)
    facts: dict[str, object] = {"agent": agent, "outcome": "error", "error": type(error).__name__}
    if delivery is not None:
        stderr, said = stderr or delivery.stderr, said or delivery.text
        facts["delivery"] = delivery.facts()
    lines = [f"{agent} failed: {' '.join(str(error).split())}", *_ending(advice, place, stderr, said)]
    return ToolResult(_joined(lines), is_error=True, facts=facts)


def _advice(answer: Answer) -> str:
    return (facts_of_end(answer.outcome, answer.ending) or OUTCOMES[answer.outcome]).remedy


def _ending(advice: str, place: Place, stderr: str, said: str) -> list[str]:
    return [
        _line("where", str(place)),
        _line("what to do", advice),
        _line("stderr ends", stderr.strip()[-STDERR:]),
        _line("it had said", said.strip()[-PARTIAL:]),
    ]


def _line(head: str, text: str) -> str:
    return f"{head}: {text}" if text else ""


def _joined(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line)


def _facts(answer: Answer, place: Place) -> dict[str, object]:
    told: dict[str, object] = {
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
        "recording": None if place.recording is None else str(place.recording),
        "delivery": None if answer.delivery is None else answer.delivery.facts(),
    }
    return {name: value for name, value in told.items() if value is not None}
