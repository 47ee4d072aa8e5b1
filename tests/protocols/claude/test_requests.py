from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.claude.dialect import greet, write
from proctor.protocols.dialect import Memo, Mode
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest, Decision, EndSession, Interrupt, Prompt, SetModel

UUID = "5f0c8a9e-7a8b-4c1d-9e2f-0a1b2c3d4e5f"


def said(request: AnyRequest, **memo: Any) -> dict[str, Any]:
    """The one line that is written for a request, decoded."""
    data = write(Memo(**memo), request)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    found: dict[str, Any] = json.loads(data)
    return found


def test_the_greeting_is_a_control_request_and_waits_for_its_reply() -> None:
    memo = Memo()
    assert greet(memo) == (
        b'{"type":"control_request","request_id":"greeting","request":{"subtype":"initialize"}}\n'
    )
    assert memo.pending == {"greeting": "greeting"}


def test_a_one_shot_run_is_not_greeted() -> None:
    assert greet(Memo(mode="oneshot")) == b""


def test_a_prompt_is_a_user_message_under_its_id() -> None:
    assert said(Prompt(UUID, "hello\nthere")) == {
        "type": "user",
        "session_id": "",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": "hello\nthere"},
        "uuid": UUID,
    }


def test_an_id_that_is_no_uuid_is_not_shown_to_the_cli() -> None:
    assert "uuid" not in said(Prompt("p1", "x"))


@pytest.mark.parametrize(
    ("version", "commands", "composed"),
    [
        ("2.1.330", False, True),
        ("2.1.330", True, False),
        ("2.1.248", False, True),
        ("2.1.247", False, False),
        (None, False, False),
    ],
)
def test_a_prompt_is_only_text_where_the_cli_can_be_told_so(
    version: str | None, commands: bool, composed: bool
) -> None:
    message = said(Prompt("p", "/clear", commands=commands), version=version)
    assert message.get("client_composed", False) == composed


def test_blocks_follow_the_text() -> None:
    block = {"type": "image", "source": {"type": "base64", "data": ""}}
    content = said(Prompt("p", "look", (block,)))["message"]["content"]
    assert content == [{"type": "text", "text": "look"}, block]
    assert said(Prompt("p", "", (block,)))["message"]["content"] == [block]


@pytest.mark.covers("R187")
def test_the_prompt_of_a_one_shot_run_is_verbatim() -> None:
    text = "--help $(rm -rf /) `x` \\n \u2028 é\n"
    assert write(Memo(mode="oneshot"), Prompt("p", text)) == text.encode()


def test_a_one_shot_run_takes_no_blocks() -> None:
    with pytest.raises(Misuse, match="takes text, not content blocks"):
        write(Memo(mode="oneshot"), Prompt("p", "x", ({"type": "image"},)))


@pytest.mark.covers("C06")
def test_a_prompt_of_1_mb_is_one_line() -> None:
    assert len(said(Prompt("p", "x" * 2**20))["message"]["content"]) == 2**20


@pytest.mark.parametrize("mode", ["session", "oneshot"])
def test_half_a_surrogate_pair_and_a_nul_make_no_invalid_line(mode: Mode) -> None:
    data = write(Memo(mode=mode), Prompt("p", "a\ud83d\x00b"))
    text = data.decode("utf-8")
    assert (json.loads(text)["message"]["content"] if mode == "session" else text) == "a?\x00b"


@pytest.mark.covers("C18")
@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())), st.dictionaries(st.text(), st.text()))
def test_any_text_is_one_line_of_json(text: str, block: dict[str, str]) -> None:
    said(Prompt("p", text, (block,)))
    said(SetModel("m", text))


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (Interrupt("r1"), {"subtype": "interrupt"}),
        (SetModel("r1", "opus"), {"subtype": "set_model", "model": "opus"}),
        (EndSession("r1"), {"subtype": "end_session"}),
    ],
)
def test_a_control_request_waits_for_its_reply(request_: AnyRequest, asked: dict[str, str]) -> None:
    memo = Memo()
    line = write(memo, request_)
    assert json.loads(line) == {"type": "control_request", "request_id": "r1", "request": asked}
    assert line.endswith(b"\n")  # C18
    assert memo.pending == {"r1": asked["subtype"]}


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (Decision("a", allow=True), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (
            Decision("a", allow=True, input={"command": "pwd"}),
            {"behavior": "allow", "updatedInput": {"command": "pwd"}},
        ),
        (Decision("a", allow=True, input={}), {"behavior": "allow", "updatedInput": {}}),
        (Decision("a", allow=False), {"behavior": "deny", "message": "denied"}),
        (Decision("a", allow=False, message="no"), {"behavior": "deny", "message": "no"}),
    ],
)
def test_a_decision_is_the_reply_to_its_question(decision: Decision, answer: dict[str, Any]) -> None:
    reply = said(decision, approvals={"a": {"command": "ls"}})["response"]
    assert reply == {"subtype": "success", "request_id": "a", "response": answer}
