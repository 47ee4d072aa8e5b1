"""Claude Code: how it is started, told and stopped. Its frames are read by `frames`.

Two modes. A session takes user messages and control requests as JSON lines on stdin for as long as it lives; a
one-shot run takes its prompt as plain text and then the end of stdin. In both the prompt never is an argument (C06,
R187), and every other value is joined to its flag by `=`, so that a leading dash cannot make a flag of it (L24).

Closed unless opened: the user's settings files, MCP servers that are not named, and the tools that reach other
sessions of the same user. A prompt is text: a leading slash is no command and `@path` no file, in the versions that
can be told so (2.1.248).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proctor.protocols.claude.control import GREETING
from proctor.protocols.claude.frames import read, read_lines
from proctor.protocols.claude.turns import is_uuid, notes
from proctor.protocols.dialect import Command, Dialect, Launch, Memo, StopStep, Version, parse_version
from proctor.protocols.errors import ArgumentTooLong, Misuse
from proctor.protocols.vocabulary import (
    AnyRequest,
    Decision,
    EndSession,
    HookVerdict,
    Interrupt,
    Prompt,
    SetModel,
    SetPermissionMode,
    Steer,
    StopTask,
    ToolReturn,
)

ARGUMENT_LIMIT = 131_071
"""Bytes that one argument of a process may have on Linux."""

REACHING_TOOLS = ("ListAgents", "SendMessage")
"""The tools that find and address other sessions of the same user (wire page, section 8)."""

CAPABILITIES: Mapping[str, Version] = {
    "client_composed": (2, 1, 248),
    "prompt_lifecycle": (2, 1, 330),
    "startup_failure_results": (2, 1, 330),
    "system_prompt_snapshot": (2, 1, 330),
}
"""First version known to have it. A version in between may have it too, and is not asked to use it."""


def launch(wanted: Launch) -> Command:
    """The command line and environment for what is wanted. Raises ArgumentTooLong for a value beyond 128 KiB (C06)."""
    argv = [*wanted.executable, "-p", "--output-format=stream-json", "--verbose"]
    if wanted.mode == "session":
        argv += ["--input-format=stream-json", "--permission-prompt-tool=stdio"]
        if not CLAUDE.can("prompt_lifecycle", wanted.version):
            argv.append("--replay-user-messages")  # the echo says which turn took a prompt in
    argv += _isolation(wanted)
    ignored = _ignored(wanted)
    for field, flag in _flags(wanted):
        if field in ignored:
            continue
        if (size := len(flag.encode("utf-8", "replace"))) > ARGUMENT_LIMIT:
            raise ArgumentTooLong(field, size, ARGUMENT_LIMIT)
        argv.append(flag)
    return Command(argv=(*argv, *wanted.extra), env=_environment(wanted), ignored=ignored)


def _isolation(wanted: Launch) -> Iterator[str]:
    yield "--strict-mcp-config"
    if not wanted.user_settings:
        yield "--setting-sources="  # one token, or the next flag would be its value (C01)
    asked_for = {*wanted.allowed_tools, *(wanted.tools or ())}
    reaching = [tool for tool in REACHING_TOOLS if tool not in asked_for]
    if denied := [
        *wanted.disallowed_tools,
        *(tool for tool in reaching if tool not in wanted.disallowed_tools),
    ]:
        yield f"--disallowedTools={','.join(denied)}"


def _ignored(wanted: Launch) -> tuple[str, ...]:
    ignored: list[str] = []
    if wanted.fork and wanted.resume is None:
        ignored.append("fork")
    if wanted.session_id is not None and wanted.resume is not None and not wanted.fork:
        ignored.append("session_id")  # a resumed session keeps its own; the CLI refuses both
    ignored += [field for field in ("sandbox",) if getattr(wanted, field) is not None]
    ignored += [field for field in ("host_tools", "host_hooks") if getattr(wanted, field)]
    return tuple(ignored)


def _flags(wanted: Launch) -> Iterator[tuple[str, str]]:
    """(field of Launch, argument) for each field that is set."""
    for field, flag in VALUES.items():
        if (value := getattr(wanted, field)) is not None:
            yield field, f"{flag}={value}"
    for field, flag in SWITCHES.items():
        if getattr(wanted, field):
            yield field, flag
    if not wanted.persist:
        yield "persist", "--no-session-persistence"
    if wanted.permission_mode is not None:
        # "manual" is the newer name of "default", which every version takes.
        yield (
            "permission_mode",
            f"--permission-mode={MODES.get(wanted.permission_mode, wanted.permission_mode)}",
        )
    if wanted.tools is not None:
        yield "tools", f"--tools={','.join(wanted.tools)}"
    if wanted.allowed_tools:
        yield "allowed_tools", f"--allowedTools={','.join(wanted.allowed_tools)}"
    for directory in wanted.add_dirs:
        yield "add_dirs", f"--add-dir={directory}"
    prompted = wanted.system_prompt is not None or wanted.append_system_prompt is not None
    if prompted and CLAUDE.can("system_prompt_snapshot", wanted.version):
        # Else the prompt of the first run of a session is recorded and beats this one when it is resumed.
        yield "system_prompt", "--system-prompt-snapshot=off"


VALUES: Mapping[str, str] = {
    "model": "--model",
    "resume": "--resume",
    "session_id": "--session-id",
    "system_prompt": "--system-prompt",
    "append_system_prompt": "--append-system-prompt",
    "mcp_config": "--mcp-config",
    "json_schema": "--json-schema",
    "max_turns": "--max-turns",
    "max_budget_usd": "--max-budget-usd",
    "effort": "--effort",
}

SWITCHES: Mapping[str, str] = {"partial": "--include-partial-messages", "fork": "--fork-session"}

MODES: Mapping[str, str] = {"manual": "default"}


def _environment(wanted: Launch) -> dict[str, str]:
    environment = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    if wanted.retries is not None:
        environment["CLAUDE_CODE_MAX_RETRIES"] = str(wanted.retries)
    return environment


def greet(memo: Memo) -> bytes:
    """The `initialize` request of a session; a one-shot run has no greeting."""
    if memo.mode == "oneshot":
        return b""
    return _ask(memo, GREETING, GREETING, {"subtype": "initialize"})


def write(memo: Memo, request: AnyRequest) -> bytes:
    """The bytes for a request. Raises Misuse for content blocks in a one-shot run, which takes plain text."""
    match request:
        case Prompt():
            return _write_prompt(memo, request)
        case Decision():
            return _write_decision(memo, request)
        case Interrupt():
            return _ask(memo, request.id, "interrupt", {"subtype": "interrupt"})
        case SetModel():
            return _ask(memo, request.id, "set_model", {"subtype": "set_model", "model": request.model})
        case EndSession():
            return _ask(memo, request.id, "end_session", {"subtype": "end_session"})
        case SetPermissionMode():
            asked = {"subtype": "set_permission_mode", "mode": MODES.get(request.mode, request.mode)}
            return _ask(memo, request.id, "set_permission_mode", asked)
        case StopTask():
            return _ask(memo, request.id, "stop_task", {"subtype": "stop_task", "task_id": request.task})
        case Steer() | ToolReturn() | HookVerdict():
            raise Misuse(f"this dialect has no way to send {request!r}", request="write")


def _ask(memo: Memo, request_id: str, kind: str, request: dict[str, Any]) -> bytes:
    line = _line({"type": "control_request", "request_id": request_id, "request": request})
    memo.asked[request_id] = kind
    return line


def _write_prompt(memo: Memo, prompt: Prompt) -> bytes:
    if memo.mode == "oneshot":
        if prompt.blocks:
            raise Misuse("a one-shot run takes text, not content blocks: use a session", request="prompt")
        return prompt.text.encode("utf-8", "replace")
    message: dict[str, Any] = {
        "type": "user",
        "session_id": "",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": _content(prompt)},
    }
    if is_uuid(prompt.id):
        message["uuid"] = prompt.id
    if not prompt.commands and CLAUDE.can("client_composed", parse_version(memo.version)):
        message["client_composed"] = True
    return _line(message)


def _content(prompt: Prompt) -> str | list[dict[str, Any]]:
    if not prompt.blocks:
        return prompt.text
    text = [{"type": "text", "text": prompt.text}] if prompt.text else []
    return [*text, *prompt.blocks]


def _write_decision(memo: Memo, decision: Decision) -> bytes:
    answer: dict[str, Any]
    if decision.allow:
        asked = memo.approvals[decision.id]
        answer = {"behavior": "allow", "updatedInput": asked if decision.input is None else decision.input}
    else:
        answer = {"behavior": "deny", "message": decision.message or "denied"}
    reply = {"subtype": "success", "request_id": decision.id, "response": answer}
    line = _line({"type": "control_response", "response": reply})
    notes(memo).decided.append(decision.id)
    return line


def _line(message: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 has no bytes for
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


CLAUDE = Dialect(
    name="claude",
    launch=launch,
    greet=greet,
    read=read,
    read_lines=read_lines,
    write=write,
    stop=(
        StopStep("interrupt", 2.0),
        StopStep("end", 3.0),
        StopStep("close_stdin", 1.0),
        StopStep("terminate", 5.0),
        StopStep("kill", 0.0),
    ),
    oldest=(2, 1, 197),
    newest_known=(2, 1, 330),
    capabilities=CAPABILITIES,
)
"""The dialect of Claude Code 2.1.197 to 2.1.330. Closing stdin is not a stop (a background shell keeps it alive)."""
