"""What whoever called an agent as a tool is told in the end: the answer, or what failed, where, and what to do.

`ADVICE` and `REMEDIES` are the tables of what to do, by the label of an answer and by the kind of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import msgspec

from proctor.actors.errors import (
    AgentError,
    AskNotSent,
    BadOption,
    BudgetExceeded,
    MaybeExecuted,
    NotExecutable,
    NotInstalled,
    RecordingFailed,
    SessionOwned,
    StartKilled,
    StartRefused,
    VersionCheckFailed,
    delivery_of,
)
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.tools.tools import ToolResult

STDERR = 500
"""Characters of an agent's stderr that are told, at most."""
PARTIAL = 4000
"""Characters of an answer that was cut short that are told, at most."""
_SAME = "call it again; if it fails in the same way, ask for less at a time"

ADVICE: Mapping[Outcome, str] = {
    "ok": "",
    "failed": _SAME,
    "limited": "call it again when the limit has reset, or call another agent",
    "interrupted": "call it again if the answer is still wanted",
    "exhausted": "ask for less at a time; its turns or its budget are used up",
    "authentication": "log in to its command line as the user whom this server runs as, or have the server pass its key on",
    "configuration": "check the model and the options of the call",
    "deadline": "call it again with a longer timeout, or ask for less at a time",
    "stalled": _SAME,
    "stopped": "call it again if the answer is still wanted",
    "killed": "call it again if the answer is still wanted",
    "killed_by_system": "call it again with fewer agents at a time; the machine may be out of memory",
    "crashed": _SAME,
    "no_answer": _SAME,
    "garbled": "check that its command line is of a version that proctor knows: proctor doctor",
}
"""How a request ended → what the caller can do."""

REMEDIES: Mapping[type[Exception], str] = {
    BadOption: "correct the arguments of the call",
    BudgetExceeded: "call it again when the window of the budget has freed, or call another agent",
    NotInstalled: "install its command line, or call another agent",
    NotExecutable: "make its program executable, or call another agent",
    VersionCheckFailed: "check its command line: proctor doctor",
    SessionOwned: "wait until the other call has ended, or call it without the session",
    StartKilled: ADVICE["killed_by_system"],
    StartRefused: "check what its command line says; a login or an option may be missing",
    AskNotSent: "call it again with a longer timeout; nothing of it was carried out",
    MaybeExecuted: "look at what it has done before you call it again",
    RecordingFailed: "make room, or start the server without recordings",
    TimeoutError: ADVICE["deadline"],
    AgentError: _SAME,
}
"""What kept a request from its answer → what the caller can do; the first that fits."""


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
            *_ending(ADVICE[answer.outcome], place, answer.stderr, said or answer.text),
        ]
        return ToolResult(_joined(lines), is_error=True, facts=facts)
    if answer.value is None:
        return ToolResult(answer.text, facts=facts)
    return ToolResult(msgspec.json.encode(answer.value).decode(), data=answer.value, facts=facts)


def failure(agent: str, error: Exception, place: Place, said: str = "") -> ToolResult:
    """The result that an error makes which kept a request from its answer."""
    advice = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), _SAME)
    stderr = str(getattr(error, "stderr", ""))
    delivery = delivery_of(error)
    facts: dict[str, object] = {"agent": agent, "outcome": "error", "error": type(error).__name__}
    if delivery is not None:
        stderr, said = stderr or delivery.stderr, said or delivery.text
        facts["delivery"] = delivery.facts()
    lines = [f"{agent} failed: {' '.join(str(error).split())}", *_ending(advice, place, stderr, said)]
    return ToolResult(_joined(lines), is_error=True, facts=facts)


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
