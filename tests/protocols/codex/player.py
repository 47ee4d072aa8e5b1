"""Plays a recorded run of Codex through a conversation: its stdout as bytes, its stdin as requests of ours.

The pipes were recorded without common times, so a line of stdin is said where it must have been: a request before its
reply, an answer before the server says that the question is resolved. Our requests then take over the numbers of the
recorded ones, so that the recorded replies find them. What no request of ours asks is only noted as asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import attrs

from proctor.protocols import jsonrpc
from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostTool, Launch
from proctor.protocols.vocabulary import AnyEvent, Decision, Interrupt, Prompt, Steer, ToolReturn
from tests.protocols.recorded import TRANSCRIPTS, Cut, names_in, received, whole

FOLDER = TRANSCRIPTS / "codex"
NAMES = names_in(FOLDER)
APP = [name for name in NAMES if name.startswith("app_")]
EXEC = [name for name in NAMES if not name.startswith("app_")]
THREADS = ("thread/start", "thread/resume", "thread/fork")
OURS = 10_000
"""Numbers of our own requests begin here, out of the way of the recorded ones."""

Message = dict[str, Any]


@attrs.frozen
class Step:
    """A line of stdout (`output`), or a message of stdin."""

    data: bytes
    message: Message
    output: bool


@attrs.frozen
class Recording:
    name: str
    argv: tuple[str, ...]
    exit: int | None
    stdout: bytes
    stderr: str
    stdin: tuple[Message, ...]


def _message(line: bytes) -> Message:
    try:
        return cast("Message", found) if isinstance(found := json.loads(line), dict) else {}
    except ValueError:
        return {}


@cache
def recording(name: str) -> Recording:
    meta = json.loads((FOLDER / f"{name}.meta.json").read_text())
    stdin = FOLDER / f"{name}.stdin.ndjson"
    told = stdin.read_bytes().splitlines() if stdin.exists() and name.startswith("app_") else []
    return Recording(
        name=name,
        argv=tuple(meta["argv"]),
        exit=meta["exit"],
        stdout=(FOLDER / f"{name}.stdout.ndjson").read_bytes(),
        stderr=(FOLDER / f"{name}.stderr.txt").read_text(),
        stdin=tuple(message for line in told if (message := _message(line))),
    )


def _steps(record: Recording) -> Iterator[Step]:
    waiting = list(record.stdin)
    for line in record.stdout.splitlines(keepends=True):
        said = _message(line)
        yield from _said_before(waiting, said)
        yield Step(line, said, output=True)
    for message in waiting:
        yield Step(b"", message, output=False)


def _said_before(waiting: list[Message], said: Message) -> Iterator[Step]:
    """What of stdin came before this line; all that stands before it as well."""
    due = [place for place, message in enumerate(waiting) if _is_due(message, said)]
    for _ in range(due[-1] + 1 if due else 0):
        yield Step(b"", waiting.pop(0), output=False)


def _is_due(message: Message, said: Message) -> bool:
    if "method" in message:
        return "method" not in said and "id" in said and message.get("id") == said["id"]
    resolved = said.get("method") == "serverRequest/resolved"
    return resolved and message.get("id") == said["params"]["requestId"]


def play(name: str, cut: Cut = whole) -> tuple[Conversation, list[AnyEvent]]:
    """The conversation at its end, and all its events."""
    return _play_app(name, cut) if name in APP else _play_exec(name, cut)


def _play_exec(name: str, cut: Cut) -> tuple[Conversation, list[AnyEvent]]:
    record = recording(name)
    resumed = "resume" in record.argv or "fork" in record.argv
    talk = Conversation(CODEX_EXEC, mode="oneshot", resumed=resumed)
    talk.greet()
    talk.send(Prompt("prompt-0", "go"))
    events = received(talk, record.stdout, cut)
    return talk, [*events, *talk.receive(b"")]


def _play_app(name: str, cut: Cut) -> tuple[Conversation, list[AnyEvent]]:
    record = recording(name)
    talk = Conversation(CODEX, launch=_launch(record))
    jsonrpc.pending_requests(talk.memo).next = OURS
    events: list[AnyEvent] = []
    pending = b""
    for step in _steps(record):
        if step.output:
            pending += step.data
            continue
        events += received(talk, pending, cut)
        pending = b""
        _say(talk, step.message)
    events += received(talk, pending, cut)
    return talk, [*events, *talk.receive(b"")]


def _launch(record: Recording) -> Launch:
    asked = [m for m in record.stdin if m.get("method") in THREADS]
    params: Message = asked[0]["params"] if asked else {}
    tools: list[Message] = params.get("dynamicTools", [])
    schemas = [m["params"]["outputSchema"] for m in record.stdin if "outputSchema" in m.get("params", {})]
    return Launch(
        executable=(),
        resume=params.get("threadId"),
        host_tools=tuple(
            HostTool(name=tool["name"], description="", schema=tool["inputSchema"]) for tool in tools
        ),
        json_schema=json.dumps(schemas[0]) if schemas else None,
    )


def _say(talk: Conversation, message: Message) -> None:
    if "method" not in message:
        return _answer(talk, message)
    number, params = message.get("id"), message.get("params", {})
    if number is None:
        return None
    if not _ask(talk, f"request-{number}", message["method"], params):
        jsonrpc.pending_requests(talk.memo).open[number] = jsonrpc.PendingRequest(
            "other", f"request-{number}"
        )
        return None
    own = jsonrpc.pending_requests(talk.memo)
    own.open[number] = own.open.pop(max(own.open))
    return None


def _ask(talk: Conversation, request: str, method: str, params: Message) -> bool:
    """Ask the same by a request of ours; False where it is not about our thread, or nothing of ours asks it."""
    thread = talk.memo.session_id
    if method == "initialize" and not talk.memo.version and params["clientInfo"]["name"] == "proctor":
        talk.greet()
    elif method in THREADS:
        return not talk.memo.greeted and bool(jsonrpc.pending_requests(talk.memo).open)
    elif thread is None or params.get("threadId") != thread:
        return False
    elif method == "turn/start":
        talk.send(Prompt(request, params["input"][0].get("text", "")))
    elif method == "turn/steer":
        talk.send(Steer(request, params["input"][0]["text"]))
    elif method == "turn/interrupt":
        talk.send(Interrupt(request))
    else:
        return method == "thread/backgroundTerminals/clean"
    return True


def _answer(talk: Conversation, message: Message) -> None:
    question, result = f"tq{message.get('id')}", cast("Message", message.get("result", {}))
    if question in talk.memo.calls:
        talk.send(ToolReturn(question, result["contentItems"][0]["text"], is_error=not result["success"]))
    elif question in talk.memo.approvals and ("decision" in result or "action" in result):
        said = str(result.get("decision", result.get("action")))
        talk.send(Decision(question, said.startswith("accept")))
