"""One turn of the scripted agent: the steps of a script as frames.

A turn ends by exactly one result: its `reply` or `end` step, the end of its steps, a fault (`TurnDone`) or the host
(`TurnCut`, raised only where stdin is read, between two frames). What was being said or done when it was cut is told
the way the real CLI tells it.
"""

from __future__ import annotations

import math
import time

from proctor.actors.scripted import frames
from proctor.actors.scripted.faults import TurnDone, fire, fire_due, notice, refuse_until_reset, retrying
from proctor.actors.scripted.frames import ENDINGS, as_frame, as_list, encode, new_id, new_uuid, tokens
from proctor.actors.scripted.script import Fault, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from proctor.actors.scripted.agent import Agent

    Frame: TypeAlias = dict[str, Any]

INPUT_PRICE, OUTPUT_PRICE = 4e-6, 20e-6


class TurnCut(Exception):
    """The running turn ends here by the host's will."""


class Prompt:
    """A user message: its text, and its uuid when the host gave one."""

    def __init__(self, content: str | list[Frame], uuid: str | None) -> None:
        self.content = content
        self.uuid = uuid
        blocks = [{"text": content}] if isinstance(content, str) else content
        self.text = "\n".join(block["text"] for block in blocks if "text" in block)


class Denied(Exception):
    """A tool may not run: the text for the model, and who said so."""

    def __init__(self, text: str, source: str, interrupt: bool = False) -> None:
        super().__init__(text)
        self.source = source
        self.interrupt = interrupt


class Performance:
    """A turn of a script being played."""

    def __init__(self, agent: Agent, turn: Turn, prompts: list[Prompt]) -> None:
        self.agent = agent
        self.turn = turn
        self.prompts = prompts
        self.prompt = prompts[0].text if prompts else ""
        self.uuids = [prompt.uuid for prompt in prompts if prompt.uuid is not None]
        self.begun = time.monotonic()
        self.partial = ""
        self.spoken = ""
        self.given = 0
        self.calls = 0
        self.call: Frame | None = None
        self.denials: list[Frame] = []
        self.exit_with: int | None = None
        self.settled = False

    def play(self) -> None:
        """Play the turn to its result."""
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
        for prompt in self.prompts:
            self.agent.lifecycle(prompt, "completed")
        if self.exit_with is not None:
            self.agent.leave_now(self.exit_with)

    def begin(self) -> None:
        fire_due(self.agent)
        for prompt in self.prompts:
            self.agent.lifecycle(prompt, "started")
        agent = self.agent.script.agent
        servers = [{"name": name, "status": status} for name, status in agent.get("mcp_servers", {}).items()]
        self.emit(frames.init(self.agent.session, self.agent.model, self.agent.mode, agent, servers))
        if self.agent.flags.has("replay-user-messages"):
            for prompt in self.prompts:
                self.agent.emit({**frames.user(prompt.content, isReplay=True), "uuid": prompt.uuid})
        refuse_until_reset(self.agent)

    def emit(self, frame: Frame) -> None:
        if self.uuids:
            frame.update(user_message_uuid=self.uuids[0], user_message_uuids=self.uuids)
        self.agent.emit(frame)

    def fill(self, text: str, **more: str) -> str:
        return self.agent.fill(text, prompt=self.prompt, **more)

    def fill_input(self, value: object) -> Any:
        """The texts in an input filled, at any depth."""
        if isinstance(value, str):
            return self.fill(value)
        if items := as_list(value):
            return [self.fill_input(item) for item in items]
        fields = as_frame(value)
        return value if fields is None else {key: self.fill_input(item) for key, item in fields.items()}

    def event(self, kind: str, parent: str | None, **fields: object) -> None:
        if self.agent.flags.has("include-partial-messages"):
            frame = {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": parent}
            self.agent.emit(frame)

    def message(self, block: Frame, deltas: list[Frame], step: Frame) -> None:
        """One message of the model with one block: its pieces as they come, then the whole."""
        parent, message_id = step.get("parent"), new_id("msg")
        self.calls += 1
        if self.agent.flags.has("include-partial-messages"):
            self.agent.emit({"type": "system", "subtype": "status", "status": "requesting"})
        self.event("message_start", parent, message=frames.message(message_id, self.agent.model, []))
        self.event("content_block_start", parent, index=0, content_block=frames.empty_block(block))
        for delta in deltas:
            self.agent.wait(step.get("delay", 0))
            self.agent.pump()
            self.partial += delta.get("text", "")
            self.event("content_block_delta", parent, index=0, delta=delta)
        self.emit(frames.assistant(frames.message(message_id, self.agent.model, [block]), parent))
        self.partial = ""
        self.close_message(parent, block)

    def close_message(self, parent: str | None, block: Frame) -> None:
        given = tokens(encode(block))
        self.given += given
        reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
        self.event("content_block_stop", parent, index=0)
        delta = {"stop_reason": reason, "stop_sequence": None}
        self.event("message_delta", parent, delta=delta, usage=frames.usage(10, given))
        self.event("message_stop", parent)

    def say(self, step: Frame) -> None:
        text = self.fill(step["say"])
        pieces = [{"type": "text_delta", "text": piece} for piece in cut_up(text, step.get("deltas", 1))]
        self.message({"type": "text", "text": text}, pieces, step)
        if "parent" not in step:
            self.spoken = text

    def think(self, step: Frame) -> None:
        text = self.fill(step["think"])
        pieces = [
            {"type": "thinking_delta", "thinking": piece} for piece in cut_up(text, step.get("deltas", 1))
        ]
        self.message({"type": "thinking", "thinking": text, "signature": "c2ln"}, pieces, step)

    def use_tool(self, step: Frame) -> None:
        call = {"type": "tool_use", "id": new_id("toolu"), "name": step["tool"]}
        call["input"] = self.fill_input(step.get("input", {"command": step["run"]} if "run" in step else {}))
        self.message(call, [{"type": "input_json_delta", "partial_json": encode(call["input"])}], step)
        self.call = call
        try:
            if step.get("ask"):
                call["input"] = self.permission(call)
        except Denied as denied:
            self.deny(call, denied)
        else:
            text, failed = self.run(step) if "run" in step else ("(no output)", False)
            self.agent.wait(step.get("seconds", 0))
            text = self.fill(step["result"], input=encode(call["input"])) if "result" in step else text
            self.call = None
            result = frames.tool_result(call["id"], text, step.get("error", failed), None)
            self.emit({**result, "parent_tool_use_id": step.get("parent")})

    def permission(self, call: Frame) -> Frame:
        """The input that the tool may run with; Denied when it may not."""
        agent, name = self.agent, call["name"]
        if name in agent.allowed or agent.mode == "bypassPermissions":
            return dict(call["input"])
        if agent.flags.one("permission-prompt-tool") != "stdio":
            text = f"Claude requested permissions to use {name}, but you haven't granted it yet."
            denial = {"type": "system", "subtype": "permission_denied", "tool_name": name}
            agent.emit({**denial, "tool_use_id": call["id"], "message": text})
            raise Denied(text, "config")
        return self.judge(call, agent.wait_answer(self.ask(call)))

    def ask(self, call: Frame) -> str:
        request = new_uuid()
        body = frames.permission_request(call, call["input"].get("description"))
        self.agent.write_frame({"type": "control_request", "request_id": request, "request": body})
        return request

    def judge(self, call: Frame, answer: Frame | None) -> Frame:
        """What the host decided; everything that is not a well-formed yes is a no."""
        match answer:
            case {"subtype": "success", "response": {"behavior": "allow", **rest}}:
                given = as_frame(rest.get("updatedInput", call["input"]))
                if given is not None:
                    self.agent.allowed |= session_rules(rest.get("updatedPermissions"))
                    return given
                raise Denied("Tool permission request failed: invalid updatedInput", "config")
            case {"subtype": "success", "response": {"behavior": "deny", **rest}}:
                raise Denied(str(rest.get("message", "")), "user_reject", rest.get("interrupt") is True)
            case None:
                raise Denied("Tool permission stream closed before response received", "config")
            case _:
                raise Denied(
                    f"Tool permission request failed: {answer.get('error', 'invalid answer')}", "config"
                )

    def deny(self, call: Frame, denied: Denied) -> None:
        self.call = None
        self.denials.append(
            {"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]}
        )
        self.emit(frames.tool_result(call["id"], str(denied), True, denied.source))
        if denied.interrupt:
            raise TurnCut("deny")

    def ask_for_ever(self) -> None:
        call = {
            "type": "tool_use",
            "id": new_id("toolu"),
            "name": "Bash",
            "input": {"command": "touch made.txt"},
        }
        self.message(call, [], {})
        self.call = call
        request = self.ask(call)
        self.agent.asking = request
        while not self.agent.pipes.eof:
            self.agent.pump(None)
            self.agent.answers.pop(request, None)
        self.deny(call, Denied("Tool permission stream closed before response received", "config"))

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

    def retry(self, step: Frame) -> None:
        most, delay = step.get("max", 10), step.get("delay", 0.01)
        for attempt in range(step["retry"], step["retry"] + step.get("times", 1)):
            retrying(
                self.agent, attempt, most, step.get("status", 500), step.get("error", "server_error"), delay
            )

    def notice(self, step: Frame) -> None:
        notice(self.agent, self.fill(step["notice"]), step.get("tag", "notice"))

    def sleep(self, step: Frame) -> None:
        self.agent.wait(step["sleep"])

    def frame(self, step: Frame) -> None:
        self.agent.write_frame(step["frame"])

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
        """The result of the turn, with the text of an API failure before it where there is one."""
        step = step or {}
        _, _, status, word, text = ENDINGS[ending]
        if ending == "completed":
            text = self.spoken
        if "text" in step:
            text = self.fill(step["text"])
        status = step.get("status", status)
        if word is not None:
            limited = self.limit(step) if ending == "limit" else {}
            self.emit({**frames.api_failure(text, status, word), **limited})
        facts: Frame = {"api_error_status": status}
        if "structured" in step:
            facts["structured_output"] = step["structured"]
            text = encode(step["structured"])
        self.result(ending, text, step, facts)

    def limit(self, step: Frame) -> Frame:
        """Tell of the usage limit and when it resets. What the failure that follows says of it."""
        resets_at = max(
            self.agent.state.get("limit_until", 0), math.ceil(time.time() + step.get("resets", 0))
        )
        frame = frames.rate_limit(resets_at)
        self.agent.emit(frame)
        params = {"rate_limit_info": frame["rate_limit_info"]}
        return {"api_error": "usage_limit_reached", "api_error_params": params}

    def result(self, ending: str, text: str, step: Frame, facts: Frame) -> None:
        agent, state = self.agent, self.agent.state
        used = {**frames.usage(tokens(self.prompt), self.given), **step.get("usage", {})}
        cost = step.get("cost", used["input_tokens"] * INPUT_PRICE + used["output_tokens"] * OUTPUT_PRICE)
        state["cost"] += cost
        elapsed = int((time.monotonic() - self.begun) * 1000)
        frame = frames.result(ending, text, **facts)
        frame.update(duration_ms=elapsed, duration_api_ms=elapsed, num_turns=max(self.calls, 1))
        frame.update(total_cost_usd=state["cost"], usage=used, permission_denials=self.denials)
        frame["modelUsage"] = frames.model_usage(agent.model, used, state["cost"])
        frame.update(queued_turn_count=len(agent.queue), result_index=agent.results)
        if not self.prompts:
            frame["origin"] = {"kind": "task-notification"}
        agent.results += 1
        agent.code = int(frame["is_error"])
        if ending != "completed":
            self.exit_with = None
        agent.settle()
        self.emit(frame)

    def abort(self, reason: str) -> None:
        """End a turn that was cut: what was open is closed first."""
        self.agent.asking = None
        self.agent.kill_tool()
        tools = self.call is not None or reason == "deny"
        if self.call is not None:
            self.emit(frames.tool_result(self.call["id"], frames.REJECTED, True, "user_reject"))
        elif self.partial:
            block = {"type": "text", "text": self.partial}
            body = frames.message(new_id("msg"), self.agent.model, [block])
            self.emit({**frames.assistant(body, None), "aborted": True})
        text = "[Request interrupted by user for tool use]" if tools else "[Request interrupted by user]"
        self.agent.emit(frames.user([{"type": "text", "text": text}]))
        facts = {"terminal_reason": "aborted_tools" if tools else "aborted_streaming"}
        self.result("interrupted", frames.ABORTED, {}, facts)
        if reason == "sigint":
            self.agent.code = 0


def cut_up(text: str, pieces: int) -> list[str]:
    """The text in so many pieces of about the same length; fewer when it is short."""
    step = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + step] for start in range(0, len(text), step)]


def session_rules(updates: object) -> set[str]:
    """The tools that the host allowed for the rest of the session."""
    allowed = [
        update for update in map(as_frame, as_list(updates)) if update and update.get("behavior") == "allow"
    ]
    rules = [as_frame(rule) or {} for update in allowed for rule in as_list(update.get("rules"))]
    return {str(rule["toolName"]) for rule in rules if "toolName" in rule}


STEP: Mapping[str, Callable[[Performance, Frame], None]] = {
    "reply": Performance.reply,
    "say": Performance.say,
    "think": Performance.think,
    "tool": Performance.use_tool,
    "retry": Performance.retry,
    "notice": Performance.notice,
    "sleep": Performance.sleep,
    "frame": Performance.frame,
    "line": Performance.line,
    "fault": Performance.fault,
    "end": Performance.finish,
}
