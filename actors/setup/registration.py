"""Registration of proctor as an MCP server in the configuration files of other programs.

`register` looks up in a table what to do, from the goal and the state of the existing entry, and then writes one file.
Nothing but our entry changes, to the byte, and a second time changes nothing. An entry of another program, a file that
cannot be read, and a file that cannot hold the entry are left alone, with the reason. Reports show the lines of our entry alone.

Not here: the choice of the clients (the command line), and what is served.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from proctor.actors.errors import BadOption, ConfigRefused, NotExecutable, NotInstalled
from proctor.actors.plan.discovery import CLAUDE_CODE, CODEX_CLI, GEMINI, OPENCODE, Product, find_program
from proctor.actors.setup import config_file, jsonc, toml_table
from proctor.actors.setup.config_file import ConfigFile

NAME = "proctor"
TOOL_TIMEOUT = 600
"""Seconds that a client waits for a tool; a long time, because a tool of ours may be an agent at work."""
START_TIMEOUT = 60
"""Seconds that a client waits for the start of the server and its fleet, where the client has an option for that."""

EntryState = Literal["absent", "current", "outdated", "foreign"]
"""An entry is ours when it starts `proctor serve`: `current` with the same command, else `outdated`."""
Goal = Literal["register", "remove"]
Action = Literal["add", "replace", "remove", "keep", "refuse"]

ACTIONS: Mapping[tuple[Goal, EntryState], Action] = {
    ("register", "absent"): "add",
    ("register", "current"): "keep",
    ("register", "outdated"): "replace",
    ("register", "foreign"): "refuse",
    ("remove", "absent"): "keep",
    ("remove", "current"): "remove",
    ("remove", "outdated"): "remove",
    ("remove", "foreign"): "refuse",
}
"""Goal x state of the existing entry → action. By force an entry of another program is treated as an outdated one of ours."""

Entry = Mapping[str, Any]


@attrs.frozen
class Location:
    """The configuration file of a client, and the folder that must exist already."""

    path: Path
    anchor: Path


@attrs.frozen(kw_only=True)
class FileFormat:
    """A format of configuration files: how to read one, to put an entry in (or replace it), to remove it, and to show it."""

    read: Callable[[str], Mapping[str, Any]]
    put: Callable[[str | None, Sequence[str], Entry], str]
    remove: Callable[[str, Sequence[str]], str | None]
    lines: Callable[[Sequence[str], Entry], list[str]]


@attrs.frozen(kw_only=True)
class Client:
    """A program that uses MCP servers. `location` finds its file, `key` holds the servers in it; `entry` makes our entry for
    a command, `argv` reads the command of an entry. `locks`: it writes the file while it runs, under a lock."""

    name: str
    product: Product
    folder: str
    location: Callable[[Mapping[str, str], str], Location]
    key: str
    file_format: FileFormat
    entry: Callable[[Sequence[str]], Entry]
    argv: Callable[[Entry], tuple[str, ...]]
    locks: bool = False


def _name_is_plain(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value):
        raise BadOption(
            f"invalid name {value!r}: use up to 64 letters, digits, - and _, which every client accepts"
        )


@attrs.frozen(kw_only=True)
class SetupRequest:
    """The request for every client: the server's `name`, its command `argv`, and the goal, `force` also for an entry of another
    program; `dry_run` changes nothing."""

    argv: tuple[str, ...]
    goal: Goal = "register"
    force: bool = False
    name: str = attrs.field(default=NAME, validator=_name_is_plain)
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class Registration:
    """The result for one client: the `action`, done or (`dry_run`) to be done, and the lines of our entry that it adds or
    removes, each after `+` or `-`. With an `error` nothing was changed; `by_hand` is what the user can add instead."""

    client: str
    path: Path | None = None
    action: Action = "refuse"
    lines: tuple[str, ...] = ()
    error: str | None = None
    by_hand: tuple[str, ...] = ()


async def register(client: Client, request: SetupRequest, environ: Mapping[str, str]) -> Registration:
    """Carry out the request for one client. A file, folder or entry that is in the way is the `error` of the result."""
    try:
        location = client.location(environ, request.name)
        async with (
            config_file.locked(location.path) if client.locks and not request.dry_run else nullcontext()
        ):
            return _applied(client, request, location)
    except ConfigRefused as refusal:
        return Registration(client=client.name, path=Path(refusal.path), error=refusal.why)


def is_present(client: Client, environ: Mapping[str, str]) -> bool:
    """Whether the program of this client is installed, or has a file or folder of its own."""
    try:
        find_program(client.product, environ=environ)
    except NotExecutable:
        # it is there, only not usable from here: the client reads its configuration all the same
        return True
    except NotInstalled:
        return _has_folder(client, environ) or _has_file(client, environ)
    return True


def _has_folder(client: Client, environ: Mapping[str, str]) -> bool:
    try:
        return os.path.isdir(_home(environ) / client.folder)
    except ConfigRefused:
        return False


def _has_file(client: Client, environ: Mapping[str, str]) -> bool:
    try:
        return os.path.lexists(client.location(environ, NAME).path)
    except ConfigRefused as refusal:  # no home, or a file that cannot be read
        return os.path.lexists(refusal.path)


def _applied(client: Client, request: SetupRequest, location: Location) -> Registration:
    file = config_file.read(location.path)
    settings = _settings(client, file)
    path = (client.key, request.name)
    entry = _entry(settings, path)
    state = _entry_state(client, entry, request.argv)
    action = ACTIONS[request.goal, "outdated" if request.force and state == "foreign" else state]
    result = Registration(client=client.name, path=location.path, action=action)
    if action == "refuse":
        why = f"its server {request.name!r} belongs to another program; use --force or another --name"
        return attrs.evolve(result, error=why)
    new = client.entry(request.argv)
    if state == "outdated":  # keep what its owner added: an environment, other timeouts
        new = {**(entry or {}), **new}
    try:
        text = _changed(client, file.text, path, action, new)
    except jsonc.Unsplicable as error:
        why = f"it cannot be edited without changing other settings: {error}"
        return attrs.evolve(result, action="refuse", error=why, by_hand=_by_hand(client, request, path))
    if text != file.text:
        # In a dry run as well, which is to report what would be refused.
        config_file.check(file, anchor=location.anchor)
        if not request.dry_run:
            config_file.write(file, text, anchor=location.anchor)
    return attrs.evolve(result, lines=_lines(client, path, action, request))


def _settings(client: Client, file: ConfigFile) -> Mapping[str, Any]:
    try:
        return {} if file.text is None else client.file_format.read(file.text)
    except jsonc.Malformed as error:
        what = error if file.text and file.text.strip() else "it is empty"
        raise ConfigRefused(str(file.path), f"it cannot be read and was not changed: {what}") from None


def _entry(settings: object, path: Sequence[str]) -> Entry | None:
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return None
        settings = cast("Mapping[str, object]", settings)[key]
    return cast("Entry", settings) if isinstance(settings, dict) else {"": settings}


def _entry_state(client: Client, entry: Entry | None, argv: tuple[str, ...]) -> EntryState:
    if entry is None:
        return "absent"
    command = client.argv(entry)
    if command == argv:
        return "current"
    return "outdated" if _is_proctor(command) else "foreign"


def _is_proctor(argv: Sequence[str]) -> bool:
    script = len(argv) > 1 and Path(argv[0]).name == "proctor" and argv[1] == "serve"
    return script or list(argv[1:4]) == ["-m", "proctor", "serve"]


def _changed(
    client: Client, text: str | None, path: Sequence[str], action: Action, entry: Entry
) -> str | None:
    if action == "keep" or text is None:
        return text if action == "keep" else client.file_format.put(None, path, entry)
    if action == "remove":
        return client.file_format.remove(text, path)
    return client.file_format.put(text, path, entry)


def _lines(client: Client, path: Sequence[str], action: Action, request: SetupRequest) -> tuple[str, ...]:
    removed = [f"- {'.'.join(path)}"] if action in ("replace", "remove") else []
    entry = client.entry(request.argv) if action in ("add", "replace") else None
    added = [] if entry is None else [f"+ {line}" for line in client.file_format.lines(path, entry)]
    return (*removed, *added)


def _by_hand(client: Client, request: SetupRequest, path: Sequence[str]) -> tuple[str, ...]:
    if request.goal == "remove":
        return ()
    return tuple(client.file_format.lines(path, client.entry(request.argv)))


# -- the file formats


def _json_format(comments: bool) -> FileFormat:
    def read(text: str) -> Mapping[str, Any]:
        value = jsonc.parse(text, comments=comments)
        if not isinstance(value, dict):
            raise jsonc.Malformed("expected an object")
        return cast("Mapping[str, Any]", value)

    return FileFormat(
        read=read,
        put=partial(jsonc.with_member, comments=comments),
        remove=partial(jsonc.without_member, comments=comments),
        lines=_json_lines,
    )


def _json_lines(path: Sequence[str], entry: Entry) -> list[str]:
    value: object = dict(entry)
    for key in reversed(path):
        value = {key: value}
    return [jsonc.to_json(value)[1:-1]]


TOML = FileFormat(
    read=toml_table.parse,
    put=toml_table.with_table,
    remove=toml_table.without_table,
    lines=toml_table.table_lines,
)


# -- the clients


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):  # no HOME, and a user whom the system does not know
        raise ConfigRefused(home, "there is no home folder; set HOME")
    return Path(home)


def _claude_location(environ: Mapping[str, str], _: str) -> Location:
    named = environ.get("CLAUDE_CONFIG_DIR")
    home = Path(named) if named else _home(environ)
    older = (home if named else home / ".claude") / ".config.json"
    return Location(
        older if os.path.lexists(older) else home / ".claude.json", home.parent if named else home
    )


def _codex_location(environ: Mapping[str, str], _: str) -> Location:
    if named := environ.get("CODEX_HOME"):
        return Location(Path(named) / "config.toml", Path(named))
    home = _home(environ)
    return Location(home / ".codex" / "config.toml", home)


def _opencode_location(environ: Mapping[str, str], name: str) -> Location:
    if named := environ.get("OPENCODE_CONFIG"):
        path = Path(named).absolute()
        return Location(path, path.parent)
    anchor = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else _home(environ)
    folder = anchor / "opencode" if environ.get("XDG_CONFIG_HOME") else anchor / ".config" / "opencode"
    there = [path for path in (folder / "opencode.json", folder / "opencode.jsonc") if os.path.lexists(path)]
    chosen = next((path for path in there if _names(path, name)), None)
    return Location(chosen or (there[0] if there else folder / "opencode.json"), anchor)


def _gemini_location(environ: Mapping[str, str], _: str) -> Location:
    home = Path(environ["GEMINI_CLI_HOME"]) if environ.get("GEMINI_CLI_HOME") else _home(environ)
    return Location(home / ".gemini" / "settings.json", home)


def _names(path: Path, name: str) -> bool:
    """Whether this file of OpenCode has an entry of that name."""
    return _entry(_settings(OPENCODE_CLIENT, config_file.read(path)), ("mcp", name)) is not None


def _command_and_args(entry: Entry) -> tuple[str, ...]:
    """The command of an entry that keeps the program and its arguments apart."""
    arguments = entry.get("args", [])
    if not isinstance(arguments, list):
        return ()
    return _strings([entry.get("command"), *cast("list[object]", arguments)])


def _strings(values: object) -> tuple[str, ...]:
    """The values of a list when all of them are strings, else none."""
    items = cast("list[object]", values) if isinstance(values, list) else []
    strings = tuple(item for item in items if isinstance(item, str))
    return strings if len(strings) == len(items) else ()


CLAUDE_CLIENT = Client(
    name="claude",
    product=CLAUDE_CODE,
    folder=".claude",
    location=_claude_location,
    key="mcpServers",
    file_format=_json_format(comments=False),
    entry=lambda argv: {"type": "stdio", "command": argv[0], "args": [*argv[1:]]},
    argv=_command_and_args,
    # Claude Code always writes its file under a lock. Its own `mcp add` would rewrite the whole file, and 2.1.197 replaces
    # a file that it cannot read by an empty one.
    locks=True,
)

CODEX_CLIENT = Client(
    name="codex",
    product=CODEX_CLI,
    folder=".codex",
    location=_codex_location,
    key="mcp_servers",
    file_format=TOML,
    entry=lambda argv: {
        "command": argv[0],
        "args": [*argv[1:]],
        "startup_timeout_sec": START_TIMEOUT,
        "tool_timeout_sec": TOOL_TIMEOUT,
    },
    argv=_command_and_args,
)

OPENCODE_CLIENT = Client(
    name="opencode",
    product=OPENCODE,
    folder=".config/opencode",
    location=_opencode_location,
    key="mcp",
    file_format=_json_format(comments=True),
    entry=lambda argv: {"type": "local", "command": [*argv], "timeout": TOOL_TIMEOUT * 1000},
    argv=lambda entry: _strings(entry.get("command")),
)

GEMINI_CLIENT = Client(
    name="gemini",
    product=GEMINI,
    folder=".gemini",
    location=_gemini_location,
    key="mcpServers",
    file_format=_json_format(comments=True),
    entry=lambda argv: {"command": argv[0], "args": [*argv[1:]], "timeout": TOOL_TIMEOUT * 1000},
    argv=_command_and_args,
)

CLIENTS: Mapping[str, Client] = {
    client.name: client for client in (CLAUDE_CLIENT, CODEX_CLIENT, OPENCODE_CLIENT, GEMINI_CLIENT)
}
"""The clients that a server can be registered with, by name."""
