"""Interfaces between the engine of the scripted agent, its turns and its wires.

The engine (`agent`) reads and writes, and knows neither how a turn is played nor what a frame looks like: turns
(`turn`, `replayed_turn`), faults (`faults`) and wires (`wires`) are given to it by the program (`program`).
"""

from __future__ import annotations

from proctor.actors.scripted.frames import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol, TypeAlias

    from proctor.actors.scripted.script import Turn

    Frame: TypeAlias = dict[str, Any]


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

    def __init__(self, name: str, given: Frame, step: Frame, prefix: str) -> None:
        self.id = new_id(prefix)
        self.name = name
        self.input = given
        self.parent: str | None = step.get("parent")
        self.asked = bool(step.get("ask"))


if TYPE_CHECKING:

    class RunningTurn(Protocol):
        """A turn that is being played."""

        turn: Turn
        prompts: list[Prompt]
        steered: str
        partial: str
        taken: int
        given: int
        calls: int
        cost: float
        call: Call | None
        denials: list[Call]
        exit_with: int | None
        settled: bool

        @property
        def uuids(self) -> list[str]: ...
        @property
        def milliseconds(self) -> int: ...
        def play(self) -> None: ...
        def end(self, ending: str, step: Frame | None = None) -> None: ...
        def retrying(self, attempt: int, most: int, status: int, error: str, delay: float = 0.01) -> None: ...
        def refuse_until_reset(self) -> None: ...
        def ask_unanswered(self) -> None: ...

    class Wire(Protocol):
        """The wire of one CLI: frames for what happens in a turn, and prompts, answers and cuts from the host's frames.

        It decides nothing that a script decides. What it holds is what its wire counts: ids, open requests, the items
        of a turn. `signals`: for each signal an exit status (the tool is killed first), `die`, or `cut`.
        """

        name: str
        version_line: str
        bare: frozenset[str]
        signals: Mapping[int, Any]
        call_prefix: str
        structured: bool
        kills_tools: bool
        replays: bool

        def __init__(self, agent: Any) -> None: ...
        @property
        def eof_cuts(self) -> bool: ...
        def run(self) -> int: ...
        def receive(self, line: bytes) -> None: ...
        def write_frame(self, frame: Frame) -> None: ...
        def begin(self, turn: RunningTurn) -> None: ...
        def open_block(self, kind: str, parent: str | None) -> None: ...
        def piece(self, kind: str, text: str, parent: str | None) -> None: ...
        def close_block(self, kind: str, text: str, parent: str | None) -> None: ...
        def call_tool(self, call: Call) -> None: ...
        def tool_result(self, call: Call, text: str, failed: bool) -> None: ...
        def asks(self, call: Call) -> bool: ...
        def ask(self, call: Call) -> str: ...
        def judge(self, call: Call, answer: Frame | None) -> Frame: ...
        def deny(self, call: Call, denied: Denied) -> None: ...
        def host_tool(self, name: str) -> str: ...
        def offers(self, name: str) -> bool: ...
        def call_host(self, call: Call, name: str) -> str: ...
        def returned(self, answer: Frame | None) -> tuple[str, bool]: ...
        def take_in(self, turn: RunningTurn) -> None: ...
        def retrying(self, attempt: int, most: int, status: int, error: str, delay: float) -> None: ...
        def notice(self, text: str, tag: str) -> None: ...
        def complain(self, text: str, status: int) -> None: ...
        def limit(self, resets_at: int) -> None: ...
        def end(self, turn: RunningTurn, ending: str, text: str, step: Frame) -> None: ...
        def abort(self, turn: RunningTurn, reason: str, asked: str | None) -> None: ...
        def over(self, turn: RunningTurn) -> None: ...
        def delta_line(self, text: str) -> bytes: ...
        def whole_text(self, text: str) -> None: ...
