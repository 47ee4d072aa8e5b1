"""The meaning and the default of each option of an agent: one table, for `help()` and for the reference page.

Types stand in `SpecOptions`, defaults in the records that the options become; neither is said again here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, TypeVar

import attrs

from proctor.actors.plan.plan import BACKOFF, SHUTDOWN, Clocks, Conduct, Workplace
from proctor.protocols.dialect import Launch
from proctor.runtime.spec import ChildSpec

F = TypeVar("F", bound=Callable[..., object])

HELP: Mapping[str, str] = {
    "cwd": "the folder that it works in; None: that of this process",
    "env": "variables for its process, by name; their values are never shown",
    "home": "`user`: the user's own; `private`: an empty one",
    "record": "the folder of its recordings; None: a temporary one",
    "record_limit": "bytes that its recording and its event log may have; the oldest goes first",
    "on_recording_failure": "when the disk does not take the recording: `continue` without, or `fail`",
    "workspace": "`shared`, or `worktree`: a git worktree of its own",
    "worktrees": "the folder of the worktrees; None: below the git directory",
    "reach": "the transport to it in place of a process of its own, see the page on reach",
    "executable": "its program; None: looked up",
    "model": "the CLI's name of the model",
    "mode": "how the CLI is driven: `session`, `oneshot`, `exec`, `run` or `serve`, where the CLI has it",
    "resume": "the id of a session to resume",
    "session_id": "the id of a new session, where the CLI takes one",
    "partial": "whether text is reported piece by piece as it is written",
    "permission_mode": "the CLI's own permission mode",
    "system_prompt": "replaces the CLI's own instructions",
    "append_system_prompt": "added after the CLI's own instructions",
    "tools": "the CLI's tools to offer; None: all",
    "allowed_tools": "tools that need no permission",
    "disallowed_tools": "tools that it must not use",
    "add_dirs": "more folders that it may use",
    "mcp": "MCP servers, by name",
    "mcp_config": "a file with `mcpServers`, as other programs use it",
    "context": "texts for its MCP servers, and for tools that ask for them",
    "json_schema": "the JSON schema of its answers, as the CLI takes it; see also `schema=` of `ask`",
    "max_turns": "the most model calls in one turn",
    "max_budget_usd": "US dollars for one process, as the CLI counts them",
    "persist": "whether the CLI keeps its session; None: as the CLI has it",
    "user_settings": "read the user's and the project's settings; None: left out, with a notice; False: without",
    "project_memory": "read the project's instructions for agents: CLAUDE.md, AGENTS.md",
    "retries": "how often the CLI retries its model's API by itself",
    "sandbox": "`read-only`, `workspace-write` or `danger-full-access`, where the CLI has it",
    "effort": "how much the model thinks, in the CLI's own words",
    "error_budget": "consecutive lines outside the protocol after which the process is stopped",
    "extra": "more arguments for the CLI, passed unchanged",
    "greeting": "seconds from its start until it is ready",
    "silence": "seconds without output in a turn",
    "tool_silence": "the same while a tool runs",
    "final": "seconds from the end of its output to its exit",
    "permission": "`deny`, `allow`, `ask`, rules, or a function that is asked",
    "approval_deadline": "seconds for the answer to a question; then it is denied",
    "on_crash": "a request whose process died: `fail`, `resume` the conversation, or `retry` the prompt",
    "park": "wait out usage limits",
    "budget": "what it may spend in a period",
    "account": "the account whose usage limits it shares; None: derived from CLI, home and keys",
    "host_tools": "functions of this program that it can call (`Tool`)",
    "hooks": "functions of this program that are asked before it does things (`Hook`)",
    "schemas": "whether it has the tools to submit structured answers",
    "validators": "functions of this program that check the CLI's output, see the page on decoding",
    "restart": "`permanent`, `transient` (after an abnormal end) or `temporary` (never)",
    "shutdown": "seconds that it may take to stop, or `brutal_kill`",
    "significant": "whether its end may end the supervisor",
    "start_timeout": "seconds that a start may take",
    "backoff": "the delays between consecutive restarts",
    "mailbox": "messages that may wait in its mailbox",
}
"""Option → what it is."""

_OWN: Mapping[str, object] = {
    "backoff": BACKOFF,
    "executable": None,
    "mcp_config": None,
    "mode": "session",
    "reach": None,
    "shutdown": SHUTDOWN,
}
"""Defaults of options that become something else, or that agents have otherwise than other children."""

_RECORDS: tuple[type, ...] = (ChildSpec, Launch, Workplace, Clocks, Conduct)


def defaults() -> dict[str, object]:
    """Option → what it is when it is left out."""
    known: dict[str, object] = {}
    for field in (field for record in _RECORDS for field in attrs.fields(record)):
        default: Any = field.default
        if isinstance(default, attrs.Factory) and not default.takes_self:  # type: ignore[arg-type]
            default = default.factory()
        known[field.name] = default
    return {**known, **_OWN}


def types(options: type) -> dict[str, str]:
    """Option → its type, as it is written in a TypedDict of options and in those that it extends."""
    return {name: _written(kind) for name, kind in inspect.get_annotations(options).items()}


def document_options(options: type) -> Callable[[F], F]:
    """Show the options of a function that takes them as `**options` in its signature, for `help()`."""
    known = defaults()
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known.get(name), annotation=kind)
        for name, kind in types(options).items()
    ]
    lines = "\n".join(f"    {name}: {HELP.get(name, name)}." for name in types(options))

    def explain(function: F) -> F:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*named, *keywords])
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n\n{lines}\n"
        return function

    return explain


def _written(kind: object) -> str:
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else str(kind)
