"""The child of `bench.ndjson`: waits for the end of its stdin, then writes one turn of Claude Code as fast as it can.

    python -I -S writer.py LINES LINES_PER_WRITE [READY [greeted [FLAG...]]]

READY is a FIFO into which a byte is written before the wait. `greeted`: it waits for a prompt instead, and replies to
what it is asked before; whatever flags follow are for a command line that it is not.
LINES text deltas of about 250 bytes stand between an `init` and a `result`. All bytes are made before the wait, and
the writing loop has no Python in it: on an idle core it gives about a million lines a second with one write(2) a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterable
from itertools import chain, cycle, islice, repeat

SESSION = "c71a887b-7185-4045-a7bd-e0632b01e54a"
KINDS = 512
"""How many different deltas there are; they repeat."""


def delta(number: int) -> bytes:
    """The line of one text delta, in the shape of 2.1.197."""
    return _line(
        {
            "type": "stream_event",
            "event": {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "text_delta", "text": f" and {number:03} more"},
            },
            "session_id": SESSION,
            "parent_tool_use_id": None,
            "uuid": f"{number:08x}-f3df-431c-83d9-e3906b9d80c0",
        }
    )


def opening() -> bytes:
    """The `init` that begins the turn."""
    return _line(
        {
            "type": "system",
            "subtype": "init",
            "cwd": "/tmp",
            "session_id": SESSION,
            "tools": ["Bash", "Edit", "Read"],
            "mcp_servers": [],
            "model": "claude-opus-4-8",
            "permissionMode": "default",
            "claude_code_version": "2.1.197",
            "uuid": "e1a002c5-cfa4-4247-9d04-ddc14a53ebc3",
        }
    )


def closing() -> bytes:
    """The `result` that ends it."""
    return _line(
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "and more",
            "session_id": SESSION,
            "duration_ms": 1,
            "duration_api_ms": 1,
            "num_turns": 1,
            "total_cost_usd": 0.0,
            "terminal_reason": "completed",
            "uuid": "c043fada-d4a8-426e-b618-9595f04f081d",
        }
    )


def writes(lines: int, per_write: int) -> Iterable[bytes]:
    """What each write(2) is given, in order."""
    kinds = [delta(number) for number in range(KINDS)]
    joined = [_deltas(kinds, at, per_write) for at in range(0, KINDS, per_write)]
    whole, rest = divmod(lines, per_write)
    return chain([opening()], islice(cycle(joined), whole), [_deltas(kinds, 0, rest)], [closing()])


def _deltas(kinds: list[bytes], at: int, count: int) -> bytes:
    return b"".join(islice(cycle(kinds), at, at + count))


def _line(frame: dict[str, object]) -> bytes:
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


def greet() -> None:
    """Agree to every control request until a prompt comes."""
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["type"] == "user":
            return
        reply: dict[str, object] = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
        os.write(1, _line({"type": "control_response", "response": reply}))


def main(lines: int, per_write: int, ready: str | None = None, greeted: str = "", *_flags: str) -> None:
    """Write, once stdin has ended or a prompt has come."""
    data = writes(lines, per_write)
    if greeted:
        greet()
    else:
        if ready is not None:
            with open(ready, "wb") as fifo:
                fifo.write(b"!")
        sys.stdin.buffer.read()
    deque(map(os.write, repeat(1), data), maxlen=0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
