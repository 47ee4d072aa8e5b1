"""The requests of `codex app-server` to its host: to permit a tool, or to run one of the host.

Guarantees: every request of the server is passed on as a question or refused at once, because it waits for the answer
without a clock of its own. Its ids count from 0 beside ours, so a question has an id of its own, made of the
incarnation and the server's. What closed without us (an interrupt) is withdrawn.

A table says how each kind is described and answered. No tool has room for a changed input, so a decision that brings one is
written as a refusal: what was not asked for must not run. A form and a question to the user are answered by what the
decision brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from proctor.protocols import jsonrpc
from proctor.protocols.codex.items import arguments, mcp_tool
from proctor.protocols.codex.turns import PendingQuestion, state_of, turn_of, withdraw
from proctor.protocols.codex.wire import Question, Resolved, ToolMeta
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import decoded_or, refuse_unread
from proctor.protocols.vocabulary import (
    ApprovalRequested,
    Decision,
    Notice,
    ToolRequested,
    ToolReturn,
)

HOST_TOOL = "item/tool/call"
SESSION = "session"
"""How long Codex remembers a decision about a tool of an MCP server, where it offers that."""


@attrs.frozen
class Details:
    """A question in our words."""

    tool: str
    input: dict[str, Any]
    description: str | None = None
    lasting: bool = False


@attrs.frozen
class Kind:
    """One kind of question: its description, and the result that a decision is written as."""

    describe: Callable[[Memo, Question], Details]
    answer: Callable[[PendingQuestion, Decision], dict[str, Any]]


def _call_input(memo: Memo, question: Question) -> dict[str, Any]:
    call = state_of(memo).calls.get(question.item_id or "")
    return dict(call.input) if call is not None else {}


def _describe_command(memo: Memo, question: Question) -> Details:
    details = {"command": question.command, "cwd": question.cwd, "network": question.network_approval_context}
    details = {name: value for name, value in details.items() if value is not None}
    return Details("shell", {**_call_input(memo, question), **details}, question.reason, lasting=True)


def _describe_change(memo: Memo, question: Question) -> Details:
    call_input = _call_input(memo, question)
    if question.grant_root is not None:
        call_input["grant_root"] = question.grant_root
    return Details("apply_patch", call_input, question.reason, lasting=True)


def _describe_permissions(memo: Memo, question: Question) -> Details:
    return Details("request_permissions", question.permissions, question.reason)


def _describe_elicitation(memo: Memo, question: Question) -> Details:
    meta = decoded_or(ToolMeta(), ToolMeta, question.meta)
    if meta.codex_approval_kind == "mcp_tool_call" and meta.tool_name:
        return Details(
            mcp_tool(question.server_name, meta.tool_name),
            meta.tool_params or {},
            question.message,
            lasting=SESSION in meta.persist,
        )
    fields = {"schema": question.requested_schema, "url": question.url}
    values = {name: value for name, value in fields.items() if value is not None}
    return Details(mcp_tool(question.server_name, "elicitation"), values, question.message)


def _describe_user_input(memo: Memo, question: Question) -> Details:
    return Details("request_user_input", {"questions": question.questions})


def _agrees(pending: PendingQuestion, decision: Decision) -> bool:
    # Codex has no field for another input: allowing would run the old one.
    return decision.allow and decision.input in (None, pending.input)


def _decide(pending: PendingQuestion, decision: Decision) -> dict[str, Any]:
    if not _agrees(pending, decision):
        return {"decision": "decline"}
    return {"decision": "acceptForSession" if decision.always else "accept"}


def _grant(pending: PendingQuestion, decision: Decision) -> dict[str, Any]:
    granted = pending.input if decision.input is None else decision.input
    return {
        "permissions": {name: value for name, value in granted.items() if value} if decision.allow else {}
    }


def _elicit(pending: PendingQuestion, decision: Decision) -> dict[str, Any]:
    if pending.tool.endswith("__elicitation"):  # here the input of a decision is the form, filled in
        accepted = {"action": "accept", "content": decision.input or {}}
        return accepted if decision.allow else {"action": "decline"}
    if not _agrees(pending, decision):
        return {"action": "decline"}
    lasting = {"_meta": {"persist": SESSION}} if decision.always else {}
    return {"action": "accept", "content": {}, **lasting}


def _fill_in(pending: PendingQuestion, decision: Decision) -> dict[str, Any]:
    """The answers, by the question's text in a decision and by its id on the wire; none where no answer was chosen."""
    values = (decision.input or {}).get("answers") if decision.allow else None
    answers = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
    filled = {
        str(one.get("id")): {"answers": [str(answers[one.get("question")])]}
        for one in pending.input["questions"]
        if one.get("question") in answers
    }
    return {"answers": filled}


KINDS: Mapping[str, Kind] = {
    "item/commandExecution/requestApproval": Kind(_describe_command, _decide),
    "item/fileChange/requestApproval": Kind(_describe_change, _decide),
    "item/permissions/requestApproval": Kind(_describe_permissions, _grant),
    "mcpServer/elicitation/request": Kind(_describe_elicitation, _elicit),
    "item/tool/requestUserInput": Kind(_describe_user_input, _fill_in),
}
"""Method → its description and answer. What is not here, and no tool of the host's, is refused at once."""


def read_request(memo: Memo, message: jsonrpc.Message) -> Out:
    """A request of the server's."""
    if message.method == HOST_TOOL:
        return _read_tool(memo, message)
    kind = KINDS.get(message.method)
    if kind is None:
        return _refuse(memo, message, f"{message.method!r} is not supported by this host")
    question, odd = jsonrpc.params(memo, Question, message)
    details = kind.describe(memo, question)
    name, turn = _register(memo, message, question, details)
    memo.approvals[name] = details.input
    # The question about an MCP tool names no item; the open call with the same name and input is it.
    call = question.item_id or _open_call(memo, details)
    event = ApprovalRequested(
        memo.frame, turn, name, details.tool, details.input, details.description, call, details.lasting
    )
    if not _is_unread(memo, question):
        return (*odd, event)
    declined, notice = refuse_unread(write_answer, memo, event)
    return (*odd, Send(declined), notice)


def _register(
    memo: Memo, message: jsonrpc.Message, question: Question, details: Details
) -> tuple[str, str | None]:
    """Note an open request of the server. Our id of it, and the turn that it holds up."""
    name, turn = f"{memo.prefix}q{message.key}", turn_of(memo, question.turn_id)
    state_of(memo).questions[name] = PendingQuestion(
        message.key, message.method, turn, details.input, details.tool
    )
    return name, turn


def _is_unread(memo: Memo, question: Question) -> bool:
    """Is the question about a tool whose input was too long to be read? What it says itself need not be all of it."""
    call = state_of(memo).calls.get(question.item_id or "")
    return call is not None and call.unread and not memo.truncated


def _open_call(memo: Memo, details: Details) -> str | None:
    calls = reversed(state_of(memo).calls.items())
    return next(
        (item for item, call in calls if (call.name, call.input) == (details.tool, details.input)), None
    )


def _read_tool(memo: Memo, message: jsonrpc.Message) -> Out:
    question, odd = jsonrpc.params(memo, Question, message)
    if question.tool not in {tool.name for tool in memo.launch.host_tools}:
        return (*odd, *_refuse(memo, message, f"this host has no tool {question.tool!r}"))
    values = arguments(question.arguments)
    name, turn = _register(memo, message, question, Details(question.tool, values))
    memo.calls[name] = question.tool
    return (*odd, ToolRequested(memo.frame, turn, name, question.tool, values, question.call_id))


def _refuse(memo: Memo, message: jsonrpc.Message, why: str) -> Out:
    notice = Notice(memo.frame, memo.turn, "request_refused", why, {"kind": message.method})
    return (jsonrpc.refuse(message.key, why, tag=False), notice)


def read_resolved(memo: Memo, message: jsonrpc.Message) -> Out:
    """A question is closed: by our answer, which is quiet, or without it."""
    resolved, odd = jsonrpc.params(memo, Resolved, message)
    key = bytes(resolved.request_id).decode("utf-8", "replace")
    return (*odd, *withdraw(memo, [f"{memo.prefix}q{key}"]))


def write_answer(memo: Memo, answer: Decision | ToolReturn) -> bytes:
    """The bytes of a decision on an open approval, or of the result of a tool of the host's."""
    own = state_of(memo)
    pending = own.questions.pop(answer.id)
    if isinstance(answer, ToolReturn):
        parts = [{"type": "inputText", "text": answer.text}]
        result: dict[str, Any] = {"contentItems": parts, "success": not answer.is_error}
    else:
        result = KINDS[pending.method].answer(pending, answer)
        if not answer.allow or "decline" in result.values():
            # Also where a yes came with another input, which is written as a refusal.
            own.denied.append(pending.tool)
    return jsonrpc.answer(pending.key, result, tag=False)
