"""A dialect's stop ladder as steps for a process: what it says is written now, its graces fit into the plan's time.

The last rung is always a kill. The graces of a dialect are for a CLI that has all the time it wants; under a shorter
`shutdown` all are shortened alike, so that the kill comes before the supervisor's own.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable

from proctor.actors.plan.plan import Plan
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import StopStep
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest, EndSession, Interrupt
from proctor.runtime.processes.stopping import CONTINUE, Step

SHARE = 0.9
"""Of the shutdown time, for all graces together."""


def ladder(
    plan: Plan, conversation: Conversation, said: Callable[[bytes], bytes], *, wake: bool = False
) -> tuple[Step, ...]:
    """The rungs that make sense for the conversation as it is. `said` is told what a rung will write. `wake`: the
    process or its guard is stopped (SIGSTOP), and is continued first."""
    rungs = plan.dialect.stop
    total = sum(rung.grace for rung in rungs if math.isfinite(rung.grace))
    scale = min(1.0, plan.shutdown * SHARE / total) if total else 1.0
    steps = (_step(rung, rung.grace * scale, conversation, said) for rung in rungs)
    return (*((CONTINUE,) if wake else ()), *(step for step in steps if step is not None))


def _step(
    rung: StopStep, grace: float, conversation: Conversation, said: Callable[[bytes], bytes]
) -> Step | None:
    match rung.action:
        case "interrupt":
            working = conversation.phase == "working"
            return _spoken(Interrupt(str(uuid.uuid4())), grace, conversation, said) if working else None
        case "end":
            return _spoken(EndSession(str(uuid.uuid4())), grace, conversation, said)
        case action:
            return Step(action, grace)


def _spoken(
    request: AnyRequest, grace: float, conversation: Conversation, said: Callable[[bytes], bytes]
) -> Step | None:
    try:
        data = conversation.send(request)
        return Step("write", grace, data=said(data)) if data else None
    except Misuse:  # a one-shot run is told nothing after its prompt
        return None
