"""A recorded turn, replayed line by line."""

from __future__ import annotations

import json

from proctor.actors.scripted.frames import Frame
from proctor.actors.scripted.interfaces import TurnDone
from proctor.actors.scripted.script import parse
from proctor.actors.scripted.turn import ScriptedTurn


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
