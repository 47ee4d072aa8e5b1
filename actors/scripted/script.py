"""Scripts, faults and recordings: the input of the scripted agent, read and checked before anything runs.

A script is NDJSON: blank lines and lines that begin with `#` are skipped, an `agent` line may come first, a `turn`
line begins a turn, `reply` and `end` close one, every other line is a step of the turn it stands in. Any mistake is a
`ScriptError` with the file and the line. A recording is split at its results: what stands before the first turn is
its greeting, replies to the host's requests are kept by their subtype, and a turn that the CLI began by itself stays
with the turn before it.

Standard library only: the program runs without site-packages, and the launching side checks with this same code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from proctor.actors.scripted.frames import ENDINGS, Frame, as_frame

Kind = type | tuple[type, ...]
NUMBER: tuple[type, ...] = (int, float)

TEXT: Mapping[str, Kind] = {"deltas": int, "delay": NUMBER, "parent": str}
CLOSE: Mapping[str, Kind] = {"cost": NUMBER, "usage": dict, "structured": (dict, list)}
STEPS: Mapping[str, tuple[Kind, Mapping[str, Kind]]] = {
    "reply": (str, {**TEXT, **CLOSE}),
    "say": (str, TEXT),
    "think": (str, TEXT),
    "tool": (
        str,
        {
            "input": dict,
            "ask": bool,
            "result": str,
            "error": bool,
            "seconds": NUMBER,
            "run": str,
            "parent": str,
        },
    ),
    "retry": (int, {"max": int, "delay": NUMBER, "status": int, "error": str, "times": int}),
    "notice": (str, {"tag": str, "level": str}),
    "host": (str, {"input": dict, "parent": str}),
    "sleep": (NUMBER, {}),
    "listen": (NUMBER, {}),
    "frame": (dict, {}),
    "line": (str, {}),
    "fault": (str, {}),
    "end": (str, {"text": str, "status": int, "resets": NUMBER, **CLOSE}),
}
"""What a line of a script may be: the type of its value, and its other fields with their types."""

HEADERS: Mapping[str, tuple[Kind, Mapping[str, Kind]]] = {
    "turn": (str, {"when": str, "incarnation": int, "unasked": NUMBER}),
    "agent": (dict, {}),
}
AGENT: Mapping[str, Kind] = {
    "model": str,
    "version": str,
    "tools": list,
    "mcp_servers": dict,
    "greeting": NUMBER,
}

# fault: where it acts, its argument when none is given; "trait" lasts as long as the process
FAULTS: Mapping[str, tuple[str, str]] = {
    "crash": ("point", ""),
    "exit": ("point", "1"),
    "hang": ("point", ""),
    "stop": ("point", ""),
    "mute": ("point", ""),
    "flood": ("point", "10000"),
    "garbage": ("point", "1"),
    "oversized": ("point", "33"),
    "stderr": ("point", "1MB"),
    "bad_utf8": ("point", ""),
    "cut": ("point", ""),
    "daemon": ("point", "600"),
    "limit": ("point", "3"),
    "auth": ("point", "0"),
    "retry": ("point", "3"),
    "error_then_silence": ("point", ""),
    "approval_never": ("point", ""),
    "lost_prompt": ("point", ""),
    "exit_after_success": ("point", "1"),
    "ignore_eof": ("trait", ""),
    "ignore_term": ("trait", ""),
    "linger": ("trait", ""),
    "slow": ("trait", "0.05"),
    "silent_greeting": ("start", ""),
    "refuse_resume": ("start", ""),
}
FAULT = (
    r"(?P<name>[a-z0-9_]+)(?::(?P<arg>[^@]+))?"
    r"(?P<where>(?:@(?:turn|line)=\d+)*)(?P<once>@once(?:=(?P<key>[\w.-]+))?)?"
)
HEXADECIMAL = frozenset("0123456789abcdefABCDEF-")
UNITS: Mapping[str, int] = {"": 1, "B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
NEED_TURN = ("limit", "auth", "approval_never", "lost_prompt", "exit_after_success")
FIRST_LINE: Mapping[str, int] = {"lost_prompt": 0, "cut": 2}


class ScriptError(Exception):
    """A mistake in a script or a fault, with the file and the line (from 1; 0: none) where it is."""

    # the facts of an error, as in proctor.runtime.error_facts, which is not loaded here: a scripted agent starts at once
    retryable = False
    fault = "caller"
    http_status = 422
    exit_status = 2
    remedy = "correct the line that it names"

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.file = file
        self.line = line
        self.text = text


def is_uuid(text: str) -> bool:
    groups = text.split("-")
    return [len(group) for group in groups] == [8, 4, 4, 4, 12] and set(text) <= HEXADECIMAL


def size(text: str) -> float:
    """A number with or without a unit: `2.5`, `64KB`, `20MB`; ValueError when it is neither."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?B)?", text)
    if match is None:
        raise ValueError(f"expected a number, got {text!r}")
    return float(match[1]) * UNITS[match[2] or ""]


class Fault:
    """`NAME[:ARG][@turn=N][@line=N][@once[=KEY]]`; ValueError tells what is wrong with it."""

    def __init__(self, spec: str) -> None:
        match = re.fullmatch(FAULT, spec)
        if match is None or match["name"] not in FAULTS:
            raise ValueError(f"unknown fault {spec!r}; there are {', '.join(FAULTS)}")
        self.spec = spec
        self.name: str = match["name"]
        self.kind, default = FAULTS[self.name]
        self.arg: str = match["arg"] or default
        self.number = size(self.arg) if self.arg else 0.0
        at = {name: int(n) for name, n in re.findall(r"@(\w+)=(\d+)", match["where"])}
        if at and self.kind != "point":
            raise ValueError(f"{self.name} lasts as long as the process: @turn and @line say nothing there")
        if at.get("turn") == 0 and self.name in NEED_TURN:
            raise ValueError(f"{self.name} needs a turn, and @turn=0 is the greeting")
        self.turn = at.get("turn")
        self.line = at.get("line", FIRST_LINE.get(self.name, 1))
        self.once = bool(match["once"])
        self.key: str | None = match["key"]

    def due(self, turn: int, line: int) -> bool:
        return self.line == line and (turn > 0 if self.turn is None else self.turn == turn)


def read_fault(spec: str) -> Fault:
    """The fault of a flag; ScriptError when it is none."""
    try:
        return Fault(spec)
    except ValueError as error:
        raise ScriptError("--fault", 0, str(error)) from None


class Turn:
    """The steps that answer one prompt. `frames` of a recorded turn: seconds and the line; `answers`: its uuids."""

    def __init__(self, name: str = "", when: str | None = None, incarnation: int = 0) -> None:
        self.name = name
        self.when = re.compile(when) if when is not None else None
        self.incarnation = incarnation
        self.unasked: float | None = None
        self.steps: list[tuple[str, Frame]] = []
        self.frames: list[tuple[float | None, bytes]] = []
        self.answers: list[str] = []
        self.ended = False

    @property
    def conditional(self) -> bool:
        return self.when is not None or self.incarnation > 0

    def fits(self, prompt: str, incarnation: int) -> bool:
        return (self.when is None or self.when.search(prompt) is not None) and incarnation >= self.incarnation


class Script:
    """A script that was read. Of a recording: the frames of its greeting, the replies it gave, and how it exited."""

    def __init__(self) -> None:
        self.agent: Frame = {}
        self.turns: list[Turn] = []
        self.recorded = False
        self.session: str | None = None
        self.greeting: list[bytes] = []
        self.replies: dict[str, list[Frame]] = {}
        self.answered: set[str] = set()
        self.stderr = b""
        self.exit_code: int | None = None

    @property
    def sequence(self) -> list[Turn]:
        return [turn for turn in self.turns if not turn.conditional and turn.unasked is None]

    def after(self, turn: Turn) -> Turn | None:
        """The unasked turn that follows this one."""
        place = self.turns.index(turn) + 1 if turn in self.turns else len(self.turns)
        following = self.turns[place] if place < len(self.turns) else None
        return following if following is not None and following.unasked is not None else None


def check_fields(record: Frame, kinds: Mapping[str, tuple[Kind, Mapping[str, Kind]]]) -> str:
    """The kind of a line; ValueError when it has none, or a field that does not belong there."""
    named = [kind for kind in kinds if kind in record]
    if len(named) != 1:
        raise ValueError(f"expected one of {', '.join(kinds)}, got {', '.join(record) or 'nothing'}")
    expected, others = kinds[named[0]]
    for name, value in record.items():
        check_type(name, value, expected if name == named[0] else others.get(name))
    return named[0]


def check_type(name: str, value: object, expected: Kind | None) -> None:
    if expected is None:
        raise ValueError(f"{name!r} does not belong here")
    kinds = expected if isinstance(expected, tuple) else (expected,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{name!r} must be {' or '.join(k.__name__ for k in kinds)}, got {value!r}")
    if isinstance(value, int | float) and value < 0:
        raise ValueError(f"{name!r} must not be negative, got {value!r}")


def read_line(script: Script, text: str) -> None:
    record = as_frame(json.loads(text))
    if record is None:
        raise ValueError(f"expected an object, got {text.strip()!r}")
    kind = check_fields(record, {**HEADERS, **STEPS})
    if kind == "agent":
        read_agent(script, record["agent"])
    elif kind == "turn":
        turn = Turn(record["turn"], record.get("when"), record.get("incarnation", 0))
        turn.unasked = record.get("unasked")
        script.turns.append(turn)
    else:
        read_step(script, kind, record)


def read_agent(script: Script, agent: Frame) -> None:
    if script.turns:
        raise ValueError("'agent' must be the first line")
    for name, value in agent.items():
        check_type(name, value, AGENT.get(name))
    script.agent = agent


def read_step(script: Script, kind: str, step: Frame) -> None:
    if kind == "end" and step["end"] not in ENDINGS:
        raise ValueError(f"unknown ending {step['end']!r}; there are {', '.join(ENDINGS)}")
    if kind == "fault" and Fault(step["fault"]).kind == "start":
        raise ValueError(f"{step['fault']!r} acts before any turn: give it by --fault")
    if not script.turns or script.turns[-1].ended:
        script.turns.append(Turn())
    script.turns[-1].steps.append((kind, step))
    script.turns[-1].ended = kind in ("reply", "end")


def load_script(path: str) -> Script:
    """The script at `path`, or the recorded run that it names; ScriptError with file, line and reason."""
    if os.path.isdir(path):
        return load_recording(os.path.join(path, ""))
    if not os.path.isfile(path) and os.path.isfile(path + ".stdout.ndjson"):
        return load_recording(path + ".")
    script = Script()
    try:
        with open(path, encoding="utf-8") as file:
            lines = list(file)
    except OSError as error:
        raise ScriptError(path, 0, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ScriptError(path, 0, f"is not text: {error}") from None
    for number, text in enumerate(lines, 1):
        try:
            if text.strip() and not text.lstrip().startswith("#"):
                read_line(script, text)
        except (ValueError, re.error) as error:
            raise ScriptError(path, number, str(error)) from None
    if not script.turns:
        raise ScriptError(path, 0, "no turn in it")
    return script


def read_bytes(path: str) -> bytes:
    """The whole file, nothing when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_stream(prefix: str, name: str) -> bytes:
    """The recorded stream `name` of the run `prefix`, behind the parts that were written before it
    (`stdout.0-5321.ndjson`).

    Raises `ScriptError` when a part was removed, because the recording came to its limit.
    """
    stem, suffix = os.path.splitext(prefix + name)
    parts = _parts(stem, suffix)
    divided: list[str] = parse(read_bytes(prefix + "meta.json")).get("divided") or []
    ends = [0, *(behind for _, behind, _ in parts)]
    if [first for first, _, _ in parts] != ends[:-1] or (name in divided and not parts):
        raise ScriptError(prefix + name, 0, "a part of it was removed (record_limit): this run is not whole")
    return b"".join([*(read_bytes(part) for _, _, part in parts), read_bytes(prefix + name)])


def _parts(stem: str, suffix: str) -> list[tuple[int, int, str]]:
    folder, name = os.path.split(stem)
    numbered = re.compile(rf"{re.escape(name)}\.(\d+)-(\d+){re.escape(suffix)}")
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    matches = [(numbered.fullmatch(other), other) for other in names]
    return sorted(
        (int(m[1]), int(m[2]), os.path.join(folder, other)) for m, other in matches if m is not None
    )


def parse(line: bytes) -> Frame:
    """The object in a line, empty when there is none."""
    try:
        return as_frame(json.loads(line)) or {}
    except ValueError:
        return {}


class Recording:
    """A run recorded as `PREFIXstdout.ndjson`, `stdin.ndjson`, `stderr.txt` and `meta.json`; only the first must be.

    `host` are the frames of the host, `timed` the lines of the CLI with their times in seconds, None where not known.
    """

    def __init__(self, prefix: str) -> None:
        if not os.path.isfile(prefix + "stdout.ndjson"):
            raise ScriptError(prefix + "stdout.ndjson", 0, "no such recording")
        lines = [line for line in read_stream(prefix, "stdout.ndjson").split(b"\n") if line.strip()]
        self.host = [parse(line) for line in read_stream(prefix, "stdin.ndjson").split(b"\n")]
        self.meta = parse(read_bytes(prefix + "meta.json"))
        self.stderr = read_bytes(prefix + "stderr.txt")
        times: list[float | None] = self.meta.get("line_times_s") or self.meta.get("timing_s") or []
        times = times if len(times) == len(lines) else [None] * len(lines)
        self.timed = list(zip(times, lines, strict=True))


def load_recording(prefix: str) -> Script:
    """The turns of a recorded run of Claude Code. ScriptError when there is none."""
    recording, script = Recording(prefix), Script()
    script.recorded = True
    script.stderr = recording.stderr
    script.exit_code = recording.meta.get("exit_code")
    requests = [frame for frame in recording.host if frame.get("type") == "control_request"]
    answers = [frame for frame in recording.host if frame.get("type") == "control_response"]
    script.answered = {frame["response"].get("request_id", "") for frame in answers}
    subtypes = {frame["request_id"]: frame["request"].get("subtype", "") for frame in requests}
    split_recording(script, recording.timed, subtypes)
    return script


def split_recording(
    script: Script, timed: list[tuple[float | None, bytes]], subtypes: dict[str, str]
) -> None:
    frames = [parse(line) for _, line in timed]
    for index, (frame, (at, line)) in enumerate(zip(frames, timed, strict=True)):
        kind, reply = frame.get("type"), frame.get("response", {})
        if kind == "__elided__":
            continue
        if kind == "control_response" and reply.get("request_id") in subtypes:
            script.replies.setdefault(subtypes[reply["request_id"]], []).append(reply)
            continue
        script.session = script.session or frame.get("session_id")
        if begins_turn(script, frames, index):
            script.turns.append(Turn())
        if not script.turns:
            script.greeting.append(line)
        else:
            record_frame(script.turns[-1], frame, at, line)
    if not script.turns:
        script.turns.append(Turn())


def begins_turn(script: Script, frames: list[Frame], index: int) -> bool:
    """After a result: whether a turn of the host begins here. One that the CLI began by itself stays with the last."""
    frame = frames[index]
    kind = frame.get("type")
    if script.turns and not script.turns[-1].ended:
        return False
    if kind == "command_lifecycle":
        return frame.get("state") in ("queued", "started")
    if kind == "system" and frame.get("subtype") != "init":
        return False
    if not script.turns:
        return kind in (None, "system", "assistant", "result", "user", "stream_event")
    nothing: Frame = {}
    result = next((f for f in frames[index:] if f.get("type") == "result"), nothing)
    return frame.get("subtype") == "init" and "origin" not in result


def record_frame(turn: Turn, frame: Frame, at: float | None, line: bytes) -> None:
    turn.frames.append((at, line))
    if frame.get("type") == "result" and "origin" not in frame:
        turn.ended = True
        turn.answers = frame.get("user_message_uuids") or []
