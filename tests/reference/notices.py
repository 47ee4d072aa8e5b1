"""What the code of each notice says, and which codes there are in the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from proctor.actors.plan.budgets import Alarm
from proctor.protocols.claude import frames as claude
from proctor.protocols.codex import frames as codex
from proctor.protocols.codex import items

ROOT = Path(__file__).parents[2]

PLACES: Mapping[str, int] = {"Notice": 2, "note": 0, "_note": 0, "_notice": 0}
"""Function → which of its arguments is a code."""

MEANINGS: Mapping[str, str] = {
    "api_failure": "the model's API refused or failed; the turn may go on",
    "approval": "a question of the CLI was decided: `id`, `allow`",
    "approval_late": "a decision came after the CLI had stopped to wait for it",
    "approval_review": "the CLI's own review of questions has spoken",
    "approval_refused": "a kind of question that this host does not decide was refused",
    "attempt_void": "what was said last does not count: pieces since the last whole block, and so many whole `texts` before",
    "auth_status": "the CLI's login changed",
    "background_tasks": "the CLI's background work changed",
    "budget_exceeded": "a budget is spent",
    "budget_near": "a budget is spent up to its `warn`",
    "compacted": "the CLI has shortened its conversation",
    "compacting": "the CLI shortens its conversation",
    "compaction_failed": "the CLI could not shorten its conversation",
    "config_warning": "the CLI complains about its configuration",
    "conversation_reset": "the CLI has begun a new conversation",
    "cost_unknown": "a budget cannot be kept: the CLI gives no cost",
    "deprecation": "the CLI warns of what will not be there for long",
    "endless_turn": "the CLI asked its model again and again for nothing; the turn was ended",
    "events_dropped": "events are gone from the log",
    "events_missed": "the stream of a server's events broke; the session was read again",
    "given_up": "the agent stays down: no restart would heal it",
    "guardian_warning": "the CLI's guardian warns",
    "hook": "a hook of the host was asked",
    "hook_failed": "a hook of the CLI's own settings failed",
    "hook_refused": "a call of a hook of the host was refused",
    "host_tools_garbled": "the line to the host's tools carried something that is no message",
    "informational": "a word of the CLI's",
    "limit_near": "a usage limit is near",
    "limit_overage": "work goes on beyond a usage limit, at its own price",
    "mcp_needs_trust": "the CLI uses its servers of MCP only in folders that it trusts",
    "mcp_server": "a server of MCP failed, or changed its state",
    "model_call_failed": "a call of the model broke; the CLI makes it again",
    "model_fallback": "the CLI goes on with another model",
    "model_refused": "the model refused to answer",
    "model_verification": "the CLI has verified its model",
    "not_kept": "the store does not take that a turn has begun: after the death of its host it is not continued",
    "not_passed": "a variable with a key or an endpoint is set here and was not passed",
    "not_reading": "the CLI does not read what is written to it",
    "not_sent": "a request was not sent",
    "notification": "a word of the CLI's for its user",
    "odd_state": "the agent saw something that cannot be in its state",
    "option_ignored": "the CLI cannot honour an option",
    "parked": "the request waits for the reset of a usage limit, or for a budget",
    "permission_denied": "the CLI denied a tool by itself",
    "plan": "the agent's list of what is to be done",
    "prompt_cancelled": "the CLI dropped a prompt that waited",
    "prompt_queued": "the CLI keeps a prompt for its next turn",
    "question_declined": "a question for a person was declined",
    "recording_failed": "the disk does not take the recording",
    "recording_resumed": "the disk takes the recording again",
    "request_refused": "a request of the CLI that no host serves was refused",
    "responsive": "the CLI answers again",
    "resume_refused": "the CLI did not resume its session; a fork or a new one is tried",
    "resumed": "the agent is back and goes on",
    "review_ended": "the CLI's review mode ended",
    "review_started": "the CLI's review mode began",
    "sent": "a request is written: `ticket`, `prompt`, `attempt`, and whether the conversation `goes_on`",
    "session_changed": "the CLI went on in another session",
    "session_error": "a session of the server failed",
    "session_owned": "another agent runs this session",
    "settings_left_out": "settings files are there that are not read",
    "stalled": "the process was stopped, with the evidence",
    "subagent": "a sub-agent did something",
    "subagent_started": "a sub-agent began",
    "subagent_ended": "a sub-agent has ended",
    "subagent_failed": "a sub-agent failed",
    "task_ended": "background work has ended",
    "task_progress": "how far background work has come",
    "task_started": "background work began",
    "task_updated": "background work changed",
    "thread_closed": "a thread of the CLI is closed",
    "thread_started": "the CLI began a thread beside its session",
    "too_many_garbled": "more lines than the process may write were no frames",
    "tool_refused": "a call of a tool of the host was refused",
    "unmet": "an answer does not match its schema; it is asked for again",
    "unresponsive": "the CLI does not answer; what was found",
    "unsettled": "whether a turn has ended could not be told",
    "version_newer": "the CLI is newer than what was tested",
    "version_too_old": "the CLI is older than what works",
    "warning": "a warning of the CLI's",
    "worker_shutting_down": "the CLI is about to leave",
    "workspace_found": "the agent goes on in a worktree that was there",
    "workspace_kept": "a worktree with work in it was kept",
}
"""Code → what it says."""


def codes() -> set[str]:
    """The codes that there are: of each `Notice` and `note` in the sources, of the tables, of what is put into `code`."""
    trees = [
        ast.parse(path.read_text()) for top in ("actors", "protocols") for path in (ROOT / top).rglob("*.py")
    ]
    written = {code for tree in trees for node in ast.walk(tree) for code in _written(node)}
    first = {code for table in (claude.NOTICES, codex.NOTICES) for code, _ in table.values()}
    both = {code for pair in items.NOTICES.values() for code in pair if code}
    return written | first | both | {*get_args(Alarm)}


def _written(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args):
            place = PLACES.get(name, len(args))
            yield from _words(*args[place : place + 1])
        case ast.Assign(targets=[ast.Name(id="code")], value=value):
            yield from _words(value)
        case ast.Assign(
            targets=[ast.Tuple(elts=[ast.Name(id="code"), *_])], value=ast.Tuple(elts=[value, *_])
        ):
            yield from _words(value)
        case _:
            pass


def _words(*values: ast.expr) -> Iterator[str]:
    for value in values:
        match value:
            case ast.Constant(value=str(code)):
                yield code
            case ast.IfExp(body=body, orelse=orelse):
                yield from _words(body, orelse)
            case _:
                pass
