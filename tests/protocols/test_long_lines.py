from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from proctor.protocols import vocabulary as v
from proctor.protocols.acp import GEMINI, GENERIC, Profile, acp_dialect
from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Launch, Mode
from proctor.protocols.opencode import OPENCODE_RUN
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from tests.protocols.acp import lines as acp
from tests.protocols.codex import lines as codex
from tests.protocols.opencode import server
from tests.tables import each_row

LONG = "y" * 9000


def open_talk(dialect: Dialect, mode: Mode = "session", **launch: Any) -> Conversation:
    talk = Conversation(
        dialect, launch=Launch(executable=("a",), mode=mode, cwd="/w", **launch), max_line=2000
    )
    talk.greet()
    return talk


def acp_talk(profile: Profile = GENERIC) -> Conversation:
    talk = open_talk(acp_dialect(profile))
    talk.receive(acp.reply(1, **acp.INITIALIZED) + acp.reply(2, **acp.OPENED))
    talk.data_to_send()
    talk.send(v.Prompt("p", "go"))
    return talk


def written(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def codex_talk(**launch: Any) -> Conversation:
    talk = open_talk(CODEX, **launch)
    talk.receive(written(codex.HELLO, codex.OPENED))
    talk.data_to_send()
    sent = json.loads(talk.send(v.Prompt("p", "go")))
    talk.receive(written({"id": sent["id"], "result": {"turn": {"id": "T1"}}}, codex.started("T1")))
    return talk


def exec_talk(**launch: Any) -> Conversation:
    talk = open_talk(CODEX_EXEC, "oneshot", **launch)
    talk.send(v.Prompt("p", "go"))
    talk.receive(written({"type": "turn.started"}))
    return talk


def exec_message(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": text}}


def serve_talk() -> Conversation:
    talk = open_talk(OPENCODE_SERVE)
    talk.receive(server.reply("session.1", body={"id": server.SESSION}))
    talk.send(v.Prompt("p", "go"))
    talk.receive(server.reply("prompt.2", 204) + server.user("u") + server.BUSY)
    return talk


def run_talk() -> Conversation:
    talk = open_talk(OPENCODE_RUN, "oneshot")
    talk.send(v.Prompt("p", "go"))
    return talk


def run_lines(text: str) -> bytes:
    part = {"reason": "stop", "tokens": {"input": 1, "output": 2}}
    return written(
        {"type": "text", "sessionID": "s", "part": {"text": text}},
        {"type": "step_finish", "sessionID": "s", "part": part},
    )


ANSWERS: Mapping[str, Callable[[str], tuple[Conversation, bytes]]] = {
    "acp": lambda text: (acp_talk(), acp.chunk(text) + acp.reply(3, stopReason="end_turn")),
    "gemini": lambda text: (acp_talk(GEMINI), acp.chunk(text) + acp.reply(3, stopReason="end_turn")),
    "codex": lambda text: (codex_talk(), written(codex.item("agentMessage", text=text), codex.ended())),
    "codex-exec": lambda text: (exec_talk(), written(exec_message(text), {"type": "turn.completed"})),
    "opencode-serve": lambda text: (serve_talk(), server.answer("m", text) + server.IDLE),
    "opencode-run": lambda text: (run_talk(), run_lines(text)),
}


def ended(events: list[v.AnyEvent]) -> v.TurnEnded:
    [end] = [event for event in events if isinstance(event, v.TurnEnded)]
    return end


def texts(events: list[v.AnyEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, v.Text)]


def names(events: list[v.AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


@each_row("dialect", ANSWERS)
def test_an_answer_in_a_line_that_is_too_long_is_gone_and_its_turn_says_so(dialect: str) -> None:
    talk, data = ANSWERS[dialect]("fine")
    end = ended(talk.receive(data))
    assert (end.ending, end.text, end.error) == ("completed", "fine", None)
    talk, data = ANSWERS[dialect](LONG)
    events = talk.receive(data)
    end = ended(events)
    assert [event.size > 9000 for event in events if isinstance(event, v.Garbled)] == [True]
    assert texts(events) == []
    assert (end.ending, end.text) == ("completed", None)
    assert "was not kept" in (end.error or "")


@pytest.mark.parametrize("talk", [codex_talk(json_schema="{}"), exec_talk(json_schema="{}")])
def test_a_structured_answer_that_was_too_long_does_not_fit_its_schema_because_it_was_not_read(
    talk: Conversation,
) -> None:
    messages = (codex.item("agentMessage", text=LONG), codex.ended())
    short = (exec_message(LONG), {"type": "turn.completed"})
    end = ended(talk.receive(written(*(messages if talk.dialect is CODEX else short))))
    assert (end.ending, end.structured_output) == ("schema_unmet", None)
    assert "was not kept" in (end.error or "")


def test_a_text_with_a_piece_that_was_too_long_is_told_without_it_and_its_turn_says_so() -> None:
    talk = acp_talk()
    events = talk.receive(acp.chunk("be") + acp.chunk(LONG) + acp.chunk("gun"))
    events += talk.receive(acp.reply(3, stopReason="end_turn"))
    assert texts(events) == ["begun"]
    assert (ended(events).text, ended(events).ending) == ("begun", "completed")
    assert "was not kept" in (ended(events).error or "")


def test_an_answer_after_a_message_that_was_too_long_is_whole() -> None:
    talk = acp_talk()
    events = talk.receive(acp.chunk("a", "m1") + acp.chunk(LONG, "m2") + acp.chunk("b", "m3"))
    events += talk.receive(acp.reply(3, stopReason="end_turn"))
    assert names(events) == ["TurnStarted", "TextDelta", "Garbled", "Text", "TextDelta", "Text", "TurnEnded"]
    assert texts(events) == ["a", "b"]
    assert (ended(events).text, ended(events).error) == ("b", None)


@pytest.mark.parametrize(
    "line",
    [
        acp.update("tool_call", toolCallId="t", title="ls", rawInput={"command": LONG}),
        acp.question(rawInput={"command": LONG}),
        acp.reply(3, stopReason="end_turn", _meta={"x": LONG}),
    ],
)
def test_a_text_that_was_read_is_told_also_where_the_line_that_ends_it_is_too_long(line: bytes) -> None:
    talk = acp_talk()
    talk.receive(acp.chunk("whole"))
    events = talk.receive(line)
    assert (names(events)[0], texts(events)) == ("Garbled", ["whole"])
    assert [event.frame for event in events if isinstance(event, v.Text)] == [2]


def test_a_tool_whose_input_was_too_long_is_not_allowed_by_a_question_that_leaves_it_out() -> None:
    talk = acp_talk()
    command = f"true {LONG}; rm -r /"
    talk.receive(acp.update("tool_call", toolCallId="t", title="ls", rawInput={"command": command}))
    events = talk.receive(acp.question(rawInput=None))
    [notice] = [event for event in events if isinstance(event, v.Notice)]
    assert (notice.code, notice.data["id"]) == ("approval_refused", "7")
    assert acp.sent(talk.data_to_send()) == [
        {"id": 7, "result": {"outcome": {"outcome": "selected", "optionId": "c"}}}
    ]
    assert talk.memo.approvals == {}
    assert "ApprovalRequested" not in names(events)


def test_a_question_that_brings_the_whole_input_is_asked_though_the_call_before_it_was_too_long() -> None:
    talk = acp_talk()
    talk.receive(acp.update("tool_call", toolCallId="t", title="ls", rawInput={"command": LONG}))
    events = talk.receive(acp.question())
    [asked] = [event for event in events if isinstance(event, v.ApprovalRequested)]
    assert asked.input == {"command": "ls"}
    assert names(events) == ["ToolCall", "ApprovalRequested"]


def test_output_of_a_tool_that_was_too_long_is_in_no_result() -> None:
    talk = acp_talk()
    talk.receive(acp.update("tool_call", toolCallId="t", title="ls", status="in_progress"))
    meta = {"terminal_output_delta": {"data": LONG}}
    events = talk.receive(acp.update("tool_call_update", toolCallId="t", _meta=meta))
    events += talk.receive(acp.update("tool_call_update", toolCallId="t", status="completed"))
    assert [event.text for event in events if isinstance(event, v.ToolResult)] == [""]


def test_a_patch_that_was_too_long_to_be_read_is_declined() -> None:
    talk = codex_talk()
    change = codex.item("fileChange", id="call-1", done=False, changes=[{"path": "a", "diff": LONG}])
    talk.receive(written(change))
    events = talk.receive(written(codex.question(5, "item/fileChange/requestApproval")))
    [notice] = events
    assert isinstance(notice, v.Notice)
    assert (notice.code, notice.data["tool"]) == ("approval_refused", "apply_patch")
    assert json.loads(talk.data_to_send()) == {"id": 5, "result": {"decision": "decline"}}
    assert talk.memo.approvals == {}


def test_a_tool_whose_beginning_was_too_long_is_told_whole_when_it_completes() -> None:
    talk = codex_talk()
    talk.receive(written(codex.item("commandExecution", id="c", done=False, command=LONG)))
    events = talk.receive(written(codex.item("commandExecution", id="c", command="ls", status="completed")))
    assert names(events) == ["ToolCall", "ToolResult"]


def test_a_structured_answer_of_a_server_that_was_too_long_is_gone() -> None:
    talk = serve_talk()
    info = {"id": "m", "role": "assistant", "structured": {"n": LONG}}
    events = talk.receive(server.event("message.updated", info=info) + server.IDLE)
    assert ended(events).structured_output is None


def test_a_tool_of_a_server_that_was_too_long_when_it_began_is_told_when_it_ends() -> None:
    talk = serve_talk()
    talk.receive(server.event("message.updated", info={"id": "m", "role": "assistant"}))
    part = {"id": "x", "messageID": "m", "type": "tool", "callID": "c", "tool": "bash"}
    running = {"status": "running", "input": {"command": LONG}}
    done = {"status": "completed", "input": {"command": "ls"}, "output": "a"}
    talk.receive(server.event("message.part.updated", part={**part, "state": running}))
    events = talk.receive(server.event("message.part.updated", part={**part, "state": done}))
    assert names(events) == ["ToolCall", "ToolResult"]


def test_a_line_after_one_that_was_too_long_is_read_whole() -> None:
    talk = acp_talk()
    talk.receive(acp.chunk(LONG))
    assert not talk.memo.truncated
    assert names(talk.receive(acp.chunk("fine", "m2"))) == ["TextDelta"]
