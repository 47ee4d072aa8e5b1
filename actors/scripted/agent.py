"""The engine of the scripted agent: its session, its prompts and the end of its process.

Guaranteed in every wire: each prompt gets one end of a turn, unless a fault or a signal forbids it; the host's requests are
answered during a turn; the session is saved at the start and end of each turn, so that a resumed one continues after any
death. A turn that a death cut short is played again.

One thread, one select. Only `pump` reads stdin, and only there a turn is cut, so that no frame is left half written. The wire's
`signals` table says what a signal does. Not supported: hooks, slash commands.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType

from proctor.actors.scripted.flags import Flags
from proctor.actors.scripted.frames import Frame
from proctor.actors.scripted.interfaces import Prompt, RunningTurn, SessionTaken, TurnCut, Wire
from proctor.actors.scripted.pipes import Pipes, Store, start_group, stop_group
from proctor.actors.scripted.script import Fault, Script, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen
    from typing import Any, NoReturn

FRESH: Mapping[str, Any] = {
    "incarnations": 0,
    "turns": 0,
    "cursor": 0,
    "cost": 0.0,
    "input_tokens": 0,
    "output_tokens": 0,
    "exchanges": [],
    "prompt": None,
}
UNANSWERED = "no turn of the script answers this prompt"


class Agent:
    """One process of a session. `act` carries out a fault; `play` makes the turn that plays a turn of the script."""

    def __init__(
        self,
        flags: Flags,
        script: Script,
        kind: type[Wire],
        act: Callable[[Agent, Fault], None],
        play: Callable[[Agent, Turn, list[Prompt]], RunningTurn],
    ) -> None:
        self._act, self._play = act, play
        self.flags: Flags = flags
        self.script: Script = script
        self.pipes = Pipes()
        self.store = Store(persist=not flags.has("no-session-persistence"))
        self.state: Frame = {**FRESH, "fired": []}
        self.session = ""
        self.model = flags.one("model") or script.agent.get("model", "scripted")
        self.allowed = set(flags.allowed)
        self.queue: deque[Prompt] = deque()
        self.answers: dict[str, Frame] = {}
        self.asking: str | None = None
        self.running: RunningTurn | None = None
        self.deferred: int | None = None
        self.tool: Popen[bytes] | None = None
        self.turn = self.line = 0
        self.done: set[str] = set()
        self.traits: dict[str, Fault] = {}
        self.aside = self.receiving = self.sigint = self.leaving = False
        self.cut: str | None = None
        self.code = 0
        self.unasked: tuple[float, Turn] | None = None
        self.wire: Wire = kind(self)

    def open(self, new: str) -> None:
        """Begin a session under this id. Raises SessionTaken when it has a past."""
        saved = self.store.load(new) or {}
        if saved.get("turns") and not self.script.recorded:
            raise SessionTaken(new)
        self.session, self.state = new, {**FRESH, "fired": saved.get("fired", [])}
        self.enter()

    def take_up(self, session: str, fork: str | None = None) -> bool:
        """Go on with a session, or with a copy of it under the id `fork`; False when it is refused."""
        saved = self.store.load(session)
        self.session, self.state = session, {**FRESH, "fired": [], **(saved or {})}
        if saved is None or self.start_fault("refuse_resume"):
            return False
        if fork is not None:
            self.session = fork
            self.state["fired"] = []
        self.enter()
        return True

    def enter(self) -> None:
        self.state["incarnations"] += 1
        self.save()
        for fault in self.flags.faults:
            if fault.kind == "trait" and self.first(fault):
                self.traits[fault.name] = fault

    def save(self) -> None:
        if self.state["turns"] or self.state["fired"]:
            self.store.save(self.session, self.state)

    def start_fault(self, name: str) -> bool:
        return any(fault.name == name and self.first(fault) for fault in self.flags.faults)

    def first(self, fault: Fault) -> bool:
        """Whether a fault may act: always, but for `@once` the first time in this session, or under its key."""
        if fault.key is not None:
            return self.store.first(fault.key)
        if not fault.once:
            return True
        if fault.spec in self.state["fired"]:
            return False
        self.state["fired"].append(fault.spec)
        self.store.save(self.session, self.state)
        return True

    def fire_due(self) -> None:
        """Fire the faults that are due after this line; the lines that they write themselves are not counted."""
        for fault in self.flags.faults:
            if fault.kind == "point" and fault.spec not in self.done and fault.due(self.turn, self.line):
                self.done.add(fault.spec)
                if self.first(fault):
                    self.fire(fault)

    def cut_due(self, line: bytes) -> None:
        """Write half of this line and die, when the fault `cut` is due in it."""
        for fault in self.flags.faults:
            if fault.name == "cut" and fault.due(self.turn, self.line + 1) and self.first(fault):
                self.pipes.write(line[: len(line) // 2])
                self.kill_self(signal.SIGKILL)

    def fire(self, fault: Fault) -> None:
        """Let a fault act now; TurnDone when it ended the turn."""
        if fault.kind != "point":
            self.traits[fault.name] = fault
            return
        before, self.aside = self.aside, True
        try:
            self._act(self, fault)
        finally:
            self.aside = before

    def fill(self, text: str, **more: str) -> str:
        """The text with `{prompt}`, `{session}` and the like replaced; other braces stay."""
        values = {
            "session": self.session,
            "turn": str(self.turn),
            "cwd": os.getcwd(),
            "incarnation": str(self.state["incarnations"]),
            "model": self.model,
            **more,
        }
        for name, value in values.items() if "{" in text else ():
            text = text.replace("{" + name + "}", value)
        return text

    def hello(self) -> bool:
        """Handle the greeting of the host; False when it must stay without a reply."""
        if self.start_fault("silent_greeting"):
            return False
        self.fire_due()
        time.sleep(self.script.agent.get("greeting", 0))
        return True

    def write(self, line: bytes) -> None:
        if "slow" in self.traits:
            time.sleep(self.traits["slow"].number)
        if self.counted:
            self.cut_due(line)
        self.pipes.write(line + b"\n")
        self.count()

    @property
    def counted(self) -> bool:
        """Whether faults count this line: in the greeting all are, in a turn only what the turn itself says."""
        return not self.aside and (self.turn == 0 if self.receiving else self.running is not None)

    def count(self) -> None:
        if self.counted:
            self.line += 1
            self.fire_due()

    def pump(self, seconds: float | None = 0.0) -> None:
        """Take what has come on stdin, waiting at most `seconds`; raise TurnCut when that ends the running turn."""
        lines = self.pipes.read(seconds)
        self.receiving = True
        for line in filter(None, map(bytes.strip, lines)):
            self.wire.receive(line)
        self.receiving = False
        if self.pipes.eof and self.running is not None and self.wire.eof_cuts() and not self.stays:
            self.leave_now(0)
        if self.sigint:
            self.sigint, self.leaving = False, True
            self.cut_short("sigint")
        if self.cut is not None and self.running is not None:
            reason, self.cut = self.cut, None
            raise TurnCut(reason)

    @property
    def stays(self) -> bool:
        """Whether the end of stdin is to end nothing."""
        return bool(self.traits.keys() & {"ignore_eof", "linger"})

    def cut_short(self, reason: str) -> None:
        """End the turn that runs, or the one that begins with what is queued already."""
        if self.running is not None or self.queue:
            self.cut = reason

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.pump(left)

    def wait_answer(self, request: str) -> Frame | None:
        """The host's answer to a request of ours; None when stdin ended without one."""
        self.asking = request
        while request not in self.answers and not self.pipes.eof:
            self.pump(None)
        self.asking = None
        return self.answers.pop(request, None)

    def die(self, text: str) -> NoReturn:
        """Leave with status 1 and one line on stderr."""
        self.pipes.write(text.encode() + b"\n", 2)
        self.leave_now(1)

    def run(self) -> int:
        """From the start to the end of the process. The exit status."""
        self.pipes.write(self.script.stderr, 2)
        return self.wire.run()

    def replay_greeting(self) -> None:
        """Write the lines of a recorded CLI before its first turn, once."""
        lines, self.script.greeting = self.script.greeting, []
        for line in lines:
            self.write(line)

    def read_stdin(self) -> str:
        """All of stdin as text, without the blanks around it."""
        lines: list[bytes] = []
        while not self.pipes.eof:
            lines += self.pipes.read(None)
        return b"\n".join(lines).decode("utf-8", "replace").strip()

    def linger(self) -> None:
        """Stay, when a fault wants it so."""
        while "linger" in self.traits:
            self.rest()

    def serve(self) -> int:
        """Play a turn for each prompt until the host lets go. The exit status."""
        while not self.leaving or (self.queue and self.cut is not None):
            if self.queue:
                self.perform([self.queue.popleft()])
            elif self.pipes.eof and not self.stays:
                return self.exit_code()
            else:
                self.rest()
        return self.exit_code()

    def rest(self) -> None:
        """Wait for a prompt, or for the time of an unasked turn."""
        self.cut = None
        if self.unasked is None:
            self.pump(None)
        elif (left := self.unasked[0] - time.monotonic()) > 0:
            self.pump(left)
        else:
            turn, self.unasked = self.unasked[1], None
            self.perform([], turn)

    def exit_code(self) -> int:
        recorded = self.script.exit_code
        played_out = self.script.recorded and self.state["cursor"] >= len(self.script.turns)
        if recorded is None or not played_out:
            return self.code
        if recorded < 0:
            self.kill_self(-recorded)
        return recorded

    def perform(self, prompts: list[Prompt], unasked: Turn | None = None) -> None:
        text = prompts[0].text if prompts else ""
        turn = unasked or self.choose(text)
        if prompts:
            self.state["turns"] += 1
        self.turn, self.line, self.done = self.state["turns"], 0, set()
        self.state["prompt"] = text
        self.save()
        self.running = self._play(self, turn, prompts)
        try:
            self.running.play()
        finally:
            self.settle()
            self.running = None
        self.after(turn)

    def settle(self) -> None:
        """Save the end of the running turn, once; before its result, so that who has read that can count on it."""
        running = self.running
        if running is None or running.settled:
            return
        running.settled = True
        self.state["prompt"] = None
        self.state["cursor"] += running.turn in self.script.sequence
        self.save()

    def after(self, turn: Turn) -> None:
        following = self.script.after(turn)
        if following is not None:
            self.unasked = (time.monotonic() + (following.unasked or 0.0), following)
        if self.script.recorded and not turn.ended and not self.leaving:
            self.leave_now(self.exit_code())

    def choose(self, prompt: str) -> Turn:
        for turn in self.script.turns:
            if turn.conditional and turn.fits(prompt, self.state["incarnations"]):
                return turn
        sequence = self.script.sequence
        place: int = self.state["cursor"]
        if sequence and (place < len(sequence) or not self.script.recorded):
            return sequence[min(place, len(sequence) - 1)]
        turn = Turn()
        turn.steps, turn.ended = [("end", {"end": "error", "text": UNANSWERED})], True
        return turn

    def handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.on_signal)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if "ignore_term" in self.traits:
            return
        deed = self.wire.signals[number]
        if deed == "cut":
            self.sigint, self.code = True, 0
        elif isinstance(deed, str):
            self.kill_self(number)
        elif self.deferred is not None:
            self.deferred = deed + 1
        else:
            self.leave_now(deed)

    def start_tool(self, command: str) -> Popen[bytes]:
        """Start a tool; a signal that comes meanwhile waits until there is something to kill."""
        self.deferred = 0
        self.tool = start_group(command)
        late, self.deferred = self.deferred, None
        if late:
            self.leave_now(late - 1)
        return self.tool

    def kill_tool(self) -> None:
        tool, self.tool = self.tool, None
        if tool is not None:
            stop_group(tool)

    def kill_self(self, number: int) -> NoReturn:
        # the default action, so that the parent sees this signal as the cause; SIGKILL refuses a handler
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
        raise AssertionError("a signal that cannot be survived")

    def leave_now(self, code: int) -> NoReturn:
        self.kill_tool()
        os._exit(code)
