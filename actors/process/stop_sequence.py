"""The stop sequence of a dialect as steps for a process, with grace periods fitted into the plan's shutdown time.

The last step is always a kill. Under a short `shutdown` all grace periods are shortened alike, so that the kill comes before the
supervisor's own.
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
from proctor.runtime.processes import CONTINUE, Step

GRACE_SHARE = 0.9
"""Of the shutdown time, for all graces together."""


def stop_steps(
    plan: Plan, conversation: Conversation, record: Callable[[bytes], bytes], *, wake: bool = False
) -> tuple[Step, ...]:
    """The steps that make sense for the conversation as it is. `record` gets the bytes that a step will write. `wake`: the
    process or its guard is stopped (SIGSTOP), and is continued first."""
    steps_of_dialect = plan.dialect.stop
    total = sum(step.grace for step in steps_of_dialect if math.isfinite(step.grace))
    scale = min(1.0, plan.shutdown * GRACE_SHARE / total) if total else 1.0
    steps = (_step(step, step.grace * scale, conversation, record) for step in steps_of_dialect)
    return (*((CONTINUE,) if wake else ()), *(step for step in steps if step is not None))


def _step(
    step: StopStep, grace: float, conversation: Conversation, record: Callable[[bytes], bytes]
) -> Step | None:
    match step.action:
        case "interrupt":
            working = conversation.phase == "working"
            return _write_step(Interrupt(str(uuid.uuid4())), grace, conversation, record) if working else None
        case "end":
            return _write_step(EndSession(str(uuid.uuid4())), grace, conversation, record)
        case action:
            return Step(action, grace)


def _write_step(
    request: AnyRequest, grace: float, conversation: Conversation, record: Callable[[bytes], bytes]
) -> Step | None:
    try:
        data = conversation.send(request)
        return Step("write", grace, data=record(data)) if data else None
    except Misuse:  # a one-shot run takes nothing after its prompt
        return None
