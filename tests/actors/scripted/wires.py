"""Hosts of the scripted agent's other wires, as short as can be: they greet, ask once, say yes, and read to the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from proctor.actors.scripted import PROGRAM
from tests.actors.scripted.host import LIMIT, Frame, write_script

Answer = Callable[[Frame, str], Sequence[Frame]]


@attrs.frozen
class Told:
    """What a process said until its stdin was closed and it left: frames, other lines, stderr, and its status."""

    frames: list[Frame]
    odd: list[bytes]
    stderr: bytes
    status: int


def codex(frame: Frame, prompt: str) -> Sequence[Frame]:
    """What a host of the app-server says to this frame."""
    if frame.get("id") == 1 and "method" not in frame and "result" in frame:
        thread = frame["result"]["thread"]["id"]
        words = [{"type": "text", "text": prompt}]
        return [{"id": 2, "method": "turn/start", "params": {"threadId": thread, "input": words}}]
    if str(frame.get("method", "")).endswith("requestApproval"):
        return [{"id": frame["id"], "result": {"decision": "accept"}}]
    return []


def acp(frame: Frame, prompt: str) -> Sequence[Frame]:
    """What a host of the Agent Client Protocol says to this frame."""
    if frame.get("id") == 1 and "sessionId" in frame.get("result", {}):
        words = [{"type": "text", "text": prompt}]
        params = {"sessionId": frame["result"]["sessionId"], "prompt": words}
        return [{"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}]
    if frame.get("method") == "session/request_permission":
        kinds = {option["kind"]: option["optionId"] for option in frame["params"]["options"]}
        outcome = {"outcome": "selected", "optionId": kinds["allow_once"]}
        return [{"jsonrpc": "2.0", "id": frame["id"], "result": {"outcome": outcome}}]
    return []


HELLO: Mapping[str, Sequence[Frame]] = {
    "codex": (
        {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "test"}}},
        {"method": "initialized"},
        {"id": 1, "method": "thread/start", "params": {"cwd": "/"}},
    ),
    "acp": (
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    ),
}
WIRES: Mapping[str, tuple[str, Answer] | None] = {
    "codex": ("codex", codex),
    "acp": ("acp", acp),
    "opencode": ("acp", acp),
    "gemini": ("acp", acp),
    "codex-exec": None,
    "opencode-run": None,
}
"""Voice: how it is greeted and answered; None for a run, whose prompt is all of stdin."""

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "codex": ("app-server",),
    "codex-exec": ("exec", "--json", "-s", "danger-full-access", "-"),
    "opencode-run": ("run", "--format=json", "--thinking", "--auto"),
}


def tell(voice: str, home: Path, script: list[Frame], *faults: str, prompt: str = "hi") -> Told:
    """One process of this voice, asked once."""
    path = write_script(home / "script.ndjson", script)
    words = [f"--script={path}", f"--dialect={voice}", *(f"--fault={fault}" for fault in faults)]
    command = [sys.executable, "-I", "-S", str(PROGRAM), *words, *ARGUMENTS.get(voice, ())]
    environment = {"PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        ["timeout", "--signal=KILL", str(LIMIT), *command],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
    )
    with process:
        frames, odd = converse(process, voice, prompt)
        assert process.stderr
        stderr = process.stderr.read()
    return Told(frames, odd, stderr, process.returncode)


def converse(process: subprocess.Popen[bytes], voice: str, prompt: str) -> tuple[list[Frame], list[bytes]]:
    frames, odd = list[Frame](), list[bytes]()
    assert process.stdin
    assert process.stdout
    wire = WIRES[voice]
    say(process, *(HELLO[wire[0]] if wire else ()))
    if wire is None:
        process.stdin.write(prompt.encode())
        process.stdin.close()
    for line in process.stdout:
        try:
            frames.append(json.loads(line))
        except ValueError:
            odd.append(line)
            continue
        if wire is not None:
            say(process, *wire[1](frames[-1], prompt))
        if over(frames[-1]) and not process.stdin.closed:
            process.stdin.close()
    return frames, odd


def say(process: subprocess.Popen[bytes], *frames: Frame) -> None:
    assert process.stdin
    try:
        process.stdin.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        process.stdin.flush()
    except (BrokenPipeError, ValueError):
        return


def over(frame: Frame) -> bool:
    """Is this the end of the turn, in the wires that have sessions?"""
    return frame.get("method") == "turn/completed" or (
        frame.get("id") == 2 and "method" not in frame and is_end(frame)
    )


def is_end(frame: Frame) -> bool:
    result: dict[str, Any] = frame.get("result", {})
    return "stopReason" in result or "error" in frame
