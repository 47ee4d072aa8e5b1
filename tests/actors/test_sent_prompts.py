from __future__ import annotations

import json
from typing import Any

from proctor.actors.recording.sent_prompts import SentPrompts
from tests.tables import each_row


def lines(*frames: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


@each_row(
    "frame",
    [
        {"type": "user", "message": {"role": "user", "content": "hi"}},
        {"type": "user", "message": {"content": [{"type": "text", "text": "hi"}, {"type": "image"}]}},
        {"id": 3, "method": "session/prompt", "params": {"prompt": [{"type": "text", "text": "hi"}]}},
        {"id": 3, "method": "turn/start", "params": {"input": [{"type": "text", "text": "hi"}]}},
        {
            "key": "prompt.1",
            "verb": "POST",
            "path": "/session/s/prompt_async",
            "body": {"parts": [{"text": "hi"}]},
        },
    ],
    ids=lambda frame: frame.get("method") or frame.get("type") or "http",
)
def test_the_prompt_of_each_wire_is_read(frame: dict[str, Any]) -> None:
    prompts = SentPrompts.read(lines({"id": 1, "method": "initialize"}, frame))
    assert (prompts.take("p"), prompts.take("q")) == ("hi", None)


def test_where_frames_carry_ids_a_prompt_is_found_by_its_own() -> None:
    one, two = ({"type": "user", "uuid": id, "message": {"content": id * 2}} for id in ("a", "b"))
    prompts = SentPrompts.read(lines(one, two))
    assert (prompts.take("b"), prompts.take("a"), prompts.take("c")) == ("bb", "aa", None)


def test_text_for_a_running_turn_is_no_prompt() -> None:
    start, steer = (
        {"method": f"turn/{method}", "params": {"input": [{"text": method}]}} for method in ("start", "steer")
    )
    prompts = SentPrompts.read(lines(start, steer))
    assert (prompts.take("p"), prompts.take("p"), prompts.take("s", "steer")) == ("start", None, "steer")


@each_row(
    ("stdin", "argv", "prompt"),
    [
        (b"two\nlines\n", (), "two\nlines\n"),
        (b'{"a": 1}', (), '{"a": 1}'),
        (b"", ("claude", "-p", "hi"), "hi"),
        (b"", ("claude", "-p", "--verbose"), None),
        (b"\xff", (), "\ufffd"),
    ],
)
def test_a_prompt_that_was_sent_as_plain_text_is_read_as_it_is(
    stdin: bytes, argv: tuple[str, ...], prompt: str | None
) -> None:
    assert SentPrompts.read(stdin, argv).take("p") == prompt
