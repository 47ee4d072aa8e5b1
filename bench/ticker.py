"""The child of `bench.fleet`: waits for a word on stdin, or its end, then writes a text delta so many times a second.

    python -I -S ticker.py RATE PHASE

Each delta has for its text the time at which it is written, in seconds of the wall clock. The first comes after PHASE
(0 to 1) of a period, and they keep to their times: one that is late makes the next wait less. It ends when it is killed,
or when nobody reads.
"""

from __future__ import annotations

import os
import sys
import time

OPENING = (
    b'{"type":"system","subtype":"init","session_id":"c71a887b-7185-4045-a7bd-e0632b01e54a","tools":[],'
    b'"model":"claude-opus-4-8","claude_code_version":"2.1.197"}\n'
)
DELTA = (
    '{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"text_delta",'
    '"text":"%.6f"}},"session_id":"c71a887b-7185-4045-a7bd-e0632b01e54a","parent_tool_use_id":null,'
    '"uuid":"%08x-f3df-431c-83d9-e3906b9d80c0"}\n'
)


def main(rate: float, phase: float) -> None:
    """Tick."""
    os.read(0, 4096)
    os.write(1, OPENING)
    due, number = time.monotonic() + phase / rate, 0
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        os.write(1, (DELTA % (time.time(), number)).encode())
        due, number = due + 1 / rate, number + 1


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]), float(sys.argv[2]))
    except BrokenPipeError:
        os._exit(0)
