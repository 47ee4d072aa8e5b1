"""What one agent is to be, as frozen data: made and checked before anything starts.

A `Plan` joins four small records: how to launch the CLI, where it works, how long its silences may be, and what it
may do. `claude_plan` and `scripted_plan` make one from keyword options; an unknown name or a wrong value is a
`BadOption` that says what is accepted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args

import attrs

from proctor.actors.discovery import CLAUDE_CODE, Product, find
from proctor.actors.environment import Home
from proctor.actors.errors import BadOption
from proctor.actors.permissions import DEADLINE, Policy
from proctor.actors.scripted import check_script, scripted_dialect
from proctor.actors.transport import ProcessTransport, Reach
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Dialect, Launch, Mode

OnCrash = Literal["fail", "resume", "retry"]
AgentMode = Literal["session", "oneshot", "exec", "run", "serve"]
"""How an agent is held, in its CLI's own word; `Family.modes` says which words a CLI knows."""
T = TypeVar("T")

_MADE_HERE = frozenset({"executable", "cwd", "scratch"})
"""Fields of a launch that are known when a process is about to start."""

SHUTDOWN = 20.0
"""Seconds an agent has to stop in by default: the whole ladder of every dialect fits."""


def _positive(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadOption(f"{attribute.name} must be a number of seconds above 0, got {value!r}")


@attrs.frozen(kw_only=True)
class Clocks:
    """Seconds, each measured on its own. `greeting`: from the start to ready (60). `silence`: in a turn without a
    sign of life, not counted while a tool runs, an approval is open, or a retry is announced (600; math.inf for
    none). `final`: from the last event of a one-shot run to its exit (5)."""

    greeting: float = attrs.field(default=60.0, validator=_positive)
    silence: float = attrs.field(default=600.0, validator=_positive)
    final: float = attrs.field(default=5.0, validator=_positive)


@attrs.frozen(kw_only=True)
class Workplace:
    """Where the process works. `env` is what its owner named for it and is never shown; `record` is the folder that
    run directories are made in (None: a temporary one that goes with the agent)."""

    cwd: Path | None = None
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=lambda env: repr(sorted(env)))
    home: Home = "user"
    record: Path | None = None


@attrs.frozen(kw_only=True)
class Conduct:
    """What the agent may do, and what happens to a request whose process died: it fails (the default), the
    conversation is resumed and told to continue, or the same prompt is sent again. `park`: wait out usage limits."""

    permission: Policy = "deny"
    approval_deadline: float = attrs.field(default=DEADLINE, validator=_positive)
    on_crash: OnCrash = "fail"
    park: bool = True


@attrs.frozen(kw_only=True)
class Plan:
    """One agent. `product` is None when the dialect brings its own program; `reach` says how its far end is reached."""

    name: str
    dialect: Dialect
    product: Product | None = None
    executable: Path | None = None
    launch: Launch = attrs.field(factory=partial(Launch, executable=()))
    workplace: Workplace = Workplace()
    clocks: Clocks = Clocks()
    conduct: Conduct = Conduct()
    reach: Reach = ProcessTransport
    shutdown: float = SHUTDOWN

    def opening(self, *, resume: str | None, fork: bool) -> Launch:
        """What one incarnation is launched with, but for its program and its private folder."""
        cwd = str(self.workplace.cwd or Path.cwd())
        return attrs.evolve(self.launch, resume=resume, fork=fork, cwd=cwd)

    def locate(self) -> tuple[str, ...]:
        """The program to run, absolute. Raises `NotInstalled` or `NotExecutable`."""
        return () if self.product is None else (str(find(self.product, self.executable)),)


@attrs.frozen
class Family:
    """One CLI: the product that is looked for, and for each mode the dialect that is spoken and how it is launched."""

    product: Product
    modes: Mapping[AgentMode, tuple[Dialect, Mode]]


CLAUDE_FAMILY = Family(CLAUDE_CODE, {"session": (CLAUDE, "session"), "oneshot": (CLAUDE, "oneshot")})


class AgentOptions(TypedDict, total=False):
    """Options of every agent, each with the default of its record; see `Launch`, `Workplace`, `Clocks`, `Conduct`."""

    cwd: str | Path | None
    env: Mapping[str, str]
    home: Home
    record: str | Path | None
    executable: str | Path | None
    model: str | None
    mode: AgentMode
    resume: str | None
    session_id: str | None
    partial: bool
    permission_mode: str | None
    system_prompt: str | None
    append_system_prompt: str | None
    tools: tuple[str, ...] | None
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...]
    add_dirs: tuple[str, ...]
    mcp_config: str | None
    json_schema: str | None
    max_turns: int | None
    max_budget_usd: float | None
    persist: bool
    user_settings: bool
    retries: int | None
    sandbox: str | None
    effort: str | None
    extra: tuple[str, ...]
    greeting: float
    silence: float
    final: float
    permission: Policy
    approval_deadline: float
    on_crash: OnCrash
    park: bool


def claude_plan(name: str, options: AgentOptions, *, shutdown: float = SHUTDOWN) -> Plan:
    """A Claude Code agent."""
    return _family_plan(name, CLAUDE_FAMILY, options, shutdown)


def _family_plan(name: str, family: Family, options: AgentOptions, shutdown: float) -> Plan:
    given = options.copy()
    mode = given.pop("mode", "session")
    if mode not in family.modes:
        accepted = ", ".join(family.modes)
        raise BadOption(f"mode {mode!r} is not a choice for {family.product.name}; accepted: {accepted}")
    dialect, how = family.modes[mode]
    launch = Launch(executable=(), mode=how)
    return shaped(
        Plan(name=name, dialect=dialect, product=family.product, launch=launch, shutdown=shutdown), given
    )


def scripted_plan(
    name: str,
    script: str | Path,
    options: AgentOptions,
    *,
    faults: tuple[str, ...] = (),
    speed: float = 0.0,
    shutdown: float = SHUTDOWN,
) -> Plan:
    """An agent played from a script file or a recorded run. Raises `ScriptError` naming file and line."""
    path = Path(script).absolute()
    check_script(path)
    return shaped(
        Plan(name=name, dialect=scripted_dialect(path, faults=faults, speed=speed), shutdown=shutdown),
        options,
    )


def shaped(base: Plan, options: AgentOptions) -> Plan:
    """`base` with what the options say. Raises `BadOption` naming the option."""
    given = dict(options)
    _refuse_unknown(given)
    _check_choices(given)
    executable = given.pop("executable", None)
    return attrs.evolve(
        base,
        executable=None if executable is None else Path(cast("str | Path", executable)),
        launch=_part(base.launch, {k: v for k, v in given.items() if k not in _MADE_HERE}),
        workplace=_part(base.workplace, {k: _as_path(k, v) for k, v in given.items()}),
        clocks=_part(base.clocks, given),
        conduct=_part(base.conduct, given),
    )


def _part(record: T, given: Mapping[str, object]) -> T:
    names = {a.name for a in attrs.fields(type(record))}  # type: ignore[arg-type]
    changes: dict[str, Any] = {k: v for k, v in given.items() if k in names}
    return attrs.evolve(record, **changes)  # type: ignore[misc]


def _as_path(name: str, value: object) -> object:
    if name not in ("cwd", "record") or value is None:
        return value
    path = Path(cast("str | Path", value)).expanduser().absolute()
    if name == "cwd" and not path.is_dir():
        raise BadOption(f"cwd {str(value)!r} is not a directory")
    return path


def _refuse_unknown(given: Mapping[str, object]) -> None:
    known = sorted(AgentOptions.__optional_keys__)
    for name in given:
        if name not in known:
            raise BadOption(f"unknown option {name!r}{near(name, known)}")


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "home": get_args(Home),
    "mode": get_args(Mode),
    "on_crash": get_args(OnCrash),
}


def _check_choices(given: Mapping[str, object]) -> None:
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            raise BadOption(f"{name} {given[name]!r} is not a choice; accepted: {', '.join(choices)}")
    policy = given.get("permission", "deny")
    if isinstance(policy, str) and policy not in ("deny", "allow"):
        raise BadOption(f"permission {policy!r} is not a choice; accepted: deny, allow, rules, or a function")


def near(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or the list of what is known."""
    known = list(known)
    match = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {match[0]!r}?)" if match else f"; known: {', '.join(known)}"
