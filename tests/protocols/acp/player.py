"""Plays a recorded run of an Agent Client Protocol agent through a conversation: its stdout as bytes, its stdin as
requests of ours.

The recordings have no times of stdin, so each line is put where it makes sense: a request after the reply to the one
before it, a decision after its question, a cancel before the reply of the prompt that it ends. Requests that no
dialect of ours makes are only noted, so that their replies are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs

from proctor.protocols import jsonrpc
from proctor.protocols.acp import PROFILES, acp_dialect
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Launch
from proctor.protocols.vocabulary import AnyEvent, Decision, Interrupt, Prompt, SetPermissionMode
from tests.protocols.recorded import TRANSCRIPTS, Cut, names_in, received, whole

FOLDER = TRANSCRIPTS / "acp"
NAMES = names_in(FOLDER)

Json = dict[str, Any]


def dialect_of(name: str) -> Dialect:
    """The dialect of the agent that was recorded, whose session was in its own first mode."""
    profile = PROFILES[name.partition("_")[0].removesuffix("-acp")]
    return acp_dialect(attrs.evolve(profile, mode=None))


@cache
def stdout(name: str) -> tuple[bytes, ...]:
    """Its lines, each with its newline."""
    return tuple((FOLDER / f"{name}.stdout.ndjson").read_bytes().splitlines(keepends=True))


@cache
def stdin(name: str) -> tuple[Json, ...]:
    """What the host wrote, but for what was no JSON."""
    lines = (FOLDER / f"{name}.stdin.ndjson").read_text().splitlines()
    return tuple(json.loads(line) for line in lines if line.startswith("{"))


def _placed(name: str) -> Iterator[tuple[float, Json]]:
    frames = [json.loads(line) for line in stdout(name)]
    replies = {f["id"]: at for at, f in enumerate(frames) if "method" not in f and f.get("id") is not None}
    questions = {f["id"]: at for at, f in enumerate(frames) if "method" in f and "id" in f}
    end, running = float(len(frames)), 0
    for message in stdin(name):
        match message:
            case {"method": "session/cancel"}:
                yield replies.get(running, end) - 0.5, message
            case {"method": _, "id": number}:
                running = number
                yield min(replies.get(number - 1, -1) + 0.1, replies.get(number, end) - 0.6), message
            case {"id": number}:
                yield questions[number] + 0.5, message
            case _:
                raise ValueError(f"expected a message of the protocol, got {message!r}")


@cache
def steps(name: str) -> tuple[bytes | Json, ...]:
    """Lines of stdout and messages of stdin, in one order."""
    output: list[tuple[float, bytes | Json]] = [(float(at), line) for at, line in enumerate(stdout(name))]
    return tuple(step for _, step in sorted([*output, *_placed(name)], key=lambda item: item[0]))


def play(name: str, cut: Cut = whole) -> tuple[Conversation, list[AnyEvent]]:
    """The conversation at its end, and all its events."""
    loaded = next((m["params"]["sessionId"] for m in stdin(name) if m.get("method") == "session/load"), None)
    talk = Conversation(
        dialect_of(name),
        launch=Launch(executable=("agent",), resume=loaded, cwd="/x"),
        resumed=loaded is not None,
    )
    jsonrpc.pending_requests(talk.memo).next = 0
    events: list[AnyEvent] = []
    pending = b""
    for step in steps(name):
        if isinstance(step, bytes):
            pending += step
            continue
        events += received(talk, pending, cut)
        pending = b""
        _say(talk, step)
    events += received(talk, pending, cut)
    return talk, [*events, *talk.receive(b"")]


def _say(talk: Conversation, message: Json) -> None:
    match message:
        case {"method": "initialize"}:
            talk.greet()
        case {"method": "session/new" | "session/load", "id": 1}:
            pass  # asked for by the dialect itself
        case {"method": "session/cancel"}:
            talk.send(Interrupt("i"))
        case {"method": "session/prompt", "id": number, "params": {"sessionId": session, "prompt": [block]}}:
            if session == talk.memo.session_id:
                jsonrpc.pending_requests(talk.memo).next = number
                talk.send(Prompt(f"prompt-{number}", block["text"]))
            else:
                _note(talk, number)
        case {"method": "session/set_mode", "id": number, "params": {"modeId": mode}}:
            jsonrpc.pending_requests(talk.memo).next = number
            talk.send(SetPermissionMode(f"mode-{number}", mode))
        case {"method": _, "id": number}:
            _note(talk, number)
        case {"id": number, "result": {"outcome": outcome}}:
            _decide(talk, str(number), outcome)
        case _:
            raise ValueError(f"expected a message of the recorded host, got {message!r}")


def _note(talk: Conversation, number: int) -> None:
    jsonrpc.pending_requests(talk.memo).open[number] = jsonrpc.PendingRequest("other", f"other-{number}")


def _decide(talk: Conversation, question: str, outcome: Json) -> None:
    if question in talk.memo.approvals:
        option = str(outcome.get("optionId", ""))
        talk.send(Decision(question, option.startswith(("allow", "once", "proceed"))))
