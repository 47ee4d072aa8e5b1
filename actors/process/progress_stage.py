"""The progress of the current request of one process, derived from its conversation on demand.

When the process begins to end, the stage is frozen: what the stop sequence does says nothing about the request.
"""

from __future__ import annotations

from collections.abc import Collection

from proctor.actors.delivery import Sent, Stage
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation


class RequestProgress:
    """That of one process. `tools` are the ids of the calls that run; `sent` is that of the last prompt."""

    def __init__(self, conversation: Conversation, tools: Collection[str]) -> None:
        self.sent: Sent = "no"
        self._memo = conversation.memo
        self._tools = tools
        self._is_interrupted = False
        self._frozen: Stage | None = None

    @property
    def stage(self) -> Stage:
        """Where it stands, or stood when its end began."""
        return self._frozen or self._now()

    def freeze(self, stage: Stage | None = None) -> None:
        """Its end begins now: it stood at `stage`, or where it stands."""
        self._frozen = self._frozen or stage or self._now()

    def begin(self, request: v.AnyRequest) -> None:
        """A request is about to be written."""
        if isinstance(request, v.Prompt):
            self.sent, self._is_interrupted, self._frozen = "unknown", False, None
        elif isinstance(request, v.Interrupt):
            self._is_interrupted = True

    def finish(self, request: v.AnyRequest) -> None:
        """It was written whole."""
        if isinstance(request, v.Prompt):
            self.sent = "yes"

    def _now(self) -> Stage:
        memo = self._memo
        if self.sent == "no":
            return "starting"
        if self._is_interrupted and memo.prompts:
            return "interrupting"
        if memo.approvals:
            return "question"
        if self._tools:
            return "tool"
        if memo.open_turns:
            return "streaming"
        return "sent" if self.sent == "yes" else "sending"
