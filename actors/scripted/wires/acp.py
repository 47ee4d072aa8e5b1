"""The Agent Client Protocol: one session of OpenCode, of Gemini, or of a generic agent.

The frames are the same for all; the meaning of a rejection, a second prompt or an error differs by agent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import Frame, api_error, as_frame, encode, frames_in, new_id, new_uuid
from proctor.actors.scripted.interfaces import Call, Denied, Prompt, RunningTurn, SessionTaken, Wire
from proctor.actors.scripted.wires.rpc import INTERNAL, INVALID_PARAMS, RpcConnection, RpcError

TYPE_CHECKING = False

CHUNK: Mapping[str, str] = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
STOP: Mapping[str, str] = {
    "completed": "end_turn",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "model_refused": "refusal",
}
"""What a turn ends with; every other ending is an error."""

OPTIONS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "opencode": (
        ("once", "allow_once", "Allow once"),
        ("always", "allow_always", "Always allow"),
        ("reject", "reject_once", "Reject"),
    ),
    "gemini": (
        ("proceed_always", "allow_always", "Allow for this session"),
        ("proceed_once", "allow_once", "Allow"),
        ("cancel", "reject_once", "Reject"),
    ),
    "acp": (("yes", "allow_once", "Yes"), ("no", "reject_once", "No")),
}


class AcpWire(Wire):
    """The part of the protocol that all agents share."""

    name = "acp"
    version_line = "scripted 1.0.0"
    agent_name = "scripted"
    agent: Agent
    bare: frozenset[str] = frozenset("acp experimental-acp yolo debug pure print-logs version v".split())  # noqa: SIM905
    signals: Mapping[int, int | str] = {signal.SIGTERM: "die", signal.SIGHUP: "die", signal.SIGINT: "die"}
    sessions: Mapping[str, Frame] = {"close": {}, "fork": {}, "list": {}, "resume": {}}
    rejection_ends = False  # a rejected tool ends the turn, without a word
    shows_rejection = True
    shows_input = True
    counts = True  # tells what was used before the turn ends
    second_cancels = False  # a second prompt in mid-turn cancels the first

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.rpc = RpcConnection(agent, tag=True)
        self.message: str | None = None
        self.prompts: dict[int, object] = {}
        self.methods: Mapping[str, Callable[[object, Frame], None]] = {
            "initialize": self.initialize,
            "authenticate": lambda number, _params: self.rpc.reply(number, {}),
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/fork": self.fork_session,
            "session/prompt": self.take_prompt,
            "session/cancel": lambda _number, _params: self.agent.cut_short("interrupt"),
            "session/set_mode": self.set_mode,
            "session/set_model": self.set_model,
            "session/set_config_option": self.set_option,
            "session/close": lambda number, _params: self.rpc.reply(number, {}),
        }

    def eof_cuts(self) -> bool:
        return True

    # -- what the host says

    def receive(self, line: bytes) -> None:
        self.rpc.receive(line, self.methods)

    def initialize(self, number: object, _params: Frame) -> None:
        if not self.agent.hello():
            return
        media = {"embeddedContext": True, "image": True}
        can: Frame = {"loadSession": True, "promptCapabilities": media}
        can["mcpCapabilities"] = {"http": True, "sse": True}
        if self.sessions:
            can["sessionCapabilities"] = dict(self.sessions)
        version = self.agent.script.agent.get("version", self.version_line.rpartition(" ")[2])
        who = {"name": self.agent_name, "version": version}
        self.rpc.reply(
            number, {"protocolVersion": 1, "agentCapabilities": can, "authMethods": [], "agentInfo": who}
        )

    def new_session(self, number: object, _params: Frame) -> None:
        try:
            self.agent.open(self.new_id())
        except SessionTaken as taken:
            raise RpcError(INTERNAL, f"session {taken} is in use") from None
        self.rpc.reply(number, {"sessionId": self.agent.session, **self.choices()})
        self.update("available_commands_update", availableCommands=[])

    def load_session(self, number: object, params: Frame) -> None:
        self.take_up(params, None)
        for prompt, answer in self.agent.state["exchanges"]:
            self.update("user_message_chunk", **self.chunk(prompt))
            self.update("agent_message_chunk", **self.chunk(answer))
        self.rpc.reply(number, self.choices())
        self.update("available_commands_update", availableCommands=[])

    def resume_session(self, number: object, params: Frame) -> None:
        self.take_up(params, None)
        self.rpc.reply(number, self.choices())

    def fork_session(self, number: object, params: Frame) -> None:
        self.take_up(params, self.new_id())
        self.rpc.reply(number, {"sessionId": self.agent.session, **self.choices()})

    def take_up(self, params: Frame, fork: str | None) -> None:
        session = str(params.get("sessionId", ""))
        if not self.agent.take_up(session, fork):
            raise self.unknown(session)

    def unknown(self, session: str) -> RpcError:
        """The refusal of a session that cannot be loaded."""
        return RpcError(INTERNAL, "Internal error", {"details": f"no session {session}"})

    def new_id(self) -> str:
        return new_uuid()

    def choices(self) -> Frame:
        """The settings that the host may change in this session."""
        option = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        value = {"value": self.agent.model, "name": self.agent.model}
        return {"configOptions": [{**option, "currentValue": self.agent.model, "options": [value]}]}

    def set_mode(self, number: object, _params: Frame) -> None:
        self.rpc.reply(number, {})

    def set_model(self, number: object, params: Frame) -> None:
        self.agent.model = str(params.get("modelId") or self.agent.model)
        self.rpc.reply(number, {})

    def set_option(self, number: object, params: Frame) -> None:
        if params.get("configId") == "model":
            self.agent.model = str(params.get("value") or self.agent.model)
        self.rpc.reply(number, self.choices())

    def take_prompt(self, number: object, params: Frame) -> None:
        session = str(params.get("sessionId"))
        if session != self.agent.session:
            raise RpcError(
                INVALID_PARAMS, f"Invalid params: session not found: {session}", {"sessionId": session}
            )
        if self.second_cancels:
            self.agent.cut_short("interrupt")
        prompt = Prompt(frames_in(params.get("prompt")))
        self.prompts[id(prompt)] = number
        self.agent.queue.append(prompt)

    # -- frames

    def update(self, kind: str, /, **fields: object) -> None:
        body = {"sessionUpdate": kind, **fields}
        self.rpc.notify("session/update", {"sessionId": self.agent.session, "update": body})

    def chunk(self, text: str) -> Frame:
        named = {} if self.message is None else {"messageId": self.message}
        return {**named, "content": {"type": "text", "text": text}}

    # -- a turn

    def open_block(self, kind: str, parent: str | None) -> None:
        self.message = new_id("msg")

    def piece(self, kind: str, text: str, parent: str | None) -> None:
        self.update(CHUNK[kind], **self.chunk(text))

    def call_tool(self, call: Call) -> None:
        named = {"toolCallId": call.id, "title": call.name, "kind": kind_of(call)}
        self.update("tool_call", **named, status="pending", rawInput=call.input)

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        named = {"toolCallId": call.id, "status": "failed" if failed else "completed"}
        output = {"error": text} if failed else {"output": text}
        parts = [{"type": "content", "content": {"type": "text", "text": text}}]
        self.update("tool_call_update", **named, content=parts, rawOutput=output)

    # -- what the host is asked

    def asks(self, call: Call) -> bool:
        return not self.agent.flags.has("yolo")

    def ask(self, call: Call) -> str:
        named = {"toolCallId": call.id, "title": title_of(call), "kind": kind_of(call), "status": "pending"}
        shown = {"rawInput": call.input} if self.shows_input else {}
        options = [{"optionId": one, "kind": kind, "name": name} for one, kind, name in OPTIONS[self.name]]
        params = {"sessionId": self.agent.session, "toolCall": {**named, **shown}, "options": options}
        return self.rpc.ask("session/request_permission", params)

    def judge(self, call: Call, answer: Frame | None) -> Frame:
        """Apply the decision of the host; everything that is not a well-formed yes is a no."""
        result = as_frame((answer or {}).get("result")) or {}
        outcome = as_frame(result.get("outcome")) or {}
        kinds = {one: kind for one, kind, _ in OPTIONS[self.name]}
        kind = kinds.get(str(outcome.get("optionId"))) if outcome.get("outcome") == "selected" else None
        if kind == "allow_always":
            self.agent.allowed.add(call.name)
        if kind in ("allow_once", "allow_always"):
            return call.input
        raise Denied(
            "The user rejected permission to use this specific tool call.", "user_reject", self.rejection_ends
        )

    def deny(self, call: Call, denied: Denied) -> None:
        if self.shows_rejection:
            self.tool_result(call, str(denied), True)

    # -- what goes wrong, and the end

    def notice(self, text: str, tag: str) -> None:
        self.rpc.notify("_scripted/notice", {"sessionId": self.agent.session, "text": text, "tag": tag})

    def complain(self, text: str, status: int) -> None:
        self.notice(text, f"error {status}")

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        if self.counts:
            self.update(
                "usage_update", used=turn.input_tokens + turn.output_tokens, size=128000, cost=self.cost()
            )
        stop = STOP.get(ending)
        for number in self.numbers(turn):
            if stop is not None:
                self.rpc.reply(number, self.outcome(turn, stop))
            else:
                self.rpc.refuse(number, self.failure(*api_error(ending, text, step)))

    def cost(self) -> Frame:
        return {"amount": self.agent.state["cost"], "currency": "USD"}

    def outcome(self, turn: RunningTurn, stop: str) -> Frame:
        used = {
            "inputTokens": turn.input_tokens,
            "outputTokens": turn.output_tokens,
            "totalTokens": turn.input_tokens + turn.output_tokens,
        }
        return {"stopReason": stop, "usage": used, "_meta": {}}

    def failure(self, text: str, status: int | None) -> RpcError:
        return RpcError(INTERNAL, f"Internal error: {text}", {"statusCode": status})

    def numbers(self, turn: RunningTurn) -> list[object]:
        """The requests that this turn answers."""
        return [self.prompts.pop(id(prompt)) for prompt in turn.prompts if id(prompt) in self.prompts]

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        if turn.call is not None:
            self.tool_result(turn.call, "Tool execution aborted", True)
        for number in self.numbers(turn):
            self.rpc.reply(number, self.outcome(turn, "end_turn" if reason == "deny" else "cancelled"))

    # -- frames of faults

    def delta_line(self, text: str) -> bytes:
        body = {"sessionUpdate": CHUNK["text"], **self.chunk(text)}
        params = {"sessionId": self.agent.session, "update": body}
        return encode({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()

    def whole_text(self, text: str) -> None:
        self.open_block("text", None)
        self.update(CHUNK["text"], **self.chunk(text))


class OpencodeWire(AcpWire):
    """One process of `opencode acp` 1.18.33."""

    name = "opencode"
    version_line = "1.18.33"
    agent_name = "OpenCode"
    rejection_ends = True

    def new_id(self) -> str:
        return f"ses_{os.urandom(13).hex()}"

    def unknown(self, session: str) -> RpcError:
        return RpcError(INTERNAL, "Internal error: OpenCode service failure", {"service": "session"})

    def failure(self, text: str, status: int | None) -> RpcError:
        return RpcError(INTERNAL, f"Internal error: {text}", {"service": "session", "errorName": "APIError"})


class GeminiWire(AcpWire):
    """One process of `gemini --acp` 0.61.0."""

    name = "gemini"
    version_line = "0.61.0"
    agent_name = "gemini-cli"
    call_prefix = "run_shell_command__run_shell_command"
    signals: Mapping[int, int | str] = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
    sessions: Mapping[str, Frame] = {}
    shows_rejection = False
    shows_input = False
    counts = False
    second_cancels = True

    def call_tool(self, call: Call) -> None:
        """Written without its input, and only where no approval is needed: an approved tool is shown by its update alone."""
        if not call.needs_approval:
            named = {"toolCallId": call.id, "title": title_of(call), "kind": kind_of(call)}
            self.update("tool_call", **named, status="in_progress", locations=[])

    def open_block(self, kind: str, parent: str | None) -> None:
        """Messages have no names."""

    def choices(self) -> Frame:
        models = [{"modelId": self.agent.model, "name": self.agent.model}]
        modes = [{"id": name, "name": name} for name in ("default", "autoEdit", "yolo", "plan")]
        return {
            "modes": {"availableModes": modes, "currentModeId": "default"},
            "models": {"availableModels": models, "currentModelId": self.agent.model},
        }

    def outcome(self, turn: RunningTurn, stop: str) -> Frame:
        count = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
        by_model = [{"model": self.agent.model, "token_count": count}]
        return {"stopReason": stop, "_meta": {"quota": {"token_count": count, "model_usage": by_model}}}

    def failure(self, text: str, status: int | None) -> RpcError:
        return RpcError(status or INTERNAL, text)

    def eof_cuts(self) -> bool:
        """A running tool keeps the process after the end of stdin."""
        return self.agent.tool is None


def kind_of(call: Call) -> str:
    return "execute" if "command" in call.input else "other"


def title_of(call: Call) -> str:
    return str(call.input.get("command", call.name))
