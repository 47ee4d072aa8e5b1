"""Codex by its app server: many turns, deltas, approvals, tools of the host. Its messages are read by `frames`.

The process speaks JSON-RPC without the `jsonrpc` member; model, sandbox and instructions are those of its one
thread, and travel in the greeting. Its end is the end of stdin, which kills the tools that run as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.codex import command
from proctor.protocols.codex.frames import read
from proctor.protocols.codex.handshake import greet
from proctor.protocols.codex.replies import write
from proctor.protocols.codex.schemas import strict_schema
from proctor.protocols.codex.turns import used
from proctor.protocols.dialect import Command, Dialect, Launch, StopStep, Version

EVERY: Version = (0, 0, 0)

CAPABILITIES: Mapping[str, Version] = {
    "approvals": EVERY,
    "deltas": EVERY,
    "fork": EVERY,
    "host_tools": EVERY,
    "interrupt": EVERY,
    "resume": EVERY,
    "set_model": EVERY,
    "set_permission_mode": EVERY,
    "steer": EVERY,
    "stop_task": EVERY,
    "structured_output": EVERY,
    "turn_schema": EVERY,
}
"""What it can. A prompt in mid-turn joins the turn, so there is no queue; and it names no price."""


def launch(options: Launch) -> Command:
    """The command line; the rest of the options travels in the greeting.

    Raises Misuse for a schema that is not JSON, NotUtf8, ArgumentTooLong for a value beyond 128 KiB.
    """
    options.require_utf8()
    command.schema_of(options)
    argv = (
        *options.executable,
        "app-server",
        *command.ISOLATION,
        *command.settings(options),
        *options.extra,
        *command.retries(options),
    )
    return Command(argv=argv, ignored=_ignored(options))


def _ignored(options: Launch) -> tuple[str, ...]:
    names = command.ignored(options)
    if options.user_settings is False:
        names.append("user_settings")  # only `exec` can leave out the user's config.toml
    if options.resume is not None and options.persist is False:
        names.append("persist")
    return tuple(names)


CODEX = Dialect(
    name="codex",
    used=used,
    launch=launch,
    greet=greet,
    read=read,
    write=write,
    takes=command.takes,
    stop=(
        StopStep("interrupt", 0.5),
        StopStep("close_stdin", 3.0),
        StopStep("terminate", 8.0),
        StopStep("kill", 0.0),
    ),
    oldest=(0, 169, 0),
    newest_tested=(0, 169, 0),
    schema_form=strict_schema,
    capabilities=CAPABILITIES,
)
"""The dialect of `codex app-server` 0.169.0. One that cannot write obeys a SIGTERM after five seconds, no end of stdin."""
