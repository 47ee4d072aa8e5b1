"""What a client of MCP may send over streams, in both ways of the protocol, and what is answered to anything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors.gateways.mcp.connection import UNREAD, UNREAD_PROGRESS
from proctor.actors.gateways.mcp.messages import HANDSHAKE
from proctor.actors.gateways.mcp.server import GRACE, ToolsetServer
from proctor.actors.serving.toolset import Call, ServedTool, Toolset
from proctor.actors.tools.tools import ToolResult
from tests.fakes.mcp_client import INITIALIZE, READY, calls, written

PREFIX = "io.modelcontextprotocol/"
ENVELOPE: dict[str, Any] = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
LISTS: dict[str, Any] = {"id": 5, "method": "tools/list"}


async def _answers(arguments: Any, call: Call) -> ToolResult:
    if "wait" in arguments:
        await trio.sleep(arguments["wait"])
    return ToolResult("done", data=arguments.get("data"))


async def _tells(arguments: Any, call: Call) -> ToolResult:
    while True:
        call.tell("on it")
        await trio.sleep(0.3)


ANSWERS, TELLS = (
    ServedTool(name=name, description="", schema={"type": "object"}, function=function)
    for name, function in (("answers", _answers), ("tells", _tells))
)


def server() -> ToolsetServer:
    return ToolsetServer("things", Toolset([ANSWERS, TELLS]), version="7")


def stateless(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"id": id, "method": method, "params": {"_meta": ENVELOPE, **params}}


async def exchanged(sent: bytes, things: ToolsetServer | None = None) -> list[dict[str, Any]]:
    """All that is answered to these bytes and their end."""
    ours, theirs = trio.testing.memory_stream_pair()
    await ours.send_all(sent)
    await ours.send_eof()
    async with theirs:
        await (things or server()).serve_streams(theirs, theirs)
    return [json.loads(line) for line in b"".join([part async for part in ours]).splitlines()]


async def outcomes(*messages: Any) -> list[Any]:
    """The answer to each request, in the order of the messages: its result, or the code of its error."""
    answers = {each["id"]: each for each in await exchanged(written(*messages))}
    requests = [each["id"] for each in messages if "id" in each]
    assert answers.keys() == {*requests}
    return [answers[id].get("result", answers[id].get("error", {}).get("code")) for id in requests]


@pytest.mark.parametrize(
    ("proposed", "agreed"),
    [*((each, each) for each in HANDSHAKE), ("2026-07-28", HANDSHAKE[-1]), ("1.0", HANDSHAKE[-1])],
)
async def test_a_handshake_agrees_on_the_proposed_revision_or_on_the_last_one(
    proposed: str, agreed: str
) -> None:
    message = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": proposed}}
    [greeting] = await outcomes(message)
    assert greeting["protocolVersion"] == agreed
    assert greeting["serverInfo"] == {"name": "things", "version": "7"}


async def test_before_the_handshake_only_a_ping_is_answered() -> None:
    ping = {"id": 1, "method": "ping"}
    listed = {"id": 2, "method": "tools/list"}
    assert await outcomes(ping, listed, {"id": 3, "method": "no/such"}) == [{}, -32602, -32601]


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {**INITIALIZE["params"], "protocolVersion": 5},
        {**INITIALIZE["params"], "capabilities": []},
        {**INITIALIZE["params"], "clientInfo": {"name": "x"}},
    ],
)
async def test_a_handshake_without_what_it_needs_is_refused(params: Any) -> None:
    assert await outcomes({**INITIALIZE, "params": params}, {"id": 1, "method": "tools/list"}) == [-32602] * 2


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", None),
        ("tools/call", {"name": 3}),
        ("tools/call", {"name": "answers", "arguments": [1]}),
        ("tools/call", {"name": "answers", "_meta": 5}),
        ("tools/call", {"name": "answers", "_meta": {"progressToken": [1]}}),
        ("tools/call", {"name": "answers", "_meta": {"progressToken": True}}),
        ("tools/list", {"cursor": 5}),
    ],
)
async def test_parameters_of_a_wrong_type_are_refused(method: str, params: Any) -> None:
    message = {"id": 1, "method": method, "params": params}
    assert (await outcomes(INITIALIZE, READY, message))[1] == -32602


async def test_what_may_be_absent_may_be_null() -> None:
    call = {"name": "answers", "arguments": None, "_meta": None}
    _, ping, listed, called = await outcomes(
        INITIALIZE,
        {"id": 1, "method": "ping", "params": None},
        {"id": 2, "method": "tools/list", "params": {"cursor": None}},
        {"id": 3, "method": "tools/call", "params": call},
    )
    assert (ping, len(listed["tools"]), called["isError"]) == ({}, 2, False)


async def test_a_stateless_client_needs_no_handshake_and_each_result_names_the_server() -> None:
    found, listed, called = await outcomes(
        stateless(1, "server/discover"),
        stateless(2, "tools/list"),
        stateless(3, "tools/call", name="answers"),
    )
    assert found["supportedVersions"] == ["2026-07-28"]
    for result in (found, listed, called):
        assert result["resultType"] == "complete"
        assert result["_meta"][f"{PREFIX}serverInfo"] == {"name": "things", "version": "7"}
    assert {found["cacheScope"], listed["cacheScope"]} == {"private"}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (INITIALIZE, -32022),
        (LISTS, -32602),
        ({**LISTS, "params": {"_meta": {f"{PREFIX}protocolVersion": "2026-07-28"}}}, -32602),
        ({**LISTS, "params": {"_meta": {**ENVELOPE, f"{PREFIX}protocolVersion": "2027-01-01"}}}, -32022),
        ({**LISTS, "params": {"_meta": {**ENVELOPE, f"{PREFIX}protocolVersion": 5}}}, -32602),
        (stateless(5, "ping"), -32601),
        (stateless(5, "resources/list"), -32601),
    ],
)
async def test_a_stateless_client_is_refused_what_is_not_of_its_revision(message: Any, code: int) -> None:
    assert (await outcomes(stateless(9, "tools/list"), message))[1] == code


async def test_a_client_of_the_handshake_is_refused_a_request_that_names_its_revision() -> None:
    results = await outcomes(INITIALIZE, stateless(1, "tools/list"), {"id": 2, "method": "server/discover"})
    assert results[1:] == [-32600, -32601]


async def test_an_id_that_is_in_use_is_refused_and_can_be_used_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    things = server()
    sent = written(INITIALIZE, calls(1, "answers", wait=100), {"id": 1, "method": "ping"})
    answers = await exchanged(sent, things)
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32600, None]
    assert things.counts["answers"].calls == 1
    assert await outcomes(INITIALIZE, {"id": 0, "method": "ping"}) == [{}, {}]


@pytest.mark.parametrize("id", [2**63, -(2**70), 10**300, "", "\u00e9" * 1000])
async def test_an_id_of_any_size_comes_back_as_it_was(id: Any) -> None:
    [_, answer] = await exchanged(written(INITIALIZE, {"id": id, "method": "ping"}))
    assert answer == {"jsonrpc": "2.0", "id": id, "result": {}}


@pytest.mark.parametrize("params", [None, {}, {"requestId": 99}, {"requestId": [1]}, [1]])
async def test_withdrawing_what_does_not_run_changes_nothing(params: Any) -> None:
    withdrawn = {"method": "notifications/cancelled", "params": params}
    answers = await exchanged(written(INITIALIZE, withdrawn, {"id": 1, "method": "ping"}))
    assert answers[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_an_end_in_the_middle_of_a_line_is_answered_and_ends_the_serving() -> None:
    answers = await exchanged(written(INITIALIZE) + b'{"jsonrpc": "2.0", "id": 1, "meth')
    assert [(answer["id"], "error" in answer) for answer in answers] == [(0, False), (None, True)]


async def test_a_client_that_writes_without_end_and_reads_nothing_is_served_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    held, _ = trio.testing.lockstep_stream_pair()  # a write waits for a reader, and there is none
    pings = [{"id": id, "method": "ping"} for id in range(UNREAD + 10)]
    await ours.send_all(written(INITIALIZE, *pings))  # and it never hangs up
    await server().serve_streams(theirs, held)
    assert trio.current_time() <= GRACE


async def test_a_client_that_stops_reading_keeps_its_calls_and_loses_progress_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    things = server()
    ours, theirs = trio.testing.memory_stream_pair()
    held, reader = trio.testing.lockstep_stream_pair()
    await ours.send_all(written(INITIALIZE, calls(1, "tells", token="t")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(things.serve_streams, theirs, held)
        await trio.sleep(2 * UNREAD_PROGRESS)  # a piece every half second: more than may wait
        assert things.counts["tells"].running == 1
        await ours.send_eof()
        read = bytearray()
        while b'"id":1' not in read:
            read += await reader.receive_some()
    assert read.count(b"on it") <= UNREAD_PROGRESS + 1


def deep(levels: int) -> str:
    """A call whose argument has so many levels."""
    data = '{"a":' * levels + "1" + "}" * levels
    call = f'{{"name": "answers", "arguments": {{"data": {data}}}}}'
    return f'{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {call}}}'


@pytest.mark.parametrize("levels", [500, 900, 5000, 20_000])
async def test_a_call_that_is_nested_deeply_is_answered_and_ends_nothing(levels: int) -> None:
    sent = written(INITIALIZE) + deep(levels).encode() + b"\n" + written({"id": 8, "method": "ping"})
    answers = await exchanged(sent)
    assert len(answers) == 3
    assert {"jsonrpc": "2.0", "id": 8, "result": {}} in answers


SCRAPS: Sequence[str | int | None] = (
    *("2.0", "id", "jsonrpc", "method", "params", "initialize", "tools/list", "tools/call", "ping", "name"),
    *("server/discover", "notifications/cancelled", "requestId", "arguments", "_meta", "progressToken"),
    *(f"{PREFIX}protocolVersion", f"{PREFIX}clientCapabilities", "2026-07-28", "answers", None, 0, -1, 2**80),
)
VALUES = st.recursive(
    st.sampled_from(SCRAPS) | st.booleans() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([str(each) for each in SCRAPS]), inner, max_size=5)
    ),
    max_leaves=12,
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={"jsonrpc": st.just("2.0"), "id": VALUES, "method": st.sampled_from(SCRAPS), "params": VALUES},
)
LINES = st.one_of(
    VALUES.map(json.dumps).map(str.encode),
    FRAMES.map(json.dumps).map(str.encode),
    st.binary(max_size=40),
    st.sampled_from([written(each)[:-1] for each in (INITIALIZE, READY, LISTS, stateless(1, "tools/list"))]),
)


@given(lines=st.lists(LINES, max_size=12), end=st.sampled_from([b"", b"\n"]))
async def test_whatever_a_client_sends_each_request_has_one_answer_and_the_end_ends_it(
    lines: list[bytes], end: bytes
) -> None:
    sent = b"\n".join(lines) + end
    answers = await exchanged(sent)
    for answer in answers:
        assert answer["jsonrpc"] == "2.0"
        assert ("result" in answer) != ("error" in answer)
    identified = [answer for answer in answers if answer["id"] is not None]
    assert len(answers) <= len(sent.split(b"\n"))
    if b"cancelled" not in sent:  # a call that is withdrawn has no answer
        assert len(identified) >= sum(map(_is_request, sent.split(b"\n")))


def _is_request(line: bytes) -> bool:
    try:
        frame: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    match frame:
        case {"id": int() | str() as id, "method": str()}:
            return not isinstance(id, bool)
        case _:
            return False
