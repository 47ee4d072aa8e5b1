from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from proctor.actors.plan.permissions import Policy, Rule, Verdict, decide
from proctor.protocols.vocabulary import ApprovalRequested, Decision
from tests.actors.far_end import silent

QUESTION = ApprovalRequested(3, "t", "q1", "Bash", {"command": "touch x"})


async def yes(question: ApprovalRequested) -> bool:
    return question.tool == "Bash"


async def rewrite(question: ApprovalRequested) -> Verdict:
    return Verdict(True, input={"command": "true"})


async def broken(question: ApprovalRequested) -> bool:
    raise RuntimeError("boom")


@pytest.mark.covers("L15", "L20", "L39")
@pytest.mark.parametrize(
    ("policy", "allow", "message", "changed"),
    [
        ("allow", True, "", None),
        ("deny", False, "the host's policy denies this tool", None),
        ((Rule("Ba*", True),), True, "", None),
        ((Rule("Bash", False), Rule("*", True)), False, "the host's policy denies this tool", None),
        ((Rule("Write", True),), False, "the host's policy denies this tool", None),
        ((), False, "the host's policy denies this tool", None),
        (yes, True, "", None),
        (rewrite, True, "", {"command": "true"}),
        (broken, False, "the host's approval function failed: RuntimeError('boom')", None),
        (silent, False, "no answer within 60 s", None),
    ],
)
async def test_every_policy_decides_and_none_blocks(
    policy: Policy, allow: bool, message: str, changed: dict[str, Any] | None, autojump_clock: MockClock
) -> None:
    assert await decide(policy, QUESTION) == Decision("q1", allow, message, changed)
