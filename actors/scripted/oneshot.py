"""One-shot runs of the scripted agent: one prompt, then out; as text, as one result, or as a stream."""

from __future__ import annotations

from proctor.actors.scripted.flags import UsageError
from proctor.actors.scripted.frames import encode
from proctor.actors.scripted.turn import Prompt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proctor.actors.scripted.agent import Agent

NO_PROMPT = "Error: Input must be provided either through stdin or as a prompt argument when using --print"


def run_once(agent: Agent) -> int:
    """Answer the prompt of the command line, or all of stdin. The exit status; UsageError when there is none."""
    text = " ".join(agent.flags.words)
    lines: list[bytes] = []
    while not agent.pipes.eof and not text:
        lines += agent.pipes.read(None)
    text = text or b"\n".join(lines).decode("utf-8", "replace").strip()
    if not text:
        raise UsageError(NO_PROMPT)
    agent.pipes.eof = True
    agent.perform([Prompt(text, None)])
    while agent.unasked is not None:
        agent.rest()
    print_frames(agent)
    while "linger" in agent.traits:
        agent.rest()
    return agent.exit_code()


def print_frames(agent: Agent) -> None:
    """Write what was kept back because the output is not a stream."""
    last = next((f for f in reversed(agent.frames) if f["type"] == "result"), None)
    if agent.flags.output == "json":
        agent.pipes.write(encode(agent.frames if agent.flags.has("verbose") else last).encode() + b"\n")
    elif agent.flags.output == "text" and last is not None:
        agent.pipes.write((last.get("result") or last["errors"][0]).encode() + b"\n")
