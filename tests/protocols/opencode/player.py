"""Plays a recorded `opencode run` through a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from proctor.protocols.conversation import Conversation
from proctor.protocols.opencode import OPENCODE_RUN
from proctor.protocols.vocabulary import AnyEvent, Prompt

FOLDER = Path(__file__).parents[2] / "transcripts" / "opencode"
NAMES = sorted(path.name.removesuffix(".meta.json") for path in FOLDER.glob("*.meta.json"))


@cache
def stdout(name: str) -> bytes:
    """All that it wrote."""
    return (FOLDER / f"{name}.stdout.ndjson").read_bytes()


@cache
def exit_status(name: str) -> int | None:
    """Its exit status, None for a run that did not leave."""
    meta: dict[str, Any] = json.loads((FOLDER / f"{name}.meta.json").read_text())
    status: int | None = meta["exit"]
    return status


def whole(output: bytes) -> Iterable[bytes]:
    return [output]


def by_byte(output: bytes) -> Iterable[bytes]:
    return (output[at : at + 1] for at in range(len(output)))


def by_size(size: int) -> Callable[[bytes], Iterable[bytes]]:
    return lambda output: (output[at : at + size] for at in range(0, len(output), size))


def play(name: str, cut: Callable[[bytes], Iterable[bytes]] = whole) -> tuple[Conversation, list[AnyEvent]]:
    """The conversation at its end, and all its events."""
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    talk.greet()
    talk.send(Prompt("p", "hi"))
    events = [event for chunk in cut(stdout(name)) if chunk for event in talk.receive(chunk)]
    return talk, [*events, *talk.receive(b"")]
