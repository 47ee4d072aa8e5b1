"""Which column each public name has: what the generator of `proctor.aio` and `proctor.sync` cannot read from the code.

A name of `proctor` that stands in none of these tables fails `tests/faces`, and so does a method that is not async, of which nobody has
said whether it may be called in the caller's thread (`direct`) or has to run in Trio's (`plain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

import proctor
from proctor.actors.serving.completion import CompletionStream
from proctor.runtime.messaging import Monitor, Name, Request

AWAIT = "{await_}"


@attrs.frozen(kw_only=True)
class Proxied:
    """A class whose objects stand for one of Trio's. Names are separated by blanks.

    `direct`: may be called in any thread. `plain`: runs in the Trio thread. `hidden`: for agents and the runtime. `fields`: attributes
    without a declaration, with their type. `items`: what it iterates over. `made`: a program makes it. `extra`: code for both faces.
    """

    source: type
    home: str
    direct: str = ""
    plain: str = ""
    hidden: str = ""
    fields: Mapping[str, str] = attrs.field(factory=dict[str, str])
    items: str = ""
    made: bool = False
    extra: str = ""
    imports: str = ""


ADDRESS = {
    "plain": "is_alive send_request cast_nowait exit kill",
    "hidden": "find missing hold let_go kept is_due ref wait_out",
    "extra": '''
    def stream(self, msg: object, demand: int = 64) -> Block[Stream[Any]]:
        """Ask for a stream: a block that gives its items."""
        return Block(self._thread, Stream[Any].around, self._target.stream, msg, demand)

    def monitor(self) -> Block[Monitor]:
        """Watch the incarnation that stands here now, for the length of a block."""
        return Block(self._thread, Monitor.around, entered, self._target.monitor)
''',
    "imports": "from typing import Any",
}

SUPERVISOR = {
    "direct": "name child",
    "plain": "tree",
    "hidden": "loop follow registry late agent supervisor events",
    "extra": '''
    def agent(self, name: str) -> Agent:
        """The agent of this name; follows its restarts. Looking up does not check that it is there: a call does."""
        return Agent.around(_Agent(name, self._target.name(name)), self._thread)

    {async_}def supervisor(self, path: str) -> Supervisor:
        """The handle on a supervisor below this one, which follows its restarts. Raises `NoProc` where none runs now."""
        found: Any = {await_}call_plain(self._thread, self._target.supervisor, path)
        return Supervisor.around(found, self._thread)

    {async_}def dynamic_supervisor(self, path: str) -> DynamicSupervisor:
        """The same for one that is dynamic."""
        found: Any = {await_}call_plain(self._thread, self._target.supervisor, path, AnyDynamic)
        return DynamicSupervisor.around(found, self._thread)

    def events(
        self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None
    ) -> Block[Stream[SupervisorEvent]]:
        """The events of the whole tree for the length of a block; holds at most `buffer`, then drops the oldest."""
        return Block(self._thread, Stream[SupervisorEvent].around, entered, self._target.events, buffer, kinds)

    {async_}def late(self) -> tuple[LateStop, ...]:
        """Children that did not end in time when this supervisor stopped."""
        return self._target.late
''',
    "imports": """
from collections.abc import Iterable
from typing import Any
from proctor.actors.agent.handle import Agent as _Agent
from proctor.runtime.events import EventKind, LateStop, SupervisorEvent
from proctor.runtime.supervision import DynamicSupervisor as AnyDynamic
""",
}
SUPERVISOR["extra"] = SUPERVISOR["extra"].replace("    {async_}def late", "    @property\n    def late")

RUNNER = '''
    {async_}def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        by: Callable[..., {result}] | None = None,
    ) -> Answer:
        """One prompt of this conversation, run as by `proctor.ask` or by another such as `Pool.run`, whose errors it raises."""
        more = {{"payloads": payloads}} if payloads else {{}}
        runner = runs.ask if by is None else runner_of(by)
        asked = partial(self._target.run, agent, prompt, timeout=timeout, schema=schema, by=runner, **more)
        answer: Answer[Any] = {await_}call(self._thread, asked)
        return answer
'''

CLASSES: tuple[Proxied, ...] = (
    Proxied(
        source=proctor.Agent,
        home="agents",
        fields={"name": "str"},
        hidden="submit kept_state",
    ),
    Proxied(
        source=proctor.Turn,
        home="agents",
        fields={"agent": "str", "over": "bool"},
        plain="leave delivery",
        hidden="log position finish_anew",
        items="AnyEvent",
    ),
    Proxied(
        source=proctor.Run,
        home="agents",
        fields={"directory": "Path"},
        plain="leave kill delivery",
        hidden="batch begin conduct is_fit taken end_trace",
        items="AnyEvent",
        imports="from pathlib import Path",
    ),
    Proxied(
        source=proctor.Batch,
        home="agents",
        plain="stop kill progress",
        items="BatchResult",
        imports="from proctor import BatchResult",
    ),
    Proxied(
        source=proctor.Receipt,
        home="agents",
        hidden="finish",
        extra="""
    def __bool__(self) -> bool:
        return bool(self._target)
""",
    ),
    Proxied(
        source=proctor.Approval,
        home="agents",
        plain="allow deny answer extend",
        hidden="settle wait_in_time verdict deadline",
    ),
    Proxied(source=proctor.Approvals, home="agents", plain="open", items="Approval"),
    Proxied(source=proctor.Ref, home="supervision", **ADDRESS),  # type: ignore[arg-type]
    Proxied(source=Name, home="supervision", **ADDRESS),  # type: ignore[arg-type]
    Proxied(
        source=Monitor,
        home="supervision",
        fields={"down": "Down | None"},
        hidden="deliver close",
        imports="from proctor.runtime.messaging import Down",
    ),
    Proxied(source=Request, home="supervision", plain="result abandon", hidden="opened settle join"),
    Proxied(source=proctor.Supervisor, home="supervision", **SUPERVISOR),  # type: ignore[arg-type]
    Proxied(source=proctor.DynamicSupervisor, home="supervision", **SUPERVISOR),  # type: ignore[arg-type]
    Proxied(
        source=CompletionStream,
        home="serving",
        direct="",
        hidden="follow relay complete fail pending",
        items="Chunk",
        imports="from proctor.actors.serving.chunks import Chunk",
    ),
    Proxied(source=proctor.CompletionModel, home="serving", direct="make", plain="statistics"),
    Proxied(
        source=proctor.Pool,
        home="serving",
        fields={"name": "str"},
        plain="statistics memory",
        hidden="serve",
        made=True,
        extra='''
    def serve(self) -> Block[None]:
        """Keep processes warm for the length of a block; then close the pool and stop its runs. One block at a time."""
        return Block(self._home, as_is, served, self._target.serve)
''',
    ),
    Proxied(
        source=proctor.Pools,
        home="serving",
        plain="statistics of",
        hidden="serve",
        made=True,
        extra='''
    def serve(self) -> Block[None]:
        """As `Pool.serve`, for all."""
        return Block(self._home, as_is, served, self._target.serve)
''',
    ),
    Proxied(
        source=proctor.Provider,
        home="serving",
        direct="within",
        hidden="make",
        extra="""
    def __init__(
        self,
        *,
        name: str,
        make: Callable[[Mapping[str, object]], object],
        runs_tools: bool = True,
        needs: frozenset[str] = frozenset(),
        context: Mapping[str, object] | None = None,
    ) -> None:
        made = provided(make, hosted, ModelReader)
        self._target = _Provider(
            name=name, make=made, runs_tools=runs_tools, needs=needs, context=dict(context or {})
        )
""",
        imports="from collections.abc import Callable, Mapping\nfrom proctor.actors.serving.providers import Provider as _Provider\nfrom proctor.bridge.adapters import provided",
    ),
    Proxied(
        source=proctor.Providers,
        home="serving",
        direct="create",
        hidden="register",
        made=True,
        extra='''
    def register(
        self,
        name: str,
        make: Callable[[Mapping[str, object]], object],
        *,
        runs_tools: bool = True,
        needs: Sequence[str] = (),
    ) -> None:
        """Register a provider. Raises `BadOption` for a name that is taken."""
        made = provided(make, hosted, ModelReader)
        self._target.register(name, made, runs_tools=runs_tools, needs=needs)
''',
        imports="from collections.abc import Callable, Mapping, Sequence",
    ),
    Proxied(
        source=proctor.Session,
        home="serving",
        fields={"id": "str | None", "path": "Path"},
        plain="conversation remember forget",
        hidden="plan run",
        extra=RUNNER,
        imports="""
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from proctor import Answer, ChildSpec
from proctor.actors import runs
from proctor.actors.plan.plan import Plan
from proctor.actors.structured.payloads import Payload
""",
    ),
    Proxied(
        source=proctor.Sessions,
        home="serving",
        fields={"root": "Path"},
        plain="facts",
        made=True,
        extra="""
    def __len__(self) -> int:
        return len(self._target)

    def __contains__(self, id: object) -> bool:
        return id in self._target
""",
    ),
    Proxied(source=proctor.RemoteFleet, home="client", direct="agent"),
    Proxied(source=proctor.RemoteAgent, home="client", fields={"name": "str"}),
    Proxied(source=proctor.RemoteApproval, home="client", hidden="connection"),
    Proxied(
        source=proctor.Store,
        home="stores",
        fields={"path": "Path"},
        made=True,
        imports="from pathlib import Path",
    ),
    Proxied(source=proctor.MemoryStore, home="stores", made=True),
)

FUNCTIONS: Mapping[str, str] = {
    "ask": "agents",
    "stream": "agents",
    "attempted": "agents",
    "open_supervisor": "supervision",
    "open_dynamic_supervisor": "supervision",
    "converse": "serving",
    "stream_conversation": "serving",
    "connect": "client",
}
"""Async functions and blocks, with the module that they are in."""

SPECS: Mapping[str, str] = dict.fromkeys(
    ("claude", "codex", "opencode", "gemini", "acp", "scripted"), "proctor"
)
"""Functions that make the spec of an agent: the same in each face."""

WRITTEN: Mapping[str, str] = {
    "tool": "specs",
    "Hook": "specs",
    "policy": "specs",
    "batch": "agents",
    "pool_spec": "serving",
    "TrioThread": "",
    "timeout": "",
}
"""Written by hand in `tests/faces/templates.py`, in the module named; without one it is a name of the bridge."""

ABSENT: Mapping[str, str] = {
    "run": "the program has its own loop, or none",
}
"""Names that only Trio programs need, and why."""

DATA_NOTES: Mapping[str, str] = {
    "Actor": "an actor that you write is Trio code, in each of the three",
    "StoreBackend": "a store that you write is Trio code",
    "Tool": "made by `tool`; its function runs where its program is",
    "Validator": "a plain function, called in the Trio thread: it must not wait",
}
"""Data that need a remark in the table of the reference."""

HOSTED: Mapping[tuple[str, str], str] = {
    ("attempted", "attempt"): "hosted",
}
"""Parameters that are functions of the caller."""

RENAMED: Mapping[tuple[str, str, str], str] = {
    ("sync", "attempted", "attempt"): "Callable[..., Answer]",
    ("aio", "attempted", "attempt"): "Callable[..., Awaitable[Answer]]",
}
"""Types of parameters that differ."""


def known() -> set[str]:
    """Every public name with a column."""
    classes = {proxied.source.__name__ for proxied in CLASSES}
    return classes | FUNCTIONS.keys() | SPECS.keys() | WRITTEN.keys() | ABSENT.keys() | data()


DATA = """
AccountBook Actor ActorExited AgentError Answer Answered AnyEvent ApprovalRequested ApprovalWithdrawn AskInterrupted AskNotSent
AskTimeout Backoff BadOption BatchCheck BatchProgress BatchResult BatchTask BatchTimes BatchTry BinaryPayload Budget BudgetExceeded CallTimeout Change ChildSpec Completion CompletionError
CompletionRequest ContextMissing Crash Delivery Exit ExitStatus Exited Expected Fate File FilePayload Garbled GreetingTimeout
HookCalled HookResult HostError InvalidSpec JsonPayload KeyReused Killed LimitReached MaxChildren MaxRestartsExceeded MaybeExecuted
McpServer Misplaced NoProc NoSuchFleet NoSuchProvider Normal NotExecutable NotExecuted NotInstalled Notice Notify Output PoolClosed
PoolFull PoolStatistics PoolTimeout Port Probe Profile ProviderError RecordingFailed RemoteError RequestWithdrawn
ResourceUnavailable Retry Retrying Rule Schema SchemaUnmet ServerLost SessionBusy SessionOwned SessionTimeout SessionsClosed
SessionsFull Shutdown SpecOptions StartError StartKilled StartRefused Started Status Steered StoreBackend StoreError StoreInUse
TaskFaults Text TextDelta Thinking Tool ToolCall ToolContext ToolRequested ToolResult TransportMisuse TurnEnded TurnStarted Unrecognized
Unresponsive UnsupportedPayload Usage Validator Verdict VersionCheckFailed Violation Warm WouldDeadlock check_childspecs
dynamic_supervisor_spec load_results load_tasks opencode_server process schema_of schema_tools supervisor_spec
"""


def data() -> set[str]:
    """Plain data, errors, and functions that only make some: the same objects in each face."""
    return {*DATA.split()}


def value_of(name: str) -> Any:
    """The object of a public name."""
    return getattr(proctor, name)
