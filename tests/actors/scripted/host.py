"""A host for the scripted agent that shares no code with ours: pipes, lines, and a limit on every wait."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Self

from proctor.actors.scripted import PROGRAM

Frame = dict[str, Any]
Completed = subprocess.CompletedProcess[bytes]
LIMIT = 15.0
SESSION_FLAGS = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    *("--permission-prompt-tool", "stdio", "--strict-mcp-config", "--setting-sources", ""),
)


class Host:
    """One process of the program, in a session. `home` holds its sessions; `script` is a path, or the lines."""

    def __init__(
        self, home: Path, script: Path | list[Frame], *flags: str, env: dict[str, str] | None = None
    ) -> None:
        path = script if isinstance(script, Path) else write_script(home / "script.ndjson", script)
        words = [sys.executable, "-I", "-S", str(PROGRAM), "--script", str(path), *SESSION_FLAGS, *flags]
        environment = {"PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home), **(env or {})}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self.buffer = b""
        self.requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def send(self, frame: Frame) -> None:
        self.send_line(json.dumps(frame).encode())

    def send_line(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def prompt(self, text: str, *, named: bool = True) -> str:
        """Send a user message. Its uuid."""
        name = str(uuid.uuid4())
        frame: Frame = {"type": "user", "session_id": "", "parent_tool_use_id": None}
        frame["message"] = {"role": "user", "content": text}
        self.send({**frame, "uuid": name} if named else frame)
        return name

    def request(self, subtype: str, **fields: object) -> str:
        self.requests += 1
        name = f"r{self.requests}"
        self.send({"type": "control_request", "request_id": name, "request": {"subtype": subtype, **fields}})
        return name

    def answer(self, request: str, **response: object) -> None:
        body = {"subtype": "success", "request_id": request, "response": response}
        self.send({"type": "control_response", "response": body})

    def line(self, seconds: float = LIMIT) -> bytes | None:
        """The next line with its newline, the rest without one at the end of the stream, None when all is read."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if not select.select([self.stdout], [], [], max(0.0, left))[0]:
                raise TimeoutError(f"nothing on stdout for {seconds} s; so far {self.buffer[:200]!r}")
            data = os.read(self.stdout.fileno(), 1 << 20)
            if not data:
                rest, self.buffer = self.buffer, b""
                return rest or None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line + b"\n"

    def quiet(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for that long."""
        return not self.buffer and not select.select([self.stdout], [], [], seconds)[0]

    def frame(self) -> Frame:
        line = self.line()
        assert line is not None, "the stream ended"
        frame: Frame = json.loads(line)
        return frame

    def until(self, kind: str, subtype: str | None = None) -> list[Frame]:
        """The frames up to the first of that type, which is the last of them."""
        frames = [self.frame()]
        while not is_kind(frames[-1], kind, subtype):
            frames.append(self.frame())
        return frames

    def result(self) -> Frame:
        return self.until("result")[-1]

    def ask(self, text: str) -> Frame:
        self.prompt(text)
        return self.result()

    def reply(self, request: str) -> Frame:
        frames = self.until("control_response")
        while frames[-1]["response"]["request_id"] != request:
            frames = self.until("control_response")
        response: Frame = frames[-1]["response"]
        return response

    def rest(self) -> list[bytes]:
        """Everything to the end of the stream."""
        lines: list[bytes] = []
        while (line := self.line()) is not None:
            lines.append(line)
        return lines

    def wait(self) -> int:
        return self.process.wait(LIMIT)

    def close(self) -> int:
        """End stdin and wait. The exit status."""
        self.stdin.close()
        self.rest()
        return self.wait()

    def error(self) -> str:
        return self.stderr.read().decode()


def is_kind(frame: Frame, kind: str, subtype: str | None) -> bool:
    return frame.get("type") == kind and (subtype is None or frame.get("subtype") == subtype)


def write_script(path: Path, lines: list[Frame]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_once(home: Path, script: list[Frame], *words: str, stdin: bytes = b"") -> Completed:
    """One run of the program with these steps and exactly these arguments."""
    return run_program(write_script(home / "script.ndjson", script), *words, stdin=stdin, home=home)


def run_program(script: Path, *words: str, stdin: bytes = b"", home: Path | None = None) -> Completed:
    """One run of the program with this script and exactly these arguments; without a home nothing is kept."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), "--script", str(script), *words]
    command += [] if home else ["--no-session-persistence"]
    environment = {"PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home or "/nowhere")}
    return subprocess.run(
        command, input=stdin, capture_output=True, env=environment, timeout=LIMIT, check=False
    )


def pid_alive(pid: int) -> bool:
    """Whether a process still runs: one that is only waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
