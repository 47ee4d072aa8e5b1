"""Codex's app-server, as the scripted agent speaks it: one thread, its turns and items, questions to the host.

A `turn/start` in mid-turn steers that turn and is answered with its id, as `turn/steer` is. An interrupt leaves a
running shell command alive, which `thread/backgroundTerminals/clean` then kills; the end of stdin and SIGTERM kill it
too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import Frame, as_frame, encode, frames_in, new_id, new_uuid
from proctor.actors.scripted.interfaces import Call, Denied, Prompt, RunningTurn, Wire
from proctor.actors.scripted.wires import codex_frames as frames
from proctor.actors.scripted.wires.codex_frames import VERSION, call_item, failure, is_command, wrapped
from proctor.actors.scripted.wires.rpc import INVALID_REQUEST, RpcConnection, RpcError

TYPE_CHECKING = False

BARE: frozenset[str] = frozenset(("version", "V", "v", "strict-config", "oss"))
DELTA: Mapping[str, str] = {
    "text": "item/agentMessage/delta",
    "thinking": "item/reasoning/summaryTextDelta",
}


def stamped() -> Frame:
    return {"emittedAtMs": int(time.time() * 1000)}


class CodexWire(Wire):
    """One process of `codex app-server` 0.169.0."""

    name = "codex"
    version_line = f"codex-cli {VERSION}"
    bare: frozenset[str] = BARE
    signals: Mapping[int, int | str] = {signal.SIGTERM: 0, signal.SIGHUP: "die", signal.SIGINT: "die"}
    kills_tools = False
    agent: Agent

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.rpc = RpcConnection(agent, tag=False, stamp=stamped)
        self.greeted = False
        self.policy = "on-request"
        self.tools: set[str] = set()
        self.turn_id = ""
        self.item = ""
        self.last: Frame | None = None
        self.methods: Mapping[str, Callable[[object, Frame], None]] = {
            "initialized": lambda _number, _params: None,
            "thread/start": self.start_thread,
            "thread/resume": self.resume_thread,
            "thread/fork": self.fork_thread,
            "turn/start": self.start_turn,
            "turn/steer": self.steer_turn,
            "turn/interrupt": self.interrupt_turn,
            "thread/backgroundTerminals/clean": self.clean,
        }

    def eof_cuts(self) -> bool:
        return True

    # -- what the host says

    def receive(self, line: bytes) -> None:
        self.rpc.receive(line, self.methods if self.greeted else {"initialize": self.initialize})

    def initialize(self, number: object, params: Frame) -> None:
        if not self.agent.hello():
            return
        self.greeted = True
        client = as_frame(params.get("clientInfo")) or {}
        place = {"codexHome": "/home/user/.codex", "platformFamily": "unix", "platformOs": "linux"}
        self.rpc.reply(number, {"userAgent": f"{client.get('name', 'host')}/{VERSION} (scripted)", **place})
        self.rpc.notify("remoteControl/status/changed", {"status": "disabled", "serverName": "scripted"})

    def start_thread(self, number: object, params: Frame) -> None:
        self.agent.open(new_uuid())
        self.enter(params)
        self.rpc.reply(number, self.thread(None))
        self.rpc.notify("thread/started", {"thread": self.thread(None)["thread"]})

    def resume_thread(self, number: object, params: Frame) -> None:
        self.take_up(params, None)
        self.rpc.notify("thread/status/changed", self.of_thread(status={"type": "idle"}))
        self.rpc.reply(number, self.thread(None))
        self.tell_usage(0, 0)

    def fork_thread(self, number: object, params: Frame) -> None:
        self.take_up(params, new_uuid())
        self.rpc.reply(number, self.thread(str(params.get("threadId"))))
        self.rpc.notify("thread/started", {"thread": self.thread(None)["thread"]})

    def take_up(self, params: Frame, fork: str | None) -> None:
        session = str(params.get("threadId", ""))
        if not self.agent.take_up(session, fork):
            raise RpcError(INVALID_REQUEST, f"no rollout found for thread id {session}")
        self.enter(params)

    def enter(self, params: Frame) -> None:
        self.policy = params.get("approvalPolicy") or self.policy
        self.agent.model = params.get("model") or self.agent.model
        self.tools |= {str(tool.get("name")) for tool in frames_in(params.get("dynamicTools"))}

    def thread(self, forked: str | None) -> Frame:
        return frames.thread_reply(self.agent, self.policy, forked)

    def start_turn(self, number: object, params: Frame) -> None:
        self.check_thread(params)
        self.agent.model = params.get("model") or self.agent.model
        prompt = self.prompt_of(params)
        if self.running:
            self.steer(prompt)
        else:
            self.turn_id = new_uuid()
            self.agent.queue.append(prompt)
        self.rpc.reply(number, {"turn": self.turn("inProgress", started=False)})

    def steer_turn(self, number: object, params: Frame) -> None:
        self.check_thread(params)
        if not self.running or params.get("expectedTurnId") != self.turn_id:
            raise RpcError(INVALID_REQUEST, "no active turn to steer")
        self.steer(self.prompt_of(params))
        self.rpc.reply(number, {"turnId": self.turn_id})

    def steer(self, prompt: Prompt) -> None:
        if self.agent.running is not None:
            self.agent.running.steered = prompt.text
        else:
            self.agent.queue[-1].text += "\n" + prompt.text

    def interrupt_turn(self, number: object, params: Frame) -> None:
        self.check_thread(params)
        if not self.running:
            raise RpcError(INVALID_REQUEST, "no active turn to interrupt")
        self.rpc.reply(number, {})
        self.agent.cut_short("interrupt")

    def clean(self, number: object, _params: Frame) -> None:
        self.agent.kill_tool()
        self.rpc.reply(number, {})

    def check_thread(self, params: Frame) -> None:
        if params.get("threadId") != self.agent.session or not self.agent.session:
            raise RpcError(INVALID_REQUEST, f"thread not found: {params.get('threadId')}")

    @property
    def running(self) -> bool:
        return self.agent.running is not None or bool(self.agent.queue)

    def prompt_of(self, params: Frame) -> Prompt:
        return Prompt(frames_in(params.get("input")), params.get("clientUserMessageId"))

    # -- frames

    def of_thread(self, **fields: object) -> Frame:
        return {"threadId": self.agent.session, **fields}

    def tell(self, method: str, **fields: object) -> None:
        """Write a notification of the running turn."""
        self.rpc.notify(method, self.of_thread(turnId=self.turn_id, **fields))

    def turn(self, status: str, *, started: bool = True, error: Frame | None = None) -> Frame:
        return frames.turn_frame(self.turn_id, status, self.last, started=started, error=error)

    # -- a turn

    def begin(self, turn: RunningTurn) -> None:
        if not turn.prompts:
            self.turn_id = new_uuid()
        self.last = None
        self.rpc.notify("thread/status/changed", self.of_thread(status={"type": "active", "activeFlags": []}))
        self.rpc.notify("turn/started", self.of_thread(turn=self.turn("inProgress")))
        for prompt in turn.prompts:
            item = {
                "type": "userMessage",
                "id": new_uuid(),
                "clientId": prompt.uuid,
                "content": prompt.content,
            }
            self.tell("item/started", item=item)
            self.tell("item/completed", item=item)

    def open_block(self, kind: str, parent: str | None) -> None:
        self.item = new_id("msg" if kind == "text" else "rs")
        self.tell("item/started", item=self.block(kind, None))
        if kind == "thinking":
            self.tell("item/reasoning/summaryPartAdded", itemId=self.item, summaryIndex=0)

    def piece(self, kind: str, text: str, parent: str | None) -> None:
        more = {"summaryIndex": 0} if kind == "thinking" else {}
        self.tell(DELTA[kind], itemId=self.item, delta=text, **more)

    def close_block(self, kind: str, text: str, parent: str | None) -> None:
        item = self.block(kind, text)
        self.last = item if kind == "text" else self.last
        self.tell("item/completed", item=item)

    def block(self, kind: str, text: str | None) -> Frame:
        if kind == "text":
            return {"type": "agentMessage", "id": self.item, "text": text or "", "phase": None}
        return {
            "type": "reasoning",
            "id": self.item,
            "summary": [] if text is None else [text],
            "content": [],
        }

    def call_tool(self, call: Call) -> None:
        self.tell("item/started", item=self.item_of(call, "inProgress"))

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        self.tell("item/completed", item=self.item_of(call, "failed" if failed else "completed", text))

    def item_of(self, call: Call, status: str, text: str | None = None) -> Frame:
        if call.name not in self.tools:
            return call_item(call, status, text)
        parts = None if text is None else [{"type": "inputText", "text": text}]
        return {
            "type": "dynamicToolCall",
            "id": call.id,
            "namespace": None,
            "tool": call.name,
            "arguments": call.input,
            "status": status,
            "contentItems": parts,
            "success": None if text is None else status == "completed",
        }

    # -- what the host is question

    def asks(self, call: Call) -> bool:
        return self.policy != "never"

    def ask(self, call: Call) -> str:
        flags = {"type": "active", "activeFlags": ["waitingOnApproval"]}
        self.rpc.notify("thread/status/changed", self.of_thread(status=flags))
        if is_command(call):
            named = {"itemId": call.id, "command": wrapped(call), "cwd": os.getcwd(), "kind": "command"}
            facts = {"startedAtMs": int(time.time() * 1000), "reason": call.input.get("description")}
            choices = ["accept", "acceptForSession", "decline", "cancel"]
            params = self.of_thread(turnId=self.turn_id, **named, **facts, availableDecisions=choices)
            return self.rpc.ask("item/commandExecution/requestApproval", params)
        meta = {"codex_approval_kind": "mcp_tool_call", "tool_name": call.name, "tool_params": call.input}
        text = f'Allow the scripted MCP server to run tool "{call.name}"?'
        params = {"serverName": "scripted", "mode": "form", "_meta": meta, "message": text}
        params["requestedSchema"] = {"type": "object", "properties": {}}
        return self.rpc.ask("mcpServer/elicitation/request", self.of_thread(turnId=self.turn_id, **params))

    def judge(self, call: Call, answer: Frame | None) -> Frame:
        """Apply the decision of the host; everything that is not a well-formed yes is a no."""
        self.rpc.notify("serverRequest/resolved", self.of_thread(requestId=self.rpc.requests - 1))
        result = as_frame((answer or {}).get("result")) or {}
        word = result.get("decision", result.get("action"))
        if word == "acceptForSession":
            self.agent.allowed.add(call.name)
        if word in ("accept", "acceptForSession"):
            return call.input
        raise Denied(str(word or "failed"), "user_reject", word == "cancel")

    def deny(self, call: Call, denied: Denied) -> None:
        if not denied.interrupt:
            status = "declined" if str(denied) == "decline" and is_command(call) else "failed"
            self.tell("item/completed", item=call_item(call, status, "user rejected MCP tool call"))
            idle: Frame = {"type": "active", "activeFlags": []}
            self.rpc.notify("thread/status/changed", self.of_thread(status=idle))

    def offers(self, name: str) -> bool:
        return name in self.tools

    def call_host(self, call: Call, name: str) -> str:
        named = {"callId": call.id, "namespace": None, "tool": name, "arguments": call.input}
        return self.rpc.ask("item/tool/call", self.of_thread(turnId=self.turn_id, **named))

    def returned(self, answer: Frame | None) -> tuple[str, bool]:
        result = as_frame((answer or {}).get("result"))
        if result is None:
            error = as_frame((answer or {}).get("error")) or {}
            return str(error.get("message", "the host's tool gave no result")), True
        texts = (str(part.get("text", "")) for part in frames_in(result.get("contentItems")))
        return "\n".join(texts), result.get("success") is not True

    # -- what goes wrong, and the end

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float) -> None:
        info = {"responseStreamDisconnected": {"httpStatusCode": status}}
        more = {"additionalDetails": f"unexpected status {status}: {error}", "misalignment": None}
        retry = {"message": f"Reconnecting... {attempt}/{most}", "codexErrorInfo": info, **more}
        self.tell("error", error=retry, willRetry=True)

    def notice(self, text: str, tag: str) -> None:
        self.rpc.notify("warning", self.of_thread(message=text))

    def complain(self, text: str, status: int) -> None:
        info = {"httpConnectionFailed": {"httpStatusCode": status}}
        self.tell("error", error=self.error(info, text), willRetry=False)

    def error(self, info: object, text: str) -> Frame:
        return {"message": text, "codexErrorInfo": info, "additionalDetails": None, "misalignment": None}

    def limit(self, resets_at: int) -> None:
        primary = {"usedPercent": 100, "windowDurationMins": 300, "resetsAt": resets_at}
        limits = {
            "limitId": "codex",
            "limitName": None,
            "primary": primary,
            "secondary": None,
            "credits": None,
        }
        self.rpc.notify("account/rateLimits/updated", {"rateLimits": limits})

    def tell_usage(self, input_tokens: int, output_tokens: int) -> None:
        state = self.agent.state
        total, last = (
            frames.counted(state["input_tokens"], state["output_tokens"]),
            frames.counted(input_tokens, output_tokens),
        )
        self.tell(
            "thread/tokenUsage/updated",
            tokenUsage={"total": total, "last": last, "modelContextWindow": 258400},
        )

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        self.tell_usage(turn.input_tokens, turn.output_tokens)
        status, error = "completed", None
        if ending == "interrupted":
            status = "interrupted"
        elif ending != "completed":
            status, error = "failed", self.error(*failure(ending, text))
            self.tell("error", error=error, willRetry=False)
        self.close(status, error)

    def close(self, status: str, error: Frame | None) -> None:
        idle = {"type": "systemError" if error else "idle"}
        self.rpc.notify("thread/status/changed", self.of_thread(status=idle))
        self.rpc.notify("turn/completed", self.of_thread(turn=self.turn(status, error=error)))

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        self.tell_usage(turn.input_tokens, turn.output_tokens)
        self.close("interrupted", None)
        if question is not None:
            self.rpc.notify("serverRequest/resolved", self.of_thread(requestId=int(question)))

    # -- frames of faults

    def delta_line(self, text: str) -> bytes:
        params = self.of_thread(turnId=self.turn_id, itemId=self.item or "msg_0", delta=text)
        return encode({"method": DELTA["text"], "params": params, **stamped()}).encode()

    def whole_text(self, text: str) -> None:
        self.item = new_id("msg")
        self.tell("item/completed", item=self.block("text", text))
