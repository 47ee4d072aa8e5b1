"""Agents as tools: one call is one prompt, and its result is the answer.

`one_shot` makes a tool that starts a process for each call; `standing` one that asks an agent of a tree, which keeps its conversation.
The schema says what a caller can choose: environment, permission and recording are the server's. A cancelled call interrupts its turn.
Every failure is a result that says what failed, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AgentError
from proctor.actors.outcomes import Answer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import DEADLINE, Run, stream
from proctor.actors.scripted import ScriptError
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.progress import Progress
from proctor.actors.serving.sessions import Sessions
from proctor.actors.serving.tool_results import CallPaths, failure, report
from proctor.actors.serving.toolset import Call, ServedTool
from proctor.actors.tools.tools import ToolResult
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import ProcessError

EXPECTED = (AgentError, ProcessError, ScriptError, DeliveryError, ActorExited)
"""What keeps a request from its answer without being our fault."""
LONGEST = 7 * 86400.0
"""Seconds that a caller may give a turn, at most."""


@attrs.frozen(kw_only=True)
class Terms:
    """Settings of the server for every call: the allowed directories, the options that no caller chooses (`env`, `home`,
    `permission`, `record`), the default timeout (seconds), and the pools. `sessions` are those that callers name, each under
    `prefix`; None: every call stands alone. `live` holds the running turns, for a server that kills them at once."""

    roots: AllowedDirs
    pools: Pools = attrs.field(factory=Pools)
    sessions: Sessions | None = None
    prefix: str = ""
    options: AgentOptions = attrs.field(factory=AgentOptions)
    timeout: float = DEADLINE
    live: set[Run] = attrs.field(factory=set[Run], init=False)


def one_shot(name: str, description: str, plan: Callable[[AgentOptions], Plan], terms: Terms) -> ServedTool:
    """A tool that starts an agent for each call: `plan` makes it of the options."""
    kind = _Kind(name, plan, terms)
    return ServedTool(
        name=name,
        description=description,
        schema=_object({"prompt": PROMPT, **ONE_SHOT, **_told(terms), "schema": SCHEMA, **_timed(terms)}),
        function=kind.answer,
    )


def standing(name: str, description: str, agent: Agent, terms: Terms) -> ServedTool:
    """A tool that asks an agent of a tree; calls at one time are answered one after the other."""

    async def answer(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return await _ask(agent, arguments, call, float(arguments.get("timeout", terms.timeout)))

    return ServedTool(
        name=name,
        description=description,
        schema=_object({"prompt": PROMPT, "schema": SCHEMA, **_timed(terms)}),
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
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "A JSON schema that the answer has to fit; the result is then JSON, and structured content.",
}


SESSION: Mapping[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1000,
    "description": "Any name. Calls with the same one go on with one conversation, in a folder of its own unless cwd is "
    "given. Without it a call stands alone.",
}


def _told(terms: Terms) -> dict[str, Any]:
    return {} if terms.sessions is None else {"session_id": SESSION}


def _timed(terms: Terms) -> dict[str, Any]:
    text = f"Seconds that the turn may take; {terms.timeout:g} by default."
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
        job = _Job(self, arguments, call)
        try:
            return report(await job.done(), job.paths, job.progress.text)
        except EXPECTED as error:
            return failure(self.name, error, job.paths, job.progress.text)


class _Job:
    """One call of a kind."""

    def __init__(self, kind: _Kind, arguments: Mapping[str, Any], call: Call) -> None:
        self.progress = Progress(call)
        self.paths = CallPaths()
        self._kind = kind
        self._terms = kind.terms
        self._arguments = arguments
        self._call = call

    async def done(self) -> Answer:
        """The answer, from where the call wants to have it. Raises what is in `EXPECTED`."""
        arguments, terms = self._arguments, self._terms
        prompt, timeout = arguments["prompt"], float(arguments.get("timeout", terms.timeout))
        directory, session_id = arguments.get("cwd"), arguments.get("session_id")
        cwd = terms.roots.folder(directory)
        plan = self._planned(cwd)
        if session_id is None or terms.sessions is None:
            return await self._run(plan, prompt, timeout=timeout)
        async with terms.sessions.hold(terms.prefix + session_id, timeout=timeout) as session:
            by = self._run if directory is None else partial(self._run_in, cwd)
            return await session.run(plan, prompt, timeout=timeout, by=by)

    def _planned(self, cwd: Path) -> Plan:
        chosen: AgentOptions = {**self._terms.options, "cwd": cwd}
        if "model" in self._arguments:
            chosen["model"] = self._arguments["model"]
        return self._kind.plan(chosen)

    async def _run_in(self, cwd: Path, plan: Plan, prompt: str, *, timeout: float) -> Answer:
        return await self._run(plan.at(cwd), prompt, timeout=timeout)

    async def _run(self, plan: Plan, prompt: str, *, timeout: float) -> Answer:
        self.paths = CallPaths(cwd=plan.workplace.cwd)
        pool = self._terms.pools.of(plan)
        if (now := pool.statistics()).used >= now.limit:
            self._call.tell(f"waits for one of {now.limit} places; {now.waiting} wait before this call")
        async with pool.slot(timeout=timeout) as left:
            return await self._streamed(plan, prompt, left)

    async def _streamed(self, plan: Plan, prompt: str, timeout: float | None) -> Answer:
        begun = list[Run]()
        try:
            async with stream(plan, prompt, timeout=timeout, schema=self._arguments.get("schema")) as live:
                begun.append(live)
                self._terms.live.add(live)
                if plan.workplace.record is not None:
                    self.paths = attrs.evolve(self.paths, recording=live.directory)
                while events := await live.batch():
                    self.progress.take(events)
                return live.answer
        finally:
            self._terms.live.difference_update(begun)


async def _ask(agent: Agent, arguments: Mapping[str, Any], call: Call, timeout: float) -> ToolResult:
    progress = Progress(call)
    try:
        status = await agent.status()
        if status.queued or status.state not in ("idle", "failed", "done"):
            call.tell(f"waits: {agent.name} is {status.told}, and {status.queued} wait before this call")
        return report(await _answered(agent, arguments, progress, timeout), CallPaths(), progress.text)
    except EXPECTED as error:
        return failure(agent.name, error, CallPaths(), progress.text)


async def _answered(agent: Agent, arguments: Mapping[str, Any], progress: Progress, timeout: float) -> Answer:
    asked = agent.stream(arguments["prompt"], timeout=timeout, schema=arguments.get("schema"))
    async with asked as turn:
        async for event in turn:
            progress.take((event,))
        return turn.answer
