"""Agents as tools: one call is one prompt, and its result is the answer.

`one_shot` makes a tool that starts a process for each call; `standing` one that asks an agent of a tree, which keeps its conversation.
The schema says what a caller can choose: environment, permission and recording are the server's. A cancelled call interrupts its turn.
While it runs, the caller hears of its text, and of each tool, retry and limit. Every failure is a result that says what failed, where,
and what to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec

from proctor.actors.agent.handle import Agent
from proctor.actors.error_kinds import facts_of
from proctor.actors.errors import AgentError, delivery_of
from proctor.actors.outcomes import OUTCOMES, Answer, facts_of_end
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import DEADLINE, Run, stream
from proctor.actors.scripted import ScriptError
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.actors.serving.toolset import Call, ServedTool
from proctor.actors.tools.tools import ToolResult
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import ProcessError

EXPECTED = (AgentError, ProcessError, ScriptError, DeliveryError, ActorExited)
"""Errors that are results: they are not the fault of this server."""
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
    session = () if terms.sessions is None else ("session_id",)

    async def answer(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        request = _AgentCall(name, terms, arguments, call)
        return await request.result(partial(request.in_process, plan))

    schema = _schema(terms, "prompt", "model", "cwd", *session, "schema")
    return ServedTool(name=name, description=description, schema=schema, function=answer)


def standing(name: str, description: str, agent: Agent, terms: Terms) -> ServedTool:
    """A tool that asks an agent of a tree; calls at one time are answered one after the other."""

    async def answer(arguments: Mapping[str, Any], call: Call) -> ToolResult:
        request = _AgentCall(agent.name, terms, arguments, call)
        return await request.result(partial(request.by_agent, agent))

    schema = _schema(terms, "prompt", "schema")
    return ServedTool(name=name, description=description, schema=schema, function=answer)


PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "prompt": {
        "type": "string",
        "minLength": 1,
        "description": "What the agent is to do, in full.",
    },
    "model": {
        "type": "string",
        "minLength": 1,
        "description": "The model, as the agent's command line names it.",
    },
    "cwd": {
        "type": "string",
        "description": "The folder to work in: absolute, or relative to the first root.",
    },
    "session_id": {
        "type": "string",
        "minLength": 1,
        "maxLength": 1000,
        "description": "Any name. Calls with the same one go on with one conversation, in a folder of its own unless cwd is "
        "given. Without it a call stands alone.",
    },
    "schema": {
        "type": "object",
        "description": "A JSON schema that the answer has to fit; the result is then JSON, and structured content.",
    },
}
"""The schemas of the parameters, besides `timeout`."""


def _schema(terms: Terms, *names: str) -> dict[str, Any]:
    text = f"Seconds that the turn may take; {terms.timeout:g} by default."
    timeout = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST, "description": text}
    return {
        "type": "object",
        "properties": {**{name: PARAMETERS[name] for name in names}, "timeout": timeout},
        "required": ["prompt"],
        "additionalProperties": False,
    }


class _AgentCall:
    """One call of an agent's tool."""

    def __init__(self, agent: str, terms: Terms, arguments: Mapping[str, Any], call: Call) -> None:
        self._agent = agent
        self._terms = terms
        self._arguments = arguments
        self._call = call
        self._prompt: str = arguments["prompt"]
        self._timeout = float(arguments.get("timeout", terms.timeout))
        self._schema = arguments.get("schema")
        self._progress = Progress(call)
        self._paths = CallPaths()

    async def result(self, answer: Callable[[], Awaitable[Answer]]) -> ToolResult:
        """The result of the answer, or of the error that was raised instead."""
        try:
            return report(await answer(), self._paths, self._progress.text)
        except EXPECTED as error:
            return failure(self._agent, error, self._paths, self._progress.text)

    # -- an agent of a tree

    async def by_agent(self, agent: Agent) -> Answer:
        """Ask the agent. Raises the errors in `EXPECTED`."""
        status = await agent.status()
        if status.queued or status.state not in ("idle", "failed", "done"):
            self._call.tell(
                f"waits: {agent.name} is {status.summary}, and {status.queued} wait before this call"
            )
        async with agent.stream(self._prompt, timeout=self._timeout, schema=self._schema) as turn:
            async for event in turn:
                self._progress.take((event,))
            return turn.answer

    # -- a process for this call

    async def in_process(self, make: Callable[[AgentOptions], Plan]) -> Answer:
        """Start an agent in the folder and the session of the call. Raises the errors in `EXPECTED`."""
        terms, directory = self._terms, self._arguments.get("cwd")
        session_id, cwd = self._arguments.get("session_id"), terms.roots.folder(directory)
        options: AgentOptions = {**terms.options, "cwd": cwd}
        if "model" in self._arguments:
            options["model"] = self._arguments["model"]
        plan = make(options)
        if session_id is None or terms.sessions is None:
            return await self._run(plan, self._prompt, timeout=self._timeout)
        async with terms.sessions.hold(terms.prefix + session_id, timeout=self._timeout) as session:
            by = partial(self._run, cwd=None if directory is None else cwd)
            return await session.run(plan, self._prompt, timeout=self._timeout, by=by)

    async def _run(self, plan: Plan, prompt: str, *, timeout: float, cwd: Path | None = None) -> Answer:
        plan = plan if cwd is None else plan.at(cwd)
        self._paths = CallPaths(cwd=plan.workplace.cwd)
        pool = self._terms.pools.of(plan)
        if (now := pool.statistics()).used >= now.limit:
            self._call.tell(f"waits for one of {now.limit} places; {now.waiting} wait before this call")
        with (
            ExitStack() as stack
        ):  # until the process is gone: a server may kill it while it is being stopped
            async with (
                pool.slot(timeout=timeout) as left,
                stream(plan, prompt, timeout=left, schema=self._schema) as live,
            ):
                stack.callback(self._terms.live.discard, live)
                self._terms.live.add(live)
                if plan.workplace.record is not None:
                    self._paths = attrs.evolve(self._paths, recording=live.directory)
                while events := await live.batch():
                    self._progress.take(events)
                return live.answer


# -- progress, and the end of the text for an answer that is cut short


KEPT = 8000
"""Characters of an agent's text that are kept."""
_INPUT = 120
_PASSED_ON = frozenset(("parked", "unsettled", "stalled", "resume_refused", "option_ignored", "given_up"))
"""Notices that are passed on to the caller."""


class Progress:
    """Progress of one request; `text` is the end of the agent's own text, without that of its sub-agents."""

    def __init__(self, call: Call) -> None:
        self.text = ""
        self._call = call
        self._piecewise = False

    def take(self, events: Iterable[v.AnyEvent]) -> None:
        """Pass these events on."""
        for event in events:
            self._take(event)

    def _take(self, event: v.AnyEvent) -> None:
        match event:
            case v.TextDelta(parent=None):
                self._piecewise = True
                self._call.write(event.text)
            case v.Text(parent=None):
                self._whole(event.text)
            case v.ToolCall():
                self._call.tell(f"uses {_use(event)}")
            case v.Retrying():
                why = f": {event.error}" if event.error else ""
                self._call.tell(f"tries again in {event.delay:g} s (attempt {event.attempt}){why}")
            case v.LimitReached():
                self._call.tell("has reached a usage limit")
            case v.Notice(code="attempt_void", data=data) if data.get("parent") is None:
                if self._piecewise:
                    self._call.tell("what was written last is void: the attempt failed")
                self._piecewise = False
            case v.Notice() if event.code in _PASSED_ON:
                self._call.tell(event.text or event.code)
            case _:
                pass

    def _whole(self, text: str) -> None:
        self.text = f"{self.text}\n{text}"[-KEPT:]
        if not self._piecewise:
            self._call.tell(text)
        self._piecewise = False


def _use(event: v.ToolCall) -> str:
    arguments = msgspec.json.encode(event.input).decode() if event.input else ""
    return f"{event.name} {arguments if len(arguments) <= _INPUT else arguments[:_INPUT] + '…'}".rstrip()


# -- results


STDERR = 500
"""Most characters of an agent's stderr in a result."""
PARTIAL = 4000
"""Most characters of a partial answer in a result."""


@attrs.frozen(kw_only=True)
class CallPaths:
    """Working directory and recording of a call, None where there is none."""

    cwd: Path | None = None
    recording: Path | None = None

    def __str__(self) -> str:
        cwd = "" if self.cwd is None else str(self.cwd)
        return cwd if self.recording is None else f"{cwd} (recording: {self.recording})".lstrip()


def report(answer: Answer, paths: CallPaths, partial: str = "") -> ToolResult:
    """Make the result of an answer; `partial` is the text that had come when it was cut short."""
    facts = _facts(answer, paths)
    if not answer.ok:
        advice = (facts_of_end(answer.outcome, answer.ending) or OUTCOMES[answer.outcome]).remedy
        lines = [
            f"{answer.agent} did not finish: {answer.outcome.replace('_', ' ')}",
            _line("why", answer.error or answer.detail or ""),
            *_ending(advice, paths, answer.stderr, partial or answer.text),
        ]
        return ToolResult(_joined(lines), is_error=True, facts=facts)
    if answer.value is None:
        return ToolResult(answer.text, facts=facts)
    return ToolResult(msgspec.json.encode(answer.value).decode(), data=answer.value, facts=facts)


def failure(agent: str, error: Exception, paths: CallPaths, partial: str = "") -> ToolResult:
    """Make the result of an error."""
    advice = facts_of(error).remedy
    stderr = str(getattr(error, "stderr", ""))
    delivery = delivery_of(error)
    facts: dict[str, object] = {"agent": agent, "outcome": "error", "error": type(error).__name__}
    if delivery is not None:
        stderr, partial = stderr or delivery.stderr, partial or delivery.text
        facts["delivery"] = delivery.facts()
    lines = [f"{agent} failed: {' '.join(str(error).split())}", *_ending(advice, paths, stderr, partial)]
    return ToolResult(_joined(lines), is_error=True, facts=facts)


def _ending(advice: str, paths: CallPaths, stderr: str, partial: str) -> list[str]:
    return [
        _line("where", str(paths)),
        _line("what to do", advice),
        _line("stderr ends", stderr.strip()[-STDERR:]),
        _line("partial answer", partial.strip()[-PARTIAL:]),
    ]


def _line(head: str, text: str) -> str:
    return f"{head}: {text}" if text else ""


def _joined(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line)


def _facts(answer: Answer, paths: CallPaths) -> dict[str, object]:
    facts: dict[str, object] = {
        "agent": answer.agent,
        "outcome": answer.outcome,
        "conversation": answer.session_id,
        "model": answer.model,
        "usage": None if answer.usage is None else msgspec.to_builtins(answer.usage),
        "cost_usd": answer.cost_usd,
        "duration": answer.duration,
        "attempts": answer.attempts if answer.attempts > 1 else None,
        "denied_tools": list(answer.denied_tools) or None,
        "resets_at": answer.resets_at,
        "recording": None if paths.recording is None else str(paths.recording),
        "delivery": None if answer.delivery is None else answer.delivery.facts(),
    }
    return {name: value for name, value in facts.items() if value is not None}
