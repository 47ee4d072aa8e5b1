"""The flags of the commands: a record for each command, with the help text of a flag below its field.

A flag that is an option of agents has its text from there.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import attrs
from cyclopts import Parameter

from proctor.actors.plan.options import OPTIONS

_BARE = Parameter(negative="", show_default=False)
Flag: TypeAlias = Annotated[bool, _BARE]
OutputFormat: TypeAlias = Annotated[Literal["table", "json"], Parameter(name=("--output", "-o"))]
RunForm: TypeAlias = Literal["text", "json", "atif", "md"]
Texts: TypeAlias = Annotated[tuple[str, ...], _BARE]


def listed(words: Texts) -> tuple[str, ...]:
    """The words of a flag that can be repeated, and can hold several with commas between them."""
    return tuple(word for several in words for word in several.split(",") if word)


def option(name: str, default: str = "") -> Parameter:
    """The flag of an option of agents. `default` describes the default of the command where it is another."""
    known = OPTIONS[name]
    text = f"{known.help[:1].upper()}{known.help[1:]}.".replace("`", "")
    default = default or known.none
    return Parameter(help=f"{text} Default: {default}." if default else text)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RunOptions:
    """The flags of `proctor run`."""

    json: Flag = False
    """Write every event as a line of JSON to stdout, the answer record last."""
    model: Annotated[str | None, option("model")] = None
    cwd: Annotated[str | None, option("cwd")] = None
    timeout: str = "300"
    """Seconds, or a duration such as 5m; 0 or none for no limit."""
    resume: Annotated[str | None, option("resume")] = None
    permission: Literal["deny", "allow", "ask"] | None = None
    """Policy for tool permission requests. Default: ask at a terminal, else deny."""
    allow: Texts = ()
    """A tool to allow, by name or a glob such as mcp__*. --permission decides about all others. Can be repeated."""
    deny: Texts = ()
    """A tool to deny, also where --allow names it. Can be repeated."""
    env: Texts = ()
    """NAME passes a variable to the agent, NAME=VALUE sets it. Can be repeated."""
    home: Annotated[Literal["user", "private"], option("home")] = "user"
    record: Annotated[str | None, option("record", "the user's state folder")] = None
    no_record: Flag = False
    """Keep no recording."""
    executable: Annotated[str | None, option("executable")] = None
    mode: Literal["session", "oneshot", "exec", "run"] = "session"
    """session keeps the agent's stdin open. oneshot (claude), exec (codex) and run (opencode) end after one prompt."""
    user_settings: Annotated[bool | None, option("user_settings")] = None
    project_memory: Annotated[bool, option("project_memory")] = True
    quiet: Flag = False
    """Write only the answer, or the reason why there is none."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SelectionOptions:
    """The flags of `proctor cost`, and which runs `proctor runs` lists."""

    agent: str = "*"
    """Only runs of agents of this name; * and ? stand for others."""
    since: str | None = None
    """Only runs with an event in the last time of this length, such as 12h or 7d."""
    output: OutputFormat = "table"
    """The output format."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RunsOptions(SelectionOptions):
    """The flags of `proctor runs`."""

    number: Annotated[int, Parameter(name=("--number", "-n"))] = 20
    """How many to list, the newest first; 0 for all."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class BenchOptions:
    """The flags of `proctor bench`."""

    agents: Texts = ()
    """The agents, with commas between them: kinds as proctor run takes them, or names of the fleet file. Default: all of the fleet file. Can be repeated."""
    fleet: str | None = None
    """A fleet file (TOML) whose agents can be named, with the options that they have there."""
    limit: int = 4
    """How many attempts may run at a time."""
    repeat: int = 1
    """How often each agent gets each task."""
    budget: float | None = None
    """Dollars for the whole benchmark; once they are spent no attempt begins."""
    output: Annotated[str | None, Parameter(name=("--output", "-o"))] = None
    """The file of results, which a command that was cut short continues. Default: TASKS with the suffix .results.jsonl."""
    keep: Literal["none", "failed", "all"] = "none"
    """Which workspaces stay: of no attempt, of those that scored less than 1, or of all."""
    permission: Literal["deny", "allow"] = "deny"
    """Policy for tool permission requests of agents that are named by their kind."""
    env: Texts = ()
    """NAME passes a variable to those agents, NAME=VALUE sets it. Can be repeated."""
    home: Annotated[Literal["user", "private"], option("home")] = "user"
    json: Flag = False
    """Write the table as JSON."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class DoctorOptions:
    """The flags of `proctor doctor`."""

    prove_cleanup: Flag = False
    """Start a runtime, kill it without warning, and prove that none of its processes is left."""
    children: int = 50
    """How many agents that runtime has; half of them leave processes in sessions of their own."""
    seconds: float = 5.0
    """Seconds after the kill within which all must be gone."""
    output: OutputFormat = "table"
    """The output format."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The flags of `proctor replay`."""

    fault: Texts = ()
    """A fault to inject, such as crash@turn=1. Can be repeated."""
    speed: float = 0.0
    """1 keeps the recorded pauses, 2 halves them, 0 leaves them out."""
    json: Flag = False
    """Write every event as a line of JSON to stdout, with an answer record after each turn."""
    quiet: Flag = False
    """Write only the answers, or the reason why there is none."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ServerOptions:
    """The flags that `proctor web` and `proctor serve` have in common."""

    token_env: str | None = None
    """The variable that holds the token of clients, or @ and the path of a file. Default: a new token over TCP, shown on stderr at the start."""
    no_token: Flag = False
    """Require no token on a loopback address. Every process of this machine can then connect, an agent's tools included."""
    metrics: Flag = False
    """Serve /metrics."""
    sessions: str | None = None
    """A folder that keeps sessions when the server ends. Default: sessions are removed with the server."""
    session_ttl: str | None = None
    """How long an idle session is kept, such as 7d; none for no limit. Default: 30d with --sessions, else 1h."""
    limit: Texts = ()
    """How many agents of each kind may run at a time, or KIND=N for one kind. Can be repeated. Default: by the machine's memory, at most 10."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class WebOptions(ServerOptions):
    """The flags of `proctor web`."""

    listen: str | None = None
    """PORT, HOST:PORT or unix:PATH. Default: a Unix socket in the user's runtime folder, named after the fleet."""
    origin: Texts = ()
    """A web origin whose pages may send requests, such as https://example.org. Can be repeated."""
    grace: str = "10s"
    """Grace period for running turns at shutdown."""
    strict: Flag = False
    """Stop when an agent cannot start or is restarted too often. Default: serve the others."""
    fresh: Flag = False
    """Begin anew also where a run was cut short."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ServeOptions(ServerOptions):
    """The flags of `proctor serve`."""

    http: str | None = None
    """Serve over HTTP instead of stdio, at PORT, HOST:PORT or unix:PATH; the path is /mcp."""
    fleet: str | None = None
    """A fleet file (TOML). Its agents are started, and each becomes a tool."""
    agents: Texts = ()
    """Kinds of agents, as for run, separated by commas. Default: claude,codex,opencode,gemini; none with --fleet."""
    root: Texts = ()
    """A folder that agents may work in, with everything below it. Can be repeated. Default: the current folder."""
    permission: Literal["deny", "allow"] = "deny"
    """Policy for tool permission requests."""
    timeout: str = "300"
    """Time limit for a call that sets none, in seconds or as a duration such as 5m."""
    env: Texts = ()
    """NAME passes a variable to the agents, NAME=VALUE sets it. Can be repeated."""
    record: Annotated[str | None, option("record", "the user's state folder")] = None
    no_record: Flag = False
    """Keep no recording."""
    schema: str | None = None
    """A file with a JSON schema for the tools submit, validate and example. Agents are served too only where --agents or --fleet names them."""
    submit_to: str | None = None
    """The file to append accepted answers to, one line of JSON each."""
    probes: str | None = None
    """With stdio: serve /healthz, /readyz and, with --metrics, /metrics at PORT, HOST:PORT or unix:PATH."""
    client_ttl: str = "30m"
    """How long the session of an idle HTTP client is kept, such as 30m; none for no limit."""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SetupOptions:
    """The flags of `proctor setup`."""

    client: Annotated[tuple[Literal["claude", "codex", "opencode", "gemini"], ...], _BARE] = ()
    """Register with this client only, also when it is not installed. Can be repeated. Default: all installed clients."""
    name: str = "proctor"
    """The name of the server."""
    fleet: str | None = None
    """A fleet file whose agents are served as well."""
    agents: Texts = ()
    """Kinds of agents to serve, separated by commas, as for serve."""
    root: Texts = ()
    """A folder that agents may work in, with everything below it. Can be repeated. Default: the folder of the client."""
    permission: Literal["deny", "allow"] | None = None
    """Policy for tool permission requests."""
    env: Texts = ()
    """NAME passes a variable of the client to the agents, NAME=VALUE sets it. Can be repeated."""
    remove: Flag = False
    """Remove the server from the configuration."""
    force: Flag = False
    """Replace or remove a server of that name that is not proctor."""
    dry_run: Flag = False
    """Show what would change without changing it."""
