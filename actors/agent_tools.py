"""Agents as tools: one call is one prompt, and its result the answer.

`one_shot` makes a tool of a kind of agent, a process for each call; `standing` one of an agent of a tree, which keeps
its conversation. Guarantees: what a caller can choose is what the schema says, and no more: the environment, the
permission and the recording are the server's, and an agent works below the allowed folders. A call that is cancelled
takes its turn with it: a process goes down its ladder, a standing agent is interrupted. Every failure is a result that
says what failed, where, and what to do.

Not here: which kinds there are, and how a tool is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from proctor.actors.errors import AgentError, AskTimeout
from proctor.actors.handle import Agent
from proctor.actors.heard import Heard
from proctor.actors.plan import AgentOptions, Plan
from proctor.actors.reports import Place, failure, report
from proctor.actors.roots import Roots
from proctor.actors.runs import DEADLINE, Run, stream
from proctor.actors.scripted import ScriptError
from proctor.actors.tools import ToolResult
from proctor.actors.toolset import Call, ServedTool
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import DeliveryError
from proctor.runtime.process_errors import ProcessError

EXPECTED = (AgentError, ProcessError, ScriptError, DeliveryError, ActorExited)
"""What keeps a request from its answer without being our fault."""
LONGEST = 7 * 86400.0
"""Seconds that a caller may give a turn, at most."""

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Terms:
    """What the server has settled for every call: the folders, the options that no caller chooses (`env`, `home`,
    `permission`, `record`), and how long a turn may take that names no time (seconds). `live` holds the runs under
    way, for whoever cannot wait for their ladders."""

    roots: Roots
    options: AgentOptions = attrs.field(factory=AgentOptions)
    timeout: float = DEADLINE
    live: set[Run] = attrs.field(factory=set[Run], init=False)


def one_shot(name: str, description: str, plan: Callable[[AgentOptions], Plan], terms: Terms) -> ServedTool:
    """A tool that starts an agent for each call: `plan` makes it of the options."""
    kind = _Kind(name, plan, terms)
    return ServedTool(
        name=name,
        description=description,
        schema=_object({"prompt": PROMPT, **_timed(terms), **ONE_SHOT}),
        function=kind.answer,
    )


def standing(name: str, description: str, agent: Agent, terms: Terms) -> ServedTool:
    """A tool that asks an agent of a tree; calls at one time are answered one after the other."""

    async def answer(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return await _ask(agent, arguments, call, float(arguments.get("timeout", terms.timeout)))

    return ServedTool(
        name=name,
        description=description,
        schema=_object({"prompt": PROMPT, **_timed(terms)}),
        function=answer,
    )


PROMPT: Mapping[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "What the agent is to do, in full.",
}
ONE_SHOT: Mapping[str, Any] = {
    "model": {
        "type": "string",
        "minLength": 1,
        "description": "The model, as the agent's command line names it.",
    },
    "cwd": {
        "type": "string",
        "description": "The folder to work in: absolute, or relative to the first root.",
    },
}


def _timed(terms: Terms) -> dict[str, Any]:
    text = f"Seconds that the turn may take; {terms.timeout:g} if not said."
    return {"timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST, "description": text}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": ["prompt"],
        "additionalProperties": False,
    }


@attrs.frozen
class _Kind:
    name: str
    plan: Callable[[AgentOptions], Plan]
    terms: Terms

    async def answer(self, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        heard, place = Heard(call), Place()
        try:
            place = Place(cwd=self.terms.roots.folder(arguments.get("cwd")))
            return await self._run(self._planned(arguments, place), arguments, heard, place)
        except EXPECTED as error:
            return failure(self.name, error, place, heard.text)

    def _planned(self, arguments: Mapping[str, Any], place: Place) -> Plan:
        chosen: AgentOptions = {**self.terms.options, "cwd": place.cwd}
        if "model" in arguments:
            chosen["model"] = arguments["model"]
        return self.plan(chosen)

    async def _run(self, plan: Plan, arguments: Mapping[str, Any], heard: Heard, place: Place) -> ToolResult:
        prompt, timeout = arguments["prompt"], float(arguments.get("timeout", self.terms.timeout))
        program = " ".join(plan.locate()) or self.name
        _log.info("%s starts %s in %s for %d characters", self.name, program, place.cwd, len(prompt))
        begun = list[Run]()
        try:
            async with stream(plan, prompt, timeout=timeout) as live:
                begun.append(live)
                self.terms.live.add(live)
                if plan.workplace.record is not None:
                    place = attrs.evolve(place, recording=live.directory)
                while events := await live.batch():
                    heard.take(events)
                return report(live.answer, place, heard.text)
        finally:
            self.terms.live.difference_update(begun)


async def _ask(agent: Agent, arguments: Mapping[str, Any], call: Call, timeout: float) -> ToolResult:
    heard = Heard(call)
    try:
        status = await agent.status()
        if status.queued or status.state not in ("idle", "failed", "done"):
            call.tell(f"waits: {agent.name} is {status.told}, and {status.queued} wait before this call")
        with trio.move_on_after(timeout):
            async with agent.stream(arguments["prompt"]) as turn:
                async for event in turn:
                    heard.take((event,))
                return report(turn.answer, Place())
        raise AskTimeout(agent.name, timeout)
    except EXPECTED as error:
        return failure(agent.name, error, Place(), heard.text)
