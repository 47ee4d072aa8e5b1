"""Decisions for the rest of a session, in the words of each command line, on questions as it was recorded to ask them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.acp import GENERIC
from proctor.protocols.vocabulary import ApprovalRequested, Decision
from tests.protocols.acp import lines as acp
from tests.protocols.codex.lines import question as codex_question
from tests.protocols.codex.test_session import Session
from tests.protocols.lines import in_phase
from tests.protocols.opencode.server import BUSY, asked, prompted, user
from tests.protocols.opencode.test_serve import ASKED
from tests.protocols.recorded import TRANSCRIPTS
from tests.tables import each_row


def recorded(file: str, sign: str) -> dict[str, Any]:
    """The first line of a recording that holds this."""
    lines = (TRANSCRIPTS / file).read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if sign in line))
    return found


def claude_answer(frame: dict[str, Any], *, always: bool) -> tuple[ApprovalRequested, Any]:
    talk = in_phase("working")
    [question] = talk.receive(json.dumps(frame).encode() + b"\n")
    assert isinstance(question, ApprovalRequested)
    data = talk.send(Decision(question.id, True, always=always))
    return question, json.loads(data)["response"]["response"]


SUGGESTS = recorded("claude/e_perm_update.stdout.ndjson", "permission_suggestions")
ASKS_USER = recorded("claude/e_askuser.stdout.ndjson", "requires_user_interaction")


def test_claude_code_gets_the_rule_that_it_suggests_for_its_session_alone() -> None:
    question, answer = claude_answer(SUGGESTS, always=True)
    assert question.lasting
    rules = [{"toolName": "Bash", "ruleContent": "touch made.txt"}]
    rule = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    assert answer["updatedPermissions"] == [rule]


def test_claude_code_gets_a_rule_for_the_tool_where_it_suggests_none() -> None:
    request = {**SUGGESTS["request"], "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits"}]}
    _, answer = claude_answer({**SUGGESTS, "request": request}, always=True)
    rule = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow"}
    assert answer["updatedPermissions"] == [{**rule, "destination": "session"}]


def test_claude_code_gets_no_rule_for_this_once_and_for_a_question_to_the_person() -> None:
    assert "updatedPermissions" not in claude_answer(SUGGESTS, always=False)[1]
    question, answer = claude_answer(ASKS_USER, always=True)
    assert not question.lasting
    assert "updatedPermissions" not in answer


TOOL = recorded("codex/app_mcp_tool.stdout.ndjson", "mcpServer/elicitation/request")["params"]
MCP = {"serverName": TOOL["serverName"], "_meta": TOOL["_meta"]}


@each_row(
    ("method", "params", "lasting", "result"),
    [
        (
            "item/commandExecution/requestApproval",
            {"command": "ls"},
            True,
            {"decision": "acceptForSession"},
        ),
        ("item/fileChange/requestApproval", {}, True, {"decision": "acceptForSession"}),
        (
            "mcpServer/elicitation/request",
            MCP,
            True,
            {"action": "accept", "content": {}, "_meta": {"persist": "session"}},
        ),
        ("item/tool/requestUserInput", {"questions": []}, False, {"answers": {}}),
    ],
)
def test_codex_is_told_to_accept_for_its_session(
    method: str, params: dict[str, Any], lasting: bool, result: dict[str, Any]
) -> None:
    session = Session()
    session.begin()
    [question] = session.hear(codex_question("q", method, **params))
    assert isinstance(question, ApprovalRequested)
    assert question.lasting is lasting
    assert session.say(Decision(question.id, True, always=True)) == {"id": "q", "result": result}


def test_the_answer_for_its_session_is_the_one_that_codex_was_recorded_to_take() -> None:
    said = recorded("codex/app_approval_acceptforsession.stdin.ndjson", "decision")
    assert said["result"] == {"decision": "acceptForSession"}


def test_opencode_is_told_always() -> None:
    talk = prompted("p1")
    question = talk.receive(user("u1") + BUSY + ASKED)[-1]
    assert isinstance(question, ApprovalRequested)
    assert question.lasting
    [sent] = asked(talk.send(Decision("per_1", True, always=True)))
    assert (sent["path"], sent["body"]) == ("/permission/per_1/reply", {"reply": "always"})


def acp_answer(options: Any, **decision: Any) -> tuple[ApprovalRequested, Any]:
    talk = acp.session(GENERIC, "p")
    question = talk.receive(acp.question(options=options))[-1]
    assert isinstance(question, ApprovalRequested)
    [answer] = acp.sent(talk.send(Decision("7", True, **decision)))
    return question, answer["result"]["outcome"].get("optionId")


GEMINI = recorded("acp/gemini_permission_allow.stdout.ndjson", "request_permission")["params"]["options"]
BYPASS = [
    {"optionId": "auto", "name": "Yes, and accept edits", "kind": "allow_once"},
    {"optionId": "manual", "name": "Yes, and ask about edits", "kind": "allow_once"},
    {"optionId": "plan", "name": "No, go on planning", "kind": "reject_once"},
]


@each_row(
    ("options", "decision", "chosen"),
    [
        (GEMINI, {"always": True}, "proceed_always"),
        (GEMINI, {}, "proceed_once"),
        (GEMINI[1:], {"always": True}, "proceed_once"),
        (BYPASS, {}, "auto"),
        (BYPASS, {"option": "Yes, and ask about edits"}, "manual"),
        (BYPASS, {"option": "manual"}, "manual"),
        (BYPASS, {"option": "No, go on planning"}, "plan"),
        (BYPASS, {"option": "something else"}, None),
    ],
)
def test_an_agent_of_the_protocol_gets_the_option_that_was_chosen(
    options: Any, decision: dict[str, Any], chosen: str | None
) -> None:
    assert acp_answer(options, **decision)[1] == chosen


def test_options_of_an_agent_are_a_question_where_a_yes_and_a_no_are_not_all() -> None:
    plain, several = acp_answer(GEMINI)[0], acp_answer(BYPASS)[0]
    assert (plain.options, plain.lasting) == ((), True)
    assert several.options == tuple(option["name"] for option in BYPASS)
    assert not several.lasting


@pytest.mark.parametrize("where", ["question", "call"])
def test_the_file_changes_that_an_agent_shows_are_in_its_question(where: str) -> None:
    shown = [{"type": "diff", "path": "a.txt", "oldText": "x\n", "newText": "y\n"}]
    talk = acp.session(GENERIC, "p")
    if where == "call":
        talk.receive(acp.update("tool_call", toolCallId="t", title="Edit", content=shown))
    question = talk.receive(acp.question(**({"content": shown} if where == "question" else {})))[-1]
    assert isinstance(question, ApprovalRequested)
    assert question.changes == (shown[0],)
