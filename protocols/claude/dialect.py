"""Claude Code: its launch, its requests and its stop. Its frames are read by `frames`.

Two modes. A session takes user messages and control requests as JSON lines on stdin for as long as it lives; a
one-shot run takes its prompt as plain text and then the end of stdin. In both the prompt never is an argument, and
every other value is joined to its flag by `=`, so that a leading dash cannot make a flag of it.

Closed unless opened: the user's settings files, MCP servers that are not named, and the tools that reach other
sessions of the same user. A prompt is text: a leading slash is no command and `@path` no file, in the versions that
have a switch for it (2.1.248).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from proctor.protocols import jsonrpc, mcp
from proctor.protocols.attachment import PAYLOADS, PDF, Attachment, is_picture_or_pdf, parts
from proctor.protocols.claude import hooks, mcp_host
from proctor.protocols.claude.control import GREETING
from proctor.protocols.claude.frames import read, read_delta, read_lines
from proctor.protocols.claude.replies import agreed
from proctor.protocols.claude.schemas import loose_schema
from proctor.protocols.claude.turns import UUID, state_of, used
from proctor.protocols.dialect import Command, Dialect, Launch, Memo, StopStep, Version, parse_version
from proctor.protocols.errors import Misuse, checked_argument
from proctor.protocols.turns import write_text
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

REACHING_TOOLS = ("ListAgents", "SendMessage")
"""The tools that find and address other sessions of the same user (wire page, section 8)."""

SERVERS = "mcp.json"
"""The file that the MCP servers are written to: an argument would show their secrets to every user of the machine."""

MEMORY = "memory"
"""The folder in the agent's private one that holds the project memory of the folders above its working folder."""

_ALL = (0, 0, 0)

CAPABILITIES: Mapping[str, Version] = {
    **dict.fromkeys(("steer", "queue", "interrupt", "set_model", "set_permission_mode", "stop_task"), _ALL),
    **dict.fromkeys(("approvals", "host_tools", "host_hooks", "structured_output"), _ALL),
    **dict.fromkeys(("resume", "fork", "deltas", "cost"), _ALL),
    "blocking_hooks": (2, 1, 330),
    "client_composed": (2, 1, 248),
    "permission_modes_checked": (2, 1, 330),
    "prompt_lifecycle": (2, 1, 330),
    "startup_failure_results": (2, 1, 330),
    "system_prompt_snapshot": (2, 1, 330),
}
"""First version known to have it. A version in between may have it too, and is not asked to use it, but for
`blocking_hooks`: there the greeting tells."""

PERMISSION_MODES = frozenset({"acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"})
"""The modes that there are. 2.1.197 takes any word for one, and goes on as before."""


def launch(options: Launch) -> Command:
    """The command line and environment of a launch. Raises ArgumentTooLong for a value beyond 128 KiB."""
    argv = [*options.executable, "-p", "--output-format=stream-json", "--verbose"]
    if options.mode == "session":
        argv += ["--input-format=stream-json", "--permission-prompt-tool=stdio"]
        # Newer versions say it by `command_lifecycle`; the echo would also repeat each reply of ours.
        if not CLAUDE.can("prompt_lifecycle", options.version):
            argv.append("--replay-user-messages")  # the echo says which turn took a prompt in
    argv += _isolation(options)
    ignored = _ignored(options)
    for field, flag in _flags(options):
        if field in ignored:
            continue
        argv.append(checked_argument(field, flag))
    return Command(
        argv=(*argv, *options.extra), env=_environment(options), files=dict(_files(options)), ignored=ignored
    )


def _isolation(options: Launch) -> Iterator[str]:
    # Without it a `.mcp.json` in the working folder is loaded, and its commands run without a question.
    yield "--strict-mcp-config"
    if not options.user_settings:
        yield "--setting-sources="  # one token, or the next flag would be its value
        # Without settings CLAUDE.md is not read either; each such folder brings it back.
        yield from (f"--add-dir={folder}" for folder in _memory_folders(options))
    if options.attachments:  # a one-shot run cannot ask before it reads outside its folder
        yield f"--add-dir={options.scratch}/{PAYLOADS}"
    named = {*options.allowed_tools, *(options.tools or ())}
    reaching = [tool for tool in REACHING_TOOLS if tool not in named]
    # Agents of one user share a configuration folder, so they could find and address each other behind the
    # host.
    if denied := [
        *options.disallowed_tools,
        *(tool for tool in reaching if tool not in options.disallowed_tools),
    ]:
        yield f"--disallowedTools={','.join(denied)}"


def _memory_folders(options: Launch) -> Iterator[str]:
    """The folders whose CLAUDE.md is loaded although all settings are left out."""
    if not options.project_memory:
        return
    if options.cwd:
        yield options.cwd
    if options.memory_above:
        yield f"{options.scratch}/{MEMORY}"


def _ignored(options: Launch) -> tuple[str, ...]:
    ignored: list[str] = []
    if options.fork and options.resume is None:
        ignored.append("fork")
    if options.session_id is not None and options.resume is not None and not options.fork:
        ignored.append("session_id")  # a resumed session keeps its own; the CLI refuses both
    if options.sandbox is not None:
        ignored.append("sandbox")
    if options.mode == "oneshot" and options.host_hooks:  # there is no control protocol
        ignored.append("host_hooks")
    return tuple(ignored)


def _flags(options: Launch) -> Iterator[tuple[str, str]]:
    """(field of Launch, argument) for each field that is set."""
    for field, flag in VALUES.items():
        if (value := getattr(options, field)) is not None:
            yield field, f"{flag}={value}"
    for field, flag in SWITCHES.items():
        if getattr(options, field):
            yield field, flag
    if options.persist is False:
        yield "persist", "--no-session-persistence"
    if options.permission_mode is not None:
        # "manual" is the newer name of "default", which every version takes.
        yield (
            "permission_mode",
            f"--permission-mode={MODES.get(options.permission_mode, options.permission_mode)}",
        )
    if options.tools is not None:
        yield "tools", f"--tools={','.join(options.tools)}"
    if options.mcp:
        yield "mcp", f"--mcp-config={options.scratch}/{SERVERS}"
    if allowed := [*options.allowed_tools, *_approved(options), *mcp_host.permitted(options)]:
        yield "allowed_tools", f"--allowedTools={','.join(allowed)}"
    for directory in options.add_dirs:
        yield "add_dirs", f"--add-dir={directory}"
    prompted = options.system_prompt is not None or options.append_system_prompt is not None
    if prompted and CLAUDE.can("system_prompt_snapshot", options.version):
        # Else the prompt of the first run of a session is recorded and beats this one when it is resumed.
        yield "system_prompt", "--system-prompt-snapshot=off"


VALUES: Mapping[str, str] = {
    "model": "--model",
    "resume": "--resume",
    "session_id": "--session-id",
    "system_prompt": "--system-prompt",
    "append_system_prompt": "--append-system-prompt",
    "json_schema": "--json-schema",
    "max_turns": "--max-turns",
    "max_budget_usd": "--max-budget-usd",
    "effort": "--effort",
}

SWITCHES: Mapping[str, str] = {"partial": "--include-partial-messages", "fork": "--fork-session"}

MODES: Mapping[str, str] = {"manual": "default"}


def _approved(options: Launch) -> list[str]:
    """The permission rules of the servers whose tools need no approval."""
    return [f"mcp__{name}" for name, server in options.mcp.items() if server.approved]


def _files(options: Launch) -> Iterator[tuple[str, str]]:
    if options.mcp:
        servers = {name: mcp.entry(server) for name, server in options.mcp.items()}
        yield SERVERS, json.dumps({"mcpServers": servers})
    if options.project_memory and options.memory_above and not options.user_settings:
        yield f"{MEMORY}/CLAUDE.md", options.memory_above


def _environment(options: Launch) -> dict[str, str]:
    environment = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # Else a failed start says why on stderr alone (2.1.330; no effect in 2.1.197).
        "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
        # An update would change the version under a running fleet.
        "DISABLE_AUTOUPDATER": "1",
    }
    if not options.project_memory:
        environment["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] = "1"
    elif not options.user_settings:
        # 2.1.197 to 2.1.330 load a folder of `--add-dir` with its CLAUDE.md, and no settings, only when this is set
        environment["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] = "1"
    if options.retries is not None:
        environment["CLAUDE_CODE_MAX_RETRIES"] = str(options.retries)
    return environment


def greet(memo: Memo) -> bytes:
    """The `initialize` request of a session; a one-shot run has no greeting."""
    if memo.mode == "oneshot":
        return b""
    body: dict[str, Any] = {"subtype": "initialize"}
    if points := hooks.registered(memo.launch):
        body["hooks"] = points
    if servers := mcp_host.servers(memo.launch):
        body["sdkMcpServers"] = servers
    return _ask(memo, GREETING, GREETING, body)


def write(memo: Memo, request: AnyRequest) -> bytes:
    """The bytes for a request. Raises Misuse for requests that this CLI does not take, or not in this mode."""
    match request:
        case Prompt():
            return _write_prompt(memo, request)
        case Steer():
            return _write_steer(memo, request)
        case Decision():
            return _write_decision(memo, request)
        case ToolReturn():
            return mcp_host.write_return(memo, request)
        case HookVerdict():
            return hooks.write_verdict(memo, request)
        case Interrupt() | EndSession():
            kind = "interrupt" if isinstance(request, Interrupt) else "end_session"
            return _ask(memo, request.id, kind, {"subtype": kind})
        case SetModel():
            return _ask(memo, request.id, "set_model", {"subtype": "set_model", "model": request.model})
        case SetPermissionMode():
            return _write_mode(memo, request)
        case StopTask():
            return _ask(memo, request.id, "stop_task", {"subtype": "stop_task", "task_id": request.task})


def _ask(memo: Memo, request_id: str, kind: str, request: dict[str, Any]) -> bytes:
    line = jsonrpc.line({"type": "control_request", "request_id": request_id, "request": request}, tag=False)
    # After the line was made: what cannot be written must not be waited for.
    memo.pending[request_id] = kind
    return line


def _write_mode(memo: Memo, request: SetPermissionMode) -> bytes:
    mode = MODES.get(request.mode, request.mode)
    if not _can("permission_modes_checked", memo.version) and mode not in PERMISSION_MODES:
        modes = ", ".join(sorted(PERMISSION_MODES))
        raise Misuse(f"{mode!r} is not a permission mode; known: {modes}", request="set_permission_mode")
    return _ask(memo, request.id, "set_permission_mode", {"subtype": "set_permission_mode", "mode": mode})


def _write_prompt(memo: Memo, prompt: Prompt) -> bytes:
    if memo.mode == "oneshot":
        return write_text(memo, prompt)
    content: str | list[dict[str, Any]] = prompt.text
    if prompt.blocks or prompt.attachments:
        content = parts(prompt.text, prompt.attachments, prompt.blocks, _carried)
    return _write_message(memo, prompt.id, content, commands=prompt.commands)


def _write_steer(memo: Memo, steer: Steer) -> bytes:
    """A message written while a turn runs: it is taken in at the next call of a tool. A turn that ends before that
    leaves it queued, and it has its own; so it is a prompt that waits for its end like any other."""
    # Without a UUID the CLI does not report what became of the message.
    if not UUID.fullmatch(steer.id):
        raise Misuse(f"the id of a steer must be a UUID, got {steer.id!r}", request="steer")
    line = _write_message(memo, steer.id, steer.text, commands=False)
    memo.prompts.append(steer.id)
    return line


def _write_message(
    memo: Memo, identity: str, content: str | list[dict[str, Any]], *, commands: bool
) -> bytes:
    message: dict[str, Any] = {
        "type": "user",
        "session_id": "",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": content},
    }
    # The CLI takes nothing else as the id of a message.
    if UUID.fullmatch(identity):
        message["uuid"] = identity
    # In versions without this mark a leading slash in a prompt is a command, and `@path` a file.
    if not commands and _can("client_composed", memo.version):
        message["client_composed"] = True
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return jsonrpc.line(message, tag=False)


@lru_cache(maxsize=16)  # asked for each prompt, of the few versions that are installed
def _can(capability: str, version: str | None) -> bool:
    return CLAUDE.can(capability, parse_version(version))


def _carried(attachment: Attachment) -> dict[str, Any]:
    source = {"type": "base64", "media_type": attachment.mime, "data": attachment.base64}
    if attachment.mime == PDF:
        return {"type": "document", "source": source, "title": attachment.name}
    return {"type": "image", "source": source}


def _takes(memo: Memo, attachment: Attachment) -> bool:
    return memo.mode == "session" and is_picture_or_pdf(memo, attachment)


def _write_decision(memo: Memo, decision: Decision) -> bytes:
    answer: dict[str, Any]
    rules = state_of(memo).rules.pop(decision.id, None)
    if decision.allow:
        body = memo.approvals[decision.id]
        # With the input in any case: the CLI runs what `updatedInput` holds.
        answer = {"behavior": "allow", "updatedInput": body if decision.input is None else decision.input}
        if decision.always and rules:
            answer["updatedPermissions"] = rules
    else:
        answer = {"behavior": "deny", "message": decision.message or "denied"}
    return agreed(memo, decision.id, answer)


CLAUDE = Dialect(
    name="claude",
    used=used,
    launch=launch,
    greet=greet,
    read=read,
    read_lines=read_lines,
    read_delta=read_delta,
    write=write,
    takes=_takes,
    stop=(
        StopStep("interrupt", 2.0),
        # `end_session` exits within 0.2 s when idle and 1.5 s with a tool, and ends background work as well
        # (both versions).
        StopStep("end", 3.0),
        # Not enough alone: with a background shell, 2.1.330 stayed for more than 780 s after the end of
        # stdin.
        StopStep("close_stdin", 1.0),
        StopStep("terminate", 5.0),
        StopStep("kill", 0.0),
    ),
    oldest=(2, 1, 197),
    newest_tested=(2, 1, 330),
    schema_form=loose_schema,
    capabilities=CAPABILITIES,
    relayed=frozenset({"oneshot"}),
)
"""The dialect of Claude Code 2.1.197 to 2.1.330. Closing stdin is not a stop (a background shell keeps it alive)."""
