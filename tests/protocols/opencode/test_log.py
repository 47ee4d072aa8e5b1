"""The lines are those that 1.18.33 wrote on stderr, with other ids."""

from __future__ import annotations

import json

import pytest

from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import LOG_LINE, Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.opencode import OPENCODE
from tests.protocols.acp.lines import INITIALIZED, OPENED, chunk, reply, update
from tests.tables import each_row

CALL = "providerID=fake modelID=m1 session.id={} small={} agent={} mode=primary"
SOCKET = "AI_APICallError: Cannot connect to API: The socket connection was closed unexpectedly."


def logged(message: str, rest: str = "", level: str = "INFO") -> bytes:
    said = json.dumps(message) if " " in message else message
    return f"timestamp=2026-11-22T11:44:15.520Z level={level} run=54584e8a message={said} {rest}\n".encode()


def step(message: str = "m1", session: str = "s1") -> bytes:
    return logged("process", f"session.id={session} messageID={message}")


def call(session: str = "s1", *, small: str = "false", agent: str = "build") -> bytes:
    return logged("stream", CALL.format(session, small, agent))


def broken(error: str, session: str = "s1") -> bytes:
    return logged("stream error", f"{CALL.format(session, 'false', 'build')} {error}", "ERROR")


def session() -> Conversation:
    """A session of OpenCode's with a prompt sent."""
    talk = Conversation(OPENCODE, launch=Launch(executable=("/o",), cwd="/x", partial=True))
    talk.greet()
    talk.receive(reply(1, **INITIALIZED) + reply(2, **OPENED))
    talk.data_to_send()
    talk.send(v.Prompt("p", "hi"))
    return talk


def told(talk: Conversation, *parts: tuple[str, bytes]) -> list[v.AnyEvent]:
    """What the parts give, each from "out" or from "log"."""
    ways = {"out": talk.receive, "log": talk.feed_stderr}
    return [event for where, data in parts for event in ways[where](data)]


def answer(events: list[v.AnyEvent]) -> str | None:
    (ended,) = [event for event in events if isinstance(event, v.TurnEnded)]
    return ended.text


def voids(events: list[v.AnyEvent]) -> list[object]:
    return [e.data for e in events if isinstance(e, v.Notice) and e.code == "attempt_void"]


END = ("out", reply(3, stopReason="end_turn"))
BEGUN = (("log", step()), ("log", call()))


def test_what_a_call_had_said_before_it_was_made_again_is_void() -> None:
    events = told(
        session(), *BEGUN, ("out", chunk("nev") + chunk("er ")), ("log", call()), ("out", chunk("whole")), END
    )
    assert answer(events) == "whole"
    assert voids(events) == [{"message": "m1", "parent": None}]
    assert [e.text for e in events if isinstance(e, v.Text)] == ["whole"]
    (again,) = [e for e in events if isinstance(e, v.Retrying)]
    assert (again.attempt, again.error, again.turn, again.frame) == (1, None, "t1", v.HOST)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (f'error.error="{SOCKET}"', SOCKET),
        ('error.error.message="Overloaded now" error.error.type=server_error', "Overloaded now"),
        (r'error.error="a \"quoted\" \\ word\nand a line"', 'a "quoted" \\ word\nand a line'),
        ("error.error=short", "short"),
        ("nothing=known", None),
    ],
)
def test_why_a_call_broke_is_told_at_once_and_with_the_next_attempt(error: str, text: str | None) -> None:
    talk = session()
    told(talk, *BEGUN)
    (notice,) = talk.feed_stderr(broken(error))
    assert isinstance(notice, v.Notice)
    assert (notice.code, notice.text) == ("model_call_failed", text or "a call of the model failed")
    started, again = talk.feed_stderr(call())
    assert isinstance(started, v.TurnStarted)
    assert isinstance(again, v.Retrying)
    assert (again.attempt, again.error) == (1, text)
    (third,) = talk.feed_stderr(call())
    assert isinstance(third, v.Retrying)
    assert (third.attempt, third.error) == (2, None)


def test_a_block_that_was_whole_before_its_call_broke_is_void_too() -> None:
    tool = update("tool_call", toolCallId="t", title="bash", status="pending")
    talk = session()
    events = told(talk, *BEGUN, ("out", chunk("let me see") + tool), ("log", call()))
    assert voids(events) == [{"message": "m1", "parent": None, "texts": 1}]
    assert answer(told(talk, END)) is None


@pytest.mark.parametrize(
    "between",
    [
        (("log", step("m2")), ("log", call())),
        (("log", step("m2")), ("log", call()), ("log", broken("error.error=x")), ("log", call())),
    ],
    ids=["another step", "another step that broke before it said anything"],
)
def test_the_calls_of_another_step_void_nothing_of_this_one(between: tuple[tuple[str, bytes], ...]) -> None:
    events = told(session(), *BEGUN, ("out", chunk("partial")), *between, ("out", chunk("more", "m2")), END)
    assert voids(events) == []
    assert [e.text for e in events if isinstance(e, v.Text)] == ["partial", "more"]


@each_row(
    "line",
    [
        call(small="true", agent="title"),
        call("s2"),
        logged("llm runtime selected", "llm.runtime=ai-sdk"),
        logged("stream"),
        logged("evaluated", 'permission=bash pattern="message=stream session.id=s1"'),
        logged("process", "session.id=s1 messageID=m1", "ERROR"),
        b"message=stream session.id=s1 small=false\n",
        b'timestamp=1 message="stream session.id=s1\n',
        b"timestamp=\xff\xfe message=stream\n",
        b"\n",
        b"timestamp=" + b"x" * LOG_LINE + b" message=stream session.id=s1\n",
    ],
)
def test_other_lines_say_nothing_of_a_call(line: bytes) -> None:
    events = told(session(), *BEGUN, ("out", chunk("all of it")), ("log", line), END)
    assert (answer(events), voids(events)) == ("all of it", [])
    assert not any(isinstance(event, v.Retrying) for event in events)


def test_a_turn_that_is_over_forgets_its_step() -> None:
    talk = session()
    told(talk, *BEGUN, ("out", chunk("one")), ("log", logged("exiting loop", "session.id=s1")))
    assert talk.feed_stderr(call()) == []


def test_what_a_sub_agent_said_in_a_call_that_broke_is_void_and_nothing_else() -> None:
    child = (("log", step("c1", "s2")), ("log", call("s2")), ("out", chunk("half", "c1", "s2")))
    events = told(
        session(), *BEGUN, ("out", chunk("asking it")), *child, ("log", call("s2")), ("out", chunk("!")), END
    )
    assert voids(events) == [{"message": "c1", "parent": "s2"}]
    assert answer(events) == "asking it!"
    assert not any(isinstance(event, v.Retrying) for event in events)


def test_a_log_is_read_the_same_at_every_cut() -> None:
    log = step() + call() + broken(f'error.error="{SOCKET}"') + call()
    whole = session().feed_stderr(log)
    assert len(whole) == 3
    for cut in range(len(log)):
        talk = session()
        assert talk.feed_stderr(log[:cut]) + talk.feed_stderr(log[cut:]) == whole


def test_a_log_that_goes_on_after_the_end_of_stdout_is_of_no_turn() -> None:
    talk = session()
    told(talk, *BEGUN)
    talk.receive(b"")
    assert talk.feed_stderr(call()) == []


@pytest.mark.parametrize(
    ("launch", "argv"),
    [
        (Launch(executable=("/o",)), ("/o", "acp", "--print-logs", "--log-level", "INFO")),
        (
            Launch(executable=("/o",), extra=("--log-level=DEBUG", "--pure")),
            ("/o", "acp", "--print-logs", "--log-level=DEBUG", "--pure"),
        ),
        (Launch(executable=("/o", "acp", "--pure")), ("/o", "acp", "--pure")),
    ],
)
def test_its_log_is_asked_for_unless_the_command_is_whole(launch: Launch, argv: tuple[str, ...]) -> None:
    assert OPENCODE.launch(launch).argv == argv
