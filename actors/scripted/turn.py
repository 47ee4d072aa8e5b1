"""One turn of the scripted agent: the steps of a script, told by the voice of the wire.

A turn ends exactly once: by its `reply` or `end` step, the end of its steps, a fault or a refusal that ends it
(`TurnDone`), or the host (`TurnCut`, raised only where stdin is read, between two frames). What was being said or done
when it was cut is told the way the real CLI tells it.
"""

from __future__ import annotations

import math
import time

from proctor.actors.scripted.faults import TurnDone, fire, fire_due, refuse_until_reset
from proctor.actors.scripted.frames import ENDINGS, as_frame, as_list, encode, new_id, tokens
from proctor.actors.scripted.script import Fault, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from proctor.actors.scripted.agent import Agent
    from proctor.actors.scripted.wires.registry import Voice

    Frame: TypeAlias = dict[str, Any]

INPUT_PRICE, OUTPUT_PRICE = 4e-6, 20e-6


class TurnCut(Exception):
    """The running turn ends here by the host's will."""


class Prompt:
    """A user message: its text, what it was sent as, and the host's name of it where it gave one."""

    def __init__(self, content: str | list[Frame], name: str | None = None) -> None:
        self.content = content
        self.uuid = name
        blocks = [{"text": content}] if isinstance(content, str) else content
        self.text = "\n".join(block["text"] for block in blocks if "text" in block)


class Denied(Exception):
    """A tool may not run: the text for the model, who said so, and whether the turn ends by it."""

    def __init__(self, text: str, source: str = "config", interrupt: bool = False) -> None:
        super().__init__(text)
        self.source = source
        self.interrupt = interrupt


class Call:
    """A tool call that has been told: its input is what the host has allowed, once it has."""

    def __init__(self, name: str, given: Frame, step: Frame, prefix: str) -> None:
        self.id = new_id(prefix)
        self.name = name
        self.input = given
        self.parent: str | None = step.get("parent")
        self.asked = bool(step.get("ask"))


class Performance:
    """A turn of a script being played."""

    def __init__(self, agent: Agent, turn: Turn, prompts: list[Prompt]) -> None:
        self.agent = agent
        self.voice: Voice = agent.voice
        self.turn = turn
        self.prompts = prompts
        self.prompt = prompts[0].text if prompts else ""
        self.begun = time.monotonic()
        self.partial = ""
        self.spoken = ""
        self.steered = ""
        self.taken = self.given = self.calls = 0
        self.cost = 0.0
        self.call: Call | None = None
        self.denials: list[Call] = []
        self.exit_with: int | None = None
        self.settled = False

    def play(self) -> None:
        """Play the turn to its end."""
        try:
            self.begin()
            for kind, step in self.turn.steps:
                self.agent.pump()
                STEP[kind](self, step)
            self.end("completed")
        except TurnDone:
            pass
        except TurnCut as reason:
            self.abort(str(reason))
        self.voice.over(self)
        if self.exit_with is not None:
            self.agent.leave_now(self.exit_with)

    def begin(self) -> None:
        fire_due(self.agent)
        self.voice.begin(self)
        if self.agent.line == 0:
            self.agent.count()  # where a wire says nothing of it, the beginning is a line all the same
        refuse_until_reset(self.agent)

    def fill(self, text: str, **more: str) -> str:
        return self.agent.fill(text, prompt=self.prompt, steered=self.steered, **more)

    def fill_input(self, value: object) -> Any:
        """The texts in an input filled, at any depth."""
        if isinstance(value, str):
            return self.fill(value)
        if items := as_list(value):
            return [self.fill_input(item) for item in items]
        fields = as_frame(value)
        return value if fields is None else {key: self.fill_input(item) for key, item in fields.items()}

    def speak(self, kind: str, step: Frame) -> str:
        """One block of `text` or `thinking`, its pieces as they come. What was said."""
        text = self.fill(step[STEP_TEXT[kind]])
        parent = step.get("parent")
        self.calls += 1
        self.voice.open_block(kind, parent)
        for piece in cut_up(text, step.get("deltas", 1)):
            self.agent.wait(step.get("delay", 0))
            self.agent.pump()
            self.partial += piece if kind == "text" else ""
            self.voice.piece(kind, piece, parent)
        self.voice.close_block(kind, text, parent)
        self.partial = ""
        self.given += tokens(text)
        return text

    def say(self, step: Frame) -> None:
        text = self.speak("text", step)
        if "parent" not in step:
            self.spoken = text

    def think(self, step: Frame) -> None:
        self.speak("thinking", step)

    def begin_call(self, name: str, given: Frame, step: Frame) -> Call:
        call = Call(name, given, step, self.voice.call_prefix)
        self.calls += 1
        self.given += tokens(encode(call.input))
        self.voice.call_tool(call)
        self.call = call
        return call

    def use_tool(self, step: Frame) -> None:
        given = step.get("input", {"command": step["run"]} if "run" in step else {})
        call = self.begin_call(step["tool"], self.fill_input(given), step)
        try:
            if step.get("ask"):
                call.input = self.permission(call)
        except Denied as denied:
            self.deny(call, denied)
        else:
            text, failed = self.run(step) if "run" in step else ("(no output)", False)
            self.agent.wait(step.get("seconds", 0))
            text = self.fill(step["result"], input=encode(call.input)) if "result" in step else text
            self.close_call(call, text, step.get("error", failed))

    def close_call(self, call: Call, text: str, failed: bool) -> None:
        self.call = None
        self.voice.tool_result(call, text, failed)

    def use_host_tool(self, step: Frame) -> None:
        """A tool that runs in the host; one that the host has not offered fails as an unknown one does."""
        name = step["host"]
        call = self.begin_call(self.voice.host_tool(name), self.fill_input(step.get("input", {})), step)
        text, failed = f"there is no tool {name!r}", True
        if self.voice.offers(name):
            request = self.voice.call_host(call, name)
            text, failed = self.voice.returned(self.agent.wait_answer(request))
        self.close_call(call, text, failed)

    def permission(self, call: Call) -> Frame:
        """The input that the tool may run with; Denied when it may not."""
        if call.name in self.agent.allowed or not self.voice.asks(call):
            return dict(call.input)
        return self.voice.judge(call, self.agent.wait_answer(self.voice.ask(call)))

    def deny(self, call: Call, denied: Denied) -> None:
        self.call = None
        self.denials.append(call)
        self.voice.deny(call, denied)
        if denied.interrupt:
            raise TurnCut("deny")

    def ask_for_ever(self) -> None:
        call = self.begin_call("Bash", {"command": "touch made.txt"}, {"ask": True})
        request = self.voice.ask(call)
        self.agent.asking = request
        while not self.agent.pipes.eof:
            self.agent.pump(None)
            self.agent.answers.pop(request, None)
        self.deny(call, Denied("Tool permission stream closed before response received"))

    def run(self, step: Frame) -> tuple[str, bool]:
        """Run a shell command. Its output, and whether it failed."""
        tool = self.agent.start_tool(step["run"])
        assert tool.stdout is not None
        output = b""
        while tool.poll() is None:
            self.agent.pump(0.02)
            output += tool.stdout.read() or b""
        self.agent.tool = None
        with tool.stdout as rest:
            output += rest.read() or b""
        return output.decode("utf-8", "replace").strip() or "(no output)", tool.returncode != 0

    def listen(self, step: Frame) -> None:
        """Wait until the host has steered this turn, at most so many seconds."""
        deadline = time.monotonic() + step["listen"]
        self.voice.take_in(self)
        while not self.steered and (left := deadline - time.monotonic()) > 0:
            self.agent.pump(left)
            self.voice.take_in(self)

    def retry(self, step: Frame) -> None:
        most, delay = step.get("max", 10), step.get("delay", 0.01)
        for attempt in range(step["retry"], step["retry"] + step.get("times", 1)):
            self.retrying(attempt, most, step.get("status", 500), step.get("error", "server_error"), delay)

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float = 0.01) -> None:
        """Tell that a request will be repeated in `delay` seconds, and wait them."""
        self.voice.retrying(attempt, most, status, error, delay)
        self.agent.wait(delay)

    def notice(self, step: Frame) -> None:
        self.voice.notice(self.fill(step["notice"]), step.get("tag", "notice"))

    def sleep(self, step: Frame) -> None:
        self.agent.wait(step["sleep"])

    def frame(self, step: Frame) -> None:
        self.voice.write_frame(step["frame"])

    def line(self, step: Frame) -> None:
        self.agent.write(step["line"].encode())

    def fault(self, step: Frame) -> None:
        fault = Fault(step["fault"])
        if self.agent.first(fault):
            fire(self.agent, fault)

    def reply(self, step: Frame) -> None:
        self.say({**step, "say": step["reply"]})
        self.end("completed", step)
        raise TurnDone

    def finish(self, step: Frame) -> None:
        self.end(step["end"], step)
        raise TurnDone

    def end(self, ending: str, step: Frame | None = None) -> None:
        """The end of the turn, in the words that the wire has for it."""
        step = step or {}
        text = self.spoken if ending == "completed" else ENDINGS[ending][-1]
        if "text" in step:
            text = self.fill(step["text"])
        if ending == "limit":
            known = self.agent.state.get("limit_until", 0)
            self.voice.limit(max(known, math.ceil(time.time() + step.get("resets", 0))))
        if "structured" in step and not self.voice.structured:
            self.say({"say": encode(step["structured"])})
        self.settle(ending, step)
        self.voice.end(self, ending, text, step)

    def settle(self, ending: str, step: Frame) -> None:
        """Count what the turn took, and save it before its end is told."""
        state = self.agent.state
        used = step.get("usage", {})
        self.taken = used.get("input_tokens", tokens(self.prompt))
        self.given = used.get("output_tokens", self.given)
        self.cost = step.get("cost", self.taken * INPUT_PRICE + self.given * OUTPUT_PRICE)
        state["cost"] += self.cost
        state["taken"] += self.taken
        state["given"] += self.given
        state["said"] = [*state["said"], [self.prompt, self.spoken]][-20:]
        if ending != "completed":
            self.exit_with = None
        self.agent.settle()

    @property
    def uuids(self) -> list[str]:
        """The host's names of the prompts that this turn answers."""
        return [prompt.uuid for prompt in self.prompts if prompt.uuid is not None]

    @property
    def milliseconds(self) -> int:
        """How long the turn has taken so far."""
        return int((time.monotonic() - self.begun) * 1000)

    def abort(self, reason: str) -> None:
        """End a turn that was cut: what was open is closed first."""
        asked, self.agent.asking = self.agent.asking, None
        if self.voice.kills_tools:
            self.agent.kill_tool()
        self.settle("interrupted", {})
        self.voice.abort(self, reason, asked)


def cut_up(text: str, pieces: int) -> list[str]:
    """The text in so many pieces of about the same length; fewer when it is short."""
    step = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + step] for start in range(0, len(text), step)]


STEP_TEXT: Mapping[str, str] = {"text": "say", "thinking": "think"}

STEP: Mapping[str, Callable[[Performance, Frame], None]] = {
    "reply": Performance.reply,
    "say": Performance.say,
    "think": Performance.think,
    "tool": Performance.use_tool,
    "host": Performance.use_host_tool,
    "retry": Performance.retry,
    "notice": Performance.notice,
    "sleep": Performance.sleep,
    "listen": Performance.listen,
    "frame": Performance.frame,
    "line": Performance.line,
    "fault": Performance.fault,
    "end": Performance.finish,
}
