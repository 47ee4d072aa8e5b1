from __future__ import annotations

import pytest

from proctor.cli.prompts import separate_prompt
from proctor.cli.ui.text import one_line, printable, tool_use, until
from proctor.cli.ui.transcript import Shown, Transcript, line_of
from proctor.protocols import vocabulary as v
from tests.tables import each_row

VOID = v.Notice(4, "t1", "attempt_void", "cut", {"message": "m", "parent": None})


def delta(text: str, parent: str | None = None) -> v.TextDelta:
    return v.TextDelta(1, "t1", text, parent)


def text(text: str, parent: str | None = None) -> v.Text:
    return v.Text(1, "t1", text, parent)


def out(*events: v.AnyEvent, answer: str = "") -> str:
    transcript = Transcript()
    shown = [*transcript.take(events), transcript.finish(answer)]
    return "".join(part.out for part in shown)


@each_row(
    ("event", "line"),
    [
        (v.Started(0, "t1", "s1", model="m", version="2.1"), "session s1, model m, version 2.1"),
        (v.Started(0, "t1", "s1"), "session s1"),
        (v.ToolCall(0, "t1", "i", "Bash", {"command": "ls -l"}), "Bash: ls -l"),
        (v.ToolCall(0, "t1", "i", "Bash", {"command": "a\n  b\n"}), "Bash: a b"),
        (v.ToolCall(0, "t1", "i", "Bash", {"command": "ls"}, "p1"), "  Bash: ls"),
        (v.ToolCall(0, "t1", "i", "Odd", {"n": 1}), 'Odd: {"n":1}'),
        (v.ToolCall(0, "t1", "i", "Odd"), "Odd"),
        (v.ToolResult(0, "t1", "i", "no such file", is_error=True), "the tool failed: no such file"),
        (v.ToolResult(0, "t1", "i", "fine"), None),
        (v.Retrying(0, "t1", 2, 10, 3.0, 529, "overloaded"), "retrying in 3 s, attempt 2 of 10: overloaded (529)"),
        (v.Retrying(0, "t1", 1), "retrying in 0 s, attempt 1"),
        (v.LimitReached(0, "t1", "five_hour"), "usage limit reached (five_hour)"),
        (v.Notice(0, "t1", "not_passed", "KEY is set here but not passed"), "KEY is set here but not passed"),
        (v.Notice(0, "t1", "conversation_reset"), "conversation reset"),
        (v.Notice(0, "t1", "sent", "asked"), None),
        (v.Garbled(0, None, "not_json", "oops", 4), "a line that is not a frame (not_json, 4 bytes): oops"),
        (v.TextDelta(0, "t1", "x"), None),
        (v.Thinking(0, "t1", "x"), None),
        (v.Unrecognized(0, "t1", "hologram"), None),
        (v.Exited(-1, None, "ok"), None),
    ],
)  # fmt: skip
def test_an_event_is_one_line_or_none(event: v.AnyEvent, line: str | None) -> None:
    assert line_of(event) == line


def test_a_block_whose_pieces_were_shown_is_not_shown_again() -> None:
    assert out(delta("one "), delta("two"), text("one two"), answer="one two") == "one two\n"


def test_a_block_without_pieces_is_shown_whole() -> None:
    assert out(text("one"), text("two")) == "one\ntwo\n"


def test_the_rest_of_a_block_that_was_shown_in_part_follows() -> None:
    assert out(delta("one "), text("one two")) == "one two\n"


def test_two_blocks_in_pieces_stand_on_lines_of_their_own() -> None:
    assert out(delta("one"), text("one"), delta("two"), text("two")) == "one\ntwo\n"


def test_pieces_without_their_block_end_in_a_newline() -> None:
    assert out(delta("one")) == "one\n"


def test_a_block_that_ends_in_a_newline_gets_no_second_one() -> None:
    assert out(text("one\n"), text("two\n")) == "one\ntwo\n"


def test_the_answer_is_shown_when_nothing_else_was() -> None:
    assert out(answer="all") == "all\n"
    assert out() == ""


def test_what_a_subagent_says_is_not_the_answer() -> None:
    assert out(delta("aside", "p1"), text("aside", "p1"), text("main")) == "main\n"


def test_a_void_attempt_is_told_apart_from_what_follows() -> None:
    transcript = Transcript()
    shown = transcript.take([delta("half"), VOID, delta("whole"), text("whole")])
    assert shown == [Shown("half\nwhole\n", "discard the last text: the attempt failed and is repeated\n")]


def test_a_subagents_void_attempt_does_not_cut_the_answer() -> None:
    void = v.Notice(4, "t1", "attempt_void", "cut", {"message": "m", "parent": "p1"})
    assert out(delta("ha"), void, delta("lf"), text("half")) == "half\n"


def test_notes_keep_their_place_where_both_go_to_one_terminal() -> None:
    transcript = Transcript(shared=True)
    call = v.ToolCall(0, "t1", "i", "Bash", {"command": "ls"})
    assert transcript.take([text("a"), call, delta("b"), call]) == [
        Shown("a\n", "Bash: ls\n"),
        Shown("b", "\nBash: ls\n"),
    ]


def test_notes_are_joined_where_they_go_elsewhere() -> None:
    call = v.ToolCall(0, "t1", "i", "Bash", {"command": "ls"})
    assert Transcript().take([text("a"), call, text("b"), call]) == [Shown("a\nb\n", "Bash: ls\nBash: ls\n")]


def test_quiet_has_no_notes() -> None:
    assert Transcript(quiet=True).take([v.Started(0, "t1", "s1")]) == []


def test_a_note_is_faint_where_it_is_asked_to_be() -> None:
    assert Transcript(dim=True).take([v.Started(0, "t1", "s1")]) == [Shown("", "\x1b[2msession s1\x1b[0m\n")]


def test_a_pipe_gets_the_characters_as_they_are_and_a_terminal_does_not() -> None:
    said = text("a\x1b[31mb\tc\n")
    assert Transcript().take([said])[0].out == "a\x1b[31mb\tc\n"
    assert Transcript(safe=True).take([said])[0].out == "a\\x1b[31mb\tc\n"


def test_what_a_terminal_would_obey_is_shown_as_its_code() -> None:
    assert printable("a\x1b\x07\r\x9b\u202eb\u2066é\n\t") == "a\\x1b\\x07\\x0d\\x9b\\u202eb\\u2066é\n\t"


def test_a_long_line_is_cut_with_a_sign() -> None:
    assert one_line("abc def", 5) == "abc …"
    assert tool_use("Bash", {"command": "x" * 300}).endswith("x…")


def test_a_reset_time_is_told_with_how_long_it_takes() -> None:
    assert until(None, 0.0) == "until an unknown time"
    assert until(1_000_185.0, 1_000_000.0).endswith("(in 3 min 5 s)")
    assert until(1_000_000.0 + 200_000, 1_000_000.0).startswith("until 1970-01-1")


VALUED = frozenset({"--model"})


@pytest.mark.covers("R187")
@each_row(
    ("argv", "settled"),
    [
        ("run claude hi", "run claude hi"),
        ("run|claude|-x is odd", "run|claude|--|-x is odd"),
        ("run|claude|-x is odd|--json", "run|claude|--json|--|-x is odd"),
        ("run|claude|-|--json", "run|claude|--json|--|-"),
        ("run|claude|--|-x is odd", "run|claude|--|-x is odd"),
        ("run|claude|--|--json", "run|claude|--|--json"),
        ("run|claude|--model|-a b|hi", "run|claude|--model|-a b|hi"),
        ("run|claude|--model=a b|hi", "run|claude|--model=a b|hi"),
        ("run|claude|-x", "run|claude|-x"),
        ("run|claude|--", "run|claude"),
    ],
)
def test_words_that_can_be_no_option_go_behind_the_dashes(argv: str, settled: str) -> None:
    cut = "|" if "|" in argv else " "
    assert separate_prompt(argv.split(cut), VALUED) == settled.split(cut)
