"""One-shot runs in Claude Code's wire: one prompt, then out; as text, as one result, or as a stream."""

from __future__ import annotations

from proctor.actors.scripted.flags import UsageError
from proctor.actors.scripted.frames import encode
from proctor.actors.scripted.turn import Prompt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proctor.actors.scripted.wires.claude import ClaudeVoice

NO_PROMPT = "Error: Input must be provided either through stdin or as a prompt argument when using --print"


def run_once(voice: ClaudeVoice) -> int:
    """Answer the prompt of the command line, or all of stdin. The exit status; UsageError when there is none."""
    agent = voice.agent
    text = " ".join(agent.flags.words) or agent.read_stdin()
    if not text:
        raise UsageError(NO_PROMPT)
    agent.pipes.eof = True
    agent.perform([Prompt(text)])
    while agent.unasked is not None:
        agent.rest()
    print_frames(voice)
    agent.linger()
    return agent.exit_code()


def print_frames(voice: ClaudeVoice) -> None:
    """Write what was kept back because the output is not a stream."""
    last = next((f for f in reversed(voice.frames) if f["type"] == "result"), None)
    if voice.output == "json":
        frames = voice.frames if voice.agent.flags.has("verbose") else last
        voice.agent.pipes.write(encode(frames).encode() + b"\n")
    elif voice.output == "text" and last is not None:
        voice.agent.pipes.write((last.get("result") or last["errors"][0]).encode() + b"\n")
