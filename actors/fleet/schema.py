"""Schema of a fleet file's tables: agents, with a record for each kind, and servers.

A record holds what was written and makes the child spec of it. What was left out has the default of its option. The keys of
an agent are its options (`options.SPEC_OPTIONS`) and those of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NewType, Self, TypeAlias, cast
from urllib.parse import urlsplit

import attrs

from proctor.actors.durations import Limit, Positive, Seconds
from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.opencode_server.server import opencode_server
from proctor.actors.plan.environment import Home
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.options import SPEC_OPTIONS, Folder, Variables
from proctor.actors.plan.permissions import Rule
from proctor.actors.specs import acp, claude, codex, gemini, opencode, scripted
from proctor.runtime.spec import Backoff, ChildSpec, Restart

Script = NewType("Script", Path)
"""A path where a script or a recorded run is."""
PromptFile = NewType("PromptFile", str)
"""The text of a file that is named by its path."""
Secrets = NewType("Secrets", Mapping[str, str])
"""Values that a file names by the variables that hold them."""
Grace: TypeAlias = Seconds | Literal["brutal_kill"]
MAX_REPLICAS = 1000
Permission: TypeAlias = Literal["deny", "allow", "ask"] | tuple[Rule, ...]


@attrs.frozen(kw_only=True)
class McpTable(McpServer):
    """A table `mcp.NAME` of an agent: the keys of `McpServer`, and `secret_headers`, which map a header to the variable
    that holds its value."""

    secret_headers: Secrets = attrs.field(default=Secrets({}), repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "headers", {**self.headers, **self.secret_headers})
        attrs.validate(self)
        super().__attrs_post_init__()


Occasion = Literal["approval", "failed", "parked", "back", "budget", "done"]
"""What a notification is about."""


@attrs.frozen(kw_only=True)
class NotifyTable:
    """The table `notify`: where notifications go, `on` which occasions (all). `secret` signs what goes to the webhook."""

    webhook: str | None = None
    secret: str | None = attrs.field(default=None, repr=False)
    command: tuple[str, ...] | None = None
    on: tuple[Occasion, ...] | None = None

    def check(self) -> None:
        """Raise `BadOption` for what cannot be."""
        faults = list[OptionFault]()
        place = urlsplit(self.webhook or "http://none")
        if place.scheme not in ("http", "https") or not place.hostname:
            faults.append(
                OptionFault(
                    "webhook", f"{self.webhook!r} is no address; accepted: https://HOST/PATH, or http"
                )
            )
        if self.secret is not None and self.webhook is None:
            faults.append(OptionFault("secret", "has no effect without webhook"))
        if not self.webhook and not self.command:
            faults.append(OptionFault("webhook", "is missing, and so is command: give one of them"))
        if faults:
            raise BadOption("; ".join(map(str, faults)), faults)


@attrs.frozen(kw_only=True)
class Server:
    """A table of `[[servers]]`: an `opencode_server` for the agents below the same supervisor."""

    name: str
    executable: Path | None = None
    cwd: Folder | None = None
    env: Variables | None = None
    home: Home | None = None
    port: int | None = None
    start: Positive | None = None
    shutdown: Positive | None = None
    restart: Restart | None = None
    backoff: Backoff | None = None

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `BadOption` or `InvalidSpec`."""
        keys = (field.name for field in attrs.fields(Server) if field.name != "name")
        return opencode_server(self.name, **written_fields(self, keys))


@attrs.frozen(kw_only=True)
class AgentTable:
    """A table of `[[agents]]`. `prompt`, or the text of `prompt_file`, is sent once it is up, and must end within `timeout`. `replicas` is
    how many such agents there are. `KINDS` has a subclass for each kind, with its options as fields; `make` is the function that they
    are keywords of."""

    make: ClassVar[Callable[..., ChildSpec]]
    name: str
    prompt: str | None = None
    prompt_file: PromptFile | None = None
    timeout: Limit | None = None
    replicas: int | None = None

    def copies(self) -> Sequence[Self]:
        """The agents that it stands for."""
        one = attrs.evolve(self, prompt=self.prompt or self.prompt_file, prompt_file=None, replicas=None)
        if self.replicas is None:
            return [one]
        return [attrs.evolve(one, name=name) for name in copy_names(self.name, self.replicas)]

    def check_copies(self) -> None:
        """Raise `BadOption` for keys that exclude each other, or a number that cannot be."""
        faults = list[OptionFault]()
        if self.prompt is not None and self.prompt_file is not None:
            faults.append(OptionFault("prompt_file", "is given beside prompt: leave one out"))
        if self.replicas is not None and not 0 < self.replicas <= MAX_REPLICAS:
            faults.append(OptionFault("replicas", f"must be from 1 to {MAX_REPLICAS}, got {self.replicas}"))
        if faults:
            raise BadOption("; ".join(map(str, faults)), faults)

    def child(self) -> ChildSpec:
        """A child spec with its restart, its end and its delays, whatever starts. Raises `InvalidSpec`."""
        keys = ("restart", "shutdown", "significant", "start_timeout", "start_order", "backoff")
        return ChildSpec(self.name, type(self), **written_fields(self, keys))

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec; `record` where it names none. Raises `BadOption`, `ScriptError` or `InvalidSpec`."""
        keys = (a.name for a in attrs.fields(type(self)) if a.name not in attrs.fields_dict(AgentTable))
        return type(self).make(self.name, **{"record": record, **written_fields(self, keys)})


def copy_names(name: str, count: int) -> list[str]:
    """The names of so many agents of one table."""
    return [f"{name}-{number}" for number in range(1, count + 1)]


def _kind(make: Callable[..., ChildSpec], **own: Any) -> type[AgentTable]:
    """The table of a kind: the options that a file can have, and its `own` keys, of which those without None are required."""
    kinds = {name: option.file | None for name, option in SPEC_OPTIONS.items() if option.file is not None}
    fields: dict[str, Any] = {
        name: attrs.field(type=cast("Any", kind), default=None if kind == kind | None else attrs.NOTHING)
        for name, kind in {**own, **kinds}.items()
    }
    table = attrs.make_class(
        f"{make.__name__.capitalize()}Table",
        fields,
        (AgentTable,),
        class_body={"make": staticmethod(make), "__doc__": f'`kind = "{make.__name__}"`.'},
        frozen=True,
        kw_only=True,
        slots=True,
    )
    return attrs.resolve_types(table, globals())


KINDS: Mapping[str, type[AgentTable]] = {
    "claude": _kind(claude),
    "codex": _kind(codex),
    "opencode": _kind(opencode, server=str | None),
    "gemini": _kind(gemini),
    "acp": _kind(acp, argv=tuple[str, ...], profile=str | None),
    "scripted": _kind(
        scripted,
        script=Script,
        dialect=str | None,
        faults=tuple[str, ...] | None,
        speed=float | None,
    ),
}


def written_fields(record: object, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that the file has."""
    return {name: value for name in names if (value := getattr(record, name)) is not None}
