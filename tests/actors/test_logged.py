"""What a CLI tells in its log, and what it tells on its wire, come through two pipes: they are put in order."""

from __future__ import annotations

import sys
from pathlib import Path

import proctor
from proctor.actors.plan.plan import acp_plan
from proctor.actors.runs import stream
from proctor.protocols import vocabulary as v

ATTEMPTS = 20

AGENT = """
import json, os, pathlib, sys, time
seen, attempts = pathlib.Path(sys.argv[1]), int(sys.argv[2])

def say(**frame):
    os.write(1, json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\\n")

def log(text):
    os.write(2, b"timestamp=1 level=INFO run=1 message=" + text.encode() + b"\\n")

def chunk(text):
    update = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": text}}
    say(method="session/update", params={"sessionId": "s", "update": update})

def prompted():
    log("process session.id=s messageID=m")
    for attempt in range(attempts):
        log("stream session.id=s small=false")
        chunk(f"attempt {attempt}")
        while not (seen / str(attempt)).exists():
            time.sleep(0.002)
    return {"stopReason": "end_turn"}

replies = {
    "initialize": lambda: {"protocolVersion": 1, "agentCapabilities": {}},
    "session/new": lambda: {"sessionId": "s"},
    "session/prompt": prompted,
}
for line in sys.stdin:
    asked = json.loads(line)
    say(id=asked["id"], result=replies[asked["method"]]())
"""


async def test_a_line_of_the_log_is_heard_before_what_the_cli_wrote_after_it(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    argv = [sys.executable, "-c", AGENT, str(seen), str(ATTEMPTS)]
    plan = acp_plan("a", argv, {"home": "private"}, profile="opencode")
    told = list[proctor.AnyEvent]()
    async with stream(plan, "hi") as turn:
        async for event in turn:
            told.append(event)
            if isinstance(event, v.TextDelta):
                (seen / event.text.removeprefix("attempt ")).touch()
    last = ATTEMPTS - 1
    assert (turn.answer.outcome, turn.answer.text) == ("ok", f"attempt {last}")
    assert [event.attempt for event in told if isinstance(event, v.Retrying)] == [*range(1, ATTEMPTS)]
    assert [event.text for event in told if isinstance(event, v.Text)] == [f"attempt {last}"]
    voids = [event for event in told if isinstance(event, v.Notice) and event.code == "attempt_void"]
    assert len(voids) == last
