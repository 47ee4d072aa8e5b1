"""Interfaces between the engine of the scripted agent, its turns and its wires.

The engine (`agent`) reads and writes, and knows neither how a turn is played nor what a frame looks like: turns
(`turn`, `replayed_turn`), faults (`faults`) and wires (`wires`) are given to it by the program (`program`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from proctor.actors.scripted.frames import Frame, encode, new_id
from proctor.actors.scripted.script import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SessionTaken(Exception):
    """A new session was to have the id of one that has a past."""


class TurnCut(Exception):
    """The host ends the running turn here."""


class TurnDone(Exception):
    """The running turn has had its result, or never gets one."""


class Prompt:
    """A user message: its text, its content as it was sent, and the id that the host gave it, if any."""

    def __init__(self, content: str | list[Frame], name: str | None = None) -> None:
        self.content = content
        self.uuid = name
        blocks = [{"text": content}] if isinstance(content, str) else content
        self.text = "\n".join(block["text"] for block in blocks if "text" in block)


class Denied(Exception):
    """A tool may not run: the text for the model, the source of the decision, and whether the turn ends by it."""

    def __init__(self, text: str, source: str = "config", interrupt: bool = False) -> None:
        super().__init__(text)
        self.source = source
        self.interrupt = interrupt


class Call:
    """A tool call that has been announced. Its input is what the host has allowed, once it has."""

    def __init__(self, name: str, arguments: Frame, step: Frame, prefix: str) -> None:
        self.id = new_id(prefix)
        self.name = name
        self.input = arguments
        self.parent: str | None = step.get("parent")
        self.needs_approval = bool(step.get("ask"))


class RunningTurn:
    """A turn that is being played: the prompts it answers, and the counts of what it has used so far."""

    def __init__(self, turn: Turn, prompts: list[Prompt]) -> None:
        self.turn = turn
        self.prompts = prompts
        self.begun = time.monotonic()
        self.partial = ""
        self.steered = ""
        self.input_tokens = self.output_tokens = self.calls = 0
        self.cost = 0.0
        self.call: Call | None = None
        self.denials: list[Call] = []
        self.exit_with: int | None = None
        self.settled = False

    @property
    def uuids(self) -> list[str]:
        """The host's names of the prompts that this turn answers."""
        return [prompt.uuid for prompt in self.prompts if prompt.uuid is not None]

    @property
    def milliseconds(self) -> int:
        """The time since the turn began."""
        return int((time.monotonic() - self.begun) * 1000)

    def play(self) -> None:
        raise NotImplementedError

    def end(self, ending: str, step: Frame | None = None) -> None:
        raise NotImplementedError

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float = 0.01) -> None:
        raise NotImplementedError

    def refuse_until_reset(self) -> None:
        raise NotImplementedError

    def ask_unanswered(self) -> None:
        raise NotImplementedError


class Wire:
    """The wire of one CLI: frames for what happens in a turn, and prompts, answers and cuts from the host's frames.

    It decides nothing that a script decides. What it holds is what its wire counts: ids, open requests, the items
    of a turn. `signals`: for each signal an exit status (the tool is killed first), `die`, or `cut`. What is here is
    the wire of a CLI that has no frame for it.
    """

    name = ""
    version_line = ""
    bare: frozenset[str] = frozenset()
    signals: Mapping[int, int | str] = {}
    call_prefix = "call"
    structured = False
    kills_tools = True
    replays = False

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def eof_cuts(self) -> bool:
        """Whether the end of stdin ends a running turn, and the process."""
        return False

    def run(self) -> int:
        self.agent.handle_signals()
        status: int = self.agent.serve()
        return status

    def receive(self, line: bytes) -> None: ...

    def write_frame(self, frame: Frame) -> None:
        self.agent.write(encode(frame).encode("utf-8", "replace"))

    def begin(self, turn: RunningTurn) -> None: ...

    def take_in(self, turn: RunningTurn) -> None: ...

    def open_block(self, kind: str, parent: str | None) -> None: ...

    def piece(self, kind: str, text: str, parent: str | None) -> None: ...

    def close_block(self, kind: str, text: str, parent: str | None) -> None: ...

    def call_tool(self, call: Call) -> None: ...

    def tool_result(self, call: Call, text: str, failed: bool) -> None:
        raise NotImplementedError

    def asks(self, call: Call) -> bool:
        raise NotImplementedError

    def ask(self, call: Call) -> str:
        return ""

    def judge(self, call: Call, answer: Frame | None) -> Frame:
        raise Denied("there is no host to ask")

    def deny(self, call: Call, denied: Denied) -> None:
        self.tool_result(call, str(denied), True)

    def host_tool(self, name: str) -> str:
        return name

    def offers(self, name: str) -> bool:
        return False

    def call_host(self, call: Call, name: str) -> str:
        return ""

    def returned(self, answer: Frame | None) -> tuple[str, bool]:
        return "", True

    def retrying(self, attempt: int, most: int, status: int, error: str, delay: float) -> None: ...

    def notice(self, text: str, tag: str) -> None:
        raise NotImplementedError

    def complain(self, text: str, status: int) -> None:
        raise NotImplementedError

    def limit(self, resets_at: int) -> None: ...

    def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None:
        raise NotImplementedError

    def abort(self, turn: RunningTurn, reason: str, question: str | None) -> None:
        raise NotImplementedError

    def over(self, turn: RunningTurn) -> None: ...

    def delta_line(self, text: str) -> bytes:
        raise NotImplementedError

    def whole_text(self, text: str) -> None:
        self.close_block("text", text, None)
