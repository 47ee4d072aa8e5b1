"""A turn of a script, played step by step in the agent's wire.

A turn ends exactly once: by its `reply` or `end` step, the end of its steps, a fault or refusal (`TurnDone`), or the host
(`TurnCut`, raised only where stdin is read, between two frames).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import ENDINGS, Frame, as_frame, as_list, encode, tokens
from proctor.actors.scripted.interfaces import Call, Denied, Prompt, RunningTurn, TurnCut, TurnDone, Wire
from proctor.actors.scripted.script import Fault, Turn, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INPUT_PRICE, OUTPUT_PRICE = 4e-6, 20e-6


class ScriptedTurn(RunningTurn):
    """A turn of a script being played."""

    def __init__(self, agent: Agent, turn: Turn, prompts: list[Prompt]) -> None:
        super().__init__(turn, prompts)
        self.agent = agent
        self.wire: Wire = agent.wire
        self.prompt = prompts[0].text if prompts else ""
        self.spoken = ""

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
        self.wire.over(self)
        if self.exit_with is not None:
            self.agent.leave_now(self.exit_with)

    def begin(self) -> None:
        self.agent.fire_due()
        self.wire.begin(self)
        if self.agent.line == 0:
            self.agent.count()  # where a wire says nothing of it, the beginning is a line all the same
        self.refuse_until_reset()

    def refuse_until_reset(self) -> None:
        """End the turn by the usage limit while it lasts."""
        resets_at: int = self.agent.state.get("limit_until", 0)
        if time.time() < resets_at:
            self.end("limit")
            raise TurnDone

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
        """One block of `text` or `thinking`, its pieces as they come. Returns its text."""
        text = self.fill(step[STEP_TEXT[kind]])
        parent = step.get("parent")
        self.calls += 1
        self.wire.open_block(kind, parent)
        for piece in cut_up(text, step.get("deltas", 1)):
            self.agent.wait(step.get("delay", 0))
            self.agent.pump()
            self.partial += piece if kind == "text" else ""
            self.wire.piece(kind, piece, parent)
        self.wire.close_block(kind, text, parent)
        self.partial = ""
        self.output_tokens += tokens(text)
        return text

    def say(self, step: Frame) -> None:
        text = self.speak("text", step)
        if "parent" not in step:
            self.spoken = text

    def think(self, step: Frame) -> None:
        self.speak("thinking", step)

    def begin_call(self, name: str, arguments: Frame, step: Frame) -> Call:
        call = Call(name, arguments, step, self.wire.call_prefix)
        self.calls += 1
        self.output_tokens += tokens(encode(call.input))
        self.wire.call_tool(call)
        self.call = call
        return call

    def use_tool(self, step: Frame) -> None:
        arguments = step.get("input", {"command": step["run"]} if "run" in step else {})
        call = self.begin_call(step["tool"], self.fill_input(arguments), step)
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
        self.wire.tool_result(call, text, failed)

    def use_host_tool(self, step: Frame) -> None:
        """A tool that runs in the host; one that the host has not offered fails as an unknown one does."""
        name = step["host"]
        call = self.begin_call(self.wire.host_tool(name), self.fill_input(step.get("input", {})), step)
        text, failed = f"there is no tool {name!r}", True
        if self.wire.offers(name):
            request = self.wire.call_host(call, name)
            text, failed = self.wire.returned(self.agent.wait_answer(request))
        self.close_call(call, text, failed)

    def permission(self, call: Call) -> Frame:
        """The input that the tool may run with; Denied when it may not."""
        if call.name in self.agent.allowed or not self.wire.asks(call):
            return dict(call.input)
        return self.wire.judge(call, self.agent.wait_answer(self.wire.ask(call)))

    def deny(self, call: Call, denied: Denied) -> None:
        self.call = None
        self.denials.append(call)
        self.wire.deny(call, denied)
        if denied.interrupt:
            raise TurnCut("deny")

    def ask_unanswered(self) -> None:
        call = self.begin_call("Bash", {"command": "touch made.txt"}, {"ask": True})
        request = self.wire.ask(call)
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
        self.wire.take_in(self)
        while not self.steered and (left := deadline - time.monotonic()) > 0:
            self.agent.pump(left)
            self.wire.take_in(self)

    def retry(self, step: Frame) -> None:
        most, delay = step.get("max", 10), step.get("delay", 0.01)
        for attempt in range(step["retry"], step["retry"] + step.get("times", 1)):
            self.retrying(attempt, most, step.get("status", 500), step.get("error", "server_error"), delay)

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float = 0.01) -> None:
        """Tell that a request will be repeated in `delay` seconds, and wait them."""
        self.wire.retrying(attempt, most, status, error, delay)
        self.agent.wait(delay)

    def notice(self, step: Frame) -> None:
        self.wire.notice(self.fill(step["notice"]), step.get("tag", "notice"))

    def sleep(self, step: Frame) -> None:
        self.agent.wait(step["sleep"])

    def frame(self, step: Frame) -> None:
        self.wire.write_frame(step["frame"])

    def line(self, step: Frame) -> None:
        self.agent.write(step["line"].encode())

    def fault(self, step: Frame) -> None:
        fault = Fault(step["fault"])
        if self.agent.first(fault):
            self.agent.fire(fault)

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
            until = self.agent.state.get("limit_until", 0)
            self.wire.limit(max(until, math.ceil(time.time() + step.get("resets", 0))))
        if "structured" in step and not self.wire.structured:
            self.say({"say": encode(step["structured"])})
        self.settle(ending, step)
        self.wire.end(self, ending, text, step)

    def settle(self, ending: str, step: Frame) -> None:
        """Count what the turn took, and save it before its end is written."""
        state = self.agent.state
        used = step.get("usage", {})
        self.input_tokens = used.get("input_tokens", tokens(self.prompt))
        self.output_tokens = used.get("output_tokens", self.output_tokens)
        self.cost = step.get("cost", self.input_tokens * INPUT_PRICE + self.output_tokens * OUTPUT_PRICE)
        state["cost"] += self.cost
        state["input_tokens"] += self.input_tokens
        state["output_tokens"] += self.output_tokens
        state["exchanges"] = [*state["exchanges"], [self.prompt, self.spoken]][-20:]
        if ending != "completed":
            self.exit_with = None
        self.agent.settle()

    def abort(self, reason: str) -> None:
        """End a turn that was cut: what was open is closed first."""
        question, self.agent.asking = self.agent.asking, None
        if self.wire.kills_tools:
            self.agent.kill_tool()
        self.settle("interrupted", {})
        self.wire.abort(self, reason, question)


def cut_up(text: str, pieces: int) -> list[str]:
    """The text in so many pieces of about the same length; fewer when it is short."""
    step = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + step] for start in range(0, len(text), step)]


STEP_TEXT: Mapping[str, str] = {"text": "say", "thinking": "think"}

STEP: Mapping[str, Callable[[ScriptedTurn, Frame], None]] = {
    "reply": ScriptedTurn.reply,
    "say": ScriptedTurn.say,
    "think": ScriptedTurn.think,
    "tool": ScriptedTurn.use_tool,
    "host": ScriptedTurn.use_host_tool,
    "retry": ScriptedTurn.retry,
    "notice": ScriptedTurn.notice,
    "sleep": ScriptedTurn.sleep,
    "listen": ScriptedTurn.listen,
    "frame": ScriptedTurn.frame,
    "line": ScriptedTurn.line,
    "fault": ScriptedTurn.fault,
    "end": ScriptedTurn.finish,
}


class ReplayedTurn(ScriptedTurn):
    """A recorded turn being repeated: the lines as they were, with the host's message ids put in the place of the old.

    A question of the recorded CLI that its host answered waits for an answer now; `--speed` keeps the pauses.
    """

    def begin(self) -> None:
        self.agent.replay_greeting()
        self.agent.fire_due()
        self.last: float | None = None
        while len(self.uuids) < len(self.turn.answers) and self.agent.queue:
            self.prompts.append(self.agent.queue.popleft())
        for at, line in self.turn.frames:
            self.pause(at)
            self.replay(line)
        raise TurnDone

    def pause(self, at: float | None) -> None:
        self.agent.pump()
        speed = self.agent.flags.speed
        if speed and at is not None and self.last is not None:
            self.agent.wait((at - self.last) / speed)
        self.last = at

    def replay(self, line: bytes) -> None:
        for old, new in zip(self.turn.answers, self.uuids, strict=False):
            line = line.replace(old.encode(), new.encode())
        frame = parse(line)
        if frame.get("type") == "result":
            self.agent.code = int(bool(frame.get("is_error")))
            line = self.addressed(frame, line)
            self.agent.settle()
        self.agent.write(line)
        request = frame.get("request_id")
        if frame.get("type") == "control_request" and request in self.agent.script.answered:
            self.agent.wait_answer(str(request))

    def addressed(self, frame: Frame, line: bytes) -> bytes:
        """The result with the ids of the messages that it answers now, where the recorded host gave none or fewer."""
        if "origin" in frame or not self.uuids or frame.get("user_message_uuids") == self.uuids:
            return line
        return json.dumps(
            {**frame, "user_message_uuid": self.uuids[0], "user_message_uuids": self.uuids}
        ).encode()
