"""Claude Code's wire: sessions, one-shot runs and replayed recordings.

A message sent during a turn is queued, as in the real CLI; the `listen` step stands for the tool call during which that CLI
takes such messages into the running turn.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.flags import UsageError
from proctor.actors.scripted.frames import (
    ABORTED,
    ENDINGS,
    Frame,
    as_frame,
    as_list,
    encode,
    frames_in,
    new_id,
    new_uuid,
    tokens,
)
from proctor.actors.scripted.interfaces import Call, Denied, Prompt, RunningTurn, SessionTaken, Wire
from proctor.actors.scripted.script import is_uuid, parse
from proctor.actors.scripted.wires import claude_frames as frames
from proctor.actors.scripted.wires.server import SERVER, HostServer, returned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

BARE: frozenset[str] = frozenset(
    """
    p print verbose include-partial-messages strict-mcp-config fork-session replay-user-messages continue c bare
    no-session-persistence dangerously-skip-permissions disable-slash-commands include-hook-events restricted
    forward-subagent-text debug version v session-mirror
    """.split()  # noqa: SIM905
)
MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
NO_PROMPT = "Error: Input must be provided either through stdin or as a prompt argument when using --print"
CLOSED = "Tool permission stream closed before response received"


class ControlError(Exception):
    """A request of the host that is answered with an error."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class ClaudeWire(Wire):
    """One process of Claude Code 2.1.330."""

    name = "claude"
    version_line = f"{frames.VERSION} (Claude Code)"
    bare: frozenset[str] = BARE
    signals: Mapping[int, int | str] = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: "cut"}
    call_prefix = "toolu"
    structured = True
    replays = True
    agent: Agent

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.mode = agent.flags.one("permission-mode", "default")
        self.session = agent.flags.one("input-format") == "stream-json"
        self.output = agent.flags.one("output-format", "text")
        self.partial = agent.flags.has("include-partial-messages")
        self.frames: list[Frame] = []
        self.results = 0
        self.limited: Frame = {}
        self.server = HostServer(self.request, agent.wait_answer)
        self.message_id = ""

    # -- the process

    def run(self) -> int:
        self.check()
        if not self.open():
            text = frames.refused_start(self.agent.session)
            self.agent.pipes.write(text["errors"][0].encode() + b"\n", 2)
            self.write_frame(text)
            self.print_frames()
            return 1
        self.agent.handle_signals()
        return self.agent.serve() if self.session else self.run_once()

    def check(self) -> None:
        """Raise UsageError where the real CLI would leave with exit 1."""
        flags = self.agent.flags
        session = flags.one("session-id")
        if self.session and self.output != "stream-json":
            raise UsageError("Error: --input-format=stream-json requires output-format=stream-json.")
        if self.output == "stream-json" and not flags.has("verbose"):
            raise UsageError("Error: When using --print, --output-format=stream-json requires --verbose")
        if session and not is_uuid(session):
            raise UsageError("Error: Invalid session ID. Must be a valid UUID.")
        if session and flags.resume is not None and not flags.has("fork-session"):
            raise UsageError("Error: --session-id with --continue or --resume also needs --fork-session.")

    def open(self) -> bool:
        flags = self.agent.flags
        if flags.resume is not None:
            fork = flags.one("session-id") or new_uuid()
            return self.agent.take_up(flags.resume, fork if flags.has("fork-session") else None)
        try:
            self.agent.open(flags.one("session-id") or self.agent.script.session or new_uuid())
        except SessionTaken as taken:
            raise UsageError(f"Error: Session ID {taken} is already in use.") from None
        return True

    # -- one-shot runs

    def run_once(self) -> int:
        """Answer the prompt of the command line, or all of stdin. The exit status; UsageError when there is none."""
        agent = self.agent
        text = " ".join(agent.flags.words) or agent.read_stdin()
        if not text:
            raise UsageError(NO_PROMPT)
        agent.pipes.eof = True
        agent.perform([Prompt(text)])
        while agent.unasked is not None:
            agent.rest()
        self.print_frames()
        agent.linger()
        return agent.exit_code()

    def print_frames(self) -> None:
        """Write what was kept back because the output is not a stream."""
        last = next((f for f in reversed(self.frames) if f["type"] == "result"), None)
        if self.output == "json":
            frames = self.frames if self.agent.flags.has("verbose") else last
            self.agent.pipes.write(encode(frames).encode() + b"\n")
        elif self.output == "text" and last is not None:
            self.agent.pipes.write((last.get("result") or last["errors"][0]).encode() + b"\n")

    # -- what the host says

    def receive(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            self.agent.die(f"Error parsing streaming input line ({len(line)} chars): SyntaxError")
        match frame:
            case {
                "type": "control_request",
                "request_id": str(request),
                "request": {"subtype": str(subtype)},
            }:
                self.control(request, subtype, frame["request"])
            case {"type": "control_response", "response": {"request_id": str(request)}}:
                self.agent.answers[request] = frame["response"]
            case {"type": "user", "message": {"role": "user", "content": content}}:
                self.receive_prompt(Prompt(content, frame.get("uuid")))
            case {"type": "user"}:
                role = parse(line).get("message", {}).get("role")
                self.agent.die(f"Error: Expected message role 'user', got '{role}'")
            case _:
                pass

    def receive_prompt(self, prompt: Prompt) -> None:
        self.agent.queue.append(prompt)
        self.lifecycle(prompt, "queued")

    def control(self, request: str, subtype: str, body: Frame) -> None:
        agent = self.agent
        recorded = agent.script.replies.get(subtype)
        if subtype == "initialize" and not agent.hello():
            return
        if recorded:
            self.apply_control(subtype, body)
            self.write_frame(
                {"type": "control_response", "response": {**recorded.pop(0), "request_id": request}}
            )
        else:
            agent.replay_greeting()
            self.answer_control(request, subtype, body)
        if subtype in ("interrupt", "end_session") and not (
            subtype == "end_session" and "linger" in agent.traits
        ):
            agent.cut_short(subtype)
            agent.leaving = agent.leaving or subtype == "end_session"

    # -- control requests

    def answer_control(self, request: str, subtype: str, body: Frame) -> None:
        """Answer a control request, in the real CLI's words where it refuses."""
        response: Frame = {"subtype": "success", "request_id": request}
        try:
            answer = _CONTROLS.get(subtype, ClaudeWire.unsupported)(self, body)
        except ControlError as error:
            response.update(subtype="error", error=str(error), error_code=error.code)
        else:
            response.update({} if answer is None else {"response": answer})
        self.write_frame({"type": "control_response", "response": response})
        if subtype == "set_permission_mode" and response["subtype"] == "success":
            self.emit({"type": "system", "subtype": "status", "status": None, "permissionMode": self.mode})

    def apply_control(self, subtype: str, body: Frame) -> None:
        """Apply a request to the queue; the reply is the recorded one."""
        if subtype in ("interrupt", "cancel_async_message"):
            _CONTROLS[subtype](self, body)

    def initialize(self, body: Frame) -> Frame:
        self.server.declared = SERVER in as_list(body.get("sdkMcpServers"))
        return frames.greeting(self.agent.model, self.mode, self.agent.script.agent)

    def interrupt(self, body: Frame) -> Frame:
        if self.agent.asking is not None:
            self.write_frame({"type": "control_cancel_request", "request_id": self.agent.asking})
        waiting = list(self.agent.queue)[0 if self.agent.running is not None else 1 :]
        uuids = [prompt.uuid for prompt in waiting if prompt.uuid is not None]
        if not body.get("cancel_queued"):
            return {"still_queued": uuids}
        for prompt in waiting:
            self.agent.queue.remove(prompt)
            self.lifecycle(prompt, "cancelled")
        return {"still_queued": [], "cancelled": uuids}

    def set_model(self, body: Frame) -> Frame:
        self.agent.model = body.get("model") or self.agent.model
        text = f"<local-command-stdout>Set model to `{self.agent.model}`</local-command-stdout>"
        self.emit(frames.user(text, isReplay=True))
        return {"model": self.agent.model}

    def set_permission_mode(self, body: Frame) -> Frame:
        mode = body.get("mode")
        if mode not in MODES:
            raise ControlError(
                f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode"
            )
        if mode == "bypassPermissions" and not self.agent.flags.has("dangerously-skip-permissions"):
            text = (
                "Cannot set permission mode to bypassPermissions because the session was not launched with "
            )
            raise ControlError(text + "--dangerously-skip-permissions", "bypass_not_launched")
        self.mode = mode
        return {"mode": mode}

    def cancel_async_message(self, body: Frame) -> Frame:
        dropped = [prompt for prompt in self.agent.queue if prompt.uuid == body.get("message_uuid")]
        for prompt in dropped:
            self.agent.queue.remove(prompt)
            self.lifecycle(prompt, "cancelled")
        return {"cancelled": bool(dropped)}

    def binary_version(self, _body: Frame) -> Frame:
        return {"version": self.agent.script.agent.get("version", frames.VERSION)}

    def unsupported(self, body: Frame) -> NoReturn:
        raise ControlError(f"Unsupported control request subtype: {body['subtype']}", "unsupported_request")

    # -- frames

    def write_frame(self, frame: Frame) -> None:
        if self.output == "stream-json":
            self.agent.write(encode(frame).encode("utf-8", "replace"))
        else:
            self.frames.append(frame)
            self.agent.count()

    def emit(self, frame: Frame) -> None:
        """Write a frame of the session."""
        self.write_frame({**frame, "uuid": frame.get("uuid") or new_uuid(), "session_id": self.agent.session})

    def tell(self, frame: Frame) -> None:
        """Write a frame of the running turn, with the names of the messages that it answers."""
        turn = self.agent.running
        if turn is not None and turn.uuids:
            frame.update(user_message_uuid=turn.uuids[0], user_message_uuids=turn.uuids)
        self.emit(frame)

    def lifecycle(self, prompt: Prompt, state: str) -> None:
        if prompt.uuid is not None and not self.agent.script.recorded:
            before, self.agent.aside = self.agent.aside, True
            self.emit({"type": "command_lifecycle", "command_uuid": prompt.uuid, "state": state})
            self.agent.aside = before

    def event(self, kind: str, parent: str | None, **fields: object) -> None:
        if self.partial:
            frame = {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": parent}
            self.emit(frame)

    # -- a turn

    def begin(self, turn: RunningTurn) -> None:
        for prompt in turn.prompts:
            self.lifecycle(prompt, "started")
        agent = self.agent.script.agent
        servers = [{"name": name, "status": status} for name, status in agent.get("mcp_servers", {}).items()]
        self.tell(frames.init(self.agent.session, self.agent.model, self.mode, agent, servers))
        for prompt in turn.prompts:
            self.echo(prompt)

    def echo(self, prompt: Prompt) -> None:
        if self.agent.flags.has("replay-user-messages"):
            self.emit({**frames.user(prompt.content, isReplay=True), "uuid": prompt.uuid})

    def take_in(self, turn: RunningTurn) -> None:
        """Fold the messages that have come into the running turn."""
        while self.agent.queue:
            prompt = self.agent.queue.popleft()
            turn.prompts.append(prompt)
            turn.steered = prompt.text
            self.echo(prompt)
            self.lifecycle(prompt, "started")

    def open_message(self, block: Frame, parent: str | None) -> None:
        self.message_id = new_id("msg")
        if self.partial:
            self.emit({"type": "system", "subtype": "status", "status": "requesting"})
        self.event("message_start", parent, message=frames.message(self.message_id, self.agent.model, []))
        self.event("content_block_start", parent, index=0, content_block=frames.empty_block(block))

    def close_message(self, block: Frame, parent: str | None) -> None:
        body = frames.message(self.message_id, self.agent.model, [block])
        self.tell(frames.assistant(body, parent))
        self.event("content_block_stop", parent, index=0)
        delta = {
            "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
        }
        used = frames.usage(10, tokens(encode(block)))
        self.event("message_delta", parent, delta=delta, usage=used)
        self.event("message_stop", parent)

    def open_block(self, kind: str, parent: str | None) -> None:
        self.open_message(frames.block(kind, ""), parent)

    def piece(self, kind: str, text: str, parent: str | None) -> None:
        self.event("content_block_delta", parent, index=0, delta={"type": f"{kind}_delta", kind: text})

    def close_block(self, kind: str, text: str, parent: str | None) -> None:
        self.close_message(frames.block(kind, text), parent)

    def call_tool(self, call: Call) -> None:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
        self.open_message(block, call.parent)
        delta = {"type": "input_json_delta", "partial_json": encode(call.input)}
        self.event("content_block_delta", call.parent, index=0, delta=delta)
        self.close_message(block, call.parent)

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        result = frames.tool_result(call.id, text, failed, None)
        self.tell({**result, "parent_tool_use_id": call.parent})

    # -- what the host is asked

    def asks(self, call: Call) -> bool:
        if self.mode == "bypassPermissions":
            return False
        if self.agent.flags.one("permission-prompt-tool") == "stdio":
            return True
        text = f"Claude requested permissions to use {call.name}, but you haven't granted it yet."
        denial = {"type": "system", "subtype": "permission_denied", "tool_name": call.name}
        self.emit({**denial, "tool_use_id": call.id, "message": text})
        raise Denied(text)

    def ask(self, call: Call) -> str:
        return self.request(frames.permission_request(call, call.input.get("description")))

    def request(self, body: Frame) -> str:
        request = new_uuid()
        self.write_frame({"type": "control_request", "request_id": request, "request": body})
        return request

    def judge(self, call: Call, answer: Frame | None) -> Frame:
        """Apply the decision of the host; everything that is not a well-formed yes is a no."""
        match answer:
            case {"subtype": "success", "response": {"behavior": "allow", **rest}}:
                allowed = as_frame(rest.get("updatedInput", call.input))
                if allowed is not None:
                    self.agent.allowed |= session_rules(rest.get("updatedPermissions"))
                    return allowed
                raise Denied("Tool permission request failed: invalid updatedInput")
            case {"subtype": "success", "response": {"behavior": "deny", **rest}}:
                raise Denied(str(rest.get("message", "")), "user_reject", rest.get("interrupt") is True)
            case None:
                raise Denied(CLOSED)
            case _:
                raise Denied(f"Tool permission request failed: {answer.get('error', 'invalid answer')}")

    def deny(self, call: Call, denied: Denied) -> None:
        self.tell(frames.tool_result(call.id, str(denied), True, denied.source))

    def host_tool(self, name: str) -> str:
        return f"mcp__{SERVER}__{name}"

    def offers(self, name: str) -> bool:
        return name in self.server.tools()

    def call_host(self, call: Call, name: str) -> str:
        return self.server.call(call, name)

    def returned(self, answer: Frame | None) -> tuple[str, bool]:
        return returned(answer)

    # -- what goes wrong, and the end

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float) -> None:
        frame = {"type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": most}
        self.emit({**frame, "retry_delay_ms": int(delay * 1000), "error_status": status, "error": error})

    def notice(self, text: str, tag: str) -> None:
        self.emit(
            {"type": "system", "subtype": "informational", "content": text, "level": "info", "tag": tag}
        )

    def complain(self, text: str, status: int) -> None:
        self.emit(frames.api_failure(text, status, "server_error"))

    def limit(self, resets_at: int) -> None:
        frame = frames.rate_limit(resets_at)
        self.emit(frame)
        params = {"rate_limit_info": frame["rate_limit_info"]}
        self.limited = {"api_error": "usage_limit_reached", "api_error_params": params}

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        """The result of the turn, with the text of an API failure before it where there is one."""
        status, word = step.get("status", ENDINGS[ending][2]), ENDINGS[ending][3]
        limited, self.limited = self.limited, {}
        if word is not None:
            self.tell({**frames.api_failure(text, status, word), **limited})
        facts: Frame = {"api_error_status": status}
        if "structured" in step:
            facts["structured_output"] = step["structured"]
            text = encode(step["structured"])
        self.result(turn, ending, text, {**facts, "usage": step.get("usage", {})})

    def result(self, turn: RunningTurn, ending: str, text: str, facts: Frame) -> None:
        agent = self.agent
        used = {**frames.usage(turn.input_tokens, turn.output_tokens), **facts.pop("usage", {})}
        frame = frames.result(ending, text, **facts)
        frame.update(duration_ms=turn.milliseconds, duration_api_ms=turn.milliseconds)
        frame.update(num_turns=max(turn.calls, 1), total_cost_usd=agent.state["cost"], usage=used)
        frame["permission_denials"] = [frames.denial(call) for call in turn.denials]
        frame["modelUsage"] = frames.model_usage(agent.model, used, agent.state["cost"])
        frame.update(queued_turn_count=len(agent.queue), result_index=self.results)
        if not turn.prompts:
            frame["origin"] = {"kind": "task-notification"}
        self.results += 1
        agent.code = int(frame["is_error"])
        self.tell(frame)

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        tools = turn.call is not None or reason == "deny"
        if turn.call is not None:
            self.tell(frames.tool_result(turn.call.id, frames.REJECTED, True, "user_reject"))
        elif turn.partial:
            body = frames.message(new_id("msg"), self.agent.model, [frames.block("text", turn.partial)])
            self.tell({**frames.assistant(body, None), "aborted": True})
        text = "[Request interrupted by user for tool use]" if tools else "[Request interrupted by user]"
        self.emit(frames.user([{"type": "text", "text": text}]))
        facts: Frame = {"terminal_reason": "aborted_tools" if tools else "aborted_streaming"}
        self.result(turn, "interrupted", ABORTED, facts)
        if reason == "sigint":
            self.agent.code = 0

    def over(self, turn: RunningTurn) -> None:
        for prompt in turn.prompts:
            self.lifecycle(prompt, "completed")

    # -- frames of faults

    def delta_line(self, text: str) -> bytes:
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        frame = {"type": "stream_event", "event": event, "session_id": self.agent.session}
        return encode({**frame, "parent_tool_use_id": None, "uuid": new_uuid()}).encode()

    def whole_text(self, text: str) -> None:
        body = frames.message(new_id("msg"), self.agent.model, [frames.block("text", text)])
        self.emit(frames.assistant(body, None))


def session_rules(updates: object) -> set[str]:
    """The tools that the host allowed for the rest of the session."""
    allowed = [update for update in frames_in(updates) if update.get("behavior") == "allow"]
    rules = [rule for update in allowed for rule in frames_in(update.get("rules"))]
    return {str(rule["toolName"]) for rule in rules if "toolName" in rule}


_CONTROLS: Mapping[str, Callable[[ClaudeWire, Frame], Frame | None]] = {
    "initialize": ClaudeWire.initialize,
    "interrupt": ClaudeWire.interrupt,
    "set_model": ClaudeWire.set_model,
    "set_permission_mode": ClaudeWire.set_permission_mode,
    "cancel_async_message": ClaudeWire.cancel_async_message,
    "end_session": lambda _wire, _body: None,
    "set_max_thinking_tokens": lambda _wire, _body: None,
    "mcp_status": lambda _wire, _body: {"mcpServers": []},
    "mcp_set_servers": lambda _wire, _body: {"added": [], "removed": [], "errors": {}},
    "stop_task": lambda _wire, _body: {},
    "get_binary_version": ClaudeWire.binary_version,
}
