"""MCP servers that an agent is given, whatever its CLI: `mcp={"name": McpServer(...)}`.

A record is checked where it is made; `servers_of` checks the names and makes the configuration for a dialect. What may be secret is
never shown: values of `env` and `headers` stand in no repr and no error.

Context crosses to a server by its environment (`PROCTOR_CONTEXT_PROJECT`) or its headers (`Proctor-Context-Project`),
because nothing of this process is seen in there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec

from proctor.actors.errors import BadOption
from proctor.actors.plan.option_checks import SECONDS, field_rule
from proctor.protocols.lenient import Refusal
from proctor.protocols.mcp import HOST, Server

_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*", re.ASCII)
_KEY = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]*", re.ASCII)


def _names(values: Mapping[str, str]) -> str:
    return repr(sorted(values))


def _words(args: Iterable[str]) -> tuple[str, ...]:
    given: object = args
    if isinstance(given, str):
        raise BadOption(f"args of an MCP server is a list of texts, got {args!r}")
    return tuple(args)


def _texts(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    pairs = cast("Mapping[object, object]", value).items() if isinstance(value, Mapping) else [(None, None)]
    for name, text in pairs:
        if not (isinstance(name, str) and name and isinstance(text, str)):
            raise BadOption(f"{attribute.name} of an MCP server maps names to texts; {name!r} does not")
        if "\0" in name + text or (attribute.name == "env" and "=" in name):
            raise BadOption(
                f"{attribute.name} of an MCP server has a name or value that cannot be passed: {name!r}"
            )


def _headers(instance: object, attribute: attrs.Attribute[Any], value: Mapping[str, str]) -> None:
    _texts(instance, attribute, value)
    for name, text in value.items():
        if not (_HEADER.fullmatch(name) and _VALUE.fullmatch(text)):
            raise BadOption(f"header {name!r} of an MCP server is not valid: only visible ASCII is allowed")


@attrs.frozen(kw_only=True)
class McpServer:
    """A server of the Model Context Protocol, started by `command` and `args` or reached at `url`.

    `env` is added to the environment that the CLI gives it, `headers` to each request; both may hold secrets, `args` may
    not: every user of the machine can read them. `approved` says that its tools need no approval, where the CLI has an option
    for that; else they are asked about like any other, and denied where no one can answer. `timeout` is in seconds for one
    call (None: as the CLI has it). Raises `BadOption`.
    """

    command: str | None = None
    args: tuple[str, ...] = attrs.field(default=(), converter=_words)
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], validator=_texts, repr=_names)
    url: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], validator=_headers, repr=_names)
    approved: bool = False
    timeout: float | None = attrs.field(
        default=None, validator=field_rule(attrs.evolve(SECONDS, optional=True), "an MCP server")
    )

    def __attrs_post_init__(self) -> None:
        self._check_words()
        if bool(self.command) == bool(self.url):
            raise BadOption(
                f"an MCP server has either a command or a url, got {self.command!r} and {self.url!r}"
            )
        if self.url and (self.args or self.env):
            raise BadOption("an MCP server with a url takes headers, and neither args nor env")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise BadOption(f"the url of an MCP server must be one of http or https, got {self.url!r}")
        if self.command and self.headers:
            raise BadOption("an MCP server with a command takes args and env, and no headers")

    def _check_words(self) -> None:
        words = cast("tuple[object, ...]", (self.command or "", self.url or "", *self.args))
        if any(not isinstance(word, str) or "\0" in word for word in words):
            raise BadOption("command, args and url of an MCP server must be texts without a zero byte")

    def declared(self, context: Mapping[str, str]) -> Server:
        """Its configuration for a dialect, with the context of its agent."""
        env = {**{f"PROCTOR_CONTEXT_{key.upper()}": value for key, value in context.items()}, **self.env}
        headers = {**{_header(key): value for key, value in context.items()}, **self.headers}
        return Server(
            command=self.command or "",
            args=self.args,
            env={} if self.url else env,
            url=self.url or "",
            headers=headers if self.url else {},
            approved=self.approved,
            timeout=self.timeout,
        )


def _header(key: str) -> str:
    return "-".join(("Proctor-Context", *(word.capitalize() for word in key.split("_"))))


def servers_of(
    mcp: Mapping[str, McpServer] | None, config: str | Path | None, context: Mapping[str, str]
) -> dict[str, Server]:
    """All servers of an agent: those of the option `mcp` and those of a configuration. Raises `BadOption`."""
    check_context(context)
    named = {**_configured(config), **(mcp or {})}
    for name, server in named.items():
        _check(name, server)
    return {name: server.declared(context) for name, server in named.items()}


def _check(name: object, server: object) -> None:
    if not isinstance(server, McpServer):  # what it is instead may hold a secret
        raise BadOption(f"mcp maps names to records of McpServer, got {type(server).__name__} for {name!r}")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise BadOption(
            f"the name of an MCP server is letters and digits, joined by single '_' or '-': {name!r}"
        )
    if name == HOST or name.startswith(f"{HOST}_"):
        raise BadOption(
            f"MCP server {name!r}: names that begin with {HOST!r} are those of the host's own tools"
        )


def check_context(context: object) -> None:
    """Raises `BadOption` for what cannot cross as a variable and as a header."""
    if not isinstance(context, Mapping):
        raise BadOption(f"context maps names to texts, got {context!r}")
    for key, value in cast("Mapping[object, object]", context).items():
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise BadOption(f"context {key!r}: a name is lower-case letters, digits and '_'")
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise BadOption(f"context {key!r}: a value is a text of visible ASCII, got {value!r}")


_KEYS = ("command", "args", "env", "url", "headers")
_TYPES = ("stdio", "http", "streamable-http")


def _configured(config: str | Path | None) -> dict[str, McpServer]:
    """The servers of a file, or of a text, as other programs write them: JSON with `mcpServers`."""
    if config is None:
        return {}
    where, text = _read(config)
    try:
        found: Any = msgspec.json.decode(text)["mcpServers"]
        entries: list[tuple[str, dict[str, Any]]] = [(name, dict(entry)) for name, entry in found.items()]
    except (*Refusal, LookupError, TypeError, AttributeError) as error:
        raise BadOption(
            f"mcp_config {where} is not JSON with an object mcpServers of objects: {error}"
        ) from None
    return {name: _entry(where, name, entry) for name, entry in entries}


def _read(config: str | Path) -> tuple[str, str]:
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return "given as text", config
    try:
        return repr(str(config)), Path(os.path.expanduser(config)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"mcp_config {str(config)!r} cannot be read: {error}") from None


def _entry(where: str, name: str, entry: dict[str, Any]) -> McpServer:
    kind = entry.pop("type", "stdio" if "command" in entry else "http")
    if kind not in _TYPES:
        raise BadOption(
            f"mcp_config {where}: {name}.type {kind!r} is not a choice; accepted: {', '.join(_TYPES)}"
        )
    if unknown := sorted(entry.keys() - {*_KEYS}):
        raise BadOption(f"mcp_config {where}: {name} has {unknown[0]!r}; known: type, {', '.join(_KEYS)}")
    try:
        return McpServer(**entry)
    except (TypeError, BadOption) as error:
        raise BadOption(f"mcp_config {where}: {name}: {error}") from None
