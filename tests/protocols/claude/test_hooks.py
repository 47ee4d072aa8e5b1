from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostHook, Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    HookCalled,
    HookVerdict,
    Notice,
    Prompt,
    RequestWithdrawn,
    TurnEnded,
)
from tests.protocols.claude.asking import BEFORE, asks, hosting, owed
from tests.protocols.lines import INIT, line
from tests.tables import each_row

WATCH = HostHook(name="watch", point="Notification", blocking=False)
TOLD = {"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "ls"}}


def called(point: str = "PreToolUse") -> Conversation:
    """A session that waits for the verdict `h1` of a hook at this point."""
    hook = HostHook(name="h", point=point, blocking=point not in ("Notification", "PostToolUseFailure"))
    talk = hosting(hooks=[hook], hook_on_failure_supported=True)
    talk.receive(asks("h1", "hook_callback", callback_id="h", input=TOLD, tool_use_id="made-up"))
    return talk


@pytest.mark.covers("L20", "L39")
def test_hooks_are_registered_by_point_so_that_a_failure_blocks() -> None:
    hooks = (BEFORE, WATCH, attrs.evolve(BEFORE, name="again", matcher=None, blocking=False))
    talk = Conversation(CLAUDE, launch=Launch(executable=(), host_hooks=hooks))
    assert json.loads(talk.greet())["request"]["hooks"] == {
        "PreToolUse": [
            {"matcher": "Bash", "hookCallbackIds": ["before"], "timeout": 7.0, "onFailure": "block"},
            {"matcher": None, "hookCallbackIds": ["again"], "timeout": 7.0},
        ],
        "Notification": [{"matcher": None, "hookCallbackIds": ["watch"], "timeout": 65.0}],
    }


@pytest.mark.covers("L20")
@each_row(
    ("hook", "greeted", "why"),
    [
        (BEFORE, {}, "lets the tool run when a hook fails"),
        (BEFORE, {"hook_on_failure_supported": False}, "use a newer version, or blocking=False"),
        (BEFORE, {"hook_on_failure_supported": True}, None),
        (attrs.evolve(BEFORE, blocking=False), {}, None),
        (WATCH, {}, None),
        (attrs.evolve(WATCH, blocking=True), {"hook_on_failure_supported": True}, "cannot block"),
        (HostHook(name="x", point="NoSuch"), {"hook_on_failure_supported": True}, "cannot block"),
        (
            HostHook(name="x", point="SessionStart", blocking=False),
            {"hook_on_failure_supported": True},
            "never be called",
        ),
    ],
)
def test_a_session_that_could_not_keep_a_hook_is_refused(
    hook: HostHook, greeted: dict[str, Any], why: str | None
) -> None:
    memo = hosting(hooks=[hook], **greeted).memo
    assert (memo.greeted, memo.refused is None) == (why is None, why is None)
    assert (why or "") in (memo.refused or "")


def test_a_greeting_that_is_refused_is_the_end_of_a_session_with_hooks() -> None:
    talk = Conversation(CLAUDE, launch=Launch(executable=(), host_hooks=(BEFORE,)))
    talk.greet()
    body = {"subtype": "error", "request_id": "greeting", "error": "hooks are off"}
    talk.receive(line(type="control_response", response=body))
    assert (talk.memo.greeted, talk.phase) == (False, "greeting")
    assert "hooks are off" in (talk.memo.refused or "")


def test_a_hook_that_is_called_waits_for_its_verdict() -> None:
    talk = hosting(hooks=[BEFORE], hook_on_failure_supported=True)
    asked = asks("h1", "hook_callback", callback_id="before", input=TOLD, tool_use_id="toolu_1")
    assert talk.receive(asked) == [
        HookCalled(1, None, "h1", "before", "PreToolUse", TOLD, "toolu_1"),
    ]
    assert (talk.data_to_send(), talk.memo.calls) == (b"", {"h1": "before"})


def test_a_hook_that_nobody_registered_is_refused_and_told() -> None:
    talk = hosting(hooks=[BEFORE], hook_on_failure_supported=True)
    (notice,) = talk.receive(asks("h1", "hook_callback", callback_id="other", input=TOLD))
    assert isinstance(notice, Notice)
    assert notice.code == "request_refused"
    assert [answer["subtype"] for answer in owed(talk)] == ["error"]


NO = {"allow": False, "reason": "not here"}


@each_row(
    ("point", "verdict", "answer"),
    [
        ("PreToolUse", {}, {}),
        (
            "PreToolUse",
            NO,
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "not here",
                }
            },
        ),
        (
            "PreToolUse",
            {"input": {"command": "true"}, "context": "be brief"},
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "updatedInput": {"command": "true"},
                    "additionalContext": "be brief",
                }
            },
        ),
        (
            "PostToolUse",
            {**NO, "context": "be brief", "input": {}},
            {
                "decision": "block",
                "reason": "not here",
                "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "be brief"},
            },
        ),
        ("UserPromptSubmit", NO, {"decision": "block", "reason": "not here"}),
        ("Stop", {**NO, "context": "x"}, {"decision": "block", "reason": "not here"}),
        ("SubagentStop", {"allow": False}, {"decision": "block", "reason": "blocked by a hook of the host"}),
        ("Notification", {"context": "x", "input": {}}, {}),
    ],
)
def test_a_verdict_is_said_as_its_point_takes_it(
    point: str, verdict: dict[str, Any], answer: dict[str, Any]
) -> None:
    talk = called(point)
    reply = json.loads(talk.send(HookVerdict("h1", **verdict)))["response"]
    assert reply == {"subtype": "success", "request_id": "h1", "response": answer}
    assert talk.memo.calls == {}


def test_where_nothing_can_be_stopped_a_block_is_misuse_and_the_question_stays_open() -> None:
    talk = called("Notification")
    with pytest.raises(Misuse, match="nothing can be blocked at 'Notification'"):
        talk.send(HookVerdict("h1", allow=False))
    assert talk.memo.calls == {"h1": "h"}
    talk.send(HookVerdict("h1"))


def test_a_hook_that_the_cli_gave_up_is_withdrawn() -> None:
    talk = called()
    assert talk.receive(line(type="control_cancel_request", request_id="h1")) == [
        RequestWithdrawn(2, None, "h1")
    ]
    with pytest.raises(Misuse, match="answers nothing"):
        talk.send(HookVerdict("h1"))


def test_a_prompt_that_a_hook_kept_out_was_not_answered() -> None:
    talk = hosting(hooks=[HostHook(name="h", point="UserPromptSubmit")], hook_on_failure_supported=True)
    talk.send(Prompt("p1", "hi"))
    talk.receive(asks("h1", "hook_callback", callback_id="h", input={"prompt": "hi"}, tool_use_id="x"))
    talk.send(HookVerdict("h1", allow=False, reason="not today"))
    talk.receive(INIT)
    said = "UserPromptSubmit operation blocked by hook:\nnot today\n\nOriginal prompt: hi"
    result = line(type="result", subtype="success", is_error=False, num_turns=0, result=said, session_id="s")
    (end,) = [event for event in talk.receive(result) if isinstance(event, TurnEnded)]
    assert (end.ending, end.text, end.error, end.detail) == ("error", None, "not today", "prompt_blocked")
    assert end.prompts == ("p1",)
    talk.send(Prompt("p2", "again"))
    talk.receive(INIT)
    (end,) = [
        event
        for event in talk.receive(result.replace(b'"num_turns": 0', b'"num_turns": 1'))
        if isinstance(event, TurnEnded)
    ]
    assert end.ending == "completed"


@pytest.mark.parametrize(("point", "blocks"), [("PreToolUse", True), ("Notification", False)])
def test_a_hook_whose_call_is_too_large_to_be_read_blocks_where_it_can(point: str, blocks: bool) -> None:
    hook = HostHook(name="h", point=point, blocking=blocks)
    talk = Conversation(CLAUDE, launch=Launch(executable=(), host_hooks=(hook,)), max_line=4000)
    talk.receive(asks("h1", "hook_callback", callback_id="h", input={"text": "x" * 5000}))
    (answer,) = owed(talk)
    assert ("permissionDecision" in json.dumps(answer)) == blocks
    assert talk.memo.calls == {}
