"""Plays a recorded `opencode run` through a conversation."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from proctor.protocols.conversation import Conversation
from proctor.protocols.opencode import OPENCODE_RUN
from proctor.protocols.vocabulary import AnyEvent, Prompt
from tests.protocols.recorded import TRANSCRIPTS, Cut, names_in, received, whole

FOLDER = TRANSCRIPTS / "opencode"
NAMES = names_in(FOLDER)


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


def by_size(size: int) -> Cut:
    return lambda output: (output[at : at + size] for at in range(0, len(output), size))


def play(name: str, cut: Cut = whole) -> tuple[Conversation, list[AnyEvent]]:
    """The conversation at its end, and all its events."""
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    talk.greet()
    talk.send(Prompt("p", "hi"))
    events = received(talk, stdout(name), cut)
    return talk, [*events, *talk.receive(b"")]
