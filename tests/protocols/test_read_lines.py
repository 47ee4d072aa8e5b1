from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Memo, Send
from proctor.protocols.vocabulary import (
    AnyEvent,
    EndSession,
    Garbled,
    Misplaced,
    Prompt,
    Text,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from tests.protocols.lines import ASKED, GREETED, INIT, RESULT, delta, line, session
from tests.tables import each_row

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts" / "claude").glob("*.stdout.ndjson"))
BY_LINE = attrs.evolve(CLAUDE, read_lines=None)

ODD = (
    b"{}{}\n\n",
    b'{"type":"result"\n}\n',
    b'{"type":"stream_event"} {"type":"stream_event"}\n\n' + delta("a"),
    delta("\u2028 }\n{"),
    delta("a").replace(b"\n", b"\r\n"),
    delta("a") + b"not json\n" + delta("b") + b"\n\n" + delta("c"),
    line(
        type="stream_event", event={"type": "content_block_delta", "delta": {"type": "text_delta", "text": 7}}
    ),
    b'{"type":"stream_event","event":{"delta":{"text":"\\ud83d"}}}\n',
    delta("a") + line(type="hologram") + delta("b") + ASKED + delta("c") + RESULT + delta("d") + INIT,
)


def told(talk: Conversation, data: bytes, cut: int) -> tuple[list[AnyEvent], bytes, Memo, tuple[int, ...]]:
    talk.greet()
    talk.receive(GREETED)
    talk.send(Prompt("p1", "hi"))
    out: list[AnyEvent] = []
    for at in range(0, len(data), cut):
        out += talk.receive(data[at : at + cut])
    out += talk.receive(b"")
    return out, talk.data_to_send(), talk.memo, (talk.frames, talk.events, talk.garbled, talk.unrecognized)


@pytest.mark.covers("R076")
@each_row("cut", [7, 300, 10**9])
@each_row("data", ODD)
def test_many_lines_give_what_each_of_them_gives(data: bytes, cut: int) -> None:
    whole = INIT + data + RESULT + data
    assert told(Conversation(CLAUDE), whole, cut) == told(Conversation(BY_LINE), whole, cut)


def test_recorded_runs_read_the_same_line_by_line_and_all_at_once() -> None:
    def differs(data: bytes) -> bool:
        return told(Conversation(CLAUDE), data, 10**9) != told(Conversation(BY_LINE), data, 10**9)

    assert len(TRANSCRIPTS) > 200
    assert [path.name for path in TRANSCRIPTS if differs(path.read_bytes())] == []


@pytest.mark.covers("C07")
def test_a_long_line_among_deltas_costs_only_itself() -> None:
    long = delta("x" * 2000)
    whole = [delta("a"), long, delta("b"), delta("c")]
    found = [
        told(Conversation(dialect, max_line=1000), b"".join(whole), 10**9) for dialect in (CLAUDE, BY_LINE)
    ]
    assert found[0] == found[1]
    assert [type(event) for event in found[0][0]] == [TextDelta, Garbled, TextDelta, TextDelta]


def test_a_run_of_deltas_is_numbered_by_its_lines() -> None:
    talk = session()
    talk.send(Prompt("p1", "hi"))
    events = talk.receive(INIT + delta("a") + b"\n" + delta("b") + delta("c") + RESULT + delta("d"))
    runs = [(event.frame, event.turn) for event in events if isinstance(event, TextDelta)]
    assert runs == [(2, "t1"), (4, "t1"), (5, "t1"), (7, None)]
    assert talk.memo.frame == 7


def test_what_a_frame_changes_is_done_before_the_next_is_read() -> None:
    reader = CLAUDE.lines_reader(Memo(), [])
    assert [*reader] == []
    memo = session().memo
    memo.prompts.append("p1")
    said = CLAUDE.lines_reader(memo, [each.strip() for each in (delta("a"), INIT, delta("b"), RESULT)])
    first = next(said)
    assert (len(first), memo.frame, memo.turn) == (1, 1, None)
    begun = next(said)
    assert any(isinstance(event, TurnStarted) for event in begun)
    assert (memo.frame, memo.turn) == (2, "t1")
    assert [type(event) for events in said for event in events] == [TextDelta, TurnEnded]


def test_deltas_that_come_before_the_greeting_or_after_the_end_are_judged_one_by_one() -> None:
    talk = Conversation(CLAUDE)
    talk.greet()
    early = talk.receive(delta("a") + delta("b"))
    assert [type(event) for event in early] == [Misplaced, Misplaced]
    assert talk.misplaced == 2
    talk.receive(GREETED)
    talk.send(EndSession("e1"))
    assert [type(event) for event in talk.receive(delta("c"))] == [TextDelta]


def test_a_dialect_without_it_is_read_line_by_line() -> None:
    def read(memo: Memo, line: bytes) -> tuple[AnyEvent | Send, ...]:
        return (Send(line), Text(memo.frame, None, line.decode()))

    talk = Conversation(attrs.evolve(BY_LINE, read=read), mode="oneshot")
    talk.greet()
    events = talk.receive(b"a\nb\n")
    assert [(event.frame, event.text) for event in events if isinstance(event, Text)] == [(0, "a"), (1, "b")]
    assert talk.data_to_send() == b"ab"


BY_RUN = attrs.evolve(CLAUDE, read_delta=None)


@each_row("data", ODD)
def test_a_line_that_comes_alone_gives_what_it_gives_among_others(data: bytes) -> None:
    def by_line(dialect: Dialect) -> tuple[list[AnyEvent], bytes, Memo, tuple[int, ...]]:
        talk, out = Conversation(dialect), list[AnyEvent]()
        talk.greet()
        talk.receive(GREETED)
        talk.send(Prompt("p1", "hi"))
        for chunk in (INIT + data + RESULT + data + delta("after the end")).splitlines(keepends=True):
            out += talk.receive(chunk)
        out += talk.receive(b"")
        return (
            out,
            talk.data_to_send(),
            talk.memo,
            (talk.frames, talk.events, talk.garbled, talk.unrecognized),
        )

    assert by_line(CLAUDE) == by_line(BY_RUN)


@each_row("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_recorded_session_read_line_by_line_is_the_same_with_and_without_the_short_way(path: Path) -> None:
    talks = Conversation(CLAUDE, error_budget=None), Conversation(BY_RUN, error_budget=None)
    for chunk in path.read_bytes().splitlines(keepends=True):
        assert talks[0].receive(chunk) == talks[1].receive(chunk)
    assert talks[0].receive(b"") == talks[1].receive(b"")
    assert talks[0].memo == talks[1].memo


def test_a_line_alone_that_is_too_long_is_not_delivered_whole() -> None:
    talk = Conversation(CLAUDE, max_line=2000)
    talk.greet()
    talk.receive(GREETED)
    talk.send(Prompt("p1", "hi"))
    talk.receive(INIT)
    assert [type(event) for event in talk.receive(delta("x" * 3000))] == [Garbled]


def test_a_validator_sees_a_delta_that_comes_alone() -> None:
    seen = list[AnyEvent]()
    talk = Conversation(CLAUDE, validators=(seen.append,))
    talk.greet()
    talk.receive(GREETED)
    talk.send(Prompt("p1", "hi"))
    talk.receive(INIT)
    talk.receive(delta("alone"))
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["alone"]
