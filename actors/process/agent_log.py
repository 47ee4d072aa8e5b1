"""The log records of an agent's life, under `proctor.agent`, each with its facts as fields.

The library configures no logging. Every logger of it is below `proctor`; a record carries `event` and the facts named in
`FACTS` as attributes (`extra`), which a formatter may show. Prompts and answers are never among them, only
their length; nor are arguments, which may hold a secret, only the program's path.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import attrs
import trio

from proctor.actors.outcomes import ENDINGS, OUTCOMES, Outcome
from proctor.protocols import vocabulary as v

# without a handler of the program's own, Python would write a library's warnings to stderr
logging.getLogger("proctor").addHandler(logging.NullHandler())

NOTICES: Mapping[str, int] = {
    "approval": logging.INFO,
    "given_up": logging.WARNING,
    "not_reading": logging.WARNING,
    "parked": logging.WARNING,
    "recording_failed": logging.WARNING,
    "recording_resumed": logging.INFO,
    "responsive": logging.INFO,
    "resume_refused": logging.WARNING,
    "session_owned": logging.WARNING,
    "stalled": logging.WARNING,
    "unresponsive": logging.WARNING,
}
"""Code of a notice of the host → the level at which it is logged."""

FACTS: Mapping[str, Sequence[str]] = {
    "adapter_init": ("agent", "kind", "incarnation", "executable", "child_pid", "seconds"),
    "run_start": ("agent", "kind", "incarnation", "executable", "prompt_chars"),
    "stream_end": ("agent", "kind", "incarnation", "outcome", "seconds"),
    "adapter_exit": ("agent", "kind", "incarnation", "outcome", "seconds", "why"),
    "agent_failed": ("agent", "kind", "why"),
    **dict.fromkeys(NOTICES, ("agent", "kind", "why")),
}
"""Event of an agent → the facts in its record."""

_PREFIXES: Mapping[str, str] = {
    "agent_failed": "failed: ",
    "parked": "parked: ",
    "recording_failed": "recording stopped: ",
    "stalled": "stalled: ",
}
"""Text before the reason, where the reason does not include it."""

LOGGER = logging.getLogger("proctor.agent")


@attrs.frozen
class AgentLogger:
    """The log records of one agent, over all its processes."""

    agent: str
    kind: str

    def note(self, code: str, text: str) -> None:
        """A notice of `NOTICES` was put into its event log."""
        self._log(NOTICES[code], code, text)

    def failed(self, why: str) -> None:
        """The agent is in `failed`: a restart would not help."""
        self._log(logging.WARNING, "agent_failed", why)

    def _log(self, level: int, event: str, why: str) -> None:
        # To collect the facts costs more than a record that no handler takes.
        if LOGGER.isEnabledFor(level):
            # On one line: the error of a CLI may have several.
            facts = {"agent": self.agent, "kind": self.kind, "why": " ".join(why.split())}
            LOGGER.log(
                level, f"%(agent)s: {_PREFIXES.get(event, '')}%(why)s", facts, extra={"event": event, **facts}
            )


class ProcessLogger:
    """The log records of one process. `executable` is set when it is known, `asked_at` when a prompt is sent; times are seconds that passed on Trio's clock."""

    def __init__(self, agent: str, kind: str, incarnation: int) -> None:
        self.executable = ""
        self.agent = AgentLogger(agent, kind)
        self._always = {"agent": agent, "kind": kind, "incarnation": incarnation}
        self._born = trio.current_time()
        self.asked_at: float | None = None

    def ready(self, pid: int | None) -> None:
        """The command line runs and takes prompts."""
        self._log(
            "adapter_init",
            "%(agent)s: %(executable)s is ready after %(seconds).2f s",
            executable=self.executable,
            child_pid=pid,
            seconds=trio.current_time() - self._born,
        )

    def asked(self, characters: int) -> None:
        """A prompt is being sent."""
        message = "%(agent)s: %(executable)s is sent a prompt of %(prompt_chars)d characters"
        self._log("run_start", message, executable=self.executable, prompt_chars=characters)

    def ended(self, event: v.TurnEnded) -> None:
        """A turn has ended."""
        if self.asked_at is not None:
            self._end(ENDINGS[event.ending])

    def exited(self, outcome: Outcome, why: str) -> None:
        """The process has ended, and with it a turn that ran."""
        if self.asked_at is not None:
            self._end(outcome)
        seconds = trio.current_time() - self._born
        message = "%(agent)s: its process ended after %(seconds).2f s: %(outcome)s (%(why)s)"
        level = logging.WARNING if OUTCOMES[outcome].reaction in ("restart", "fail") else logging.INFO
        self._log("adapter_exit", message, level=level, outcome=outcome, seconds=seconds, why=why)

    def _end(self, outcome: str) -> None:
        seconds = trio.current_time() - (self.asked_at or 0.0)
        self.asked_at = None
        message = "%(agent)s: the turn ended after %(seconds).2f s: %(outcome)s"
        self._log("stream_end", message, outcome=outcome, seconds=seconds)

    def _log(self, event: str, message: str, level: int = logging.INFO, **facts: object) -> None:
        if LOGGER.isEnabledFor(level):
            values = {**self._always, **facts}
            LOGGER.log(level, message, values, extra={"event": event, **values})
