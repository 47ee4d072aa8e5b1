from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.dialect import HostTool, Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp_host_line import CALLS, ToolLine
from proctor.protocols.vocabulary import (
    HOST,
    Misplaced,
    Notice,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
    Unrecognized,
)
from tests.tables import each_row

ADD = HostTool(name="add", description="Add.", schema={"type": "object"})


def message(method: str = "", **fields: Any) -> bytes:
    told = {"method": method} if method else {}
    return json.dumps({"jsonrpc": "2.0", **told, **fields}).encode() + b"\n"


def call(key: object = 1, name: str = "add", **arguments: Any) -> bytes:
    return message("tools/call", id=key, params={"name": name, "arguments": arguments})


def line_to(max_line: int = 2**20) -> tuple[ToolLine, Memo]:
    memo = Memo(turn="t1")
    return ToolLine((ADD,), memo, "host.1", max_line=max_line), memo


def owed(line: ToolLine) -> list[dict[str, Any]]:
    return [json.loads(one) for one in line.data_to_send().splitlines()]


def test_a_client_is_greeted_and_told_of_the_tools() -> None:
    line, _ = line_to()
    hello = message("initialize", id="a", params={"protocolVersion": "2025-06-18"})
    ready = message("notifications/initialized")
    assert line.receive(hello + ready + message("tools/list", id=2) + b"\n" + message("ping", id=3)) == []
    greeted, listed, pong = owed(line)
    assert (greeted["id"], greeted["result"]["protocolVersion"]) == ("a", "2025-06-18")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    assert (pong["id"], pong["result"], line.data_to_send()) == (3, {}, b"")


def test_a_call_is_told_and_its_return_written_once() -> None:
    line, memo = line_to()
    assert line.receive(call(7, a=1)) == [ToolRequested(HOST, "t1", "host.1.1", "add", {"a": 1})]
    assert (memo.calls, line.holds("host.1.1"), line.data_to_send()) == ({"host.1.1": "add"}, True, b"")
    reply = json.loads(line.write(ToolReturn("host.1.1", "3")))
    assert reply == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"content": [{"type": "text", "text": "3"}], "isError": False},
    }
    assert (memo.calls, line.holds("host.1.1")) == ({}, False)
    with pytest.raises(Misuse, match="not an open call"):
        line.write(ToolReturn("host.1.1", "3"))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [({}, {"a": 1}), ({"wait_for_previous": {}}, {"a": 1, "wait_for_previous": True})],
)
def test_an_argument_that_the_cli_has_added_is_taken_out_unless_the_tool_has_it(
    properties: dict[str, Any], expected: dict[str, Any]
) -> None:
    tool = HostTool(name="add", description="Add.", schema={"type": "object", "properties": properties})
    line = ToolLine((tool,), Memo(), "host.1", added=frozenset({"wait_for_previous"}))
    [asked] = line.receive(call(1, a=1, wait_for_previous=True))
    assert isinstance(asked, ToolRequested)
    assert asked.input == expected


def test_a_call_that_is_cancelled_or_left_is_withdrawn() -> None:
    line, memo = line_to()
    line.receive(call(1) + call("1") + call(2))
    assert line.receive(message("notifications/cancelled", params={"requestId": "1"})) == [
        RequestWithdrawn(HOST, "t1", "host.1.2")
    ]
    assert {*memo.calls} == {"host.1.1", "host.1.3"}
    assert [event.id for event in line.hang_up() if isinstance(event, RequestWithdrawn)] == [
        "host.1.1",
        "host.1.3",
    ]
    assert (memo.calls, line.hang_up()) == ({}, [])


@each_row(
    ("said", "kind", "code"),
    [
        (call(1, "subtract"), Notice, -32602),
        (message("tools/call", id=1, params={"name": "add", "arguments": [1]}), Unrecognized, -32602),
        (message("resources/list", id=1), Unrecognized, -32601),
        (message(id=1, result={}), Misplaced, None),
        (b"no json\n", Notice, None),
        (b"[]\n", Notice, None),
        (b"\xff\n", Notice, None),
    ],
)
def test_what_is_odd_is_told_and_a_request_refused(said: bytes, kind: type[Any], code: int | None) -> None:
    line, memo = line_to()
    assert [type(event) for event in line.receive(said)] == [kind]
    assert [reply["error"]["code"] for reply in owed(line)] == ([] if code is None else [code])
    assert memo.calls == {}


def test_a_call_too_large_to_be_read_is_an_error_and_never_run() -> None:
    line, memo = line_to(max_line=4000)
    [notice] = line.receive(call(5, text="x" * 5000))
    assert isinstance(notice, Notice)
    assert (notice.code, notice.data, memo.calls) == ("tool_refused", {"tool": "add"}, {})
    [answer] = owed(line)
    assert (answer["id"], answer["result"]["isError"]) == (5, True)


def test_more_calls_than_are_allowed_at_once_are_refused() -> None:  # Q03
    line, memo = line_to()
    events = line.receive(b"".join(call(number) for number in range(CALLS + 1)))
    assert isinstance(events[-1], Notice)
    assert (len(memo.calls), [reply["id"] for reply in owed(line)]) == (CALLS, [CALLS])


def test_the_turn_is_the_one_that_runs() -> None:
    line, memo = line_to()
    memo.turn = "t2"
    assert [event.turn for event in line.receive(call())] == ["t2"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_of_a_client_raise(chunks: list[bytes]) -> None:
    line, memo = line_to(max_line=50)
    for chunk in [*chunks, b'{"id":1,"method":"tools/call","params":{"name":3}}\n', b"\n"]:
        line.receive(chunk)
    line.hang_up()
    assert memo.calls == {}
