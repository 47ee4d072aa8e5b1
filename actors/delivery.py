"""Delivery record: how far a request came before it failed.

`STAGES` lists each stage of a request in order and says whether its prompt had reached the command line. Repeating is safe where it
had not (`Delivery.is_repeatable`). `handle` fills the record in for a held agent, `runs` for a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

from proctor.runtime.exits import SIGNAL_NAMES, ExitReason, ExitStatus, Killed, Normal

Sent = Literal["no", "unknown", "yes"]
"""Whether a prompt was written to its command line: not a byte of it, perhaps a part, or all."""

Part = Literal["text", "stderr"]
"""What of the record may have been cut."""

Stage = Literal[
    "queued",
    "parked",
    "starting",
    "sending",
    "sent",
    "streaming",
    "tool",
    "question",
    "interrupting",
    "closing",
]

STAGES: Mapping[Stage, Sent] = {
    "queued": "no",
    "parked": "no",
    "starting": "no",
    "sending": "unknown",
    "sent": "yes",
    "streaming": "yes",
    "tool": "yes",
    "question": "yes",
    "interrupting": "yes",
    "closing": "yes",
}
"""Where a request stands → whether this attempt at it was sent.

`queued`: behind others, or not taken yet. `parked`: a usage limit or a budget holds it back. `starting`: its process is
not ready. `sending`: the prompt is being written. `sent`: it was written, and no turn has begun. `streaming`: the turn
runs. `tool`: a tool runs in it. `question`: an approval is open. `interrupting`: an interrupt was sent and the turn has
not ended. `closing`: the process has closed its output or takes no more input, and has not exited."""

CLIPPED = 100_000
"""Characters of the text that had streamed which are kept: the last."""


@attrs.frozen(kw_only=True)
class Delivery:
    """The progress of a request before it failed. `stage` is where it stood when that began, before anything was done about it.

    `sent` counts all attempts; `elapsed` is in seconds since it was asked; `pid` is that of the command line itself, None
    where it has none or none was started; `exit` how its process ended, None while it lives. `text` is what had streamed
    of the answer, `stderr` the end of what the process wrote there: evidence, not the reason. `recording` is the folder of
    the run where one is kept, `truncated` names what of this is not whole. `session_id` is the conversation to go on with.
    """

    sent: Sent
    stage: Stage
    elapsed: float
    pid: int | None = None
    exit: ExitReason | None = None
    text: str = ""
    stderr: str = ""
    recording: Path | None = None
    session_id: str | None = None
    truncated: tuple[Part, ...] = ()

    @property
    def is_repeatable(self) -> bool:
        """Whether nothing of it can have been carried out."""
        return self.sent == "no"

    @property
    def code(self) -> int | None:
        """The exit status, None for a process that lives or was killed by a signal."""
        if isinstance(self.exit, Normal):
            return 0
        return self.exit.code if isinstance(self.exit, ExitStatus) else None

    @property
    def signal(self) -> str | None:
        """The name of the signal that killed it."""
        if isinstance(self.exit, Killed):
            return "SIGKILL"
        if not isinstance(self.exit, ExitStatus) or self.exit.signal is None:
            return None
        return SIGNAL_NAMES.get(self.exit.signal, str(self.exit.signal))

    def facts(self) -> dict[str, object]:
        """All of it as plain data, for what travels as JSON."""
        return {
            "sent": self.sent,
            "stage": self.stage,
            "elapsed": round(self.elapsed, 3),
            "pid": self.pid,
            "code": self.code,
            "signal": self.signal,
            "text": self.text,
            "stderr": self.stderr,
            "recording": None if self.recording is None else str(self.recording),
            "session_id": self.session_id,
            "truncated": list(self.truncated),
        }

    def __str__(self) -> str:
        pid = "" if self.pid is None else f", pid {self.pid}"
        return f"stage {self.stage}, sent: {self.sent}{pid}, after {self.elapsed:.2f} s"
