"""A recorded run as an agent that can be asked again: which incarnation, which wire, which prompts, which answers.

Guarantees: what cannot be played is a `BadOption` in one line, before anything starts. A recording of Claude Code's
wire is played by the scripted agent, one of JSON-RPC by its player behind the dialect that it was made with; the
prompts are those that were sent, and questions are answered as they were.

A new dialect is a row in `DIALECTS`. Not here: the players themselves (`scripted`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import attrs
import msgspec

from proctor.actors.errors import BadOption
from proctor.actors.plan.options import AgentMode, AgentOptions
from proctor.actors.plan.permissions import Verdict
from proctor.actors.plan.plan import Plan, scripted_plan
from proctor.actors.recording.sent_prompts import plain_prompt, sent_text
from proctor.actors.scripted import ScriptError
from proctor.actors.scripted.launch import program_command
from proctor.actors.scripted.script import read_stream
from proctor.protocols.acp import PROFILES, acp_dialect
from proctor.protocols.codex import CODEX
from proctor.protocols.dialect import Command, Dialect, Launch
from proctor.protocols.opencode import OPENCODE
from proctor.protocols.vocabulary import ApprovalRequested

Frame = dict[str, Any]
Wire = Literal["claude", "jsonrpc"]

DIALECTS: Mapping[str, Dialect] = {
    made.name: made
    for made in (CODEX, OPENCODE, *(acp_dialect(p) for p in PROFILES.values() if p.name != OPENCODE.name))
}
"""The dialects of JSON-RPC whose recordings can be played, by the name that `meta.json` has of them (`cli`)."""

ON_CLAUDES_WIRE = ("claude", "scripted")


@attrs.frozen
class Recorded:
    """One recorded incarnation. `prefix` names its files, `cli` the dialect (as far as it was noted)."""

    prefix: str
    cli: str
    wire: Wire
    prompts: tuple[str, ...]
    oneshot: bool
    allowed: Mapping[str, bool]

    async def verdict(self, question: ApprovalRequested) -> Verdict:
        """The recorded host's answer to this question; an unrecorded one is denied."""
        allow = self.allowed.get(question.id, False)
        return Verdict(allow, "" if allow else "it was denied when it was recorded")


def find_recording(path: str | Path) -> str:
    """The prefix of the files that `path` names: an incarnation's folder, a run directory (its newest incarnation), or
    the common beginning of four files. Raises `BadOption`."""
    folder = Path(os.path.expanduser(path)).absolute()
    if (folder / "stdout.ndjson").is_file():
        return f"{folder}/"
    if Path(f"{folder}.stdout.ndjson").is_file():
        return f"{folder}."
    if not folder.is_dir():
        raise BadOption(f"{str(path)!r} is not a recording: no such directory")
    numbered = [inner for inner in folder.iterdir() if inner.name.isdecimal()]
    found = sorted(
        (i for i in numbered if (i / "stdout.ndjson").is_file()), key=lambda inner: int(inner.name)
    )
    if not found:
        raise BadOption(
            f"{str(path)!r} is not a recording: no stdout.ndjson in it, and in no folder 1, 2, ... of it"
        )
    return f"{found[-1]}/"


def read_recording(path: str | Path) -> Recorded:
    """Read the facts of the recording that `path` names. Raises `BadOption` when there is none or nothing to send."""
    prefix = find_recording(path)
    meta = _frame(_bytes(f"{prefix}meta.json"))
    try:
        stdin = read_stream(prefix, "stdin.ndjson")
        read_stream(prefix, "stdout.ndjson")
    except ScriptError as error:
        raise BadOption(f"{str(path)!r} cannot be played: {error}") from error
    lines = [line for line in stdin.split(b"\n") if line.strip()]
    frames = [_frame(line) for line in lines]
    wire: Wire = "jsonrpc" if any("method" in frame for frame in frames) else "claude"
    oneshot = wire == "claude" and not any("type" in frame for frame in frames)
    prompts = _plain(stdin, meta) if oneshot else _prompts(lines)
    if not prompts:
        raise BadOption(f"{str(path)!r} holds no prompt that could be sent again")
    allowed = dict(_verdicts(frames))
    return Recorded(prefix, str(meta.get("cli", "")), wire, prompts, oneshot, allowed)


def replay_plan(
    recorded: Recorded, options: AgentOptions, *, faults: tuple[str, ...] = (), speed: float = 0.0
) -> Plan:
    """The agent that plays it; `speed` 0 as fast as it goes, 1 as it was. Raises `BadOption` and `ScriptError`."""
    chosen = options.copy()
    chosen.setdefault("permission", "allow" if recorded.wire == "jsonrpc" else recorded.verdict)
    if recorded.wire == "claude":
        mode: AgentMode = "oneshot" if recorded.oneshot else "session"
        chosen["mode"] = mode
        return scripted_plan("replay", recorded.prefix.rstrip("/."), chosen, faults=faults, speed=speed)
    dialect = DIALECTS.get(recorded.cli)
    if dialect is None:
        known = ", ".join((*ON_CLAUDES_WIRE, *DIALECTS))
        raise BadOption(
            f"recordings of {recorded.cli or 'an unknown command line'!r} cannot be played; known: {known}"
        )
    return replayed_by(dialect, recorded, chosen, faults=faults, speed=speed)


def replayed_by(
    dialect: Dialect,
    recorded: Recorded,
    options: AgentOptions,
    *,
    faults: tuple[str, ...] = (),
    speed: float = 0.0,
) -> Plan:
    """The plan of a recording of JSON-RPC, with `dialect` at our end of it. Raises `BadOption` and `ScriptError`."""
    base = scripted_plan("replay", recorded.prefix.rstrip("/."), options, faults=faults, speed=speed)
    argv = program_command(recorded.prefix, "jsonrpc", faults, speed)
    played = attrs.evolve(dialect, launch=functools.partial(_launch, dialect, argv))
    return attrs.evolve(base, dialect=played)


def _launch(dialect: Dialect, argv: tuple[str, ...], request: Launch) -> Command:
    """The dialect's own launch, with the player in the place of the program."""
    command = dialect.launch(attrs.evolve(request, executable=argv))
    return attrs.evolve(command, argv=argv)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _frame(data: bytes) -> Frame:
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return cast("Frame", found) if isinstance(found, dict) else {}


def _plain(stdin: bytes, meta: Frame) -> tuple[str, ...]:
    prompt = plain_prompt(stdin, [str(word) for word in meta.get("argv", ())])
    return () if prompt is None else (prompt,)


def _prompts(lines: list[bytes]) -> tuple[str, ...]:
    texts = (sent_text(line) for line in lines)
    return tuple(sent.text for sent in texts if sent is not None and sent.sort == "prompt")


def _verdicts(frames: list[Frame]) -> Iterator[tuple[str, bool]]:
    for frame in frames:
        match frame:
            case {
                "type": "control_response",
                "response": {"request_id": str(id), "response": {"behavior": behavior}},
            }:
                yield id, behavior == "allow"
            case _:
                pass
