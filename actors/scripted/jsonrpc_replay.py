"""Plays a recording of a command line that speaks JSON-RPC, whatever its name.

    python -I -S cli.py --dialect=jsonrpc --script PREFIX [--fault SPEC]... [--speed N]

PREFIX names the four files of a recording. The lines of the recorded CLI are written again, byte for byte but for the ids of
the host's requests, which are those of this host; the n-th request of a method stands for the n-th of the recording. The order
follows from the frames alone, so that a host with other timing is served too:

- a line waits for the request that began what it belongs to, and for the answers to the CLI's own questions before it;
- a reply to a request that begins nothing (an interrupt, a change of model) is given when it is asked for;
- a request that the recording does not hold is refused with an error of JSON-RPC.

Faults act at a line of the recording (`@line=N`): `crash`, `exit`, `hang`, `garbage`, `stderr`, `cut`, `slow`. A CLI
that left by itself leaves again after its last line, as it did; else the program ends with its stdin.

Standard library only. Not here: Claude's wire (`agent`), resuming from another process's state.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

from proctor.actors.scripted.flags import Flags
from proctor.actors.scripted.frames import Frame
from proctor.actors.scripted.pipes import Pipes
from proctor.actors.scripted.script import Fault, Recording, ScriptError, parse

BEGINNING = frozenset(
    """
    initialize authenticate session/new session/load session/resume session/prompt thread/start thread/resume
    thread/fork turn/start turn/steer newConversation sendUserMessage sendUserTurn
    """.split()  # noqa: SIM905
)
"""Requests to which the next lines of the CLI belong: none of those is written before they have come."""

ENDING = frozenset(("session/prompt",))
"""Those of them whose reply ends what they began: what stands before the reply belongs to them."""

ABLE = ("crash", "exit", "hang", "garbage", "stderr", "cut", "slow")


class Line:
    """One line of the recorded CLI. `waits` are the positions of host requests that must have come; `question`: it is
    a request of the CLI's that its host answered."""

    def __init__(self, at: float | None, raw: bytes, frame: Frame) -> None:
        self.at, self.raw, self.frame = at, raw, frame
        self.waits: int = 0
        self.question = False

    @property
    def is_reply(self) -> bool:
        return "id" in self.frame and "method" not in self.frame


class Dialogue:
    """A recorded dialogue. `requests` are the host's requests in order; `aside` their replies that wait to be asked for."""

    def __init__(self, recording: Recording) -> None:
        self.meta, self.stderr = recording.meta, recording.stderr
        with_id = [frame for frame in recording.host if "id" in frame]
        self.requests = [frame for frame in with_id if "method" in frame]
        self.answered = [frame["id"] for frame in with_id if "method" not in frame]
        self.lines = [Line(at, raw, parse(raw)) for at, raw in recording.timed]
        self.aside: dict[int, Line] = {}
        self._order()

    def _order(self) -> None:
        places = {json.dumps(frame["id"]): place for place, frame in enumerate(self.requests)}
        owner = self._method_of(places)
        answered, least, ordered = list(self.answered), 0, list[Line]()
        for number, line in enumerate(self.lines):
            place, method = owner[number]
            if line.is_reply and place is not None and method not in BEGINNING:
                self.aside[place] = line
                continue
            if place is not None and (line.is_reply or method in ENDING):
                least = max(least, place + 1)
            line.waits = least
            if "method" in line.frame and line.frame.get("id") in answered and "id" in line.frame:
                answered.remove(line.frame["id"])
                line.question = True
            ordered.append(line)
        self.lines = ordered

    def _method_of(self, places: dict[str, int]) -> list[tuple[int | None, str]]:
        """Of each line the request that it answers, or that the next reply which ends something answers."""
        out: list[tuple[int | None, str]] = []
        following: tuple[int | None, str] = (None, "")
        for line in reversed(self.lines):
            mine: tuple[int | None, str] = following
            if line.is_reply:
                place = places.get(json.dumps(line.frame["id"]))
                method = "" if place is None else str(self.requests[place]["method"])
                mine = (place, method)
                if method in BEGINNING:
                    following = mine if method in ENDING else (None, "")
            out.append(mine)
        return out[::-1]

    @property
    def leaves(self) -> int | None:
        """The exit status of a CLI that was not stopped, negative for a signal; None when its host let it go."""
        if self.meta.get("stopper") != "nobody":
            return None
        match = re.match(r"(exit status|killed by signal|killed by) (\w+)", str(self.meta.get("exit", "")))
        if match is None:
            return 0
        if match[1] == "exit status":
            return int(match[2])
        return -int(match[2]) if match[2].isdigit() else -int(signal.Signals[match[2]])


class Player:
    """One process that plays one recording."""

    def __init__(self, recording: Dialogue, faults: list[Fault], speed: float) -> None:
        self.recording, self.faults, self.speed = recording, faults, speed
        self.pipes = Pipes()
        self.ids: dict[str, object] = {}
        self.came: set[int] = set()
        self.answers: list[object] = []

    def play(self) -> int:
        self.pipes.write(self.recording.stderr, 2)
        last: float | None = None
        for number, line in enumerate(self.recording.lines, 1):
            if not self.await_host(line.waits):
                return 0
            if self.speed and line.at is not None and last is not None:
                time.sleep(max(0.0, line.at - last) / self.speed)
            last = line.at
            self.act(number, line)
            self.repeat(line, self.own_id(line))
            if line.question and not self.await_answer(line.frame["id"]):
                return 0
        if (code := self.recording.leaves) is not None:
            self.leave(code)
        while not self.pipes.eof:
            self.read_host()
        return 0

    def await_host(self, waits: int) -> bool:
        """Read until as much of the host has come as the line waits for; False when stdin ends before."""
        requests = self.recording.requests
        while any(n not in self.came and requests[n]["method"] in BEGINNING for n in range(waits)):
            if self.pipes.eof:
                return False
            self.read_host()
        return True

    def await_answer(self, question: object) -> bool:
        while question not in self.answers:
            if self.pipes.eof:
                return False
            self.read_host()
        self.answers.remove(question)
        return True

    def read_host(self) -> None:
        for text in filter(None, map(bytes.strip, self.pipes.read(None))):
            self.receive(text)

    def receive(self, text: bytes) -> None:
        try:
            frame: Frame = json.loads(text)
        except ValueError:
            return
        if "id" not in frame:
            return
        if "method" not in frame:
            self.answers.append(frame["id"])
            return
        place = next((n for n, f in enumerate(self.recording.requests) if self.stands_for(n, f, frame)), None)
        if place is None:
            self.refuse(frame)
            return
        self.came.add(place)
        self.ids[json.dumps(self.recording.requests[place]["id"])] = frame["id"]
        if place in self.recording.aside:
            self.repeat(self.recording.aside[place], frame["id"])

    def stands_for(self, place: int, recorded: Frame, frame: Frame) -> bool:
        return place not in self.came and recorded["method"] == frame["method"]

    def refuse(self, frame: Frame) -> None:
        error = {"code": -32601, "message": f"{frame['method']} is not in the recording"}
        self.write(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "error": error}).encode())

    def own_id(self, line: Line) -> object:
        return self.ids.get(json.dumps(line.frame["id"])) if line.is_reply else None

    def repeat(self, line: Line, own: object) -> None:
        if own is None or own == line.frame["id"]:
            self.write(line.raw)
        else:
            self.write(json.dumps({**line.frame, "id": own}, ensure_ascii=False).encode())

    def write(self, data: bytes) -> None:
        self.pipes.write(data + b"\n")

    def act(self, number: int, line: Line) -> None:
        for fault in self.faults:
            if fault.name == "slow":
                time.sleep(fault.number)
            elif fault.line == number:
                self.carry_out(fault, line)

    def carry_out(self, fault: Fault, line: Line) -> None:
        match fault.name:
            case "crash":
                self.leave(-int(signal.SIGKILL))
            case "exit":
                self.leave(int(fault.number))
            case "hang":
                while True:
                    signal.pause()
            case "garbage":
                for _ in range(int(fault.number)):
                    self.write(b"{ this is not JSON")
            case "stderr":
                self.pipes.write(b"x" * int(fault.number), 2)
            case _:  # cut
                self.pipes.write(line.raw[: len(line.raw) // 2])
                self.leave(1)

    def leave(self, code: int) -> None:
        if code < 0:
            if code != -int(signal.SIGKILL):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


def main(argv: list[str]) -> int:
    """Play what the arguments name. The exit status; ScriptError for a recording or a fault that cannot be played."""
    flags = Flags(argv, frozenset())
    unable = [fault.spec for fault in flags.faults if fault.name not in ABLE]
    if unable:
        raise ScriptError("--fault", 0, f"{unable[0]!r} cannot act on this wire; there are {', '.join(ABLE)}")
    return Player(Dialogue(Recording(flags.script)), flags.faults, flags.speed).play()
