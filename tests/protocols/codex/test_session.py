from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostTool, Launch
from proctor.protocols.errors import Misuse, UnknownApproval
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Decision,
    EndSession,
    HookVerdict,
    Interrupt,
    LimitReached,
    Misplaced,
    Notice,
    Prompt,
    RequestWithdrawn,
    SetModel,
    SetPermissionMode,
    Started,
    Steer,
    Steered,
    StopTask,
    Text,
    TextDelta,
    ToolCall,
    ToolRequested,
    ToolResult,
    ToolReturn,
    TurnEnded,
    TurnStarted,
    Unrecognized,
)
from tests.protocols.codex.lines import (
    APPROVAL,
    CHILD,
    HELLO,
    OPENED,
    OURS,
    SHELL,
    ended,
    item,
    question,
    said,
    started,
)
from tests.tables import each_row


class Session:
    """A conversation whose thread is open, spoken to in whole messages."""

    def __init__(self, *, opened: bool = True, **launch: Any) -> None:
        self.talk = Conversation(CODEX, launch=Launch(executable=(), **launch))
        self.talk.greet()
        if opened:
            self.hear(HELLO, OPENED)
            self.owed()

    def hear(self, *messages: dict[str, Any]) -> list[AnyEvent]:
        return self.talk.receive(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def owed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.talk.data_to_send().splitlines()]

    def say(self, request: Any) -> dict[str, Any]:
        data = self.talk.send(request)
        told: dict[str, Any] = json.loads(data) if data else {}
        return told

    def begin(self, turn: str = "T1", prompt: str = "p1") -> list[AnyEvent]:
        """A prompt, the reply to it, and the start of its turn."""
        asked = self.say(Prompt(prompt, "go"))
        return self.hear({"id": asked["id"], "result": {"turn": {"id": turn}}}, started(turn))


def kinds(events: list[AnyEvent]) -> list[type[AnyEvent]]:
    return [type(event) for event in events]


# -- the greeting


def test_the_greeting_has_three_steps() -> None:
    session = Session(opened=False)
    assert session.hear(HELLO) == []
    assert [each["method"] for each in session.owed()] == ["initialized", "thread/start"]
    assert session.talk.phase == "greeting"
    assert kinds(session.hear(OPENED)) == [Started, Answered]
    assert (session.talk.phase, session.talk.memo.session_id) == ("idle", OURS)


def test_what_is_asked_before_the_thread_is_there_waits_for_it() -> None:
    session = Session(opened=False)
    assert session.talk.send(Prompt("p1", "go")) == b""
    assert session.talk.send(SetModel("m1", "other")) == b""
    assert session.talk.send(Interrupt("i1")) == b""
    session.hear(HELLO)
    session.owed()
    session.hear(OPENED)
    told = session.owed()
    assert [each["method"] for each in told] == ["turn/start", "thread/settings/update"]
    session.hear({"id": told[0]["id"], "result": {"turn": {"id": "T1"}}}, started("T1"))
    [interrupt] = session.owed()
    assert interrupt["params"] == {"threadId": OURS, "turnId": "T1"}


@pytest.mark.parametrize("step", [{"id": 1}, {"id": 2}])
def test_a_thread_that_is_not_given_refuses_the_session(step: dict[str, Any]) -> None:
    session = Session(opened=False, resume="unknown")
    if step["id"] == 2:
        session.hear(HELLO)
    refusal = {**step, "error": {"code": -32600, "message": "no rollout found"}}
    assert session.hear(refusal) == [Answered(session.talk.memo.frame, None, "greeting", "no rollout found")]
    assert (session.talk.memo.refused, session.talk.phase) == ("no rollout found", "greeting")


def test_a_thread_without_an_id_is_no_thread() -> None:
    session = Session(opened=False)
    session.hear(HELLO, {"id": 2, "result": {}})
    assert session.talk.memo.refused == "the thread that was opened has no id"


# -- turns


def test_a_turn_that_starts_before_the_reply_to_its_prompt_is_the_prompts() -> None:
    session = Session()
    asked = session.say(Prompt("p1", "go"))
    [began] = session.hear(started("T1"))
    assert isinstance(began, TurnStarted)
    assert (began.prompts, began.solicited) == (("p1",), True)
    assert session.hear({"id": asked["id"], "result": {"turn": {"id": "T1"}}}) == []
    [end] = session.hear(ended())
    assert isinstance(end, TurnEnded)
    assert end.prompts == ("p1",)


def test_a_turn_that_nobody_asked_for_is_unsolicited() -> None:
    session = Session()
    [began, end] = session.hear(started("T9"), ended("T9"))
    assert isinstance(began, TurnStarted)
    assert isinstance(end, TurnEnded)
    assert (began.solicited, end.solicited, end.prompts) == (False, False, ())


def test_a_turn_whose_beginning_was_lost_begins_before_it_ends() -> None:
    session = Session()
    asked = session.say(Prompt("p1", "go"))
    events = session.hear({"id": asked["id"], "result": {"turn": {"id": "T1"}}}, ended())
    assert kinds(events) == [TurnStarted, TurnEnded]
    assert session.talk.phase == "idle"


def test_a_turn_whose_end_was_lost_ends_when_the_next_begins() -> None:
    session = Session()
    session.begin("T1", "p1")
    events = session.begin("T2", "p2")
    assert kinds(events) == [TurnEnded, TurnStarted]
    assert events[0].turn == "t1"
    assert kinds(session.hear(ended("T1"))) == [Misplaced]
    assert kinds(session.hear(ended("T2"))) == [TurnEnded]


@pytest.mark.parametrize(
    ("data", "ending"),
    [({}, "invalid_request"), ({"input_error_code": "input_too_large"}, "prompt_too_long")],
)
def test_a_prompt_that_is_refused_has_a_turn_that_says_so(data: dict[str, str], ending: str) -> None:
    session = Session()
    asked = session.say(Prompt("p1", "go"))
    refusal = {"id": asked["id"], "error": {"code": -32602, "message": "too much", "data": data}}
    [began, end] = session.hear(refusal)
    assert isinstance(began, TurnStarted)
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.error, end.prompts) == (ending, "too much", ("p1",))
    assert (session.talk.phase, [*session.talk.memo.prompts]) == ("idle", [])


def test_a_prompt_that_came_too_late_for_the_turn_it_was_given_to_is_told_so() -> None:
    session = Session()
    session.begin()
    asked = session.say(Prompt("p2", "more"))
    events = session.hear(ended(), {"id": asked["id"], "result": {"turn": {"id": "T1"}}})
    late = events[-1]
    assert kinds(events) == [TurnEnded, TurnStarted, TurnEnded]
    assert isinstance(late, TurnEnded)
    assert (late.ending, late.prompts) == ("error", ("p2",))
    assert session.talk.phase == "idle"


def test_a_prompt_in_mid_turn_is_steered_into_it_and_answered_with_it() -> None:
    session = Session()
    session.begin()
    asked = session.say(Prompt("p2", "more"))
    [taken] = session.hear({"id": asked["id"], "result": {"turn": {"id": "T1"}}})
    assert isinstance(taken, Steered)
    assert taken.request == "p2"
    [end] = session.hear(ended())
    assert isinstance(end, TurnEnded)
    assert end.prompts == ("p1", "p2")


def test_an_answer_is_the_last_message_of_our_own_thread() -> None:
    session = Session()
    session.begin()
    events = session.hear(
        item("agentMessage", id="m1", text="let me look"),
        item("agentMessage", id="m2", text="found it"),
        item("agentMessage", CHILD, id="m3", text="not for you"),
        ended(),
    )
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert end.text == "found it"


@each_row(
    ("info", "ending", "status"),
    [
        ("contextWindowExceeded", "prompt_too_long", None),
        ("sessionBudgetExceeded", "budget", None),
        ("serverOverloaded", "overloaded", None),
        ("unauthorized", "authentication", None),
        ("modelNotFound", "model_not_found", None),
        ("cyberPolicy", "model_refused", None),
        ("badRequest", "invalid_request", None),
        ("internalServerError", "api_error", None),
        ("sandboxError", "error", None),
        ("somethingNew", "error", None),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, "authentication", 403),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "overloaded", 429),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "api_error", None),
        ({"activeTurnNotSteerable": {"turnKind": "review"}}, "error", None),
        (17, "error", None),
        (None, "error", None),
    ],
)
def test_the_word_for_a_failure_decides_and_then_its_status(
    info: Any, ending: str, status: int | None
) -> None:
    session = Session()
    session.begin()
    failure = {"message": "why", "codexErrorInfo": info}
    end = session.hear(ended(status="failed", error=failure))[-1]
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.status, end.error) == (ending, status, "why")


def test_an_interrupted_turn_owes_the_end_of_its_terminals() -> None:
    session = Session()
    session.begin()
    asked = session.say(Interrupt("i1"))
    assert asked["params"] == {"threadId": OURS, "turnId": "T1"}
    events = session.hear({"id": asked["id"], "result": {}}, ended(status="interrupted"))
    assert kinds(events) == [Answered, TurnEnded]
    [clean] = session.owed()
    assert (clean["method"], clean["params"]) == ("thread/backgroundTerminals/clean", {"threadId": OURS})
    refused = {"id": clean["id"], "error": {"code": -32600, "message": "requires experimentalApi"}}
    assert session.hear(refused) == []
    [late] = session.hear(item("commandExecution", id="call-1", command="ls", status="failed"))[1:]
    assert isinstance(late, ToolResult)
    assert late.turn == "t1"


def test_an_interrupt_with_no_turn_is_the_clis_to_refuse() -> None:
    session = Session()
    asked = session.say(Interrupt("i1"))
    [refused] = session.hear({"id": asked["id"], "error": {"code": -32600, "message": "no active turn"}})
    assert refused == Answered(session.talk.memo.frame, None, "i1", "no active turn")


def test_what_waits_for_a_turn_that_never_comes_is_refused() -> None:
    session = Session()
    prompt = session.say(Prompt("p1", "go"))
    assert session.say(Steer("s1", "more")) == {}
    events = session.hear({"id": prompt["id"], "error": {"code": -32602, "message": "no"}})
    assert kinds(events) == [TurnStarted, TurnEnded, Answered]
    assert events[-1] == Answered(session.talk.memo.frame, None, "s1", "no turn is running")


def test_steering_that_is_refused_is_an_answer() -> None:
    session = Session()
    session.begin()
    asked = session.say(Steer("s1", "more"))
    assert asked["params"]["expectedTurnId"] == "T1"
    [refused] = session.hear({"id": asked["id"], "error": {"code": -32600, "message": "not steerable"}})
    assert refused == Answered(session.talk.memo.frame, "t1", "s1", "not steerable")


# -- settings and what cannot be told


def test_another_model_is_the_sessions_when_the_cli_agreed() -> None:
    session = Session()
    asked = session.say(SetModel("m1", "other"))
    assert asked["params"] == {"threadId": OURS, "model": "other"}
    assert session.talk.memo.model == "m"
    session.hear({"id": asked["id"], "result": {}})
    assert session.talk.memo.model == "other"


def test_a_policy_and_a_task_are_told_by_their_own_methods() -> None:
    session = Session()
    assert session.say(SetPermissionMode("a", "never"))["params"]["approvalPolicy"] == "never"
    told = session.say(StopTask("b", "4711"))
    assert (told["method"], told["params"]["processId"]) == ("thread/backgroundTerminals/terminate", "4711")


@pytest.mark.parametrize("request_", [EndSession("e"), HookVerdict("h")])
def test_what_codex_has_no_way_to_be_told_is_misuse(request_: Any) -> None:
    session = Session()
    session.talk.memo.calls["h"] = "hook"
    with pytest.raises(Misuse):
        session.talk.send(request_)


@pytest.mark.parametrize("request_", [Prompt("p", "x", ({"type": "image"},)), Interrupt("i")])
def test_a_one_shot_run_takes_text_and_nothing_else(request_: Any) -> None:
    talk = Conversation(CODEX_EXEC, mode="oneshot")
    talk.greet()
    with pytest.raises(Misuse):
        talk.send(request_)
    assert talk.send(Prompt("p", "text \ud800")) == b"text ?"


# -- questions


@each_row(
    ("method", "params", "tool", "yes", "no"),
    [
        (APPROVAL, {"command": "ls"}, "shell", {"decision": "accept"}, {"decision": "decline"}),
        (
            "item/fileChange/requestApproval",
            {},
            "apply_patch",
            {"decision": "accept"},
            {"decision": "decline"},
        ),
        (
            "item/permissions/requestApproval",
            {"permissions": {"network": {"enabled": True}, "fileSystem": None}},
            "request_permissions",
            {"permissions": {"network": {"enabled": True}}},
            {"permissions": {}},
        ),
        (
            "mcpServer/elicitation/request",
            {"serverName": "s", "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_name": "t"}},
            "mcp__s__t",
            {"action": "accept", "content": {}},
            {"action": "decline"},
        ),
        (
            "mcpServer/elicitation/request",
            {"serverName": "s", "_meta": None, "message": "Your name?"},
            "mcp__s__elicitation",
            {"action": "accept", "content": {}},
            {"action": "decline"},
        ),
    ],
)
@each_row("allow", [True, False])
def test_each_kind_of_question_is_answered_in_its_own_words(
    method: str, params: dict[str, Any], tool: str, yes: Any, no: Any, allow: bool
) -> None:
    session = Session()
    session.begin()
    [asked] = session.hear(question("a-b", method, **params))
    assert isinstance(asked, ApprovalRequested)
    assert asked.tool == tool
    assert session.say(Decision(asked.id, allow)) == {"id": "a-b", "result": yes if allow else no}
    assert session.hear(said("serverRequest/resolved", requestId="a-b")) == []


def test_a_form_is_answered_with_what_the_decision_brings() -> None:
    session = Session()
    [asked] = session.hear(question(0, "mcpServer/elicitation/request", serverName="s"))
    assert isinstance(asked, ApprovalRequested)
    told = session.say(Decision(asked.id, True, input={"name": "me"}))
    assert told["result"] == {"action": "accept", "content": {"name": "me"}}


CHOICE = {
    "id": "q1",
    "header": "Colour",
    "question": "Which colour?",
    "options": [{"label": "red"}, {"label": "blue"}],
}


@pytest.mark.parametrize(
    ("allow", "given", "answers"),
    [
        (True, {"answers": {"Which colour?": "blue"}}, {"q1": {"answers": ["blue"]}}),
        (True, None, {}),
        (True, {"answers": 3}, {}),
        (False, {"answers": {"Which colour?": "blue"}}, {}),
    ],
)
def test_a_question_to_the_user_is_answered_with_what_was_chosen(
    allow: bool, given: dict[str, Any] | None, answers: dict[str, Any]
) -> None:
    session = Session()
    session.begin()
    [asked] = session.hear(question(0, "item/tool/requestUserInput", questions=[CHOICE]))
    assert isinstance(asked, ApprovalRequested)
    assert (asked.tool, asked.input) == ("request_user_input", {"questions": [CHOICE]})
    told = session.say(Decision(asked.id, allow, input=given))
    assert told["result"] == {"answers": answers}


def test_a_decision_that_changes_the_input_is_written_as_a_refusal() -> None:
    session = Session()
    session.begin()
    [asked] = session.hear(question(command="rm -rf x"))
    assert isinstance(asked, ApprovalRequested)
    told = session.say(Decision(asked.id, True, input={"command": "ls"}))
    assert told["result"] == {"decision": "decline"}
    end = session.hear(ended())[-1]
    assert isinstance(end, TurnEnded)
    assert end.denied_tools == ("shell",)


def test_the_servers_ids_collide_with_ours_and_with_those_of_another_incarnation() -> None:
    session = Session()
    session.begin()
    [asked] = session.hear(question(3))
    assert isinstance(asked, ApprovalRequested)
    assert asked.id == "tq3"
    [reply] = session.hear({"id": 3, "result": {}})
    assert isinstance(reply, Misplaced)
    assert session.talk.memo.approvals == {"tq3": {}}


def test_a_question_that_closed_without_us_is_withdrawn_and_cannot_be_answered() -> None:
    session = Session()
    session.begin()
    session.hear(question(0))
    events = session.hear(said("serverRequest/resolved", requestId=0))
    assert events == [ApprovalWithdrawn(session.talk.memo.frame, "t1", "tq0")]
    with pytest.raises(UnknownApproval):
        session.talk.send(Decision("tq0", True))


@pytest.mark.parametrize(
    "method",
    [
        "execCommandApproval",
        "attestation/generate",
        "currentTime/read",
        "new/thing",
    ],
)
def test_a_request_that_no_host_serves_is_refused_at_once(method: str) -> None:
    session = Session()
    session.begin()
    [told] = session.hear(question(7, method))
    [reply] = session.owed()
    assert isinstance(told, Notice)
    assert told.code == "request_refused"
    assert (reply["id"], reply["error"]["code"]) == (7, -32601)


def test_a_tool_of_the_host_is_asked_for_and_answered() -> None:
    session = Session(host_tools=(HostTool(name="weather", description="", schema={}),))
    session.begin()
    [asked] = session.hear(question(0, "item/tool/call", tool="weather", arguments={"a": 1}, callId="c1"))
    assert isinstance(asked, ToolRequested)
    assert (asked.tool, asked.input, asked.tool_call) == ("weather", {"a": 1}, "c1")
    told = session.say(ToolReturn(asked.id, "snow", is_error=True))
    assert told["result"] == {"contentItems": [{"type": "inputText", "text": "snow"}], "success": False}


def test_a_tool_that_is_not_the_hosts_is_refused_at_once() -> None:
    session = Session()
    session.begin()
    events = session.hear(question(0, "item/tool/call", tool="weather", arguments={}))
    assert kinds(events) == [Notice]
    assert "no tool 'weather'" in session.owed()[0]["error"]["message"]


def test_a_tool_of_the_host_that_is_not_wanted_any_more_is_withdrawn() -> None:
    session = Session(host_tools=(HostTool(name="weather", description="", schema={}),))
    session.begin()
    session.hear(question(0, "item/tool/call", tool="weather"))
    events = session.hear(ended(status="interrupted"))
    assert kinds(events) == [RequestWithdrawn, TurnEnded]
    assert session.talk.memo.calls == {}


# -- sub-agents


def spawned(session: Session) -> list[AnyEvent]:
    """A call that makes a sub-agent, whose thread is known when the call is over."""
    call: dict[str, Any] = {"id": "call-9", "tool": "spawnAgent", "prompt": "look"}
    return session.hear(
        item("collabAgentToolCall", done=False, **call, receiverThreadIds=[], status="inProgress"),
        item("collabAgentToolCall", **call, receiverThreadIds=[CHILD], status="completed"),
    )


def test_what_a_sub_agent_does_names_the_call_that_made_it() -> None:
    session = Session()
    session.begin()
    call, result = spawned(session)
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.name, call.input) == ("spawnAgent", {"prompt": "look"})
    events = session.hear(
        said("item/agentMessage/delta", threadId=CHILD, itemId="m1", delta="see"),
        item("agentMessage", CHILD, id="m1", text="seen"),
        item("commandExecution", CHILD, done=False, **SHELL),
    )
    assert kinds(events) == [TextDelta, Text, ToolCall]
    assert {getattr(event, "parent", None) for event in events} == {"call-9"}
    assert {event.turn for event in events} == {"t1"}


def test_the_end_of_a_sub_agents_turn_is_not_the_end_of_ours() -> None:
    session = Session()
    session.begin()
    spawned(session)
    events = session.hear(
        started("C1", CHILD), item("agentMessage", CHILD, id="m", text="x"), ended("C1", thread=CHILD)
    )
    assert kinds(events) == [Text, Notice]
    assert session.talk.phase == "working"
    end = session.hear(ended())[-1]
    assert isinstance(end, TurnEnded)
    assert end.text is None


def test_a_sub_agents_question_is_asked_too() -> None:
    session = Session()
    session.begin()
    [asked] = session.hear(question(0, command="ls", threadId=CHILD))
    assert isinstance(asked, ApprovalRequested)


# -- limits, and what is not modelled


def test_a_limit_says_when_the_window_that_is_used_up_resets() -> None:
    session = Session()
    windows = {
        "limitId": "codex",
        "primary": {"usedPercent": 100, "resetsAt": 1000},
        "secondary": {"usedPercent": 95, "resetsAt": 9000},
        "rateLimitReachedType": "rate_limit_reached",
    }
    session.begin()
    [near] = session.hear(said("account/rateLimits/updated", rateLimits=windows))
    assert isinstance(near, Notice)
    assert near.code == "limit_near"
    assert session.hear(said("account/rateLimits/updated", rateLimits=windows)) == []
    failure = {"message": "no more", "codexErrorInfo": "usageLimitExceeded"}
    events = session.hear(
        said("error", error=failure, willRetry=False, turnId="T1"), ended(status="failed", error=failure)
    )
    assert kinds(events) == [LimitReached, Notice, TurnEnded]
    assert events[0] == LimitReached(events[0].frame, "t1", "rate_limit_reached", 1000)


def test_a_new_kind_of_item_costs_nothing_beside_it() -> None:
    session = Session()
    session.begin()
    [odd] = session.hear(item("hologram", id="h"))
    assert odd == Unrecognized(session.talk.memo.frame, "t1", "item.hologram")


def test_a_field_that_changed_its_shape_costs_only_itself() -> None:
    session = Session()
    session.begin()
    events = session.hear(item("agentMessage", id="m", text="still here", summary={"new": 1}))
    assert kinds(events) == [Unrecognized, Text]


def test_a_new_notification_is_unrecognized_and_a_new_request_is_refused_as_well() -> None:
    session = Session()
    assert kinds(session.hear(said("thread/hologram"))) == [Unrecognized]
    assert session.owed() == []


def test_what_is_still_streamed_when_the_turn_ends_was_never_said() -> None:
    session = Session()
    session.begin()
    events = session.hear(
        said("item/agentMessage/delta", turnId="T1", itemId="m1", delta="half"), ended(status="interrupted")
    )
    assert kinds(events) == [TextDelta, Notice, TurnEnded]
    notice = events[1]
    assert isinstance(notice, Notice)
    assert (notice.code, notice.data["items"]) == ("attempt_void", ["m1"])
