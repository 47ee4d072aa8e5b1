"""The answer to one question of a CLI: the policy decides, the decision is sent, and the log notes it.

A question that was withdrawn meanwhile, or whose process has ended, is dropped: no reply is due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proctor.actors.errors import NotExecuted
from proctor.actors.plan.options import Conduct
from proctor.actors.plan.permissions import decide
from proctor.actors.tools.host_calls import Note
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest, ApprovalRequested


async def answer_question(
    question: ApprovalRequested,
    conduct: Conduct,
    send: Callable[[AnyRequest], Awaitable[None]],
    note: Note,
    approved: bool = False,
) -> None:
    """Decide by the policy of `conduct`, unless it is `approved` already; `send` the decision, and `note` it."""
    policy = "allow" if approved else conduct.permission
    decision = await decide(policy, question, deadline=conduct.approval_deadline)
    try:
        await send(decision)
    except (Misuse, NotExecuted):
        # It was withdrawn, or the process is about to end.
        return
    verdict = "allowed" if decision.allow else f"denied: {decision.message}"
    note("approval", f"{question.tool} {verdict}", id=question.id, allow=decision.allow)
