"""Permission policies: who may use a tool that the CLI asks about. What is unclear is denied.

A policy is `"deny"`, `"allow"`, a tuple of `Rule`s (the first match decides, no match denies), an async function from
the question to a bool or a `Verdict`, or `"ask"`, which queues the questions of an agent of a tree. Every question has a deadline
(60 s by default); without an answer, or after an error of the policy, it is denied.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

import attrs
import trio

from proctor.actors.plan.option_checks import FLAG, OptionRule, field_rule
from proctor.protocols.vocabulary import ApprovalRequested, Decision

_PATTERN = OptionRule(
    "a tool's name, or a glob such as 'mcp__*'", lambda value: isinstance(value, str) and bool(value)
)


@attrs.frozen
class Verdict:
    """`message` is shown to the model when denied; `input` replaces the tool's input when allowed. `always` and `option` are those of `Decision`."""

    allow: bool = attrs.field(
        validator=field_rule(FLAG, "a Verdict")
    )  # a text such as "no" would count as a yes
    message: str = ""
    input: dict[str, Any] | None = None
    always: bool = False
    option: str | None = None


@attrs.frozen
class Rule:
    """Allows or denies tools whose name matches a glob (`Bash`, `mcp__*`)."""

    tool: str = attrs.field(validator=field_rule(_PATTERN, "a Rule"))
    allow: bool = attrs.field(validator=field_rule(FLAG, "a Rule"))


Asker = Callable[[ApprovalRequested], Awaitable[bool | Verdict]]
Policy = Literal["deny", "allow", "ask"] | tuple[Rule, ...] | Asker

DEADLINE = 60.0
_DENIED = "the host's policy denies this tool"
_NO_ASKER = "no approver is available"


async def decide(policy: Policy, question: ApprovalRequested, *, deadline: float = DEADLINE) -> Decision:
    """The decision on one question, within `deadline` seconds."""
    if policy == "allow":
        return Decision(question.id, True)
    if policy == "deny":
        return Decision(question.id, False, _DENIED)
    if policy == "ask":  # outside of a tree: there an agent's desk has taken the place of the word
        return Decision(question.id, False, _NO_ASKER)
    if callable(policy):
        verdict = await _asked(policy, question, deadline)
    else:
        verdict = verdict_of(policy, question.tool) or Verdict(False, _DENIED)
    return Decision(
        question.id, verdict.allow, verdict.message, verdict.input, verdict.always, verdict.option
    )


def verdict_of(rules: Iterable[Rule], tool: str) -> Verdict | None:
    """The verdict of the first rule that matches this tool, None where none does."""
    for rule in rules:
        if fnmatch.fnmatchcase(tool, rule.tool):
            return Verdict(rule.allow, "" if rule.allow else _DENIED)
    return None


async def _asked(ask: Asker, question: ApprovalRequested, deadline: float) -> Verdict:
    with trio.move_on_after(deadline):
        try:
            answer = await ask(question)
        except Exception as error:  # noqa: BLE001  # the caller's own function: its fault must not end the run
            return Verdict(False, f"the host's approval function failed: {error!r}")
        return answer if isinstance(answer, Verdict) else Verdict(bool(answer), "" if answer else _DENIED)
    return Verdict(False, f"no answer within {deadline:g} s")
