"""Plays a recorded run of Claude Code through a conversation: its stdout as bytes, its stdin as requests, in the
order of the recorded times.

What was asked in the recording and no request of ours asks (mcp_status, get_usage, ...) is only noted in the memo, so
that its reply is known. The recorded hosts greeted under ids of their own; the memo is told those too. Their hooks are
ours, but for those that a session of ours would not have; their tools are where they were served under our name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import attrs

from proctor.protocols.claude import CLAUDE
from proctor.protocols.claude.hooks import NEVER_CALLED
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostHook, HostTool, Launch, Mode
from proctor.protocols.mcp import HOST
from proctor.protocols.vocabulary import (
    AnyEvent,
    Decision,
    EndSession,
    HookVerdict,
    Interrupt,
    Prompt,
    SetModel,
    ToolReturn,
)
from tests.protocols.recorded import TRANSCRIPTS, Cut, names_in, received, whole

FOLDER = TRANSCRIPTS / "claude"
NAMES = names_in(FOLDER)


@attrs.frozen
class Step:
    """A piece of stdout (`output`) or a line of stdin."""

    data: bytes
    output: bool


@attrs.frozen
class Recording:
    name: str
    mode: Mode
    prompt: str
    stdout: bytes
    stderr: str
    exit_code: int
    steps: tuple[Step, ...]


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _ordered(
    stdout: list[bytes], out_times: list[float], stdin: list[bytes], in_times: list[float]
) -> Iterator[Step]:
    """By time; but the two pipes were stamped by two readers, so a line goes before its reply at the latest."""
    replied: dict[str, tuple[float, float]] = {}
    placed: list[tuple[tuple[float, float], Step]] = []
    for index, (line, time) in enumerate(zip(stdout, out_times, strict=True)):
        placed.append(((time, index), Step(line, output=True)))
        if b'"control_response"' in line:
            replied.setdefault(json.loads(line)["response"]["request_id"], (time, index - 0.5))
    for line, time in zip(stdin, [*in_times, *[0.0] * len(stdin)], strict=False):
        late = (time, math.inf)
        placed.append((min(late, replied.get(_request_id(line), late)), Step(line, output=False)))
    return (step for _, step in sorted(placed, key=lambda item: item[0]))


def _request_id(line: bytes) -> str:
    try:
        message = json.loads(line)
    except ValueError:
        return ""
    found = message.get("request_id") or message.get("response", {}).get("request_id", "")
    return str(found)


@cache
def recording(name: str) -> Recording:
    meta = json.loads((FOLDER / f"{name}.meta.json").read_text())
    stdout = _lines(FOLDER / f"{name}.stdout.ndjson")
    stdin = _lines(FOLDER / f"{name}.stdin.ndjson")
    trimmed = len(stdout) != len(meta["line_times_s"])
    out_times = [0.0] * len(stdout) if trimmed else meta["line_times_s"]
    argv: list[str] = meta["argv"]
    return Recording(
        name=name,
        mode="session" if any(word.startswith("--input-format") for word in argv) else "oneshot",
        prompt=argv[argv.index("-p") + 1] if "-p" in argv else "",
        stdout=b"".join(stdout),
        stderr=(FOLDER / f"{name}.stderr.txt").read_text(),
        exit_code=meta["exit_code"],
        steps=tuple(_ordered(stdout, out_times, stdin, meta["stdin_times_s"])),
    )


def play(name: str, cut: Cut = whole) -> tuple[Conversation, list[AnyEvent]]:
    """The conversation at its end, and all its events."""
    record = recording(name)
    talk = Conversation(CLAUDE, launch=_launch(record))
    events: list[AnyEvent] = []
    if record.mode == "oneshot":
        talk.greet()
        talk.send(Prompt("prompt-0", record.prompt))
    pending = b""
    for number, step in enumerate(record.steps):
        if step.output:
            pending += step.data
            continue
        events += received(talk, pending, cut)
        pending = b""
        if record.mode == "session":
            _say(talk, step.data, number)
    events += received(talk, pending, cut)
    return talk, [*events, *talk.receive(b"")]


def _at(value: Any, *path: str) -> Any:
    """What is there in nested objects, None where nothing is."""
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _said(record: Recording) -> Iterator[Any]:
    for step in record.steps:
        with suppress(ValueError):
            if not step.output:
                yield json.loads(step.data)


def _launch(record: Recording) -> Launch:
    said = [*_said(record)]
    greetings = [frame for frame in said if _at(frame, "request", "subtype") == "initialize"][:1]
    hooks = [hook for frame in greetings for hook in _hooks(_at(frame, "request", "hooks") or {})]
    served = any(HOST in (_at(frame, "request", "sdkMcpServers") or ()) for frame in greetings)
    tools = _tools(said) if served else ()
    return Launch(executable=(), mode=record.mode, host_tools=tuple(tools), host_hooks=tuple(hooks))


def _hooks(points: Mapping[str, Any]) -> Iterator[HostHook]:
    for point, entries in points.items():
        for entry in entries if point not in NEVER_CALLED else ():
            for name in entry["hookCallbackIds"]:
                yield HostHook(name=name, point=point, matcher=entry.get("matcher"), blocking=False)


def _tools(said: Iterable[Any]) -> Iterator[HostTool]:
    for frame in said:
        for tool in _at(frame, "response", "response", "mcp_response", "result", "tools") or ():
            yield HostTool(name=tool["name"], description="", schema={})


def _say(talk: Conversation, line: bytes, number: int) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        return
    match message["type"]:
        case "user":
            text = message["message"]["content"]
            talk.send(
                Prompt(message.get("uuid") or f"prompt-{number}", text if isinstance(text, str) else "")
            )
        case "control_request":
            _ask(talk, message["request_id"], message["request"])
        case "control_response":
            _decide(talk, message["response"])
        case _:
            pass  # the CLI ignores what it does not know, and so does the player


def _ask(talk: Conversation, request_id: str, request: dict[str, Any]) -> None:
    match request["subtype"]:
        case "initialize" if not talk.memo.greeted:
            talk.greet()
            talk.memo.pending[request_id] = talk.memo.pending.pop("greeting")
        case "interrupt":
            talk.send(Interrupt(request_id))
        case "set_model":
            talk.send(SetModel(request_id, request["model"]))
        case "end_session":
            talk.send(EndSession(request_id))
        case other:
            talk.memo.pending[request_id] = other


def _decide(talk: Conversation, reply: dict[str, Any]) -> None:
    """Say what the recorded host said; the handshake of its tools is our own affair."""
    request: str = reply["request_id"]
    if request in talk.memo.approvals:
        allow = _at(reply, "response", "behavior") == "allow"
        message = _at(reply, "response", "message") or ""
        talk.send(Decision(request, allow, message, _at(reply, "response", "updatedInput")))
    elif request in talk.memo.calls and (result := _at(reply, "response", "mcp_response", "result")):
        talk.send(ToolReturn(request, result["content"][0]["text"], result["isError"]))
    elif request in talk.memo.calls:
        decision = _at(reply, "response", "hookSpecificOutput", "permissionDecision")
        talk.send(HookVerdict(request, allow=decision != "deny"))
