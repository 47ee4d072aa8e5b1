from __future__ import annotations

import json

import pytest

from proctor.protocols import jsonrpc
from proctor.protocols.dialect import Memo, Send
from proctor.protocols.jsonrpc import Message, PendingRequest
from proctor.protocols.vocabulary import Garbled, Misplaced, Unrecognized
from tests.tables import each_row


def read(memo: Memo, line: bytes) -> Message:
    found = jsonrpc.read(memo, line)
    assert isinstance(found, Message)
    return found


@each_row(
    ("line", "kind"),
    [
        (b'{"id":0,"method":"a"}', "request"),
        (b'{"id":"x","method":"a","params":{}}', "request"),
        (b'{"method":"a","params":{}}', "notification"),
        (b'{"id":null,"method":"a"}', "notification"),
        (b'{"id":1,"result":{}}', "reply"),
        (b'{"id":1,"error":{"code":-1,"message":"no"}}', "reply"),
    ],
)
def test_a_line_is_told_apart_by_its_members(line: bytes, kind: str) -> None:
    assert read(Memo(), line).kind == kind


@pytest.mark.covers("R102")
def test_a_request_of_the_peer_with_the_number_of_ours_settles_nothing() -> None:
    memo = Memo()
    jsonrpc.ask(memo, "greeting", "initialize", {})
    asking = read(memo, b'{"id":1,"method":"may_i"}')
    assert asking.kind == "request"
    assert jsonrpc.settle(memo, read(memo, b'{"id":1,"result":{}}')) == PendingRequest("greeting")


@pytest.mark.covers("R102")
def test_replies_out_of_order_reach_what_was_asked() -> None:
    memo = Memo()
    for name in ("a", "b"):
        jsonrpc.ask(memo, name, name, {}, request=f"host-{name}")
    assert memo.pending == {"host-a": "a", "host-b": "b"}
    assert jsonrpc.settle(memo, read(memo, b'{"id":2,"result":1}')) == PendingRequest("b", "host-b")
    assert jsonrpc.settle(memo, read(memo, b'{"id":1,"result":1}')) == PendingRequest("a", "host-a")
    assert memo.pending == {}


@pytest.mark.parametrize("id", [b"7", b'"1"', b"null", b"{}"])
def test_a_reply_that_nobody_waits_for_is_misplaced(id: bytes) -> None:
    memo = Memo()
    jsonrpc.ask(memo, "a", "a", {})
    reply = read(memo, b'{"id":' + id + b',"result":{}}')
    assert jsonrpc.settle(memo, reply) == Misplaced(-1, None, "reply", "")


@pytest.mark.parametrize("key", ["0", '"text"', "1.5"])
def test_a_peers_id_is_written_as_it_was(key: str) -> None:
    assert json.loads(jsonrpc.answer(key, {"ok": True}))["id"] == json.loads(key)


def test_the_member_of_the_version_is_written_only_where_it_is_spoken() -> None:
    assert json.loads(jsonrpc.notify("initialized"))["jsonrpc"] == "2.0"
    assert json.loads(jsonrpc.notify("initialized", tag=False)) == {"method": "initialized"}


def test_an_unknown_request_is_refused_and_an_unknown_notification_only_reported() -> None:
    memo = Memo()
    send, odd = jsonrpc.unknown(memo, read(memo, b'{"id":9,"method":"dance"}'))
    assert isinstance(send, Send)
    assert json.loads(send.data)["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert odd == Unrecognized(-1, None, "dance")
    assert jsonrpc.unknown(memo, read(memo, b'{"method":"dance"}')) == (odd,)


def test_half_of_a_surrogate_pair_is_read_and_written_as_a_question_mark() -> None:
    assert read(Memo(), b'{"method":"a\\ud800"}').method == "a?"
    assert b'"a?"' in jsonrpc.notify("a\ud800")
    assert jsonrpc.answer("3", "a\ud800").strip() == b'{"jsonrpc": "2.0", "id": 3, "result": "a?"}'


@pytest.mark.parametrize("line", [b"nope", b"[]", b'"x"', b"\xff", b'{"id":'])
def test_what_is_no_object_is_garbled(line: bytes) -> None:
    assert isinstance(jsonrpc.read(Memo(), line), Garbled)


def test_a_frame_with_a_field_of_another_shape_keeps_the_rest() -> None:
    assert read(Memo(), b'{"id":4,"error":"odd","method":7,"result":{"x":1}}').key == "4"
