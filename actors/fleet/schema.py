"""Schema of a fleet file: one record for each kind of `[[agents]]`, and what they share.

A record holds what was written and makes the child spec of it. What was left out has the default of the option's own record
(`AgentOptions`, `ChildSpec`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NewType, TypeAlias

import attrs

from proctor.actors.errors import BadOption
from proctor.actors.fleet.parser import Folder, Limit, Positive, Seconds
from proctor.actors.opencode_server.server import opencode_server
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.environment import Home, parse_env
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.permissions import Rule
from proctor.actors.plan.plan import AgentMode, OnCrash, OnRecordingFailure
from proctor.actors.plan.workspaces import WorkspaceKind
from proctor.actors.specs import acp, claude, codex, gemini, opencode, scripted
from proctor.runtime.spec import Backoff, ChildSpec, Restart

Script = NewType("Script", Path)
"""A path where a script or a recorded run is."""
Grace: TypeAlias = Seconds | Literal["brutal_kill"]
Permission: TypeAlias = Literal["deny", "allow", "ask"] | tuple[Rule, ...]


@attrs.frozen(kw_only=True)
class Delays:
    """A table `backoff`: the delays between consecutive restarts. Its keys are those of `Backoff`."""

    min_delay: Positive | None = None
    max_delay: Positive | None = None
    factor: float | None = None
    jitter: float | None = None
    reset_after: Positive | None = None
    max_in_row: int | None = None

    def record(self) -> Backoff:
        """What a child spec takes. Raises `InvalidSpec`."""
        return Backoff(**written_fields(self, (field.name for field in attrs.fields(Delays))))


@attrs.frozen(kw_only=True)
class Allowance:
    """A table `budget`: how much may be spent in any `period`. Its keys are those of `Budget`."""

    usd: float
    period: Positive
    warn: float | None = None
    then: Literal["park", "escalate", "warn"] | None = None

    def record(self) -> Budget:
        """What an agent or a tree takes. Raises `BadOption`."""
        return Budget(**written_fields(self, ("usd", "period", "warn", "then")))


@attrs.frozen(kw_only=True)
class McpTable:
    """A table `mcp.NAME` of an agent: a server of MCP. `env` as for agents; `secret_headers` map a header to the name of
    the variable that holds its value. The other keys are those of `McpServer`."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    secret_headers: dict[str, str] | None = None
    approved: bool | None = None
    timeout: Positive | None = None

    def record(self) -> McpServer:
        """What an agent takes. Raises `BadOption`."""
        plain = written_fields(self, ("command", "args", "url", "approved", "timeout"))
        env = parse_env(self.env or (), os.environ)
        secret = {header: _variable(variable) for header, variable in (self.secret_headers or {}).items()}
        return McpServer(env=env, headers={**(self.headers or {}), **secret}, **plain)


def _variable(name: str) -> str:
    if name not in os.environ:
        raise BadOption(f"secret_headers names {name!r}, which is not set here")
    return os.environ[name]


@attrs.frozen(kw_only=True)
class Server:
    """A table of `[[servers]]`: an `opencode_server` for the agents below the same supervisor. `env` as for agents."""

    name: str
    executable: Path | None = None
    cwd: Folder | None = None
    env: tuple[str, ...] | None = None
    home: Home | None = None
    port: int | None = None
    start: Positive | None = None
    shutdown: Positive | None = None
    restart: Restart | None = None
    backoff: Delays | None = None

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        plain = ("executable", "cwd", "home", "port", "start", "shutdown", "restart")
        env = None if self.env is None else parse_env(self.env, os.environ)
        options = written_fields(self, plain)
        if self.backoff is not None:
            options["backoff"] = self.backoff.record()
        return opencode_server(self.name, env=env, **options)


@attrs.frozen(kw_only=True)
class AgentTable:
    """What the tables of agents have in common. `prompt` is sent once it is up, and must end within `timeout`.

    `env` holds `NAME` (passed on) or `NAME=VALUE`. The other keys are options of the agent and of its child spec.
    """

    name: str
    prompt: str | None = None
    timeout: Limit | None = None
    cwd: Folder | None = None
    env: tuple[str, ...] | None = None
    home: Home | None = None
    record: Path | None = None
    record_limit: int | None = None
    on_recording_failure: OnRecordingFailure | None = None
    executable: Path | None = None
    reach: tuple[str, ...] | None = None
    model: str | None = None
    mode: AgentMode | None = None
    resume: str | None = None
    permission: Permission | None = None
    permission_mode: str | None = None
    approval_deadline: Positive | None = None
    on_crash: OnCrash | None = None
    park: bool | None = None
    account: str | None = None
    budget: Allowance | None = None
    workspace: WorkspaceKind | None = None
    worktrees: Path | None = None
    greeting: Positive | None = None
    silence: Limit | None = None
    tool_silence: Limit | None = None
    final: Positive | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] | None = None
    add_dirs: tuple[Folder, ...] | None = None
    mcp: dict[str, McpTable] | None = None
    mcp_config: Path | None = None
    context: dict[str, str] | None = None
    json_schema: str | None = None
    schemas: bool | None = None
    error_budget: int | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    user_settings: bool | None = None
    project_memory: bool | None = None
    retries: int | None = None
    sandbox: str | None = None
    effort: str | None = None
    extra: tuple[str, ...] | None = None
    restart: Restart | None = None
    shutdown: Grace | None = None
    significant: bool | None = None
    start_timeout: Positive | None = None
    backoff: Delays | None = None

    def child(self) -> ChildSpec:
        """A child spec with its restart, its end and its delays, whatever starts. Raises `InvalidSpec`."""
        keys = ("restart", "shutdown", "significant", "start_timeout")
        backoff = None if self.backoff is None else self.backoff.record()
        return ChildSpec(self.name, type(self), backoff=backoff, **written_fields(self, keys))

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        raise NotImplementedError

    def options(self, record: Path | None = None) -> dict[str, Any]:
        """The keywords of its maker: what was written, without what is the fleet's own. `record` unless written."""
        own = (a.name for a in attrs.fields(AgentTable) if a.name not in ("name", "prompt", "timeout"))
        written = {"record": record, **written_fields(self, own)}
        if self.env is not None:
            written["env"] = parse_env(self.env, os.environ)
        if self.add_dirs is not None:
            written["add_dirs"] = tuple(map(str, self.add_dirs))
        if self.mcp is not None:
            written["mcp"] = {name: server.record() for name, server in self.mcp.items()}
        for key in ("backoff", "budget"):
            if (table := getattr(self, key)) is not None:
                written[key] = table.record()
        return written


@attrs.frozen(kw_only=True)
class Claude(AgentTable):
    """`kind = "claude"`."""

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        return claude(self.name, **self.options(record))


@attrs.frozen(kw_only=True)
class Codex(AgentTable):
    """`kind = "codex"`."""

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        return codex(self.name, **self.options(record))


@attrs.frozen(kw_only=True)
class OpenCode(AgentTable):
    """`kind = "opencode"`. With `mode = "serve"` a session on the table of `[[servers]]` that `server` names."""

    server: str | None = None

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        return opencode(self.name, server=self.server, **self.options(record))


@attrs.frozen(kw_only=True)
class Gemini(AgentTable):
    """`kind = "gemini"`."""

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        return gemini(self.name, **self.options(record))


@attrs.frozen(kw_only=True)
class Acp(AgentTable):
    """`kind = "acp"`: any agent of the Agent Client Protocol. `argv` starts it; `profile` is what it is known to do."""

    argv: tuple[str, ...]
    profile: str = "generic"

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        return acp(self.name, self.argv, profile=self.profile, **self.options(record))


@attrs.frozen(kw_only=True)
class Scripted(AgentTable):
    """`kind = "scripted"`: plays `script` in the wire of `dialect`. `speed` is for recorded runs, 0 as fast as possible."""

    script: Script
    dialect: str = "claude"
    faults: tuple[str, ...] = ()
    speed: float = 0.0

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption`, `ScriptError` or `InvalidSpec`."""
        options = self.options(record)
        return scripted(
            self.name, self.script, dialect=self.dialect, faults=self.faults, speed=self.speed, **options
        )


AnyAgentTable: TypeAlias = Claude | Codex | OpenCode | Gemini | Acp | Scripted
KINDS: Mapping[str, type[AnyAgentTable]] = {
    "claude": Claude,
    "codex": Codex,
    "opencode": OpenCode,
    "gemini": Gemini,
    "acp": Acp,
    "scripted": Scripted,
}


def written_fields(record: object, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that the file has."""
    return {name: value for name in names if (value := getattr(record, name)) is not None}
