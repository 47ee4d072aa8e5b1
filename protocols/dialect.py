"""The dialect of a CLI: a record of data and pure functions.

`read` and `write` change only the `Memo` that they get, so conversations can share a dialect.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import attrs

from proctor.protocols.attachment import Attachment
from proctor.protocols.errors import NotUtf8
from proctor.protocols.mcp import Server, Servers
from proctor.protocols.vocabulary import AnyEvent, AnyRequest, TextDelta, Usage

Mode = Literal["session", "oneshot"]
Phase = Literal["greeting", "idle", "working", "ending", "ended"]
StopAction = Literal["interrupt", "end", "close_stdin", "terminate", "kill"]
Version = tuple[int, int, int]


@attrs.frozen(kw_only=True)
class HostTool:
    """A tool that runs in the host: its name, what it is for, and the JSON schema of its input (an object)."""

    name: str
    description: str
    schema: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class HostHook:
    """A hook that runs in the host: its own name, the CLI's word for the point, the tools it is for (the CLI's
    pattern, None for all), and the seconds the CLI is to wait for it. A `blocking` one must be able to stop what it
    is called for, also when it fails."""

    name: str
    point: str
    matcher: str | None = None
    timeout: float = 60.0
    blocking: bool = True


@attrs.frozen(kw_only=True)
class Launch:
    """Options of a new process. A dialect that cannot honour a field names it in `Command.ignored`.

    `resume` names a session to go on with, `fork` copies it to a new id. `retries` bounds the CLI's own retries of
    its model's API (None: as the CLI has it). `extra` is appended to the arguments as it is. `cwd` is where the
    process will work, `scratch` a private folder for `Command.files`; both absolute, "" where it does not matter.
    `secret` is made anew for each process, for a CLI that would open a port without one; `env` is what the agent's owner
    named, for a CLI whose settings have to be joined to it.
    `mcp` are the servers that it is to use, by name; `starter` are the words that start one of them by a file which holds
    its command and environment, for a CLI that takes them only by its arguments. `agent`
    tells this agent from the others of its tree, for a CLI that they share.
    `attachments` are those of the one prompt of a one-shot run, for a CLI that takes them by its arguments.
    `persist` False keeps no session that could be resumed; None is as the CLI has it.
    `user_settings` None and False leave out the user's settings files; only False is reported where they cannot be left out.
    `project_memory` False leaves out the memory files of the project (CLAUDE.md, AGENTS.md); `memory_above` is the text of
    those above `cwd`, for a CLI that does not read them by itself.
    `sandbox` is `read-only`, `workspace-write` or `danger-full-access`; `effort` the CLI's word for how much to think.
    """

    executable: tuple[str, ...]
    version: Version | None = None
    mode: Mode = "session"
    model: str | None = None
    resume: str | None = None
    fork: bool = False
    session_id: str | None = None
    partial: bool = True
    permission_mode: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    add_dirs: tuple[str, ...] = ()
    mcp: Servers = attrs.field(factory=dict[str, Server])
    json_schema: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    persist: bool | None = None
    user_settings: bool | None = None
    project_memory: bool = True
    memory_above: str = ""
    retries: int | None = None
    sandbox: str | None = None
    effort: str | None = None
    host_tools: tuple[HostTool, ...] = ()
    host_hooks: tuple[HostHook, ...] = ()
    starter: tuple[str, ...] = ()
    agent: str = ""
    attachments: tuple[Attachment, ...] = ()
    cwd: str = ""
    scratch: str = ""
    secret: str = attrs.field(default="", repr=False)
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=lambda env: repr(sorted(env)))
    extra: tuple[str, ...] = ()

    def require_utf8(self) -> None:
        """For a CLI that takes its folder in JSON. Raises `NotUtf8` for one that JSON has no way to write."""
        try:
            self.cwd.encode()
        except UnicodeEncodeError as error:
            raise NotUtf8("cwd", self.cwd) from error


@attrs.frozen(kw_only=True)
class Command:
    """The command line of a process: `env` is added to what the host passes on, `files` (name: content) are written to
    `Launch.scratch` first, `ignored` names fields not honoured. `joined` is environment that was made of what the owner
    named, and so comes in its place."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    joined: Mapping[str, str] = attrs.field(factory=dict[str, str])
    files: Mapping[str, str | bytes] = attrs.field(factory=dict[str, str | bytes])
    ignored: tuple[str, ...] = ()


@attrs.frozen
class Send:
    """Bytes that the host owes the CLI in reply to a frame."""

    data: bytes


Out = tuple[AnyEvent | Send, ...]
"""What one frame gives."""

Run = list[TextDelta]
"""What a run of frames gives that are each one text delta, and nothing else."""


@attrs.frozen
class StopStep:
    """One rung of a stop ladder: what is done, and the seconds until the next rung."""

    action: StopAction
    grace: float


@attrs.define
class OpenTurn:
    """A turn that has begun and not ended: its id, and the ids of the prompts it answers, as far as known."""

    id: str
    prompts: list[str] = attrs.field(factory=list[str])
    solicited: bool = True


@attrs.define
class Memo:
    """All that a conversation remembers between two frames. `frame` is the number of the line being read.

    `turn` is the id of the newest open turn, `turns` how many there were (an id is the `prefix` and a number); `open_turns` holds more than one where a
    CLI begins a turn before it reports the end of the one before. `prompts` holds the ids of prompts sent and not
    answered yet, in order; `pending` the requests of ours that wait for a reply, by id, with their kind; `approvals`
    the open questions of the CLI, by id, with the tool's input; `calls` its open `ToolRequested` and `HookCalled`, by
    id, each with the name of the tool or hook. `refused` is why the CLI will not start this session (an id it does
    not know), reported without leaving: the host then ends it. `total_cost_usd` is the session's cost so far (US
    dollars), None when it has a past that we do not know; `resumed` says that it has a past. `quiet` counts the
    frames that mean nothing to a consumer, by kind; `own` is the dialect's. `truncated` says that of the line being read the
    long strings were cut: none of its text may be kept, and an event of what was kept before names that earlier line.
    `context_tokens` are those that the last call of the model had before it, of the `context_window` there is, where the CLI reports them.
    """

    mode: Mode = "session"
    launch: Launch = Launch(executable=())
    frame: int = -1
    truncated: bool = False
    greeted: bool = False
    refused: str | None = None
    session_id: str | None = None
    version: str | None = None
    model: str | None = None
    turn: str | None = None
    turns: int = 0
    prefix: str = "t"
    open_turns: list[OpenTurn] = attrs.field(factory=list[OpenTurn])
    prompts: deque[str] = attrs.field(factory=deque[str])
    pending: dict[str, str] = attrs.field(factory=dict[str, str])
    approvals: dict[str, dict[str, Any]] = attrs.field(factory=dict[str, dict[str, Any]])
    calls: dict[str, str] = attrs.field(factory=dict[str, str])
    total_cost_usd: float | None = 0.0
    context_tokens: int | None = None
    context_window: int | None = None
    resumed: bool = False
    quiet: Counter[str] = attrs.field(factory=Counter[str])
    own: dict[str, Any] = attrs.field(factory=dict[str, Any])

    def ignore(self, kind: str) -> tuple[()]:
        """Count a frame that gives no event, and give none."""
        self.quiet[kind] += 1
        return ()

    def open_turn(self, prompts: Iterable[str] = (), *, solicited: bool = True) -> OpenTurn:
        """Begin a turn; it becomes the current one."""
        self.turns += 1
        turn = OpenTurn(f"{self.prefix}{self.turns}", [*prompts], solicited)
        self.open_turns.append(turn)
        self.turn = turn.id
        return turn

    def close_turn(self, turn: OpenTurn, prompts: Iterable[str]) -> None:
        """End a turn that answers these prompts; the newest of the others, if any, becomes the current one."""
        self.open_turns.remove(turn)
        self.turn = self.open_turns[-1].id if self.open_turns else None
        for prompt in prompts:
            if prompt in self.prompts:
                self.prompts.remove(prompt)

    def waiting_prompts(self) -> list[str]:
        """The prompts sent that no open turn is known to answer, in order."""
        taken = {prompt for turn in self.open_turns for prompt in turn.prompts}
        return [prompt for prompt in self.prompts if prompt not in taken]


SchemaForm = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""A JSON schema as a CLI's model takes it for its answer; None where it takes none like this."""

COMBINING = ("allOf", "anyOf", "oneOf", "not", "if")


def record_schema(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A schema of an object as it is: it travels as the input of a tool, which can be nothing else."""
    plain = schema.get("type") == "object" and not any(word in schema for word in COMBINING)
    return schema if plain else None


def _no_greeting(memo: Memo) -> bytes:
    return b""  # the prompt comes first


def _text_alone(memo: Memo, attachment: Attachment) -> bool:
    return False


Used = tuple[Usage | None, float | None]
"""Tokens and US dollars of the turn that runs, as far as they were reported."""


def _reported_at_the_end(memo: Memo) -> Used:
    return None, None


LinesReader = Callable[[Memo, Sequence[bytes]], Iterator[Run | Out]]


@attrs.frozen(kw_only=True)
class Dialect:
    """One CLI. `read` takes a line without its newline and never raises on what a CLI may say.

    A line that is no frame comes back as `Garbled`; one that gives nothing is counted in `Memo.quiet`. `write` raises
    `Misuse` where the CLI has no message for it. `read_lines`, for a CLI that streams fast, gives of many lines what
    `read` gives of each, in order; it moves `Memo.frame`, and goes on with the next line when it is asked to. `read_delta`, for one that streams slowly, gives the
    one text delta that `read_lines` would give of one line, its newline included; None, and nothing done, for any other line. `read_log`,
    for a CLI whose log tells what its wire does not, takes a line of its stderr; most give nothing. `takes` says
    whether it can carry an attachment that is no text; before the greeting, whether it may be able to. `oldest` and
    `newest_tested` are the versions it was tested with; `capabilities` names what not all of them can, with the first
    version known to. `schema_form` is for those that take a JSON schema of the answer, at the launch
    (`structured_output`) or with a prompt (`turn_schema`). In the modes of `relayed` the wire has no way to the host's
    tools: they come as the MCP server `host`. `adds` names arguments that the CLI adds to the description of such a tool
    for its model, and leaves in the call. `used` is what was reported of the running turn so far, by those that report before its end.
    """

    name: str
    launch: Callable[[Launch], Command]
    read: Callable[[Memo, bytes], Out]
    write: Callable[[Memo, AnyRequest], bytes]
    stop: tuple[StopStep, ...]
    greet: Callable[[Memo], bytes] = _no_greeting
    read_lines: LinesReader | None = None
    read_delta: Callable[[Memo, bytes], TextDelta | None] | None = None
    read_log: Callable[[Memo, bytes], Out] | None = None
    takes: Callable[[Memo, Attachment], bool] = _text_alone
    schema_form: SchemaForm = record_schema
    oldest: Version = (0, 0, 0)
    newest_tested: Version | None = None
    capabilities: Mapping[str, Version] = attrs.field(factory=dict[str, Version])
    relayed: frozenset[Mode] = frozenset()
    adds: frozenset[str] = frozenset()
    used: Callable[[Memo], Used] = _reported_at_the_end

    @property
    def lines_reader(self) -> LinesReader:
        """`read_lines`, or what does the same by `read`."""
        return self.read_lines or partial(_each_line, self.read)

    def can(self, capability: str, version: Version | None) -> bool:
        """Is this version known to have the capability? An unknown version has what all tested versions have."""
        first = self.capabilities.get(capability)
        if first is None:
            return False
        return first <= self.oldest if version is None else version >= first


def _each_line(read: Callable[[Memo, bytes], Out], memo: Memo, lines: Sequence[bytes]) -> Iterator[Out]:
    for line in lines:
        memo.frame += 1
        yield read(memo, line)


def parse_version(text: str | None) -> Version | None:
    """The first three numbers of a version such as `2.1.330 (Claude Code)`, None where there are none."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text or "", re.ASCII)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
