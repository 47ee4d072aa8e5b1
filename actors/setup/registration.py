"""proctor as an MCP server in the configuration of other agents' programs: put there, and taken out again.

`register` decides by a table, from what is wanted and whose the entry is that is there, and then writes one file. It
guarantees: nothing but our entry changes, to the byte; a second time changes nothing; an entry of somebody else's, a
file that cannot be read and a place where the entry cannot stand are left alone, with the reason; and what is shown
are the lines of ours alone, never what stands around them.

An entry is ours when it starts `proctor serve`. What its owner added to it (an environment, other times) stays his.

Claude Code writes its file while it runs, always below a lock; we take the same lock. Its own command would rewrite the
whole file, and one version of it replaces a file that it cannot read by an empty one.

Not here: which clients there are to be asked of whom (the command line), and what is served.
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
PATIENCE = 600
"""Seconds that a client is told to wait for a tool: a tool of ours may be an agent at work."""

STARTING = 60
"""Seconds that a client is told to wait for the start, where it has a word for that alone: a fleet starts with it."""

Standing = Literal["absent", "same", "ours", "others"]
Aim = Literal["register", "seize", "remove", "clear"]
"""`seize` and `clear` register and remove by force: also what is somebody else's."""
Deed = Literal["add", "replace", "take_out", "keep", "refuse"]

DEEDS: Mapping[tuple[Aim, Standing], Deed] = {
    ("register", "absent"): "add",
    ("register", "same"): "keep",
    ("register", "ours"): "replace",
    ("register", "others"): "refuse",
    ("seize", "absent"): "add",
    ("seize", "same"): "keep",
    ("seize", "ours"): "replace",
    ("seize", "others"): "replace",
    ("remove", "absent"): "keep",
    ("remove", "same"): "take_out",
    ("remove", "ours"): "take_out",
    ("remove", "others"): "refuse",
    ("clear", "absent"): "keep",
    ("clear", "same"): "take_out",
    ("clear", "ours"): "take_out",
    ("clear", "others"): "take_out",
}
"""What is wanted x whose entry is there → what is done."""

Entry = Mapping[str, Any]


@attrs.frozen
class Place:
    """A client's file, and the folder that must be there already."""

    path: Path
    anchor: Path


@attrs.frozen(kw_only=True)
class Grammar:
    """How entries stand in a kind of file: reading it, putting an entry in (also in the place of one), taking one out,
    and how an entry is shown."""

    read: Callable[[str], Mapping[str, Any]]
    put: Callable[[str | None, Sequence[str], Entry], str]
    take_out: Callable[[str, Sequence[str]], str | None]
    lines: Callable[[Sequence[str], Entry], list[str]]


@attrs.frozen(kw_only=True)
class Client:
    """A program that can be told of MCP servers. `place` finds its file, `key` holds the servers in it; `entry` is ours for
    a command, `argv` the command of an entry. `locks`: it writes the file while it runs, below a lock."""

    name: str
    product: Product
    folder: str
    place: Callable[[Mapping[str, str], str], Place]
    key: str
    grammar: Grammar
    entry: Callable[[Sequence[str]], Entry]
    argv: Callable[[Entry], tuple[str, ...]]
    locks: bool = False


def _name_is_plain(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value):
        raise BadOption(f"name {value!r} is none that every client takes: letters, digits, - and _")


@attrs.frozen(kw_only=True)
class Wish:
    """What is wanted of every client: the server's `name`, its command `argv`, and whether it is only to be told."""

    argv: tuple[str, ...]
    aim: Aim = "register"
    name: str = attrs.field(default=NAME, validator=_name_is_plain)
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class Registration:
    """What came of it for one client: the `deed`, done or (`dry_run`) to be done, and the `lines` of ours it concerns,
    each after `+` or `-`. With an `error` nothing was changed; `by_hand` is then what its owner could add."""

    client: str
    path: Path | None = None
    deed: Deed = "refuse"
    lines: tuple[str, ...] = ()
    error: str | None = None
    by_hand: tuple[str, ...] = ()


async def register(client: Client, wish: Wish, environ: Mapping[str, str]) -> Registration:
    """Do for one client what is wished. Never raises for what a file, a folder or an entry is."""
    try:
        place = client.place(environ, wish.name)
        async with config_file.held(place.path) if client.locks and not wish.dry_run else nullcontext():
            return _carried_out(client, wish, place)
    except ConfigRefused as refusal:
        return Registration(client=client.name, path=Path(refusal.path), error=refusal.why)


def is_present(client: Client, environ: Mapping[str, str]) -> bool:
    """Is the program of this client here, or a file or folder of its own?"""
    try:
        find_program(client.product, environ=environ)
    except NotExecutable:
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
        return os.path.lexists(client.place(environ, NAME).path)
    except ConfigRefused as refusal:  # there is no home, or it is there and cannot be read
        return os.path.lexists(refusal.path)


def _carried_out(client: Client, wish: Wish, place: Place) -> Registration:
    file = config_file.read(place.path)
    settings = _settings(client, file)
    path = (client.key, wish.name)
    entry = _entry(settings, path)
    standing = _standing(client, entry, wish.argv)
    deed = DEEDS[wish.aim, standing]
    told = Registration(client=client.name, path=place.path, deed=deed)
    if deed == "refuse":
        why = f"it has a server {wish.name!r} of somebody else's (--force, or another --name)"
        return attrs.evolve(told, error=why)
    wanted = {**(entry or {}), **client.entry(wish.argv)} if standing == "ours" else client.entry(wish.argv)
    try:
        text = _changed(client, file.text, path, deed, wanted)
    except jsonc.Unsplicable as error:
        why = f"it cannot be changed without touching what is not ours: {error}"
        return attrs.evolve(told, deed="refuse", error=why, by_hand=_by_hand(client, wish, path))
    if text != file.text:
        config_file.check(file, anchor=place.anchor)
        if not wish.dry_run:
            config_file.write(file, text, anchor=place.anchor)
    return attrs.evolve(told, lines=_lines(client, path, deed, wish))


def _settings(client: Client, file: ConfigFile) -> Mapping[str, Any]:
    try:
        return {} if file.text is None else client.grammar.read(file.text)
    except jsonc.Malformed as error:
        what = error if file.text and file.text.strip() else "it is empty"
        raise ConfigRefused(str(file.path), f"it cannot be read, and was left alone: {what}") from None


def _entry(settings: object, path: Sequence[str]) -> Entry | None:
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return None
        settings = cast("Mapping[str, object]", settings)[key]
    return cast("Entry", settings) if isinstance(settings, dict) else {"": settings}


def _standing(client: Client, entry: Entry | None, argv: tuple[str, ...]) -> Standing:
    if entry is None:
        return "absent"
    found = client.argv(entry)
    if found == argv:
        return "same"
    return "ours" if _is_proctor(found) else "others"


def _is_proctor(argv: Sequence[str]) -> bool:
    script = len(argv) > 1 and Path(argv[0]).name == "proctor" and argv[1] == "serve"
    return script or list(argv[1:4]) == ["-m", "proctor", "serve"]


def _changed(client: Client, text: str | None, path: Sequence[str], deed: Deed, entry: Entry) -> str | None:
    if deed == "keep" or text is None:
        return text if deed == "keep" else client.grammar.put(None, path, entry)
    if deed == "take_out":
        return client.grammar.take_out(text, path)
    return client.grammar.put(text, path, entry)


def _lines(client: Client, path: Sequence[str], deed: Deed, wish: Wish) -> tuple[str, ...]:
    gone = [f"- {'.'.join(path)}"] if deed in ("replace", "take_out") else []
    entry = client.entry(wish.argv) if deed in ("add", "replace") else None
    come = [] if entry is None else [f"+ {line}" for line in client.grammar.lines(path, entry)]
    return (*gone, *come)


def _by_hand(client: Client, wish: Wish, path: Sequence[str]) -> tuple[str, ...]:
    if wish.aim in ("remove", "clear"):
        return ()
    return tuple(client.grammar.lines(path, client.entry(wish.argv)))


# -- the grammars


def _json_grammar(comments: bool) -> Grammar:
    def read(text: str) -> Mapping[str, Any]:
        value = jsonc.parse(text, comments=comments).value
        if not isinstance(value, dict):
            raise jsonc.Malformed("expected an object")
        return cast("Mapping[str, Any]", value)

    return Grammar(
        read=read,
        put=partial(jsonc.with_member, comments=comments),
        take_out=partial(jsonc.without_member, comments=comments),
        lines=_json_lines,
    )


def _json_lines(path: Sequence[str], entry: Entry) -> list[str]:
    value: object = dict(entry)
    for key in reversed(path):
        value = {key: value}
    return [jsonc.spelled(value)[1:-1]]


TOML = Grammar(
    read=toml_table.parse,
    put=toml_table.with_table,
    take_out=toml_table.without_table,
    lines=toml_table.table_lines,
)


# -- the clients


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):  # no HOME, and a user whom the system does not know
        raise ConfigRefused(home, "there is no home folder; set HOME to one")
    return Path(home)


def _claude_place(environ: Mapping[str, str], _: str) -> Place:
    named = environ.get("CLAUDE_CONFIG_DIR")
    home = Path(named) if named else _home(environ)
    older = (home if named else home / ".claude") / ".config.json"
    return Place(older if os.path.lexists(older) else home / ".claude.json", home.parent if named else home)


def _codex_place(environ: Mapping[str, str], _: str) -> Place:
    if named := environ.get("CODEX_HOME"):
        return Place(Path(named) / "config.toml", Path(named))
    home = _home(environ)
    return Place(home / ".codex" / "config.toml", home)


def _opencode_place(environ: Mapping[str, str], name: str) -> Place:
    if named := environ.get("OPENCODE_CONFIG"):
        path = Path(named).absolute()
        return Place(path, path.parent)
    anchor = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else _home(environ)
    folder = anchor / "opencode" if environ.get("XDG_CONFIG_HOME") else anchor / ".config" / "opencode"
    there = [path for path in (folder / "opencode.json", folder / "opencode.jsonc") if os.path.lexists(path)]
    chosen = next((path for path in there if _names(path, name)), None)
    return Place(chosen or (there[0] if there else folder / "opencode.json"), anchor)


def _gemini_place(environ: Mapping[str, str], _: str) -> Place:
    home = Path(environ["GEMINI_CLI_HOME"]) if environ.get("GEMINI_CLI_HOME") else _home(environ)
    return Place(home / ".gemini" / "settings.json", home)


def _names(path: Path, name: str) -> bool:
    """Has this file of OpenCode's an entry of that name?"""
    return _entry(_settings(OPENCODE_CLIENT, config_file.read(path)), ("mcp", name)) is not None


def _words(entry: Entry) -> tuple[str, ...]:
    """The command of an entry that has it as one word and its arguments."""
    arguments = entry.get("args", [])
    words = [
        entry.get("command"),
        *(cast("list[object]", arguments) if isinstance(arguments, list) else [None]),
    ]
    return _all_text(words)


def _all_text(words: object) -> tuple[str, ...]:
    listed = cast("list[object]", words) if isinstance(words, list) else []
    return (
        tuple(word for word in listed if isinstance(word, str))
        if all(isinstance(word, str) for word in listed)
        else ()
    )


CLAUDE_CLIENT = Client(
    name="claude",
    product=CLAUDE_CODE,
    folder=".claude",
    place=_claude_place,
    key="mcpServers",
    grammar=_json_grammar(comments=False),
    entry=lambda argv: {"type": "stdio", "command": argv[0], "args": [*argv[1:]]},
    argv=_words,
    locks=True,
)

CODEX_CLIENT = Client(
    name="codex",
    product=CODEX_CLI,
    folder=".codex",
    place=_codex_place,
    key="mcp_servers",
    grammar=TOML,
    entry=lambda argv: {
        "command": argv[0],
        "args": [*argv[1:]],
        "startup_timeout_sec": STARTING,
        "tool_timeout_sec": PATIENCE,
    },
    argv=_words,
)

OPENCODE_CLIENT = Client(
    name="opencode",
    product=OPENCODE,
    folder=".config/opencode",
    place=_opencode_place,
    key="mcp",
    grammar=_json_grammar(comments=True),
    entry=lambda argv: {"type": "local", "command": [*argv], "timeout": PATIENCE * 1000},
    argv=lambda entry: _all_text(entry.get("command")),
)

GEMINI_CLIENT = Client(
    name="gemini",
    product=GEMINI,
    folder=".gemini",
    place=_gemini_place,
    key="mcpServers",
    grammar=_json_grammar(comments=True),
    entry=lambda argv: {"command": argv[0], "args": [*argv[1:]], "timeout": PATIENCE * 1000},
    argv=_words,
)

CLIENTS: Mapping[str, Client] = {
    client.name: client for client in (CLAUDE_CLIENT, CODEX_CLIENT, OPENCODE_CLIENT, GEMINI_CLIENT)
}
"""The clients that can be told of a server, by name."""
