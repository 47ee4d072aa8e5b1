"""The greeting of `codex app-server`, in three steps: `initialize`, then `initialized` and the thread, then its reply.

Guarantees: nothing is asked of a thread before it is there. A prompt, an interrupt or a change of the model that comes
earlier waits, and is written in order when the thread has opened. A thread that the server does not give, because it
does not know its id, because another process has it open, or because the settings are wrong, refuses the session.

A thread keeps the host's tools that it was made with, also when another process resumes it; it takes no others then.

The settings of a thread that are secrets or long text travel here and not as arguments, which other users can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.protocols import jsonrpc
from proctor.protocols.codex import mcp_servers
from proctor.protocols.codex.turns import state_of
from proctor.protocols.codex.wire import Hello, Opened
from proctor.protocols.dialect import Launch, Memo, Out, Send, parse_version
from proctor.protocols.lenient import decoded_or
from proctor.protocols.vocabulary import Answered, Started

GREETING = "greeting"
"""Id of the request that the reply to the whole greeting answers."""

CLIENT: Mapping[str, str] = {"name": "proctor", "title": "proctor", "version": "1"}
"""Who we say we are; the server puts it into its user agent."""

DELTAS = (
    "item/agentMessage/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
)
"""Notifications to leave out where the launch asks for no partial text."""

UNSAID = ("item/commandExecution/outputDelta", "item/fileChange/outputDelta", "turn/diff/updated")
"""Notifications that are not read: the whole of it follows when the item completes, or is in the working folder."""

DEFAULT_POLICY = "on-request"
"""The host is asked: what it allows is its own policy's to say."""

DEFAULT_SANDBOX = "read-only"
"""Where neither the host nor the user's own settings say more."""


def greet(memo: Memo) -> bytes:
    """The first step. Experimental methods are ours too: host tools, and the end of background terminals."""
    unwanted = UNSAID if memo.launch.partial else (*UNSAID, *DELTAS)
    abilities = {"experimentalApi": True, "optOutNotificationMethods": unwanted}
    params = {"clientInfo": CLIENT, "capabilities": abilities}
    return jsonrpc.ask(memo, "initialize", "initialize", params, tag=False)


def read_hello(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    """The reply to the first step; the second one follows."""
    if message.error is not None:
        return _refused(memo, message.error.message)
    hello, odd = jsonrpc.result(memo, Hello, message, "initialize")
    if version := parse_version(hello.user_agent.partition("/")[2]):
        memo.version = ".".join(map(str, version))
    ready = Send(jsonrpc.notify("initialized", tag=False))
    return (ready, Send(_open_thread(memo)), *odd)


def _open_thread(memo: Memo) -> bytes:
    options = memo.launch
    params = _settings(options)
    if options.resume is None:
        params["dynamicTools"] = _host_tools(options)
        return _ask(memo, "thread/start", {**params, "ephemeral": options.persist is False})
    # Without `excludeTurns` the reply has the whole history of the thread.
    params |= {"threadId": options.resume, "excludeTurns": True}
    return _ask(memo, "thread/fork" if options.fork else "thread/resume", params)


def _ask(memo: Memo, method: str, params: dict[str, Any]) -> bytes:
    present = {name: value for name, value in params.items() if value not in (None, [], {})}
    return jsonrpc.ask(memo, "thread", method, present, tag=False)


def _settings(options: Launch) -> dict[str, Any]:
    sandbox = options.sandbox or (None if options.user_settings else DEFAULT_SANDBOX)
    policy = options.permission_mode or (None if options.user_settings else DEFAULT_POLICY)
    return {
        "cwd": options.cwd or None,
        "model": options.model,
        "sandbox": sandbox,
        "approvalPolicy": policy,
        "baseInstructions": options.system_prompt,
        "developerInstructions": options.append_system_prompt,
        "config": {"mcp_servers": mcp_servers.config_of(options.mcp)} if options.mcp else None,
    }


def _host_tools(options: Launch) -> list[dict[str, Any]]:
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        for tool in options.host_tools
    ]


def read_thread(memo: Memo, message: jsonrpc.Message) -> Out:
    """The reply to the second step: the thread is open, or refused."""
    if message.error is not None:
        return _refused(memo, message.error.message)
    opened, odd = jsonrpc.result(memo, Opened, message, "thread")
    if not opened.thread.id:
        # Without an id nothing could be asked of it, nor resumed.
        return (*odd, *_refused(memo, "the thread that was opened has no id"))
    memo.greeted = True
    memo.session_id = opened.thread.id
    memo.model = opened.model or memo.model
    started = Started(
        memo.frame,
        memo.turn,
        memo.session_id,
        model=opened.model,
        cwd=opened.cwd,
        version=memo.version,
        permission_mode=decoded_or(None, str, opened.approval_policy),
    )
    return (*odd, started, Answered(memo.frame, memo.turn, GREETING))


def _refused(memo: Memo, why: str) -> Out:
    memo.refused = why or "the session was refused without a message"
    # What waited for the thread is refused with it.
    state_of(memo).early.clear()
    return (Answered(memo.frame, memo.turn, GREETING, memo.refused),)
