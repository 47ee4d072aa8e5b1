from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.framing import HEAD, STRING_LIMIT, Framing, Oversized

Line = bytes | Oversized


def framed(data: bytes, sizes: Sequence[int], max_line: int = 2**20) -> list[Line]:
    """All lines of `data`, cut into chunks of these sizes and then whatever is left."""
    framing = Framing(max_line)
    lines: list[Line] = []
    at = 0
    for size in [*sizes, len(data)]:
        lines += framing.feed(data[at : at + size])
        at += size
    assert framing.offset == data.rfind(b"\n") + 1
    return [*lines, *framing.end()]


@pytest.mark.covers("R190", "R068")
@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(1, 20)))
def test_any_cut_gives_the_lines_of_the_whole(data: bytes, sizes: list[int]) -> None:
    *lines, tail = data.split(b"\n")
    assert framed(data, sizes) == [*lines, *([tail] if tail else [])]


def test_only_a_newline_ends_a_line() -> None:
    text = "a\u2028b\u2029c\x0bd\x85e\rf".encode()
    assert framed(text + b"\n", [3]) == [text]


@pytest.mark.covers("R067")
def test_blank_lines_are_given_so_that_they_count() -> None:
    assert framed(b"a\n\n \nb\n", []) == [b"a", b"", b" ", b"b"]


def test_the_offset_is_the_first_byte_that_was_not_delivered() -> None:
    framing = Framing()
    framing.feed(b"ab\ncd")
    assert framing.offset == 3
    framing.feed(b"e\n")
    assert framing.offset == 7


def test_a_last_line_without_a_newline_is_given_at_the_end() -> None:
    framing = Framing()
    assert framing.feed(b"a\nb") == [b"a"]
    assert framing.end() == [b"b"]
    assert framing.end() == []


@pytest.mark.covers("C07")
@pytest.mark.parametrize("size", [9, 10, 11])
def test_a_line_up_to_the_limit_is_whole_and_a_longer_one_is_not(size: int) -> None:
    line, *rest = framed(b"x" * size + b"\nnext\n", [4, 4], max_line=10)
    assert (line if size <= 10 else isinstance(line, Oversized)) == (b"x" * size if size <= 10 else True)
    assert rest == [b"next"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30)))
def test_the_limit_changes_only_the_long_lines(lines: list[bytes], sizes: list[int]) -> None:
    lines = [line.replace(b"\n", b" ") for line in lines]
    got = framed(b"".join(line + b"\n" for line in lines), sizes, max_line=16)
    assert len(got) == len(lines)
    for line, sent in zip(got, lines, strict=True):
        assert isinstance(line, Oversized) == (len(sent) > 16)
        assert (
            (line.size, line.head) == (len(sent), sent[:HEAD])
            if isinstance(line, Oversized)
            else line == sent
        )


TRICKY = st.sampled_from(['"', "\\", "\n", "\ud83d\ude00", "é", "\u2028", "x" * 30, "\\u", '\\"', "😀" * 9])
STRINGS = st.lists(TRICKY | st.text(max_size=5), max_size=200).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """The leaves of a JSON value with their paths; empty containers are leaves."""
    if not isinstance(value, (list, dict)) or not value:
        return [(path, value)]
    found = cast("list[Any] | dict[str, Any]", value)
    named: Iterable[tuple[Any, Any]] = found.items() if isinstance(found, dict) else enumerate(found)
    return [leaf for name, inner in named for leaf in flat(inner, f"{path}/{name}")]


def cut_short(value: Any, whole: Any) -> bool:
    """Is a leaf what is left of another when long strings are cut?"""
    if isinstance(whole, str) and len(json.dumps(whole)) > STRING_LIMIT - 20:
        return whole.startswith(value) and (value == whole or len(json.dumps(value)) > STRING_LIMIT - 20)
    return bool(value == whole)


@settings(deadline=None)
@given(VALUES, st.lists(st.integers(1, 300)), st.booleans())
def test_a_skim_is_the_same_json_with_its_long_strings_cut(
    value: Any, sizes: list[int], ascii_only: bool
) -> None:
    text = json.dumps({"value": value}, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "replace")
    (line,) = framed(data + b"\n", sizes, max_line=4)
    assert isinstance(line, Oversized)
    left, sent = flat(json.loads(line.truncated)), flat(json.loads(data))
    assert [path for path, _ in left] == [path for path, _ in sent]
    assert all(cut_short(value, whole) for (_, value), (_, whole) in zip(left, sent, strict=True))


@settings(deadline=None)
@given(st.binary(min_size=5, max_size=300), st.lists(st.integers(1, 20)))
def test_the_skim_of_anything_is_the_same_at_any_cut(data: bytes, sizes: list[int]) -> None:
    data = data.replace(b"\n", b" ")
    assert framed(data, sizes, max_line=4) == framed(data, [], max_line=4)


def test_a_skim_keeps_what_says_how_a_turn_ended() -> None:
    result = {"is_error": False, "result": "é" * 300_000, "type": "result", "num_turns": 3}
    data = json.dumps(result, ensure_ascii=False).encode()
    (line,) = framed(data + b"\n", [65536] * 20, max_line=1000)
    assert isinstance(line, Oversized)
    assert json.loads(line.truncated) == {**result, "result": "é" * (STRING_LIMIT // 2)}


def test_a_pair_of_escapes_is_not_cut_in_half() -> None:
    data = b'{"x":"' + b"a" * (STRING_LIMIT - 8) + rb"\ud83d\ude00" * 9 + b'"}'
    (line,) = framed(data + b"\n", [], max_line=10)
    assert isinstance(line, Oversized)
    json.loads(line.truncated)["x"].encode("utf-8")


def test_a_skim_that_is_too_big_itself_is_given_up() -> None:
    data = b"[" + b"1," * 2**20 + b"1]"
    (line,) = framed(data + b"\n", [65536] * 40, max_line=1000)
    assert (line.truncated, line.size) == (b"", len(data)) if isinstance(line, Oversized) else False


def test_a_line_far_over_the_limit_costs_little_more_than_the_limit() -> None:
    limit, chunk = 4 * 2**20, b"x" * 65536
    framing = Framing(limit)
    framing.feed(b'{"result":"')
    tracemalloc.start()
    for _ in range(256):
        framing.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < limit * 1.5
    (line,) = framing.feed(b'"}\n')
    assert isinstance(line, Oversized)
    assert line.size == 256 * 65536 + 13
