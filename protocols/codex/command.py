"""The command lines of `codex app-server` and `codex exec`: the arguments that both have.

Closed unless opened: plugins and analytics, which reach other hosts at every start; the retries without end of a
connection that is refused. A value joins its key as TOML, for which JSON's texts and lists of texts pass.

Retries can be bounded only for a provider that is named in the arguments: the settings of the built-in one are not
to be overridden. All of them are then those of the stream, or they would multiply with those of each request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from proctor.protocols.attachment import PICTURES, Attachment
from proctor.protocols.dialect import Launch, Memo
from proctor.protocols.errors import Misuse, checked_argument
from proctor.protocols.lenient import Refusal

ISOLATION = (
    "--disable=plugins",
    "--disable=unbounded_connection_retries",
    "-c",
    "analytics.enabled=false",
)

CONFIG: Mapping[str, str] = {"effort": "model_reasoning_effort"}
"""Field of `Launch` to the setting it is."""

NEVER = (
    "allowed_tools",
    "disallowed_tools",
    "host_hooks",
    "max_budget_usd",
    "max_turns",
    "session_id",
    "tools",
)
"""Fields that Codex has nothing for, in either mode."""

_PROVIDER = re.compile(r"""model_provider\s*=\s*["']?([\w.-]+)["']?""", re.ASCII)


def takes(memo: Memo, attachment: Attachment) -> bool:
    """Pictures, in either mode."""
    return attachment.mime in PICTURES


def setting(field: str, key: str, value: object) -> tuple[str, str]:
    """`-c KEY=VALUE`. Raises ArgumentTooLong for a value beyond 128 KiB."""
    return "-c", checked_argument(field, f"{key}={toml(value)}")


def toml(value: object) -> str:
    """A text, a number, a truth, a list of them or a table of texts as TOML."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in pairs) + "}"
    return msgspec.json.encode(value).decode()


def settings(options: Launch) -> Iterator[str]:
    """The settings that both modes take as arguments."""
    for field, key in CONFIG.items():
        if (value := getattr(options, field)) is not None:
            yield from setting(field, key, value)
    if not options.project_memory:
        yield from setting("project_memory", "project_doc_max_bytes", 0)
    if options.add_dirs:
        yield from setting("add_dirs", "sandbox_workspace_write.writable_roots", list(options.add_dirs))


def retries(options: Launch) -> tuple[str, ...]:
    """The bound of the CLI's retries; behind the caller's own arguments, which may set the provider whole."""
    # The settings of the built-in provider cannot be overridden, so only a named one gets a bound.
    if options.retries is None or (provider := provider_of(options)) is None:
        return ()
    table = f"model_providers.{provider}"
    return (
        *setting("retries", f"{table}.request_max_retries", 0),
        *setting("retries", f"{table}.stream_max_retries", options.retries),
    )


def provider_of(options: Launch) -> str | None:
    """The provider of the model that the caller's own arguments name."""
    providers = [match for text in options.extra if (match := _PROVIDER.match(text.removeprefix("-c")))]
    return providers[-1][1] if providers else None


def ignored(options: Launch) -> list[str]:
    """The fields that neither mode can honour."""
    names = [name for name in NEVER if getattr(options, name)]
    if options.retries is not None and provider_of(options) is None:
        names.append("retries")
    if options.fork and options.resume is None:
        names.append("fork")
    return names


def schema_of(options: Launch) -> object:
    """The JSON schema of the answer, None for none. Raises Misuse when it is not JSON."""
    if options.json_schema is None:
        return None
    try:
        return msgspec.json.decode(options.json_schema)
    except Refusal as error:
        raise Misuse(f"json_schema is not JSON: {error}", request="launch") from error
