"""The messages of `opencode serve` as types: events, and replies to requests.

An event is `{id, type, properties}`. The transport puts a reply into a line:
`{type: "http.reply", request, status, body}`; a line `{type: "http.resubscribed"}` says that events may have been
missed. Times are milliseconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.protocols.opencode.wire import Error, Part

REPLY = "http.reply"
RESUBSCRIBED = "http.resubscribed"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A line."""

    type: str = ""
    id: str = ""
    properties: msgspec.Raw = msgspec.Raw()
    request: str = ""
    status: int = 0
    body: msgspec.Raw = msgspec.Raw()


class Status(msgspec.Struct, frozen=True, gc=False):
    """The activity of a session; `next` is the time of a retry."""

    type: str = ""
    attempt: int = 0
    message: str = ""
    next: int = 0


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The state of an MCP server: `connected`, `failed`, ..."""

    status: str = ""
    error: str = ""


class Info(msgspec.Struct, frozen=True, gc=False):
    """A message, or a session; each has its own of these."""

    id: str = ""
    role: str = ""
    parentID: str = ""
    directory: str = ""
    version: str = ""
    modelID: str = ""
    providerID: str = ""
    error: Error | None = None
    structured: Any = None


class Place(msgspec.Struct, frozen=True, gc=False):
    """The tool call that something belongs to."""

    call: str | None = msgspec.field(default=None, name="callID")


class Properties(msgspec.Struct, frozen=True, gc=False):
    """The fields of events about a session; which of them, depends on the type."""

    sessionID: str = ""
    id: str = ""
    requestID: str = ""
    messageID: str = ""
    partID: str = ""
    field: str = ""
    delta: str = ""
    status: Status = Status()
    error: Error | None = None
    info: Info = Info()
    part: Part = Part()
    permission: str = ""
    patterns: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    always: tuple[str, ...] = ()
    tool: Place = Place()
    questions: list[dict[str, Any]] = []


class Whole(msgspec.Struct, frozen=True, gc=False):
    """A message with its parts, as it is read again."""

    info: Info = Info()
    parts: tuple[Part, ...] = ()


QUIET = frozenset(
    {
        *("catalog.updated", "command.executed", "file.edited", "file.watcher.updated", "global.disposed"),
        *("installation.update-available", "installation.updated", "integration.connection.updated"),
        *("integration.updated", "lsp.updated", "mcp.browser.open.failed", "mcp.tools.changed"),
        *("message.part.removed", "message.removed", "models-dev.refreshed", "plugin.added"),
        *("project.directories.updated", "project.updated", "reference.updated", "server.connected"),
        *("server.heartbeat", "server.instance.disposed", "session.compacted", "session.deleted"),
        *("session.diff", "todo.updated", "vcs.branch.updated"),
        *("permission.v2.asked", "permission.v2.replied"),
        *("question.v2.asked", "question.v2.rejected", "question.v2.replied"),
        *("workspace.failed", "workspace.ready", "workspace.status", "worktree.failed", "worktree.ready"),
    }
)
"""Events that mean nothing to who holds a session. The second generation of questions repeats the first."""

QUIET_KINDS = ("pty.", "session.next.", "tui.")
"""Beginnings of further ones."""
