"""The plan of one agent, as frozen data: made and checked before anything starts.

A `Plan` joins four small records: how to launch the CLI, where it works, how long its silences may be, and what it
may do. `claude_plan`, `codex_plan`, `opencode_plan`, `acp_plan` and `scripted_plan` make one from keyword options; an
unknown name or a wrong value is a `BadOption` that says what is accepted.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs

from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.plan.discovery import (
    CLAUDE_CODE,
    CODEX_CLI,
    OPENCODE,
    SPEAKING_ACP,
    Product,
    find_program,
    unknown_product,
)
from proctor.actors.plan.mcp import servers_of
from proctor.actors.plan.option_checks import (
    PATH,
    SESSION,
    TEXTS,
    OptionRule,
    collect_faults,
    one_of,
    suggest_or_list,
)
from proctor.actors.plan.options import (
    SHUTDOWN,
    AgentMode,
    AgentOptions,
    Clocks,
    Conduct,
    Workplace,
    option_faults,
)
from proctor.actors.plan.project_memory import memory_above
from proctor.actors.plan.reach import WrapperReach, wrapper_reach
from proctor.actors.plan.workspaces import check_name
from proctor.actors.scripted.launch import scripted_dialect, scripted_wire
from proctor.actors.tools.host_calls import declare_hooks, declare_tools
from proctor.actors.tools.toolsocket import EXEC_FILE, proxy_server
from proctor.actors.transport.transport import ProcessTransport, Reach
from proctor.protocols.attachment import Attachment
from proctor.protocols.dialect import Dialect, Launch, Mode
from proctor.protocols.mcp import HOST, Server
from proctor.runtime.spec import ChildSpec

if TYPE_CHECKING:
    from proctor.protocols.acp import Profile

T = TypeVar("T")

_MADE_HERE = frozenset(
    {
        *("executable", "cwd", "scratch", "secret", "env", "host_tools", "host_hooks", "attachments"),
        *("mcp", "starter", "agent"),
    }
)
"""Fields of a launch that are no options: known when a process is about to start, or made of what is one."""


@attrs.frozen(kw_only=True)
class Plan:
    """One agent. `product` is None when the dialect brings its own program; `arguments` follow it in every start;
    `reach` says how its far end is reached, `given` names the options that its owner gave. `spent_usd` is what the
    conversation that it resumes has cost before (US dollars), None where that is not known."""

    name: str
    dialect: Dialect
    product: Product | None = None
    executable: Path | None = None
    arguments: tuple[str, ...] = ()
    launch: Launch = attrs.field(factory=partial(Launch, executable=()))
    workplace: Workplace = attrs.field(factory=Workplace)
    clocks: Clocks = attrs.field(factory=Clocks)
    conduct: Conduct = attrs.field(factory=Conduct)
    reach: Reach = ProcessTransport
    shutdown: float = SHUTDOWN
    given: frozenset[str] = frozenset()
    spent_usd: float | None = None

    @property
    def uses_proxy(self) -> bool:
        """Whether the CLI can reach the host's tools by a server of MCP alone."""
        return bool(self.conduct.host_tools) and self.launch.mode in self.dialect.relayed

    def opening(
        self,
        *,
        resume: str | None,
        fork: bool,
        attachments: tuple[Attachment, ...] = (),
        tools: Path | None = None,
    ) -> Launch:
        """The launch of one incarnation, but for its program and its private folder; `attachments` are those of
        the one prompt of a one-shot run, `tools` is the socket at which the host's tools are, where they are relayed."""
        mcp, one_shot = self.launch.mcp, self.launch.mode == "oneshot"
        if tools is not None:
            mcp = {**mcp, HOST: proxy_server(tools, max(tool.timeout for tool in self.conduct.host_tools))}
        facts: dict[str, Any] = {
            "cwd": str(self.workplace.cwd or Path.cwd()),
            "secret": secrets.token_urlsafe(),
            "env": self.workplace.env,
            "attachments": attachments if one_shot else (),
            "mcp": mcp,
            "starter": EXEC_FILE,
            "agent": self.name,
        }
        if self._is_isolated_claude():
            facts["memory_above"] = memory_above(Path(facts["cwd"]))
        return attrs.evolve(self.launch, resume=resume, fork=fork, **facts)

    def _is_isolated_claude(self) -> bool:
        launch = self.launch
        return self.product is CLAUDE_CODE and launch.project_memory and not launch.user_settings

    def at(self, cwd: Path) -> Plan:
        """The same plan, at work in another folder."""
        return attrs.evolve(self, workplace=attrs.evolve(self.workplace, cwd=cwd))

    def program(self) -> Path | None:
        """The program that is installed, absolute, or the name that another command is given; None where the dialect brings its own. Raises as `locate`."""
        if self.product is None:
            return None
        if isinstance(self.reach, WrapperReach):  # what is here says nothing about there
            return self.executable or Path(self.product.program)
        return find_program(self.product, self.executable)

    def locate(self) -> tuple[str, ...]:
        """The command to run, its program absolute. Raises `NotInstalled` or `NotExecutable`."""
        program = self.program()
        return () if program is None else (str(program), *self.arguments)


@attrs.frozen
class Family:
    """One CLI: the product that is looked for, and for each mode the dialect that is spoken and how it is launched.
    `accepts` has the CLI's own words for options that take any text in general."""

    product: Product
    modes: Mapping[AgentMode, tuple[Dialect, Mode]]
    accepts: Mapping[str, OptionRule] = attrs.field(factory=dict[str, OptionRule])


# A dialect is imported when an agent is planned that speaks it: all of them take longer to import than the event loop.


def claude_family() -> Family:
    """Claude Code."""
    from proctor.protocols.claude import CLAUDE
    from proctor.protocols.claude.dialect import PERMISSION_MODES

    return Family(
        CLAUDE_CODE,
        {"session": (CLAUDE, "session"), "oneshot": (CLAUDE, "oneshot")},
        {
            "resume": SESSION,
            "session_id": SESSION,
            "permission_mode": one_of(*sorted(PERMISSION_MODES), "manual"),
            "effort": one_of("low", "medium", "high", "xhigh", "max"),
        },
    )


def codex_family() -> Family:
    """Codex."""
    from proctor.protocols.codex import CODEX, CODEX_EXEC

    return Family(
        CODEX_CLI,
        {"session": (CODEX, "session"), "exec": (CODEX_EXEC, "oneshot")},
        {
            "resume": attrs.evolve(SESSION, what="a thread's UUID"),
            "permission_mode": one_of("untrusted", "on-failure", "on-request", "never"),
            "effort": one_of(*("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")),
        },
    )


def opencode_family() -> Family:
    """OpenCode."""
    from proctor.protocols.opencode import OPENCODE as SESSIONS
    from proctor.protocols.opencode import OPENCODE_RUN

    return Family(
        OPENCODE,
        {"session": (SESSIONS, "session"), "run": (OPENCODE_RUN, "oneshot")},
        {
            "resume": OptionRule(
                "a session's id, which begins with 'ses'",
                lambda value: isinstance(value, str) and value.startswith("ses") and value.isprintable(),
            )
        },
    )


def claude_plan(name: str, options: AgentOptions, *, shutdown: float = SHUTDOWN) -> Plan:
    """A Claude Code agent."""
    return _family_plan(name, claude_family(), options, shutdown)


def codex_plan(name: str, options: AgentOptions, *, shutdown: float = SHUTDOWN) -> Plan:
    """A Codex agent. The mode `exec` is a process for each request: no approvals, no interrupt, no deltas."""
    return _family_plan(name, codex_family(), options, shutdown)


def opencode_plan(name: str, options: AgentOptions, *, shutdown: float = SHUTDOWN) -> Plan:
    """An OpenCode agent: a session by default, or one process for each prompt (`mode="run"`)."""
    return _family_plan(name, opencode_family(), options, shutdown)


def gemini_plan(name: str, options: AgentOptions, *, shutdown: float = SHUTDOWN) -> Plan:
    """A Gemini CLI agent, in the Agent Client Protocol."""
    return acp_plan(name, ("gemini", "--acp"), options, profile="gemini", shutdown=shutdown)


def acp_plan(
    name: str,
    argv: Sequence[str],
    options: AgentOptions,
    *,
    profile: str | Profile = "generic",
    shutdown: float = SHUTDOWN,
) -> Plan:
    """An agent of the Agent Client Protocol: its command, looked up on PATH unless it is a path, and its profile, which
    is `generic`, `opencode`, `gemini`, `codex`, `claude` or one of your own. Raises `BadOption`."""
    from proctor.protocols.acp import PROFILES, Profile

    found = list[OptionFault]()
    if not _is_command(argv):
        found.append(OptionFault("argv", f"must be a program and its arguments, got {argv!r}"))
        argv = ("?",)
    if not isinstance(profile, Profile) and profile not in PROFILES:
        found.append(
            OptionFault("profile", f"{profile!r} is not known{suggest_or_list(str(profile), PROFILES)}")
        )
        profile = "generic"
    program, *arguments = argv
    product = SPEAKING_ACP.get(program) or unknown_product(program)
    family = Family(product, {"session": (_acp_dialect(profile), "session")})
    plan = _family_plan(name, family, options, shutdown, found)
    given = plan.executable or (Path(os.path.expanduser(program)) if "/" in program else None)
    return attrs.evolve(plan, executable=given, arguments=tuple(arguments))


def _is_command(argv: object) -> bool:
    accepted = not isinstance(argv, str) and TEXTS.takes(argv)
    return accepted and bool(argv) and bool(cast("Sequence[str]", argv)[0])


def _acp_dialect(profile: str | Profile) -> Dialect:
    from proctor.protocols import opencode
    from proctor.protocols.acp import PROFILES, acp_dialect

    if profile == "opencode":
        return opencode.OPENCODE
    return acp_dialect(PROFILES[profile] if isinstance(profile, str) else profile)


def _family_plan(
    name: str, family: Family, options: AgentOptions, shutdown: float, found: Iterable[OptionFault] = ()
) -> Plan:
    given, found = options.copy(), [*found]
    mode = given.pop("mode", "session")
    if mode not in family.modes:
        accepted = ", ".join(family.modes)
        text = f"{mode!r} is not a choice for {family.product.name}; accepted: {accepted}"
        found.append(OptionFault("mode", text))
        mode = "session"
    dialect, how = family.modes[mode]
    launch = Launch(executable=(), mode=how)
    base = Plan(name=name, dialect=dialect, product=family.product, launch=launch, shutdown=shutdown)
    return shaped(base, given, family.accepts, found)


def scripted_plan(
    name: str,
    script: str | Path,
    options: AgentOptions,
    *,
    dialect: str = "claude",
    faults: tuple[str, ...] = (),
    speed: float = 0.0,
    shutdown: float = SHUTDOWN,
) -> Plan:
    """An agent played from a script file or a recorded run, in the wire of `dialect` (a name of `SCRIPTED_WIRES`).

    Raises `ScriptError` naming file and line.
    """
    path = Path(script).absolute()
    played = scripted_dialect(path, dialect=dialect, faults=faults, speed=speed)
    launch = Launch(executable=(), mode=scripted_wire(dialect).mode)
    return shaped(Plan(name=name, dialect=played, launch=launch, shutdown=shutdown), options)


def shaped(
    base: Plan,
    options: AgentOptions,
    accepts: Mapping[str, OptionRule] | None = None,
    found: Iterable[OptionFault] = (),
) -> Plan:
    """`base` with what the options say; `accepts` are the CLI's own words. Raises `BadOption` with all that is wrong,
    `found` before included, a line each."""
    given = dict(options)
    faults = [*found]
    reach = collect_faults(faults, lambda: _reach(base.reach, given), base.reach)
    words = {
        **(accepts or {}),
        **({"cwd": PATH} if isinstance(reach, WrapperReach) and reach.elsewhere else {}),
    }
    faults += [*option_faults(given, words), *_misplaced(base.name, given)]
    good = {name: value for name, value in given.items() if name not in {fault.option for fault in faults}}
    conduct = _part(base.conduct, good)
    mcp = collect_faults(faults, lambda: _servers(good), base.launch.mcp)
    launch = _part(base.launch, {k: v for k, v in good.items() if k not in _MADE_HERE})
    launch = attrs.evolve(launch, mcp=mcp)
    launch = collect_faults(faults, lambda: _hosting(base.dialect, launch, conduct), launch)
    if faults:
        raise BadOption("\n".join(f"agent {base.name!r}: {fault}" for fault in faults), faults)
    executable = good.get("executable")
    return attrs.evolve(
        base,
        executable=None if executable is None else Path(cast("str | Path", executable)),
        launch=launch,
        workplace=_part(base.workplace, {k: _as_path(k, v) for k, v in good.items()}),
        clocks=_part(base.clocks, good),
        conduct=conduct,
        reach=reach,
        given=frozenset(good),
    )


def _misplaced(name: str, given: Mapping[str, object]) -> Iterable[OptionFault]:
    """Faults of options together, or with the agent's name."""
    if given.get("workspace") == "worktree":
        try:
            check_name(name)
        except BadOption as error:
            yield from error.faults
    elif given.get("worktrees") is not None:
        yield OptionFault("worktrees", "has no effect without workspace 'worktree'")


def _reach(base: Reach, given: Mapping[str, Any]) -> Reach:
    by = given.get("reach")
    if by is not None and base is not ProcessTransport:
        raise BadOption("reach has no effect for an agent without a process of its own")
    return base if by is None else wrapper_reach(by)


def _servers(given: Mapping[str, Any]) -> Mapping[str, Server]:
    return servers_of(given.get("mcp"), given.get("mcp_config"), given.get("context", {}))


def _hosting(dialect: Dialect, launch: Launch, conduct: Conduct) -> Launch:
    """The launch with the host's tools and hooks. A blocking hook that the CLI could not wait for is refused."""
    tools, hooks = declare_tools(conduct.host_tools), declare_hooks(conduct.hooks)
    kept = launch.mode == "session" and "host_hooks" in dialect.capabilities
    if not kept and any(hook.blocking for hook in hooks):
        held = f"{dialect.name} in mode {launch.mode!r}"
        raise BadOption(f"hooks cannot block in {held}: use a session that supports hooks, or blocking=False")
    return attrs.evolve(launch, host_tools=tools, host_hooks=hooks)


def _part(record: T, given: Mapping[str, object]) -> T:
    names = {a.name for a in attrs.fields(type(record))}  # type: ignore[arg-type]
    changes: dict[str, Any] = {k: v for k, v in given.items() if k in names}
    return attrs.evolve(record, **changes)  # type: ignore[misc]


def _as_path(name: str, value: object) -> object:
    if name not in ("cwd", "record", "worktrees") or value is None:
        return value
    return Path(os.path.expanduser(cast("str | Path", value))).absolute()


def plan_of(spec: ChildSpec | Plan) -> Plan:
    """The plan inside an agent's spec; a plan is its own. Raises `BadOption` for a spec that is not an agent's."""
    if isinstance(spec, Plan):
        return spec
    if not isinstance(spec, ChildSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"an agent is what proctor.claude and its like make, got {spec!r}")
    plan = spec.args[0] if spec.args else None
    if not isinstance(plan, Plan):
        raise BadOption(f"child spec {spec.id!r} is not an agent's: it starts {spec.start!r}")
    return plan
