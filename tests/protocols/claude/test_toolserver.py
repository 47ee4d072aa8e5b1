from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    HookVerdict,
    Misplaced,
    Notice,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
    Unrecognized,
)
from tests.protocols.claude.asking import ADD, BEFORE, asks, call, hosting, message, owed, served
from tests.protocols.lines import line


def test_the_host_is_a_server_of_the_greeting_where_it_has_tools() -> None:
    talk = Conversation(CLAUDE, launch=Launch(executable=(), host_tools=(ADD,)))
    assert json.loads(talk.greet())["request"] == {"subtype": "initialize", "sdkMcpServers": ["host"]}


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        (
            "initialize",
            {"protocolVersion": "2031-01-01"},
            {
                "protocolVersion": "2031-01-01",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "host", "version": "1"},
            },
        ),
        ("ping", {}, {}),
        (
            "tools/list",
            None,
            {
                "tools": [
                    {
                        "name": "add",
                        "description": "Add two numbers.",
                        "inputSchema": {"type": "object"},
                        "_meta": {"anthropic/alwaysLoad": True},
                    }
                ]
            },
        ),
    ],
)
def test_what_needs_no_host_is_answered_at_once(method: str, params: object, result: Any) -> None:
    talk = hosting(tools=[ADD])
    more: dict[str, Any] = {} if params is None else {"params": params}
    events, answer = served(talk, message("r1", method, id=0, **more))
    assert events == []
    assert answer == {"jsonrpc": "2.0", "id": 0, "result": result}
    assert talk.memo.quiet[f"mcp_message.{method}"] == 1


def test_a_notification_is_acknowledged_without_an_id() -> None:
    events, answer = served(hosting(tools=[ADD]), message("r1", "notifications/initialized"))
    assert (events, answer) == ([], {"jsonrpc": "2.0", "result": {}})


def test_a_method_that_is_not_served_is_refused_and_told() -> None:
    events, answer = served(hosting(tools=[ADD]), message("r1", "resources/list", id="x"))
    assert events == [Unrecognized(1, None, "control_request.mcp_message.resources/list")]
    assert (answer["id"], answer["error"]["code"]) == ("x", -32601)


def test_a_reply_to_nothing_is_misplaced() -> None:
    talk = hosting(tools=[ADD])
    events, _ = served(talk, message("r1", "", id=4, result={}))
    assert [type(event) for event in events] == [Misplaced]


def test_another_server_is_not_served() -> None:
    talk = hosting(tools=[ADD])
    (notice,) = talk.receive(message("r1", "ping", server="calc", id=1))
    assert isinstance(notice, Notice)
    assert (notice.code, notice.data["server"]) == ("request_refused", "calc")
    assert owed(talk) == [
        {"subtype": "error", "request_id": "r1", "error": "not supported by this host"},
    ]


def test_a_call_waits_for_the_hosts_return() -> None:
    talk = hosting(tools=[ADD])
    assert talk.receive(call("r1", a=1, b=2)) == [
        ToolRequested(1, None, "r1", "add", {"a": 1, "b": 2}, "toolu_1")
    ]
    assert (talk.data_to_send(), talk.memo.calls) == (b"", {"r1": "add"})
    reply = json.loads(talk.send(ToolReturn("r1", "3")))["response"]
    assert (reply["subtype"], reply["request_id"]) == ("success", "r1")
    assert reply["response"] == {
        "mcp_response": {
            "jsonrpc": "2.0",
            "id": 2,
            "result": {"content": [{"type": "text", "text": "3"}], "isError": False},
        }
    }
    assert talk.memo.calls == {}


def test_an_error_is_a_result_that_the_model_reads() -> None:
    talk = hosting(tools=[ADD])
    talk.receive(call("r1"))
    reply = json.loads(talk.send(ToolReturn("r1", "no such row \ud83d", is_error=True)))
    result = reply["response"]["response"]["mcp_response"]["result"]
    assert result == {"content": [{"type": "text", "text": "no such row ?"}], "isError": True}


def test_an_unknown_tool_is_refused_at_once() -> None:
    events, answer = served(hosting(tools=[ADD]), call("r1", "subtract"))
    assert [type(event) for event in events] == [Notice]
    assert answer["error"] == {"code": -32602, "message": "unknown tool 'subtract'"}


def test_arguments_that_are_no_object_never_reach_the_tool() -> None:
    bad = message("r1", "tools/call", id=2, params={"name": "add", "arguments": [1, 2]})
    talk = hosting(tools=[ADD])
    events, answer = served(talk, bad)
    assert [event.kind for event in events if isinstance(event, Unrecognized)] == ["tools/call.arguments"]
    assert (answer["error"]["code"], talk.memo.calls) == (-32602, {})


@pytest.mark.parametrize(
    "withdrawal",
    [
        message("r9", "notifications/cancelled", params={"requestId": 2, "reason": "AbortError"}),
        line(type="control_cancel_request", request_id="r1"),
    ],
)
def test_a_call_that_is_cancelled_is_withdrawn_and_its_return_goes_nowhere(withdrawal: bytes) -> None:
    talk = hosting(tools=[ADD])
    talk.receive(call("r1") + call("r2", number="2"))
    assert talk.receive(withdrawal) == [RequestWithdrawn(3, None, "r1")]
    assert talk.memo.calls == {"r2": "add"}
    with pytest.raises(Misuse, match="answers nothing"):
        talk.send(ToolReturn("r1", "late"))
    assert talk.receive(withdrawal) == []


def test_a_cancellation_after_the_return_is_nothing_odd() -> None:
    talk = hosting(tools=[ADD])
    talk.receive(call("r1"))
    talk.send(ToolReturn("r1", "3"))
    gone = message("r2", "notifications/cancelled", params={"requestId": 2})
    assert talk.receive(gone + line(type="control_cancel_request", request_id="r1")) == []


def test_a_verdict_is_no_answer_to_a_call() -> None:
    talk = hosting(tools=[ADD], hooks=[BEFORE], hook_on_failure_supported=True)
    talk.receive(call("r1") + asks("h1", "hook_callback", callback_id="before", input={}))
    with pytest.raises(Misuse, match="not a hook call"):
        talk.send(HookVerdict("r1"))
    with pytest.raises(Misuse, match="not a tool call"):
        talk.send(ToolReturn("h1", "x"))
    assert talk.memo.calls == {"r1": "add", "h1": "before"}


def test_a_call_too_large_to_be_read_is_an_error_and_never_run() -> None:
    launch = Launch(executable=(), host_tools=(ADD,))
    talk = Conversation(CLAUDE, launch=launch, max_line=4000)
    garbled, notice = talk.receive(call("r1", text="x" * 5000))
    assert isinstance(notice, Notice)
    assert (garbled.frame, notice.code, notice.data) == (0, "tool_refused", {"id": "r1", "tool": "add"})
    (answer,) = owed(talk)
    assert answer["response"]["mcp_response"]["result"]["isError"]
    assert talk.memo.calls == {}
