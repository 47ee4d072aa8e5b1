from __future__ import annotations

from typing import Any

import attrs
import pytest

from proctor.protocols.acp import CODEX_ACP, GEMINI, GENERIC, OPENCODE, PROFILES, Profile, acp_dialect
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostTool, Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    Answered,
    ApprovalRequested,
    ApprovalWithdrawn,
    Decision,
    Ending,
    EndSession,
    Interrupt,
    Notice,
    Prompt,
    SetModel,
    SetPermissionMode,
    Started,
    Steer,
    Text,
    TextDelta,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
)
from tests.protocols.acp.lines import (
    INITIALIZED,
    MODEL,
    OPENED,
    OPTIONS,
    chunk,
    fault,
    line,
    question,
    reply,
    sent,
    session,
    talk_to,
    update,
)
from tests.tables import each_row


def test_a_bare_program_gets_the_arguments_of_its_profile_and_a_whole_command_none() -> None:
    gemini = acp_dialect(GEMINI).launch
    assert gemini(Launch(executable=("/g",), model="m")).argv == ("/g", "--acp", "--model", "m")
    assert gemini(Launch(executable=("node", "/g"), extra=("-x",))).argv == ("node", "/g", "-x")


@pytest.mark.covers("R019")
def test_what_the_protocol_has_no_way_for_is_named() -> None:
    tool = HostTool(name="t", description="", schema={})
    wanted = Launch(executable=("a",), system_prompt="x", retries=0, host_tools=(tool,), fork=True)
    assert set(acp_dialect().launch(wanted).ignored) == {"system_prompt", "retries", "fork"}


def test_every_profile_makes_a_dialect_that_ends_with_a_kill() -> None:
    for profile in PROFILES.values():
        dialect = acp_dialect(profile)
        assert dialect.stop[-1].action == "kill"
        assert dialect.can("interrupt", None)
        assert not dialect.can("steer", None)


def test_a_session_is_opened_in_two_steps_and_then_ready() -> None:
    talk = talk_to()
    assert talk.receive(reply(1, **INITIALIZED)) == []
    [asked] = sent(talk.data_to_send())
    assert (asked["method"], asked["params"]["cwd"]) == ("session/new", "/x")
    assert asked["params"]["mcpServers"] == []
    started, ready = talk.receive(reply(2, **OPENED))
    assert started == Started(1, None, "s1", model="small", cwd="/x", version="1.2.3", permission_mode="ask")
    assert isinstance(ready, Answered)
    assert (talk.phase, talk.memo.greeted) == ("idle", True)


@pytest.mark.parametrize(
    ("launch", "can", "method"),
    [
        ({"resume": "old"}, {"resume": {}}, "session/resume"),
        ({"resume": "old"}, {}, "session/load"),
        ({"resume": "old", "fork": True}, {"fork": {}}, "session/fork"),
    ],
)
def test_a_session_is_gone_on_with_by_the_best_way_there_is(
    launch: dict[str, Any], can: dict[str, Any], method: str
) -> None:
    talk = talk_to(**launch)
    talk.receive(reply(1, agentCapabilities={"loadSession": True, "sessionCapabilities": can}))
    [asked] = sent(talk.data_to_send())
    assert (asked["method"], asked["params"]["sessionId"]) == (method, "old")
    talk.receive(reply(2, **({"sessionId": "new"} if "fork" in launch else {})))
    assert talk.memo.session_id == ("new" if "fork" in launch else "old")
    assert talk.memo.greeted


@each_row(
    ("launch", "lines", "why"),
    [
        ({}, [fault(1, -1, "no")], "no"),
        ({}, [reply(1, protocolVersion=2)], "version 2"),
        ({}, [reply(1), fault(2, -32000, "Authentication required")], "Authentication required"),
        ({}, [reply(1), reply(2)], "without an id"),
        ({"resume": "x"}, [reply(1)], "cannot resume"),
        ({"resume": "x", "fork": True}, [reply(1)], "cannot fork"),
        (
            {"resume": "x"},
            [reply(1, **INITIALIZED), fault(2, -32603, "Internal error", data={"details": "unknown id"})],
            "Internal error: unknown id",
        ),
        (
            {"model": "big"},
            [reply(1), reply(2, **OPENED), fault(3, -32602, "no model big")],
            "model 'big': no model big",
        ),
    ],
)
def test_a_start_that_the_agent_refuses_without_leaving_is_said_so(
    launch: dict[str, Any], lines: list[bytes], why: str
) -> None:
    talk = talk_to(**launch)
    events = talk.receive(b"".join(lines))
    assert why in (talk.memo.refused or "")
    assert not talk.memo.greeted
    assert isinstance(events[-1], Answered)
    assert events[-1].error == talk.memo.refused


def test_the_settings_of_a_launch_are_made_one_by_one_before_the_session_is_ready() -> None:
    talk = talk_to(model="big", permission_mode="plan", effort="high")
    talk.receive(reply(1))
    talk.data_to_send()
    talk.receive(reply(2, **OPENED))
    assert sent(talk.data_to_send()) == [
        {
            "id": 3,
            "method": "session/set_config_option",
            "params": {"sessionId": "s1", "configId": "which", "value": "big"},
        }
    ]
    effort = {"id": "e", "category": "thought_level", "currentValue": "low"}
    talk.receive(reply(3, configOptions=[{**MODEL, "currentValue": "big"}, effort]))
    [asked] = sent(talk.data_to_send())
    assert (asked["method"], asked["params"]) == ("session/set_mode", {"sessionId": "s1", "modeId": "plan"})
    talk.receive(reply(4))
    [asked] = sent(talk.data_to_send())
    assert asked["params"] == {"sessionId": "s1", "configId": "e", "value": "high"}
    assert not talk.memo.greeted
    events = talk.receive(reply(5))
    assert talk.memo.greeted
    assert isinstance(events[0], Started)
    assert (events[0].model, events[0].permission_mode) == ("big", "plan")


def test_a_setting_that_is_so_already_is_not_made_and_one_that_cannot_be_is_noticed() -> None:
    talk = talk_to(model="small", permission_mode="ask", effort="high")
    events = talk.receive(reply(1) + reply(2, **OPENED))
    assert talk.memo.greeted
    assert [e.data for e in events if isinstance(e, Notice)] == [{"option": "effort"}]


def test_a_prompt_before_the_session_is_ready_is_sent_when_it_is() -> None:
    talk = talk_to()
    assert talk.send(Prompt("p", "hi")) == b""
    talk.receive(reply(1) + reply(2, **OPENED))
    [_, prompt] = sent(talk.data_to_send())
    assert prompt["params"] == {"sessionId": "s1", "prompt": [{"type": "text", "text": "hi"}]}
    assert talk.phase == "working"


def test_a_prompt_in_mid_turn_waits_for_its_end_and_has_a_turn_of_its_own() -> None:
    talk = session(GENERIC, "p1", "p2", "p3")
    events = talk.receive(chunk("one") + reply(3, stopReason="end_turn"))
    [asked] = sent(talk.data_to_send())
    assert asked["params"]["prompt"][0]["text"] == "p2"
    events += talk.receive(chunk("two", "m2") + reply(4, stopReason="end_turn"))
    assert [(e.prompts, e.text) for e in events if isinstance(e, TurnEnded)] == [
        (("p1",), "one"),
        (("p2",), "two"),
    ]


def test_a_prompt_that_was_taken_back_while_it_waited_is_not_sent() -> None:
    talk = session(GENERIC, "p1", "p2")
    talk.forget(Prompt("p2", "p2"))
    talk.receive(reply(3, stopReason="end_turn"))
    assert talk.data_to_send() == b""


def test_blocks_of_a_prompt_are_passed_as_they_are() -> None:
    picture = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    [asked] = sent(session().send(Prompt("p", "", blocks=(picture,))))
    assert asked["params"]["prompt"] == [picture]


@pytest.mark.parametrize(
    ("decision", "outcome", "denied"),
    [
        (Decision("7", allow=True), {"outcome": "selected", "optionId": "b"}, ()),
        (
            Decision("7", allow=True, input={"command": "ls"}),
            {"outcome": "selected", "optionId": "b"},
            (),
        ),
        (Decision("7", allow=False), {"outcome": "selected", "optionId": "c"}, ("execute",)),
        (
            Decision("7", allow=True, input={"command": "rm"}),
            {"outcome": "selected", "optionId": "c"},
            ("execute",),
        ),
    ],
)
def test_a_decision_is_an_option_by_its_kind_and_a_changed_input_is_a_rejection(
    decision: Decision, outcome: dict[str, Any], denied: tuple[str, ...]
) -> None:
    talk = session(GENERIC, "p")
    talk.receive(question())
    assert sent(talk.send(decision)) == [{"id": 7, "result": {"outcome": outcome}}]
    [*_, end] = talk.receive(reply(3, stopReason="end_turn"))
    assert isinstance(end, TurnEnded)
    assert end.denied_tools == denied


@pytest.mark.covers("L39")
@pytest.mark.parametrize("allow", [True, False])
def test_a_question_without_a_fitting_option_is_cancelled_not_allowed_for_ever(allow: bool) -> None:
    talk = session(GENERIC, "p")
    talk.receive(question("k", options=OPTIONS[:1]))
    [answer] = sent(talk.send(Decision('"k"', allow=allow)))
    assert answer == {"id": "k", "result": {"outcome": {"outcome": "cancelled"}}}


def test_an_interrupt_cancels_the_turn_and_the_questions_that_are_open() -> None:
    talk = session(GENERIC, "p")
    talk.receive(question())
    assert sent(talk.send(Interrupt("i"))) == [
        {"method": "session/cancel", "params": {"sessionId": "s1"}},
        {"id": 7, "result": {"outcome": {"outcome": "cancelled"}}},
    ]
    assert not talk.memo.approvals
    events = talk.receive(reply(3, stopReason="cancelled"))
    kinds = [type(e) for e in events]
    assert kinds == [ApprovalWithdrawn, TurnEnded]
    assert isinstance(events[1], TurnEnded)
    assert events[1].ending == "interrupted"


def test_a_question_that_the_agent_takes_back_is_withdrawn_and_answered() -> None:
    talk = session(GENERIC, "p")
    talk.receive(question())
    [withdrawn] = talk.receive(line(method="$/cancel_request", params={"requestId": 7}))
    assert withdrawn == ApprovalWithdrawn(3, "t1", "7")
    assert sent(talk.data_to_send())[0]["id"] == 7
    assert talk.receive(line(method="$/cancel_request", params={"requestId": 7})) == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (SetModel("r", "big"), None),
        (SetModel("r", "x"), "no such model"),
        (SetPermissionMode("r", "plan"), None),
    ],
)
def test_a_setting_in_mid_session_is_answered(
    request_: SetModel | SetPermissionMode, error: str | None
) -> None:
    talk = session()
    talk.send(request_)
    [event] = talk.receive(reply(3) if error is None else fault(3, -32602, "no such model"))
    assert isinstance(event, Answered)
    assert (event.request, event.error) == ("r", error)
    assert talk.memo.model == ("big" if request_ == SetModel("r", "big") else "small")


@pytest.mark.parametrize("request_", [SetModel("r", "x"), SetPermissionMode("r", "x")])
def test_a_setting_that_an_agent_does_not_offer_is_misuse(request_: SetModel | SetPermissionMode) -> None:
    with pytest.raises(Misuse, match="cannot set"):
        session(GENERIC, opened={"sessionId": "s1"}).send(request_)


@pytest.mark.parametrize("request_", [Steer("r", "x"), EndSession("r")])
def test_what_the_protocol_cannot_say_is_misuse(request_: Steer | EndSession) -> None:
    with pytest.raises(Misuse, match="cannot send"):
        session(GENERIC, "p").send(request_)


@pytest.mark.parametrize(
    "method", ["fs/read_text_file", "terminal/create", "elicitation/create", "new/thing"]
)
def test_a_request_that_no_host_serves_is_refused_at_once(method: str) -> None:
    talk = session()
    [odd] = talk.receive(line(id="x", method=method, params={}))
    assert isinstance(odd, Unrecognized)
    assert odd.kind == method
    [answer] = sent(talk.data_to_send())
    assert (answer["id"], answer["error"]["code"]) == ("x", -32601)


def test_extensions_are_quiet_and_their_requests_are_refused() -> None:
    talk = session()
    assert talk.receive(line(method="_auth/status", params={}) + line(id=5, method="_x/y")) == []
    assert sent(talk.data_to_send())[0]["error"]["code"] == -32601
    assert talk.memo.quiet["_x/y"] == 1


def test_an_unknown_update_is_told_and_costs_nothing_beside_it() -> None:
    talk = session(GENERIC, "p")
    events = talk.receive(update("hologram") + chunk("x"))
    assert [e.kind for e in events if isinstance(e, Unrecognized)] == ["session/update.hologram"]
    assert any(isinstance(e, TextDelta) for e in events)


def test_without_partial_pieces_only_whole_texts_are_told() -> None:
    talk = talk_to(partial=False)
    talk.receive(reply(1) + reply(2, **OPENED))
    talk.send(Prompt("p", "p"))
    events = talk.receive(chunk("a") + chunk("b") + reply(3, stopReason="end_turn"))
    assert [type(e) for e in events] == [TurnStarted, Text, TurnEnded]


def test_what_a_session_below_says_has_it_as_parent_and_is_not_the_answer() -> None:
    talk = session(GENERIC, "p")
    events = talk.receive(chunk("in", "m", "s2") + chunk("out") + reply(3, stopReason="end_turn"))
    texts = {(e.text, e.parent) for e in events if isinstance(e, Text)}
    assert texts == {("in", "s2"), ("out", None)}
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].text == "out"


def test_what_comes_between_two_turns_belongs_to_none() -> None:
    talk = session()
    late = talk.receive(chunk("late"))
    talk.send(Prompt("p", "p"))
    events = [*late, *talk.receive(chunk("x", "m2") + reply(3, stopReason="end_turn"))]
    assert [(e.text, e.turn) for e in events if isinstance(e, Text)] == [("late", None), ("x", "t1")]


def test_a_denied_tool_that_is_never_mentioned_again_has_a_result_at_the_end() -> None:
    talk = session(GENERIC, "p")
    talk.receive(question())
    talk.send(Decision("7", allow=False))
    events = talk.receive(reply(3, stopReason="end_turn"))
    assert [(e.id, e.is_error) for e in events if isinstance(e, ToolResult)] == [("t", True)]


@each_row(
    ("profile", "code", "text", "ending"),
    [
        (GENERIC, -32000, "x", "authentication"),
        (GENERIC, -32603, "boom", "api_error"),
        (GENERIC, -32603, "Rate limit exceeded", "overloaded"),
        (OPENCODE, -32603, "Internal error: Incorrect API key provided: sk-fake.", "authentication"),
        (OPENCODE, -32603, "Internal error: You exceeded your current quota.", "limit"),
        (OPENCODE, -32603, "Internal error: Bad request from the fake.", "invalid_request"),
        (GEMINI, 401, "x", "authentication"),
        (GEMINI, 429, "x", "overloaded"),
        (GEMINI, 429, "Rate limit exceeded. Try again later.", "overloaded"),
        (GEMINI, 429, "You exceeded your current quota, please check your plan.", "limit"),
        (GEMINI, 429, "You have exhausted your daily quota on this model.", "limit"),
        (GEMINI, 429, "Quota exceeded for metric: x, limit 'Requests per minute'", "overloaded"),
        (GEMINI, 429, "Resource has been exhausted (e.g. check quota).", "overloaded"),
        (GEMINI, 401, "You exceeded your current quota.", "authentication"),
        (GEMINI, 400, "x", "invalid_request"),
        (GEMINI, 500, "x", "api_error"),
    ],
)
def test_an_errors_cause_is_found_by_its_code_else_by_its_text(
    profile: Profile, code: int, text: str, ending: Ending
) -> None:
    talk = session(profile, "p")
    begun, end = talk.receive(fault(3, code, text))
    assert isinstance(begun, TurnStarted)
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.error, end.detail) == (ending, text, str(code))
    assert talk.phase == "idle"


@each_row(
    ("word", "ending"),
    [
        ("max_tokens", "error"),
        ("max_turn_requests", "max_turns"),
        ("refusal", "model_refused"),
        ("cancelled", "interrupted"),
        ("new_word", "error"),
        ("", "error"),
    ],
)
def test_a_stop_reason_other_than_the_end_of_the_turn_is_no_good_end(word: str, ending: Ending) -> None:
    talk = session(GENERIC, "p")
    [*_, end] = talk.receive(chunk("so far") + reply(3, stopReason=word))
    assert isinstance(end, TurnEnded)
    assert end.ending == ending
    assert end.text == ("so far" if word == "max_tokens" else None)


def test_a_turn_in_which_nothing_was_said_or_done_has_no_answer() -> None:
    [*_, end] = session(GENERIC, "p").receive(reply(3, stopReason="end_turn"))
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.detail) == ("error", "no_answer")


def test_model_calls_without_end_are_interrupted_once_their_bound_is_passed() -> None:
    bounded = attrs.evolve(OPENCODE, fruitless=3)
    talk = session(bounded, "p")
    events = talk.receive(b"".join(chunk("again", f"m{n}") for n in range(3)))
    assert talk.data_to_send() == b""
    events = talk.receive(chunk("again", "m3") + chunk("again", "m4"))
    assert [e.code for e in events if isinstance(e, Notice)] == ["endless_turn"]
    assert [each["method"] for each in sent(talk.data_to_send())] == ["session/cancel"]
    [*_, end] = talk.receive(reply(3, stopReason="cancelled"))
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.detail) == ("api_error", "endless")
    talk.send(Prompt("p2", "p2"))
    [*_, end] = talk.receive(chunk("well", "m9") + reply(4, stopReason="end_turn"))
    assert isinstance(end, TurnEnded)
    assert end.ending == "completed"


def test_model_calls_that_use_tools_are_progress() -> None:
    talk = session(attrs.evolve(OPENCODE, fruitless=3), "p")
    for number in range(10):
        tool = update("tool_call", toolCallId=f"t{number}", title="bash", status="in_progress")
        talk.receive(chunk("next", f"m{number}") + tool)
    assert talk.data_to_send() == b""


@pytest.mark.parametrize(
    ("profile", "named", "set_to"),
    [
        (CODEX_ACP, None, ["read-only"]),
        (CODEX_ACP, "agent", ["agent"]),
        (CODEX_ACP, "ask", []),
        (GENERIC, None, []),
    ],
    ids=["the profile's", "the launch's", "it is in it", "none"],
)
def test_a_session_is_set_to_the_mode_of_its_profile_unless_the_launch_names_one(
    profile: Profile, named: str | None, set_to: list[str]
) -> None:
    talk = talk_to(profile, permission_mode=named)
    talk.receive(reply(1, **INITIALIZED))
    talk.data_to_send()
    talk.receive(reply(2, **OPENED))
    assert [each["params"]["modeId"] for each in sent(talk.data_to_send())] == set_to


def test_an_agent_without_modes_is_not_asked_for_the_one_of_its_profile() -> None:
    talk = talk_to(CODEX_ACP)
    talk.receive(reply(1, **INITIALIZED))
    talk.data_to_send()
    events = talk.receive(reply(2, sessionId="s1"))
    assert talk.data_to_send() == b""
    codes = [event.code for event in events if isinstance(event, Notice)]
    assert "option_ignored" not in codes


def test_a_failed_turn_of_codex_does_not_make_the_next_one_fail() -> None:
    sign = {"codex": {"threadStatus": {"type": "systemError"}}}
    talk = session(attrs.evolve(CODEX_ACP, mode=None), "p1")
    said = update("agent_message_chunk", content={"type": "text", "text": "Rate limit reached"})
    [*_, end] = talk.receive(
        update("session_info_update", _meta=sign) + said + reply(3, stopReason="end_turn")
    )
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.text) == ("overloaded", None)
    talk.send(Prompt("p2", "p2"))
    [*_, end] = talk.receive(said + reply(4, stopReason="end_turn"))
    assert isinstance(end, TurnEnded)
    assert (end.ending, end.text) == ("completed", "Rate limit reached")


@pytest.mark.covers("R087")
def test_a_call_without_an_id_gets_one() -> None:
    talk = session(GENERIC, "p")
    [_, called, asked] = talk.receive(question(toolCallId=""))
    assert isinstance(asked, ApprovalRequested)
    assert getattr(called, "id", "") == asked.tool_call == "frame2"


def test_each_message_is_a_block_of_its_own() -> None:
    talk = session(GENERIC, "p")
    events = talk.receive(
        chunk("a", "m1") + chunk("b", "m1") + chunk("c", "m2") + reply(3, stopReason="end_turn")
    )
    assert [e.text for e in events if isinstance(e, Text)] == ["ab", "c"]


def test_a_cost_is_a_share_only_where_the_total_before_it_is_known() -> None:
    wanted = Launch(executable=("agent",), resume="old")
    talk = Conversation(acp_dialect(), launch=wanted, resumed=True, total_cost_usd=0.5)
    talk.greet()
    talk.receive(reply(1, **INITIALIZED) + reply(2))
    shares: list[float | None] = []
    for number, total in ((3, 0.75), (4, 1.0)):
        talk.send(Prompt(f"p{number}", "x"))
        cost = update("usage_update", cost={"amount": total, "currency": "USD"}, session="old")
        [*_, end] = talk.receive(chunk("x", session="old") + cost + reply(number, stopReason="end_turn"))
        assert isinstance(end, TurnEnded)
        shares.append(end.cost_usd)
    assert shares == [None, 0.25]  # what a resumed agent counts from differs, so the first share is not known
