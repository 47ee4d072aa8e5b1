from __future__ import annotations

import pytest

from proctor.protocols.opencode.serve.event_stream import EventStream

STREAM = b': hello\nid: 1\nevent: x\ndata: {"a":1}\n\ndata:two\r\ndata: lines\r\n\r\n: only a comment\n\nretry: 5\n\ndata\n\ndata: last\n\n'
EVENTS = [b'{"a":1}', b"two\nlines", b"", b"last"]


def fed(data: bytes, size: int, **options: int) -> list[bytes]:
    stream = EventStream(**options)
    return [event for at in range(0, len(data), size) for event in stream.feed(data[at : at + size])]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_events_are_the_same_at_every_cut(size: int) -> None:
    assert [event for event in fed(STREAM, size) if event] == [event for event in EVENTS if event]


def test_an_event_that_is_not_ended_is_not_given() -> None:
    stream = EventStream()
    assert stream.feed(b"data: one\n") == []
    assert stream.feed(b"\n") == [b"one"]


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_an_event_over_the_limit_is_cut_and_the_next_is_whole(size: int) -> None:
    long = b"data: " + b"x" * 5000 + b"\ndata: more\n\ndata: next\n\n"
    first, second = fed(long, size, max_event=100)
    assert (first[:90], len(first) <= 101, second) == (b"x" * 90, True, b"next")


def test_many_lines_of_one_event_stay_below_the_limit_together() -> None:
    [event] = fed(b"data: 0123456789\n" * 1000 + b"\n", 17, max_event=100)
    assert len(event.replace(b"\n", b"")) <= 100
