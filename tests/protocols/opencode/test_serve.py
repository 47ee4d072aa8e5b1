from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from tests.protocols.opencode.server import (
    BUSY,
    IDLE,
    SESSION,
    answer,
    asked,
    event,
    greeted,
    line,
    prompted,
    replayed,
    reply,
    sessions,
    user,
)
from tests.tables import each_row

ERRORS = "serve_abort_tool_errors"
SESSIONS = sessions(ERRORS)


def ends(events: list[v.AnyEvent]) -> list[v.TurnEnded]:
    return [e for e in events if isinstance(e, v.TurnEnded)]


def kinds(events: list[v.AnyEvent]) -> list[str]:
    return [type(e).__name__ for e in events]


# -- recordings


def test_a_recorded_answer_is_one_turn_with_its_text_tokens_and_model() -> None:
    _, events = replayed("serve_text", sessions("serve_text")[0])
    [end] = ends(events)
    assert (end.ending, end.text, end.model, end.detail) == (
        "completed",
        "Hello from the fake model.",
        "fake/m1",
        "stop",
    )
    assert end.usage == v.Usage(100, 20, 0, 0)
    assert (end.prompts, end.model_turns, end.cost_usd, end.total_cost_usd) == (("p0",), 1, 0.0, 0.0)
    assert [e.text for e in events if isinstance(e, v.TextDelta)] == ["Hello fro", "m the fak", "e model."]
    assert kinds(events)[:3] == ["Started", "Answered", "TurnStarted"]


# the session of the recording, by number: how its turns ended, and what the CLI called it
ENDINGS = {
    0: [("interrupted", "MessageAbortedError", None)],
    1: [("authentication", "APIError", 401)],
    2: [("completed", "stop", None)],
    3: [("interrupted", None, None)],
    6: [],
}


@pytest.mark.parametrize("number", ENDINGS)
def test_a_recorded_session_ends_its_turns_as_the_table_says(number: int) -> None:
    talk, events = replayed(ERRORS, SESSIONS[number])
    assert [(end.ending, end.detail, end.status) for end in ends(events)] == ENDINGS[number]
    assert (talk.unrecognized, talk.misplaced, talk.garbled) == (0, 0, 0)


def test_the_events_are_the_same_at_every_cut() -> None:
    whole = replayed(ERRORS, SESSIONS[0])[1]
    assert [replayed(ERRORS, SESSIONS[0], cut=size)[1] for size in (1000, 4097)] == [whole, whole]


def test_a_recorded_tool_is_a_call_once_and_a_result_also_after_the_abort() -> None:
    _, events = replayed(ERRORS, SESSIONS[0])
    calls = [e for e in events if isinstance(e, v.ToolCall)]
    results = [e for e in events if isinstance(e, v.ToolResult)]
    assert [call.name for call in calls] == ["bash"]
    assert calls[0].input["command"].startswith("sleep 504")
    assert [result.id for result in results] == [calls[0].id]


def test_a_recorded_retry_says_when_the_next_attempt_is() -> None:
    _, events = replayed(ERRORS, SESSIONS[3])
    [retry] = [e for e in events if isinstance(e, v.Retrying)]
    assert retry.delay == pytest.approx(3600, abs=2)
    assert (retry.attempt, retry.error) == (1, "Rate limit reached. Please try again in 1s.")


def test_a_recorded_failure_that_heals_is_told_as_retries() -> None:
    _, events = replayed(ERRORS, SESSIONS[2])
    retries = [e for e in events if isinstance(e, v.Retrying)]
    assert [retry.attempt for retry in retries] == [1]
    assert all(0 < retry.delay < 10 for retry in retries)
    assert ends(events)[0].text == "recovered"


@pytest.mark.covers("L40")
def test_a_prompt_recorded_in_mid_turn_is_taken_into_the_running_turn() -> None:
    _, events = replayed(ERRORS, SESSIONS[5])
    first = ends(events)[0]
    assert (first.prompts, first.text) == (("p0", "p1"), "second")
    assert [e.request for e in events if isinstance(e, v.Steered)] == ["p1"]


def test_a_recorded_loop_of_broken_answers_is_aborted_after_three() -> None:
    talk, events = replayed(ERRORS, SESSIONS[4])
    aborts = [one for one in asked(talk.data_to_send()) if one["path"].endswith("/abort")]
    assert len(aborts) == 1
    [end] = ends(events)
    assert end.ending == "api_error"
    assert end.error == "the model's API ended 3 answers in a row without a finish reason"


# -- how a session is opened


def test_a_new_session_is_asked_for_in_its_directory_with_the_rules_of_its_agent() -> None:
    talk = greeted(allowed_tools=("bash",), disallowed_tools=("webfetch",), model="fake/m1")
    assert (talk.phase, talk.memo.session_id, talk.memo.greeted) == ("idle", SESSION, True)
    [hello] = asked(OPENCODE_SERVE.greet(talk.memo))
    assert (hello["verb"], hello["path"], hello["query"]) == ("POST", "/session", {"directory": "/w"})
    assert [(rule["permission"], rule["action"]) for rule in hello["body"]["permission"]] == [
        ("proctor-*", "deny"),  # the MCP servers of other agents
        ("bash", "allow"),
        ("webfetch", "deny"),
    ]


@pytest.mark.parametrize(
    ("fork", "verb", "path"),
    [(False, "PATCH", "/session/ses_9"), (True, "POST", "/session/ses_9/fork")],
)
def test_a_session_is_gone_on_with_or_copied(fork: bool, verb: str, path: str) -> None:
    talk = greeted(resume="ses_9", fork=fork)
    [hello] = asked(OPENCODE_SERVE.greet(talk.memo))
    assert (hello["verb"], hello["path"]) == (verb, path)


def test_a_session_the_server_does_not_know_is_refused_with_its_words() -> None:
    talk = Conversation(OPENCODE_SERVE, launch=Launch(executable=(), resume="ses_nope"))
    [hello] = asked(talk.greet())
    fault = {"name": "NotFoundError", "data": {"message": "Session not found: ses_nope"}}
    assert talk.receive(reply(hello["key"], 404, fault)) == []
    assert (talk.memo.refused, talk.memo.greeted) == ("Session not found: ses_nope", False)


@pytest.mark.covers("R019")
def test_what_a_session_cannot_honour_is_named() -> None:
    wanted = Launch(executable=(), max_turns=3, sandbox="read-only", fork=True, model="m1", json_schema="{}")
    assert set(OPENCODE_SERVE.launch(wanted).ignored) == {"max_turns", "sandbox", "fork", "model"}


# -- what it is told


def test_a_prompt_carries_the_settings_of_its_agent() -> None:
    talk = greeted(
        model="fake/m1",
        append_system_prompt="Be brief.",
        permission_mode="plan",
        effort="high",
        json_schema='{"a":1}',
    )
    [sent] = asked(talk.send(v.Prompt("p1", "hi")))
    assert sent["path"] == f"/session/{SESSION}/prompt_async"
    assert sent["body"] == {
        "parts": [{"type": "text", "text": "hi"}],
        "model": {"providerID": "fake", "modelID": "m1"},
        "agent": "plan",
        "system": "Be brief.",
        "variant": "high",
        "format": {"type": "json_schema", "schema": {"a": 1}},
    }


def test_a_prompt_the_server_refuses_is_a_turn_of_its_own() -> None:
    talk = greeted()
    [sent] = asked(talk.send(v.Prompt("p1", "hi")))
    fault = {"name": "BadRequest", "data": {"message": "Missing key"}}
    [end] = ends(talk.receive(reply(sent["key"], 400, fault)))
    assert (end.ending, end.error, end.prompts, talk.phase) == (
        "invalid_request",
        "Missing key",
        ("p1",),
        "idle",
    )


def test_a_model_is_taken_from_the_next_prompt_on() -> None:
    talk = greeted(model="fake/m1")
    [sent] = asked(talk.send(v.SetModel("r1", "other/m2")))
    assert talk.receive(reply(sent["key"], body={"id": SESSION})) == [v.Answered(1, None, "r1")]
    [prompt] = asked(talk.send(v.Prompt("p1", "hi")))
    assert prompt["body"]["model"] == {"providerID": "other", "modelID": "m2"}
    with pytest.raises(Misuse, match="names no provider: write PROVIDER/MODEL"):
        talk.send(v.SetModel("r2", "m3"))


def test_an_interrupt_is_answered_and_the_turn_ends_once_though_the_server_rests_twice() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY)
    [sent] = asked(talk.send(v.Interrupt("i1")))
    aborted = event("session.error", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}})
    events = talk.receive(reply(sent["key"], body=True) + aborted + IDLE)
    assert [e.request for e in events if isinstance(e, v.Answered)] == ["i1"]
    assert [end.ending for end in ends(events)] == ["interrupted"]
    [again] = asked(talk.send(v.Prompt("p2", "on")))
    second = talk.receive(reply(again["key"], 204) + user("u2") + BUSY + IDLE)
    assert ends(second) == []
    [end] = ends(talk.receive(answer("a2", "done") + IDLE))
    assert (end.text, end.prompts) == ("done", ("p2",))


@pytest.mark.covers("L40")
def test_a_steer_is_taken_into_the_turn_when_its_message_appears() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY)
    [sent] = asked(talk.send(v.Steer("s1", "faster")))
    assert sent["body"]["parts"] == [{"type": "text", "text": "faster"}]
    assert talk.receive(reply(sent["key"], 204)) == []
    assert [e.request for e in talk.receive(user("u2")) if isinstance(e, v.Steered)] == ["s1"]


# -- permissions

ASKED = event(
    "permission.asked",
    id="per_1",
    permission="bash",
    patterns=["ls *"],
    metadata={"command": "ls /"},
    always=["ls *"],
    tool={"messageID": "m", "callID": "call_1"},
)


@pytest.mark.parametrize(
    ("allow", "body"),
    [(True, {"reply": "once"}), (False, {"reply": "reject", "message": "not here"})],
)
def test_a_question_is_asked_and_answered_for_this_once(allow: bool, body: dict[str, str]) -> None:
    talk = prompted("p1")
    [question] = talk.receive(user("u1") + BUSY + ASKED)[-1:]
    assert isinstance(question, v.ApprovalRequested)
    assert (question.id, question.tool, question.tool_call, question.description) == (
        "per_1",
        "bash",
        "call_1",
        "ls *",
    )
    assert question.input == {"patterns": ["ls *"], "command": "ls /"}
    [sent] = asked(talk.send(v.Decision("per_1", allow, "" if allow else "not here")))
    assert (sent["path"], sent["body"]) == ("/permission/per_1/reply", body)
    assert talk.receive(reply(sent["key"], body=True) + event("permission.replied", requestID="per_1")) == []


def test_a_question_that_another_answered_is_withdrawn_and_a_late_answer_told() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY + ASKED)
    [sent] = asked(talk.send(v.Decision("per_1", True)))
    gone = {"name": "PermissionNotFoundError", "data": {"message": "no such request"}}
    [late] = talk.receive(reply(sent["key"], 404, gone))
    assert isinstance(late, v.Notice)
    assert late.code == "approval_late"
    talk.receive(ASKED)
    assert talk.receive(event("permission.replied", requestID="per_1", reply="once"))[
        0
    ] == v.ApprovalWithdrawn(7, "t1", "per_1")


def test_a_turn_that_ends_with_a_denied_tool_says_which() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY + ASKED)
    talk.send(v.Decision("per_1", False, "no"))
    [end] = ends(talk.receive(answer("a1", "I will look", "tool-calls") + IDLE))
    assert (end.ending, end.denied_tools) == ("error", ("bash",))
    assert end.error == "the turn ended when a tool was denied: bash"


def test_a_question_of_a_session_that_a_tool_opened_is_ours_and_a_stranger_s_is_not() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY)
    talk.receive(event("session.created", "ses_child", info={"id": "ses_child", "parentID": SESSION}))
    stranger = ASKED.replace(SESSION.encode(), b"ses_2").replace(b"per_1", b"per_2")
    child = ASKED.replace(SESSION.encode(), b"ses_child")
    events = talk.receive(stranger + child)
    assert [e.id for e in events if isinstance(e, v.ApprovalRequested)] == ["per_1"]


def test_a_question_to_the_user_is_declined() -> None:
    talk = prompted("p1")
    [notice] = talk.receive(user("u1") + BUSY + event("question.asked", id="que_1", questions=[]))[-1:]
    assert isinstance(notice, v.Notice)
    assert notice.code == "question_declined"
    [sent] = asked(talk.data_to_send())
    assert (sent["verb"], sent["path"]) == ("POST", "/question/que_1/reject")


COLOUR = {"question": "Which colour?", "header": "Colour", "options": [{"label": "red"}, {"label": "blue"}]}


@pytest.mark.parametrize(
    ("allow", "answers", "path", "body"),
    [
        (True, {"Which colour?": "blue"}, "/question/que_1/reply", {"answers": [["blue"]]}),
        (True, {}, "/question/que_1/reject", None),
        (False, {"Which colour?": "blue"}, "/question/que_1/reject", None),
    ],
)
def test_a_question_to_the_user_is_answered_with_what_was_chosen(
    allow: bool, answers: dict[str, str], path: str, body: Any
) -> None:
    talk = prompted("p1")
    asking = event("question.asked", id="que_1", questions=[COLOUR])
    [question] = talk.receive(user("u1") + BUSY + asking)[-1:]
    assert isinstance(question, v.ApprovalRequested)
    assert (question.tool, question.input) == ("question", {"questions": [COLOUR]})
    [sent] = asked(talk.send(v.Decision("que_1", allow, input={**question.input, "answers": answers})))
    assert (sent["verb"], sent["path"], sent.get("body")) == ("POST", path, body)
    assert talk.receive(event("question.replied", requestID="que_1")) == []


def test_a_question_to_the_user_that_another_answered_is_withdrawn() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY + event("question.asked", id="que_1", questions=[COLOUR]))
    [over] = talk.receive(event("question.replied", requestID="que_1"))
    assert isinstance(over, v.ApprovalWithdrawn)
    assert over.id == "que_1"


# -- what may be missed, and what is odd


def test_after_a_gap_an_ended_turn_ends_with_the_words_that_were_missed() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY)
    talk.receive(line(type="http.resubscribed"))
    [states] = asked(talk.data_to_send())
    talk.receive(reply(states["key"], body={}))
    [messages] = asked(talk.data_to_send())
    assert (states["path"], messages["path"]) == ("/session/status", f"/session/{SESSION}/message")
    whole: list[Any] = [
        {"info": {"id": "u1", "role": "user"}, "parts": []},
        {
            "info": {"id": "a1", "role": "assistant", "modelID": "m1", "providerID": "fake"},
            "parts": [{"type": "text", "text": "missed"}, {"type": "step-finish", "reason": "stop"}],
        },
    ]
    events = talk.receive(reply(messages["key"], body=whole))
    [end] = ends(events)
    assert (end.ending, end.text, end.prompts) == ("completed", "missed", ("p1",))
    assert [e.text for e in events if isinstance(e, v.Text)] == ["missed"]


def test_after_a_gap_a_turn_that_goes_on_is_left_alone() -> None:
    talk = prompted("p1")
    talk.receive(user("u1") + BUSY + line(type="http.resubscribed"))
    [states] = asked(talk.data_to_send())
    assert talk.receive(reply(states["key"], body={SESSION: {"type": "busy"}})) == []
    assert (talk.data_to_send(), talk.phase) == (b"", "working")


def test_a_model_that_is_not_there_is_told_by_the_error_s_words() -> None:
    talk = prompted("p1")
    fault = {"name": "UnknownError", "data": {"message": "Model not found: fake/zzz."}}
    [end] = ends(talk.receive(user("u1") + BUSY + event("session.error", error=fault) + IDLE))
    assert (end.ending, end.error) == ("model_not_found", "Model not found: fake/zzz.")


@pytest.mark.parametrize(
    ("text", "ending"), [("slow down", "overloaded"), ("You exceeded your current quota.", "limit")]
)
def test_a_status_of_too_many_requests_is_a_usage_limit_where_its_words_name_a_quota(
    text: str, ending: v.Ending
) -> None:
    talk = prompted("p1")
    fault = {"name": "APIError", "data": {"message": text, "statusCode": 429}}
    [end] = ends(talk.receive(user("u1") + BUSY + event("session.error", error=fault) + IDLE))
    assert (end.ending, end.error) == (ending, text)


def test_an_error_outside_of_a_turn_is_a_notice() -> None:
    talk = greeted()
    [notice] = talk.receive(
        event("session.error", error={"name": "UnknownError", "data": {"message": "odd"}})
    )
    assert isinstance(notice, v.Notice)
    assert (notice.code, notice.text) == ("session_error", "odd")


@each_row(
    ("data", "kind"),
    [
        (b"no json\n", "Garbled"),
        (b"[1]\n", "Garbled"),
        (line(type="hologram.updated"), "Unrecognized"),
        (line(), "Unrecognized"),
        (event("session.status", status={"type": "dreaming"}), "Unrecognized"),
        (event("session.status", status=7), "Unrecognized"),
        (reply("nobody.7"), "Misplaced"),
    ],
)
def test_what_is_odd_is_an_event_and_never_an_error(data: bytes, kind: str) -> None:
    assert kinds(greeted().receive(data))[0] == kind


@each_row("value", [None, 7, "x", [], {}, [{}], {"a": []}])
def test_no_shape_of_a_known_event_makes_it_raise(value: Any) -> None:
    talk = prompted("p1")
    for kind in (
        "session.status",
        "session.error",
        "message.updated",
        "message.part.updated",
        "permission.asked",
    ):
        for field in ("status", "error", "info", "part", "metadata", "tool"):
            talk.receive(line(type=kind, properties={"sessionID": SESSION, field: value}))
            talk.receive(line(type=kind, properties=value))


def test_half_a_surrogate_pair_in_a_prompt_is_no_error() -> None:
    [sent] = asked(greeted().send(v.Prompt("p1", "\ud800")))
    assert json.dumps(sent["body"]["parts"][0]["text"]) == '"?"'


def test_a_session_without_an_id_is_reported_and_counted() -> None:
    talk = Conversation(OPENCODE_SERVE, launch=Launch(executable=("opencode",)))
    [hello] = asked(talk.greet())
    events = talk.receive(reply(hello["key"], body={"version": "1.18.33"}))
    assert [event for event in events if isinstance(event, v.Unrecognized)] == [
        v.Unrecognized(0, None, "session.id", "the server made a session without an id")
    ]
    assert talk.memo.refused == "the server made a session without an id"
