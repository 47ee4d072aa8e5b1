from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from proctor.actors.serving.chunks import (
    Chunk,
    ChunkBuilder,
    TextChunk,
    ThinkingChunk,
    ToolOutput,
    ToolUse,
    Void,
)
from proctor.protocols import vocabulary as v
from tests.tables import each_row

T = "t"
VOID = v.Notice(0, T, "attempt_void", data={"message": "m", "parent": None})
WHOLE = "First it looks."
ANSWER = "It is four."


def pieces(text: str) -> list[v.AnyEvent]:
    return [v.TextDelta(0, T, text[n : n + 3]) for n in range(0, len(text), 3)]


def block(text: str) -> list[v.AnyEvent]:
    return [*pieces(text), v.Text(0, T, text)]


def again(*blocks: str) -> v.Notice:
    return v.Notice(0, T, "attempt_void", data={"message": "m", "parent": None, "texts": len(blocks)})


def sent(attempt: int, *, goes_on: bool = False) -> v.Notice:
    return v.Notice(0, T, "sent", data={"ticket": "q", "attempt": attempt, "goes_on": goes_on})


def said(chunks: Iterable[Chunk]) -> tuple[str, str]:
    """The text and the thoughts that count."""
    text = thinking = ""
    for chunk in chunks:
        match chunk:
            case TextChunk():
                text += chunk.text
            case ThinkingChunk():
                thinking += chunk.text
            case Void():
                assert text.endswith(chunk.text)
                assert thinking.endswith(chunk.thinking)
                text = text[: len(text) - len(chunk.text)]
                thinking = thinking[: len(thinking) - len(chunk.thinking)]
            case _:
                pass
    return text, thinking


def heard(events: Sequence[v.AnyEvent], answer: str = ANSWER) -> list[Chunk]:
    speech = ChunkBuilder()
    return [*(chunk for event in events for chunk in speech.add(event)), *speech.end(answer)]


BROKEN = pieces("Let me guess: five.")
BREAKS = [
    pytest.param([VOID], id="void"),
    pytest.param([VOID, *BROKEN[:3], VOID], id="void twice"),
    pytest.param([], id="without a word"),
    pytest.param([sent(2, goes_on=True)], id="resumed"),
]


@each_row("breaks", BREAKS)
@each_row("at", range(len(BROKEN) + 1))
@each_row("before", [[], block(WHOLE)], ids=["first block", "second block"])
@each_row("streamed", [True, False])
def test_a_stream_that_breaks_anywhere_says_each_block_once(
    breaks: list[v.AnyEvent], at: int, before: list[v.AnyEvent], streamed: bool
) -> None:
    answer = block(ANSWER) if streamed else [v.Text(0, T, ANSWER)]
    if streamed and not breaks:  # nobody can tell such pieces from those of the answer
        at = 0
    chunks = heard([*before, *BROKEN[:at], *breaks, *answer])
    assert said(chunks)[0] == (f"{WHOLE}\n\n{ANSWER}" if before else ANSWER)
    assert all(chunk.text or chunk.thinking for chunk in chunks if isinstance(chunk, Void))


@each_row("at", range(len(BROKEN) + 1))
def test_a_prompt_that_is_sent_again_from_the_start_takes_all_back(at: int) -> None:
    chunks = heard([sent(1), *block(WHOLE), *BROKEN[:at], sent(2), *block(ANSWER)])
    assert said(chunks)[0] == ANSWER


def test_whole_blocks_of_a_message_that_broke_are_taken_back_as_well() -> None:
    events = [*block(WHOLE), *block("a"), *block("b"), *pieces("c"), again("a", "b"), *block(ANSWER)]
    assert said(heard(events))[0] == f"{WHOLE}\n\n{ANSWER}"


def test_the_void_of_a_subagent_takes_nothing_back() -> None:
    other = v.Notice(0, T, "attempt_void", data={"message": "m", "parent": "c1"})
    assert Void not in [type(chunk) for chunk in heard([*pieces(ANSWER), other, v.Text(0, T, ANSWER)])]


@each_row(
    ("events", "text"),
    [
        ([], ANSWER),
        (pieces(ANSWER), ANSWER),
        (pieces("thinking aloud"), ANSWER),
        (block(WHOLE), WHOLE),
        ([*block(WHOLE), *pieces("thinking aloud")], WHOLE),
        ([*block(WHOLE), *pieces(ANSWER)], f"{WHOLE}\n\n{ANSWER}"),
        ([*block("It is "), *block("four.")], "It is \n\nfour."),
        (block(f"{ANSWER}\n"), f"{ANSWER}\n"),
    ],
)
def test_the_texts_are_the_whole_blocks_or_else_the_answer(events: list[v.AnyEvent], text: str) -> None:
    assert said(heard(events))[0] == text


def test_thoughts_come_in_pieces_once_and_are_taken_back() -> None:
    speech = ChunkBuilder()
    events: list[v.AnyEvent] = [
        v.Thinking(0, T, "hm", partial=True),
        VOID,
        v.Thinking(0, T, "so ", partial=True),
        v.Thinking(0, T, "be", partial=True),
        v.Thinking(0, T, "so be it"),
        v.Thinking(0, T, "yes"),
    ]
    chunks = [chunk for event in events for chunk in speech.add(event)]
    assert chunks == [
        ThinkingChunk("hm"),
        Void(thinking="hm"),
        ThinkingChunk("so "),
        ThinkingChunk("be"),
        ThinkingChunk(" it"),
        ThinkingChunk("\n\nyes"),
    ]
    assert said(chunks)[1] == speech.thinking == "so be it\n\nyes"


def test_a_tool_has_its_name_its_result_and_how_long_it_ran() -> None:
    speech = ChunkBuilder()
    beside = {"structured_content": {"n": 1}}
    events: list[v.AnyEvent] = [
        v.ToolCall(1, T, "c1", "Read", {"path": "a"}),
        v.ToolCall(2, T, "c2", "Bash", {}, parent="c1"),
        v.ToolResult(3, T, "c2", "no", is_error=True, parent="c1"),
        v.ToolResult(4, T, "c1", "text", metadata=beside, duration=0.25),
    ]
    chunks = [chunk for event in events for chunk in speech.add(event)]
    assert chunks == [
        ToolUse("c1", "Read", {"path": "a"}),
        ToolUse("c2", "Bash", {}),
        ToolOutput("c2", "Bash", "no", is_error=True),
        ToolOutput("c1", "Read", "text", duration=0.25),
    ]
    assert (chunks[2].metadata["parent"], chunks[3].metadata["result"]) == ("c1", beside)
