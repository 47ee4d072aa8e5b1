from __future__ import annotations

import math

import pytest

from proctor.actors.gateways.openai.content import Content
from tests.tables import each_row

FIRST = "Hello, wor"
RETRIES = {
    "the same": "Hello, world.",
    "longer": FIRST + "l" * 20,
    "shorter": "Hello",
    "other from the start": "Good day.",
    "other in the middle": "Hello, you.",
    "nothing": "",
}


def cut(text: str, size: int) -> list[str]:
    return [text[n : n + size] for n in range(0, len(text), size)]


@each_row("size", [1, 3, 100])
@each_row("text", [pytest.param(text, id=name) for name, text in RETRIES.items()])
def test_what_a_client_joins_is_the_text_wherever_the_first_attempt_breaks(text: str, size: int) -> None:
    for said in range(len(FIRST) + 1):
        for sent in range(said + 1):
            content, out = broken(said, sent, size)
            out += "".join(content.add(piece, 0.0) for piece in cut(text, size)) + content.flush()
            assert content.complete == text.startswith(FIRST[:sent])
            # where the text is another, a client has no word of it behind what it was sent
            assert out == (text if content.complete else FIRST[:sent])


def broken(said: int, sent: int, size: int) -> tuple[Content, str]:
    """A text of which so much was said, and so much of that was sent, before it was taken back."""
    content = Content(hold=1.0)
    out = (content.add(FIRST[:sent], 0.0) if sent else "") + content.flush()
    content.pause()
    out += "".join(content.add(piece, 0.0) for piece in cut(FIRST[sent:said], size))
    if said:
        content.retract(FIRST[:said])
    return content, out


@each_row("at", range(1, len(FIRST)))
def test_a_text_that_parted_and_is_taken_back_can_still_be_said(at: int) -> None:
    content = Content(hold=0.0)
    out = content.add("So: ", 0.0) + content.add(FIRST, 0.0)
    content.retract(FIRST)
    other = FIRST[:at] + "?!"
    out += content.add(other, 0.0)
    assert content.diverged
    content.retract(other)
    assert not content.diverged
    out += content.add(FIRST, 0.0) + content.add("ld.", 0.0)
    assert (content.complete, out) == (True, "So: Hello, world.")


def test_the_first_text_of_a_step_is_held_and_the_rest_goes_out_as_it_comes() -> None:
    content = Content(hold=1.0)
    assert (content.due, content.add("a", 5.0), content.add("b", 5.5), content.due) == (math.inf, "", "", 6.0)
    assert (content.flush(), content.due, content.add("c", 6.0)) == ("ab", math.inf, "c")
    content.pause()
    assert (content.add("d", 7.0), content.due) == ("", 8.0)


def test_what_was_taken_back_while_it_was_held_leaves_no_trace() -> None:
    content = Content(hold=1.0)
    assert content.add("Wrong", 0.0) == ""
    content.retract("Wrong")
    assert (content.due, content.add("Right", 3.0), content.due) == (math.inf, "", 4.0)
    assert (content.flush(), content.complete) == ("Right", True)
