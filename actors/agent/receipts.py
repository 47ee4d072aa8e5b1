"""Control requests, which are sent to a CLI beside prompts, and their receipts: the result in one word, and why.

    delivered   the running turn took it in, or it was carried out
    queued      it gets a turn of its own: ours (`Agent.queue`), or the CLI's next one
    refused     it was never sent, or the CLI refused it
    expired     the turn or its process ended first, or the CLI did not reply in time

A request is written, or refused with a reason before anything is. Every written one gets exactly one receipt: the first event about it decides, and the ends of its turn and process count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import attrs

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.messages import ControlResult
from proctor.actors.agent.states import Status
from proctor.actors.errors import NotExecuted
from proctor.actors.outcomes import Answer
from proctor.actors.process.agent_process import AgentProcess
from proctor.protocols import vocabulary as v
from proctor.protocols.dialect import Dialect, Version, parse_version
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest

Fate = Literal["delivered", "queued", "refused", "expired"]


@attrs.frozen(kw_only=True)
class Receipt:
    """The fate of one `request` (its id), and `why`, for a person. `turn` is the id of the turn that took it in or
    that it began, where that is known. True when it was delivered or queued."""

    request: str
    fate: Fate
    why: str = ""
    turn: str | None = None
    finish: Callable[[], Awaitable[Answer]] | None = attrs.field(default=None, repr=False, eq=False)

    def __bool__(self) -> bool:
        return self.fate in ("delivered", "queued")

    async def answer(self) -> Answer:
        """Wait for the end of the turn that `Agent.queue` was promised; may be asked again, and given up.

        Raises `NotExecuted` and `MaybeExecuted` as `Agent.ask` does, and RuntimeError for any other receipt.
        """
        if self.finish is None:
            raise RuntimeError(f"a request that was {self.fate} has no turn to wait for")
        return await self.finish()


@attrs.frozen
class Requirement:
    """Condition for a request: a word of the capability table, and whether a turn must run."""

    capability: str
    turn: bool = False


REQUIREMENTS: Mapping[type[v.Request], Requirement] = {
    v.Steer: Requirement("steer", turn=True),
    v.Interrupt: Requirement("interrupt", turn=True),
    v.SetModel: Requirement("set_model"),
    v.SetPermissionMode: Requirement("set_permission_mode"),
    v.StopTask: Requirement("stop_task"),
}


def refusal_reason(
    request: v.AnyRequest, dialect: Dialect, version: Version | None, status: Status, *, running: bool
) -> str | None:
    """Why it makes no sense to write this now, None when it does. A capability that the table does not name is left
    to the dialect's `write`, which refuses what its CLI has no message for."""
    need = REQUIREMENTS[type(request)]
    if need.capability in dialect.capabilities and not dialect.can(need.capability, version):
        known = "this version" if version is None else ".".join(map(str, version))
        return f"{dialect.name} {known} does not support {need.capability!r}"
    if need.turn and not running:
        return f"no turn is running: {status.summary}"
    return None


class ReceiptTracker:
    """Reads the events after a request was written until one tells its fate.

    `turn` is the one that ran then, None when it had not begun yet. `keeps`: the CLI keeps for its next turn what
    this one did not take in.
    """

    def __init__(self, request: v.AnyRequest, turn: str | None, *, keeps: bool) -> None:
        self._request = request
        self._turn = turn
        self._keeps = keeps

    def read(self, event: v.AnyEvent) -> Receipt | None:
        """The receipt, once an event settles it."""
        match event:
            case v.Answered(request=self._request.id, error=str(error)):
                return self._receipt("refused", error)
            case v.Answered(request=self._request.id) if not isinstance(self._request, v.Steer):
                return self._receipt("delivered", "", self._turn)
            case v.Exited():
                return self._receipt("expired", f"its process ended first ({event.outcome})")
            case _:
                return self._read_turn(event) if REQUIREMENTS[type(self._request)].turn else None

    def _read_turn(self, event: v.AnyEvent) -> Receipt | None:
        own = self._request.id
        match event:
            case v.Steered(request=request) if request == own:
                return self._receipt("delivered", "", event.turn)
            case v.TurnStarted() if own in event.prompts and self._turn is not None:
                return self._receipt("queued", "it began a turn of its own", event.turn)
            case v.TurnStarted():
                self._turn = self._turn or event.turn
                return self._receipt("delivered", "", event.turn) if own in event.prompts else None
            case v.TurnEnded() if event.turn == self._turn or own in event.prompts:
                return self._at_the_end(event)
            case v.Notice(code="prompt_cancelled", data={"prompt": prompt}) if prompt == own:
                return self._receipt("refused", "the CLI dropped it")
            case _:
                return None

    def _at_the_end(self, event: v.TurnEnded) -> Receipt:
        taken = self._request.id in event.prompts or isinstance(self._request, v.Interrupt)
        if taken and (isinstance(self._request, v.Steer) or event.ending == "interrupted"):
            return self._receipt("delivered", "", event.turn)
        if isinstance(self._request, v.Steer) and self._keeps:
            return self._receipt("queued", "the turn ended first; the CLI keeps it for its next one")
        return self._receipt("expired", f"the turn ended first ({event.ending})", event.turn)

    def timed_out(self, seconds: float) -> Receipt:
        """The receipt when no reply came for so long. The CLI still has the text that was to steer."""
        why = f"the CLI did not reply within {seconds:g} s"
        return self._receipt("queued" if isinstance(self._request, v.Steer) else "expired", why)

    def log_ended(self) -> Receipt:
        """The receipt when no event can follow: the agent is at rest."""
        return self._receipt("expired", "the agent has stopped")

    def _receipt(self, fate: Fate, why: str = "", turn: str | None = None) -> Receipt:
        return Receipt(request=self._request.id, fate=fate, why=why, turn=turn)


async def send_control(request: AnyRequest, state: AgentState, process: AgentProcess | None) -> ControlResult:
    """Write the request to the process, if one is there and it makes sense now."""
    if process is None or process.stopper != "nobody":
        return ControlResult(
            state.log, state.log.end, refused=f"no process is running: {state.status.summary}"
        )
    result = _check_control(request, state, process)
    if result.refused is not None:
        return result
    try:
        await process.send(request)
    except (Misuse, NotExecuted) as error:
        # The process has ended, or its turn, between the check and the write.
        return attrs.evolve(result, refused=str(error))
    return result


def _check_control(request: AnyRequest, state: AgentState, process: AgentProcess) -> ControlResult:
    dialect, memo = process.plan.dialect, process.conversation.memo
    version = parse_version(memo.version)
    refused = refusal_reason(request, dialect, version, state.status, running=process.working)
    return ControlResult(state.log, state.log.end, memo.turn, dialect.can("queue", version), refused)
