"""The one-shot runs `codex exec --json` and `opencode run --format json`.

Both read stdin to its end, play one turn and exit: with 0, or with 1 for a failed turn. No deltas, no questions. A tool that
would need an approval is refused silently by the first, and ends the turn without an answer in the second.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import Frame, api_error, encode, new_id, new_uuid
from proctor.actors.scripted.interfaces import Call, Denied, Prompt, RunningTurn, Wire
from proctor.actors.scripted.wires.codex_frames import VERSION, exec_item, failure

TYPE_CHECKING = False

REJECTED = "The user rejected permission to use this specific tool call."


class OneShot(Wire):
    """A run of one turn, without questions or further input; only whole blocks are written."""

    agent: Agent

    def play(self, text: str) -> int:
        """Answer the prompt and stay no longer than a fault wants. The exit status."""
        agent = self.agent
        agent.handle_signals()
        agent.perform([Prompt(text)])
        while agent.unasked is not None:
            agent.rest()
        agent.linger()
        return agent.exit_code()

    def complaint(self, text: str) -> None:
        self.agent.pipes.write(text.encode("utf-8", "replace") + b"\n", 2)


class CodexExecWire(OneShot):
    """One process of `codex exec --json` 0.169.0."""

    name = "codex-exec"
    version_line = f"codex-cli {VERSION}"
    bare: frozenset[str] = frozenset(
        """
        json skip-git-repo-check ephemeral last all dangerously-bypass-approvals-and-sandbox full-auto oss strict-config
        ignore-user-config version V v
        """.split()  # noqa: SIM905
    )
    signals: Mapping[int, int | str] = {signal.SIGTERM: "die", signal.SIGHUP: "die", signal.SIGINT: 1}

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.items = 0
        self.places: dict[str, str] = {}

    def run(self) -> int:
        words = self.agent.flags.words[1:]
        verb = words.pop(0) if words[:1] in (["resume"], ["fork"]) else ""
        if verb and not self.take_up(words.pop(0) if words else "", verb):
            return 1
        if not verb:
            self.agent.open(new_uuid())
        self.complaint("Reading additional input from stdin...")
        texts = [word for word in words if word != "-"]
        text = "\n".join([*texts, self.agent.read_stdin()]).strip()
        if not text:
            self.complaint("No prompt provided via stdin.")
            return 1
        return self.play(text)

    def take_up(self, session: str, verb: str) -> bool:
        if session.count("-") != 4:
            self.agent.open(new_uuid())  # an unknown name starts a new thread
            return True
        if self.agent.take_up(session, new_uuid() if verb == "fork" else None):
            return True
        why = f"no rollout found for thread id {session} (code -32600)"
        self.complaint(f"Error: thread/resume: thread/resume failed: {why}")
        return False

    def next(self) -> str:
        self.items += 1
        return f"item_{self.items - 1}"

    def begin(self, turn: RunningTurn) -> None:
        self.write_frame({"type": "thread.started", "thread_id": self.agent.session})
        self.write_frame({"type": "turn.started"})

    def tell(self, item: Frame, kind: str = "item.completed") -> None:
        self.write_frame({"type": kind, "item": item})

    def close_block(self, kind: str, text: str, parent: str | None) -> None:
        item = "agent_message" if kind == "text" else "reasoning"
        self.tell({"id": self.next(), "type": item, "text": text})

    def call_tool(self, call: Call) -> None:
        self.places[call.id] = self.next()
        self.tell(exec_item(call, self.places[call.id], "in_progress"), "item.started")

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        status = "failed" if failed else "completed"
        self.tell(exec_item(call, self.places[call.id], status, text))

    def asks(self, call: Call) -> bool:
        """The policy is never to ask: what the sandbox does not allow fails."""
        flags = self.agent.flags
        free = flags.has("dangerously-bypass-approvals-and-sandbox")
        if free or "danger-full-access" in (flags.one("s"), flags.one("sandbox")):
            return False
        raise Denied("the sandbox refused it")

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float) -> None:
        text = f"Reconnecting... {attempt}/{most} (unexpected status {status}: {error})"
        self.write_frame({"type": "error", "message": text})

    def notice(self, text: str, tag: str) -> None:
        self.tell({"id": self.next(), "type": "error", "message": text})

    def complain(self, text: str, status: int) -> None:
        self.write_frame({"type": "error", "message": text})

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        if ending == "completed":
            state = self.agent.state
            used = {
                "input_tokens": state["input_tokens"],
                "cached_input_tokens": 0,
                "cache_write_input_tokens": 0,
            }
            used.update(output_tokens=state["output_tokens"], reasoning_output_tokens=0)
            self.write_frame({"type": "turn.completed", "usage": used})
            self.agent.code = 0
            return
        self.agent.code = 1
        _, message = failure(ending, text) if ending != "interrupted" else (None, text)
        self.write_frame({"type": "error", "message": message})
        self.write_frame({"type": "turn.failed", "error": {"message": message}})

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        """An interrupted run leaves without a final event."""
        self.agent.leave_now(1)

    def delta_line(self, text: str) -> bytes:
        item = {"id": "item_0", "type": "agent_message", "text": text}
        return encode({"type": "item.updated", "item": item}).encode()


class OpencodeRunWire(OneShot):
    """One process of `opencode run --format json` 1.18.33."""

    name = "opencode-run"
    version_line = "1.18.33"
    bare: frozenset[str] = frozenset("fork auto thinking c continue print-logs pure share version v".split())  # noqa: SIM905
    signals: Mapping[int, int | str] = {signal.SIGTERM: "die", signal.SIGHUP: "die", signal.SIGINT: "die"}

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.message = new_id("msg")
        self.open = False

    def run(self) -> int:
        flags, agent = self.agent.flags, self.agent
        session = flags.one("session") or flags.one("s")
        text = "\n".join([*flags.words[1:], agent.read_stdin()]).strip()
        if not session:
            agent.open(new_session())
        elif not agent.take_up(session, new_session() if flags.has("fork") else None):
            self.complaint("\x1b[91m\x1b[1mError: \x1b[0mSession not found")
            return 1
        if not text:
            self.complaint("You must provide a message or a command")
            return 1
        return self.play(text)

    def tell(self, kind: str, part: Frame | None = None, **more: object) -> None:
        named = {"id": new_id("prt"), "messageID": self.message, "sessionID": self.agent.session}
        body = {} if part is None else {"part": {**named, **part}}
        at = int(time.time() * 1000)
        self.write_frame({"type": kind, "timestamp": at, "sessionID": self.agent.session, **body, **more})

    def step(self) -> None:
        if not self.open:
            self.open, self.message = True, new_id("msg")
            self.tell("step_start", {"type": "step-start", "snapshot": "0" * 40})

    def close_step(
        self, reason: str, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0
    ) -> None:
        self.step()
        tokens: Frame = {
            "total": input_tokens + output_tokens,
            "input": input_tokens,
            "output": output_tokens,
            "reasoning": 0,
        }
        tokens["cache"] = {"write": 0, "read": 0}
        part = {"type": "step-finish", "reason": reason, "snapshot": "0" * 40, "tokens": tokens, "cost": cost}
        self.tell("step_finish", part)
        self.open = False

    def close_block(self, kind: str, text: str, parent: str | None) -> None:
        if kind == "thinking" and not self.agent.flags.has("thinking"):
            return
        self.step()
        word = "text" if kind == "text" else "reasoning"
        self.tell(word, {"type": word, "text": text, "time": self.times()})

    def times(self) -> Frame:
        now = int(time.time() * 1000)
        return {"start": now, "end": now}

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        self.step()
        call_fields = {"input": call.input, "time": self.times()}
        if failed:
            state = {"status": "error", **call_fields, "error": text}
        else:
            metadata = {"output": text, "exit": 0, "truncated": False}
            state = {
                "status": "completed",
                **call_fields,
                "output": text,
                "metadata": metadata,
                "title": call.name,
            }
        self.tell("tool_use", {"type": "tool", "tool": call.name, "callID": call.id, "state": state})
        self.close_step("tool-calls")

    def asks(self, call: Call) -> bool:
        if self.agent.flags.has("auto"):
            return False
        self.complaint(f"! permission requested: {call.name}; auto-rejecting")
        raise Denied(REJECTED, "user_reject", True)

    def notice(self, text: str, tag: str) -> None:
        self.complaint(text)

    def complain(self, text: str, status: int) -> None:
        data = {"message": text, "statusCode": status, "isRetryable": status >= 429}
        self.tell("error", error={"name": "APIError", "data": data})

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        if ending == "completed":
            self.close_step("stop", turn.input_tokens, turn.output_tokens, turn.cost)
            self.agent.code = 0
            return
        self.agent.code = 1
        text, status = api_error(ending, text, step)
        if status is None:
            self.tell("error", error={"name": "UnknownError", "data": {"message": text}})
        else:
            self.complain(text, status)

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        """A refused tool ends the run without an answer and with status 0."""
        self.agent.code = 0

    def delta_line(self, text: str) -> bytes:
        part = {"type": "text", "text": text, "sessionID": self.agent.session}
        return encode(
            {"type": "text", "timestamp": 0, "sessionID": self.agent.session, "part": part}
        ).encode()


def new_session() -> str:
    return f"ses_{os.urandom(13).hex()}"
