"""The options of an agent. Each is written once, as a key of `AgentOptions` or `SpecOptions` with an `Option`.

From there come the checks (`option_faults`), `help()` (`document_options`), the keys of a fleet file, flags of the command
line and the tables of the reference. The records below hold the values; they have the defaults.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NewType,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from proctor.actors.durations import Limit, Positive, Seconds
from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.environment import Home
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.option_checks import (
    COUNT,
    DOLLARS,
    ENVIRONMENT,
    FOLDER,
    FOLDERS,
    NAME,
    SCHEMA,
    SECONDS,
    SIZE,
    TEXT,
    TEXTS,
    WORD,
    OptionRule,
    is_count,
    one_of,
    rule_of,
    sequence_of,
    suggest_or_list,
)
from proctor.actors.plan.permissions import DEADLINE, Policy, Rule
from proctor.actors.plan.reach import Wrapper
from proctor.actors.plan.workspaces import WorkspaceKind
from proctor.actors.recording.recording import LIMIT, MIN_LIMIT
from proctor.actors.tools.hooks import Hook
from proctor.actors.tools.tools import Tool
from proctor.protocols.conversation import ERROR_BUDGET
from proctor.protocols.dialect import Launch, Mode
from proctor.protocols.stages import Validator
from proctor.runtime.spec import Backoff, ChildSpec, Grace, Restart, StartOrder

F = TypeVar("F", bound=Callable[..., object])

OnCrash = Literal["fail", "resume", "retry"]
OnRecordingFailure = Literal["continue", "fail"]
AgentMode = Literal["session", "oneshot", "exec", "run", "serve"]
"""How an agent is held, in its CLI's own word; `Family.modes` says which words a CLI knows."""

Folder = NewType("Folder", str)
"""A path of an existing directory, in a file."""
Variables = NewType("Variables", Mapping[str, str])
"""Variables as a file or a command line has them: an array of `NAME` (passed on) and `NAME=VALUE`."""

_RULES = sequence_of(lambda value: isinstance(value, Rule))

SHUTDOWN = 20.0
"""Seconds an agent has to stop in by default: the whole ladder of every dialect fits."""

START_ORDER: StartOrder = "parallel"
"""When an agent starts by default: beside others, because one that is slow to greet must delay only itself."""

BACKOFF = Backoff(min_delay=0.25, max_delay=30.0, reset_after=10.0)
"""Delays between consecutive restarts of an agent by default; a restart for something that the machine lacks waits until it is
there again."""


@attrs.frozen
class Option:
    """One option: `help` says what it is, `none` what it is without a value. `rule` checks a value (left out: by the type).

    `file` is its type in a fleet file: `...` for that of the keyword, None where a file cannot have it. The rest is made of
    the key that the option annotates.
    """

    help: str
    rule: OptionRule | None = None
    none: str = attrs.field(default="", kw_only=True)
    file: Any = attrs.field(default=..., kw_only=True)
    name: str = attrs.field(default="", kw_only=True)
    annotation: str = attrs.field(default="", kw_only=True)

    @property
    def written(self) -> str:
        """Its type as text."""
        [tree] = ast.parse(self.annotation).body
        match tree:
            case ast.Expr(ast.Subscript(slice=ast.Tuple(elts=[kind, *_]))):
                return ast.unparse(kind)
            case _:
                return self.annotation

    @property
    def text(self) -> str:
        """The whole sentence: what it is, and what it is without a value."""
        return f"{self.help}; None: {self.none}" if self.none else self.help

    def fault(self, value: object, accepted: OptionRule | None = None) -> str | None:
        """The fault of a value, as `OptionRule.fault`. `accepted` narrows it to what one CLI has."""
        rule = (
            self.rule
            if accepted is None or (value is None and self.rule and self.rule.optional)
            else accepted
        )
        return None if rule is None else rule.fault(value)


class AgentOptions(TypedDict, total=False):
    """Options of every agent."""

    cwd: Annotated[
        str | Path | None,
        Option("the folder that the agent works in", FOLDER, none="that of this process", file=Folder),
    ]
    env: Annotated[
        Mapping[str, str],
        Option(
            "variables for its process, by name; their values are never shown", ENVIRONMENT, file=Variables
        ),
    ]
    home: Annotated[
        Home, Option("`private` gives the agent an empty home directory, without the user's login")
    ]
    record: Annotated[
        str | Path | None, Option("the folder for recordings", none="a temporary one", file=Path)
    ]
    record_limit: Annotated[
        int | None,
        Option(
            "bytes that its recordings and its event log may have; the oldest go first",
            OptionRule(
                f"a number of bytes from {MIN_LIMIT} on, or None", lambda v: is_count(v) and v >= MIN_LIMIT
            ),
            none="any number",
        ),
    ]
    on_recording_failure: Annotated[
        OnRecordingFailure,
        Option("when the disk does not take the recording: `continue` without, or `fail`"),
    ]
    workspace: Annotated[WorkspaceKind, Option("`shared`, or `worktree`: a git worktree of its own")]
    worktrees: Annotated[
        str | Path | None, Option("the folder of the worktrees", none="below the git directory", file=Path)
    ]
    executable: Annotated[
        str | Path | None,
        Option("the agent's program", none="found on PATH and in the usual places", file=Path),
    ]
    reach: Annotated[
        Wrapper | None,
        Option(
            "another command that starts its program, or a function that maps the command; see the page on reach",
            OptionRule("a sequence of words, or a function", lambda value: True),
            file=tuple[str, ...],
        ),
    ]
    model: Annotated[
        str | None, Option("the model to use, in the CLI's own words", WORD, none="as the CLI has it")
    ]
    mode: Annotated[
        AgentMode,
        Option(
            "`session` keeps the agent's stdin open; `oneshot` (claude), `exec` (codex) and `run` (opencode) end after "
            "one prompt; `serve` (opencode, in a tree) is a session on an `opencode_server`",
            one_of(*get_args(Mode)),
        ),
    ]
    resume: Annotated[str | None, Option("the id of a session to continue", WORD)]
    session_id: Annotated[
        str | None, Option("the id of a new session, where the CLI takes one", WORD, file=None)
    ]
    partial: Annotated[bool, Option("whether text is reported piece by piece as it is written", file=None)]
    permission_mode: Annotated[str | None, Option("the CLI's own permission mode", WORD)]
    system_prompt: Annotated[str | None, Option("replaces the CLI's own instructions", TEXT)]
    append_system_prompt: Annotated[str | None, Option("added after the CLI's own instructions", TEXT)]
    tools: Annotated[tuple[str, ...] | None, Option("the CLI's tools to offer", TEXTS, none="all")]
    allowed_tools: Annotated[tuple[str, ...], Option("tools that need no permission", TEXTS)]
    disallowed_tools: Annotated[tuple[str, ...], Option("tools that it must not use", TEXTS)]
    add_dirs: Annotated[
        tuple[str, ...], Option("more folders that it may use", FOLDERS, file=tuple[Folder, ...])
    ]
    mcp: Annotated[
        Mapping[str, McpServer] | None,
        Option(
            "MCP servers, by name",
            OptionRule(
                "a mapping of names to records of McpServer", lambda v: isinstance(v, Mapping), shown=False
            ),
        ),
    ]
    mcp_config: Annotated[
        str | Path | None, Option("a file with `mcpServers`, as other programs use it", file=Path)
    ]
    context: Annotated[
        Mapping[str, str],
        Option(
            "texts for its MCP servers, and for tools that ask for them",
            OptionRule("a mapping of names to texts", lambda value: isinstance(value, Mapping)),
        ),
    ]
    json_schema: Annotated[
        str | None,
        Option("the JSON schema of its answers, as the CLI takes it; see also `schema=` of `ask`", SCHEMA),
    ]
    max_turns: Annotated[int | None, Option("the most model calls in one turn", COUNT)]
    max_budget_usd: Annotated[
        float | None, Option("US dollars for one process, as the CLI counts them", DOLLARS)
    ]
    persist: Annotated[
        bool | None, Option("whether the CLI keeps its session", none="as the CLI has it", file=None)
    ]
    user_settings: Annotated[
        bool | None,
        Option(
            "whether to read the user's settings files and the project's, with their hooks and permission rules",
            none="read none, and name those that are there in a notice",
        ),
    ]
    project_memory: Annotated[
        bool, Option("whether to read the project's instructions for agents: CLAUDE.md, AGENTS.md")
    ]
    retries: Annotated[int | None, Option("how often the CLI retries its model's API by itself", SIZE)]
    sandbox: Annotated[
        str | None,
        Option(
            "`read-only`, `workspace-write` or `danger-full-access`, where the CLI has it",
            one_of("read-only", "workspace-write", "danger-full-access"),
        ),
    ]
    effort: Annotated[str | None, Option("how much the model thinks, in the CLI's own words", WORD)]
    extra: Annotated[tuple[str, ...], Option("more arguments for the CLI, passed unchanged", TEXTS)]
    greeting: Annotated[float, Option("seconds from its start until it is ready", SECONDS, file=Positive)]
    silence: Annotated[
        float, Option("seconds without a sign of life in a turn, while no tool runs", SECONDS, file=Limit)
    ]
    tool_silence: Annotated[float, Option("the same while a tool runs", SECONDS, file=Limit)]
    final: Annotated[float, Option("seconds from the end of its output to its exit", SECONDS, file=Positive)]
    permission: Annotated[
        Policy,
        Option(
            "`deny`, `allow`, `ask`, rules, or a function that decides",
            OptionRule(
                "deny, allow, ask, rules, or a function",
                lambda value: value in ("deny", "allow", "ask") or callable(value) or _RULES(value),
                choices=("deny", "allow", "ask"),
            ),
            file=Literal["deny", "allow", "ask"] | tuple[Rule, ...],
        ),
    ]
    approval_deadline: Annotated[
        float, Option("seconds for the answer to a question; then it is denied", SECONDS, file=Positive)
    ]
    on_crash: Annotated[
        OnCrash,
        Option("a request whose process died: `fail`, `resume` the conversation, or `retry` the prompt"),
    ]
    park: Annotated[bool, Option("whether to wait out usage limits")]
    budget: Annotated[Budget | None, Option("the limit on its spending in a period")]
    account: Annotated[
        str | None,
        Option("the account whose usage limits it shares", NAME, none="derived from CLI, home and keys"),
    ]
    host_tools: Annotated[
        Sequence[Tool],
        Option(
            "functions of this program that it can call (`Tool`)",
            OptionRule("a sequence of tools", lambda value: isinstance(value, Sequence)),
            file=None,
        ),
    ]
    hooks: Annotated[
        Sequence[Hook],
        Option(
            "functions of this program that are asked before it does things (`Hook`)",
            OptionRule("a sequence of Hook", lambda value: isinstance(value, Sequence)),
            file=None,
        ),
    ]
    schemas: Annotated[bool, Option("whether it has the tools to submit structured answers")]
    error_budget: Annotated[
        int | None,
        Option(
            "consecutive lines outside the protocol after which the process is stopped",
            attrs.evolve(COUNT, what="a whole number from 1 on, or None"),
            none="any number",
        ),
    ]
    validators: Annotated[
        Sequence[Validator],
        Option(
            "functions of this program that check the CLI's output, see the page on decoding",
            OptionRule("a sequence of validators", sequence_of(callable)),
            file=None,
        ),
    ]


class SpecOptions(AgentOptions, total=False):
    """An agent's options and its child spec's, which the spec checks."""

    restart: Annotated[
        Restart, Option("`permanent`, `transient` (after an abnormal end) or `temporary` (never)")
    ]
    shutdown: Annotated[
        Grace,
        Option("seconds that it may take to stop, or `brutal_kill`", file=Seconds | Literal["brutal_kill"]),
    ]
    significant: Annotated[bool, Option("whether its end may end the supervisor")]
    start_timeout: Annotated[float | None, Option("seconds that a start may take", file=Positive)]
    start_order: Annotated[
        StartOrder,
        Option("`parallel`, beside other agents, or `sequential`, after those before it", file=StartOrder),
    ]
    backoff: Annotated[
        Backoff | None, Option("the delays between consecutive restarts", none="restart at once")
    ]
    mailbox: Annotated[int, Option("messages that may wait in its mailbox", file=None)]


def options_of(options: type) -> dict[str, Option]:
    """The options of a TypedDict and of those that it extends, by name."""
    texts, made = inspect.get_annotations(options), dict[str, Option]()
    for name, hint in get_type_hints(options, include_extras=True).items():
        kind, option = get_args(hint)
        kinds: tuple[Any, ...] = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        plain = reduce(lambda one, other: one | other, (one for one in kinds if one is not NoneType))
        rule = option.rule or rule_of(plain)
        rule = None if rule is None else attrs.evolve(rule, optional=NoneType in kinds)
        file = plain if option.file is ... else option.file
        made[name] = attrs.evolve(option, rule=rule, file=file, name=name, annotation=_text(texts[name]))
    return made


def _text(annotation: object) -> str:
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)


SPEC_OPTIONS: Mapping[str, Option] = options_of(SpecOptions)
"""Every option of an agent, and those of its child spec."""
OPTIONS: Mapping[str, Option] = {name: SPEC_OPTIONS[name] for name in AgentOptions.__annotations__}
"""Those of the agent. `mcp`, `host_tools`, `hooks`, `context` and `reach` are looked into by their own modules."""


def option_faults(options: Mapping[str, object], words: Mapping[str, OptionRule]) -> Iterator[OptionFault]:
    """Every fault of these options, not only the first. `words` narrow some of them to those of one CLI."""
    for name, value in options.items():
        option, accepted = OPTIONS.get(name), words.get(name)
        if option is None and accepted is None:
            yield OptionFault("", f"unknown option {name!r}{suggest_or_list(name, sorted(OPTIONS))}")
        elif (fault := (option or Option("")).fault(value, accepted)) is not None:
            yield OptionFault(name, fault)


def _checked(default: Any) -> Any:
    """A field with the name of an option, whose value is checked as that is. Raises `BadOption`."""
    return attrs.field(default=default, validator=_check_field)


def _check_field(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_option(attribute.name, value)


def check_option(name: str, value: object) -> None:
    """Raises `BadOption` for a value that this option does not take."""
    if (fault := OPTIONS[name].fault(value)) is not None:
        raise BadOption(f"{name} {fault}", [OptionFault(name, fault)])


@attrs.frozen(kw_only=True)
class Clocks:
    """Time limits in seconds, each measured on its own; `silence` and `tool_silence` may be math.inf.

    The silence of a turn is not counted while an approval is open or a retry is announced.
    """

    greeting: float = _checked(60.0)
    silence: float = _checked(600.0)
    tool_silence: float = _checked(3600.0)
    final: float = _checked(5.0)


@attrs.frozen(kw_only=True)
class Workplace:
    """The folders of the process and of its recordings. Without a `record` they go with the agent; when the disk does not take
    one, an agent that is to `fail` stops its process, and is `failed` until it can be recorded again."""

    cwd: Path | None = None
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=lambda env: repr(sorted(env)))
    home: Home = "user"
    record: Path | None = None
    record_limit: int | None = _checked(LIMIT)
    on_recording_failure: OnRecordingFailure = "continue"
    workspace: WorkspaceKind = "shared"
    worktrees: Path | None = None


@attrs.frozen(kw_only=True)
class Conduct:
    """The agent's permissions, limits and tools, and the fate of a request whose process died. `schemas` gives a held agent its tools from its start on;
    a line that a validator refuses counts for `error_budget`."""

    permission: Policy = "deny"
    approval_deadline: float = _checked(DEADLINE)
    on_crash: OnCrash = "fail"
    park: bool = True
    budget: Budget | None = None
    account: str | None = None
    context: Mapping[str, str] = attrs.field(factory=dict[str, str])
    host_tools: tuple[Tool, ...] = attrs.field(default=(), converter=tuple[Tool, ...])
    hooks: tuple[Hook, ...] = attrs.field(default=(), converter=tuple[Hook, ...])
    schemas: bool = False
    error_budget: int | None = _checked(ERROR_BUDGET)
    validators: tuple[Validator, ...] = attrs.field(default=(), converter=tuple[Validator, ...])


def defaults() -> dict[str, object]:
    """Option → its value when it is left out."""
    known: dict[str, object] = {}
    for field in (
        a for record in (ChildSpec, Launch, Workplace, Clocks, Conduct) for a in attrs.fields(record)
    ):
        default: Any = field.default
        if isinstance(default, attrs.Factory) and not default.takes_self:  # type: ignore[arg-type]
            default = default.factory()
        known[field.name] = default
    own = {
        "backoff": BACKOFF,
        "shutdown": SHUTDOWN,
        "start_order": START_ORDER,
        "mode": "session",
    }  # other than for other children
    return {name: {**known, **own}.get(name) for name in SPEC_OPTIONS}


@lru_cache(maxsize=1)
def _keywords() -> Sequence[inspect.Parameter]:
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=SPEC_OPTIONS[name].written
        )
        for name, default in defaults().items()
    ]


def document_options(function: F) -> F:
    """Show `SPEC_OPTIONS` in the signature and the docstring of a function that takes them as `**options`, for `help()`."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    documented: Any = function
    documented.__signature__ = signature.replace(parameters=[*named, *_keywords()])
    lines = "\n".join(f"    {name}: {option.text}." for name, option in SPEC_OPTIONS.items())
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n\n{lines}\n"
    return function
