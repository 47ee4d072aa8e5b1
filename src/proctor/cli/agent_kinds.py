"""Kinds of agents that the command line accepts, as a table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import attrs

from proctor.actors.errors import BadOption
from proctor.actors.plan.option_checks import suggest_or_list
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import (
    Plan,
    acp_plan,
    claude_plan,
    codex_plan,
    gemini_plan,
    opencode_plan,
    scripted_plan,
)
from proctor.actors.scripted import ScriptError


@attrs.frozen
class Kind:
    """A kind of agent. `argument` names what follows the colon, None where nothing may; `plan` makes the plan."""

    argument: str | None
    plan: Callable[[str, AgentOptions], Plan]


def _scripted(script: str, options: AgentOptions) -> Plan:
    # a scripted agent is run by our own interpreter, so another program would be ignored without notice
    if "executable" in options:
        raise BadOption("--executable cannot be used with scripted: it has its own program")
    return scripted_plan("scripted", script, options)


def _acp(command: str, options: AgentOptions) -> Plan:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise BadOption(f"agent 'acp:{command}': {str(error).lower()}") from None
    return acp_plan("acp", argv, options)


KINDS: Mapping[str, Kind] = {
    "claude": Kind(None, lambda _, options: claude_plan("claude", options)),
    "codex": Kind(None, lambda _, options: codex_plan("codex", options)),
    "opencode": Kind(None, lambda _, options: opencode_plan("opencode", options)),
    "gemini": Kind(None, lambda _, options: gemini_plan("gemini", options)),
    "acp": Kind("COMMAND", _acp),
    "scripted": Kind("FILE", _scripted),
}


def spelled_kinds() -> list[str]:
    """Each kind as users write it: `claude`, `scripted:FILE`."""
    return [f"{name}:{kind.argument}" if kind.argument else name for name, kind in KINDS.items()]


def plan_of(agent: str, options: AgentOptions) -> Plan:
    """The plan of `kind` or `kind:argument`. Raises `BadOption`, or `ScriptError` for a script."""
    name, colon, argument = agent.partition(":")
    kind = KINDS.get(name)
    known = ", ".join(spelled_kinds())
    if kind is None:
        guess = suggest_or_list(name, KINDS)
        hint = f"{guess}; known: {known}" if "did you mean" in guess else f"; known: {known}"
        raise BadOption(f"unknown agent {agent!r}{hint}")
    if kind.argument and not argument:
        raise BadOption(f"agent {agent!r} needs a {kind.argument}: write {name}:{kind.argument}")
    if colon and not kind.argument:
        raise BadOption(f"agent {agent!r}: {name!r} takes no argument; known: {known}")
    return kind.plan(argument, options)


def checked_plan(agent: str, options: AgentOptions) -> Plan:
    """The same for a command that reports all faults at once. Raises `BadOption` alone."""
    try:
        return plan_of(agent, options)
    except ScriptError as error:
        raise BadOption(str(error)) from error
