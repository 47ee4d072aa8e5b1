"""Profiles of Agent Client Protocol agents: the differences in their meaning, as data.

`GENERIC` fits agents that were not measured. The others were measured on the versions that they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from proctor.protocols.causes import STATUSES, TEXTS, Texts
from proctor.protocols.dialect import StopStep, Version
from proctor.protocols.vocabulary import Ending

ToolName = Literal["field", "first_title", "id_prefix"]
UsageRule = Literal["turn", "last_call", "quota"]

AUTH_REQUIRED = -32000

CODES: Mapping[int, Ending] = {AUTH_REQUIRED: "authentication"}
"""The one error code of the protocol itself that tells a cause."""

GEMINI_TEXTS: Texts = (
    (r"per.?(minute|second)", "overloaded"),
    (r"exhausted your .{0,40}(quota|capacity)|quota will reset|quota exceeded", "limit"),
    *TEXTS,
)
"""Gemini says quota for both: of one that is counted by the minute a retry soon gets past."""


LADDER = (
    StopStep("interrupt", 2.0),
    StopStep("close_stdin", 3.0),
    StopStep("terminate", 3.0),
    StopStep("kill", 0.0),
)


@attrs.frozen(kw_only=True)
class Profile:
    """One agent's meaning of the protocol.

    `arguments` follow a bare program; a command that brings arguments of its own gets none. `flags` are the fields of
    a launch that it takes as arguments. `tool_name` is where the name of a tool is, if not in the frame's `name`: in
    the first title of the call, or before the first `__` of its id. `rejection_ends_turn`: it says `end_turn` after a
    rejected tool, without an answer; `rejection_is_silent`: it never says that the tool failed. `usage`: what the
    counts of a turn's reply are about. `failure_sign`: the path in the `_meta` of a `session_info_update`, and the
    value there, that says that the turn has failed although it will end well, with the error as its text. `codes` and
    `texts` give an error's cause. `history_end`: the update that follows the history of a loaded session, for an agent
    that answers before it has sent it. `mode`: the one a session is set to when the launch names none. `fruitless` bounds
    the model calls in a row that bring only text (None: no bound). `servers` says when it gets its MCP servers: when a
    session is opened, or by a launch of its own; `trust` is the variable that calls the working folder trusted, for an
    agent that starts no server in any other; `adds` names arguments that it adds to the tools of servers (see `Dialect`).
    """

    name: str
    arguments: tuple[str, ...] = ()
    flags: Mapping[str, str] = attrs.field(factory=dict[str, str])
    tool_name: ToolName = "field"
    rejection_ends_turn: bool = False
    rejection_is_silent: bool = False
    usage: UsageRule = "turn"
    failure_sign: tuple[str, ...] = ()
    codes: Mapping[int, Ending] = CODES
    texts: Texts = TEXTS
    history_end: str = ""
    mode: str | None = None
    fruitless: int | None = None
    servers: Literal["session", "launch"] = "session"
    trust: str = ""
    adds: frozenset[str] = frozenset()
    stop: tuple[StopStep, ...] = LADDER
    oldest: Version = (0, 0, 0)
    newest_tested: Version | None = None
    can: frozenset[str] = frozenset(("interrupt", "approvals", "queue", "deltas"))


_ALL = frozenset(("interrupt", "approvals", "queue", "deltas", "resume"))

GENERIC = Profile(name="acp")

OPENCODE = Profile(
    name="opencode",
    arguments=("acp",),
    tool_name="first_title",
    rejection_ends_turn=True,
    usage="last_call",
    fruitless=8,
    servers="launch",
    oldest=(1, 18, 33),
    newest_tested=(1, 18, 33),
    can=_ALL | {"set_model", "set_permission_mode", "fork", "cost"},
)
"""OpenCode 1.18.33. A server that is named when a session is opened has 60 seconds for a call, whatever the tool needs.
A model's answer without a finish reason makes it call the model again for ever.

It retries without a word: the pieces of an attempt that broke, which are void, and those of the next are chunks of one
message with nothing between. Its own log tells them apart (`opencode.log`).
"""

GEMINI = Profile(
    name="gemini",
    arguments=("--acp",),
    flags={"model": "--model"},
    tool_name="id_prefix",
    rejection_is_silent=True,
    usage="quota",
    trust="GEMINI_CLI_TRUST_WORKSPACE",
    adds=frozenset({"wait_for_previous"}),
    history_end="available_commands_update",
    codes={**CODES, **STATUSES},
    texts=GEMINI_TEXTS,
    stop=(
        StopStep("interrupt", 2.0),
        StopStep("close_stdin", 2.0),
        StopStep("terminate", 2.0),
        StopStep("kill", 0.0),
    ),
    oldest=(0, 61, 0),
    newest_tested=(0, 61, 0),
    can=_ALL | {"set_model", "set_permission_mode"},
)
"""Gemini CLI 0.61.0. With a tool running only the interrupt ends it: it heeds neither end of file nor SIGTERM.

It looks at the arguments of a call itself, and tells its model what the schema of the tool does not allow; such a call never
gets to the tool.
"""

CODEX_ACP = Profile(
    name="codex-acp",
    failure_sign=("codex", "threadStatus", "type", "systemError"),
    mode="read-only",
    oldest=(2, 6, 0),
    newest_tested=(2, 6, 0),
    can=_ALL | {"set_model", "set_permission_mode", "fork"},
)
"""codex-acp 2.6.0, the adapter over `codex app-server`. A tool goes on running after an interrupt.

Its own first mode, `agent`, has a model decide what may be done, and asks no one else. So sessions are set to `read-only`,
where, as with Codex itself, what needs more is asked of the permission policy.
"""

CLAUDE_ACP = Profile(
    name="claude-agent-acp",
    oldest=(0, 100, 0),
    newest_tested=(0, 100, 0),
    can=_ALL | {"set_model", "set_permission_mode", "fork", "cost"},
)
"""claude-agent-acp 0.100.0, the adapter over the Claude Agent SDK; it needs Node 22."""

PROFILES: Mapping[str, Profile] = {
    "generic": GENERIC,
    "opencode": OPENCODE,
    "gemini": GEMINI,
    "codex": CODEX_ACP,
    "claude": CLAUDE_ACP,
}
"""The profiles by the names that a user gives."""
