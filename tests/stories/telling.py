"""A story told by a real scripted process to a conversation, kept as bytes and moves, and told again without a process.

The first telling decides where the host speaks: after the event that a move waits for. What was written and read is
kept in that order, so that a second telling is pure: the same bytes, cut in any way, and the same requests between.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import attrs

from proctor.actors.scripted.launch import SCRIPTED_WIRES, scripted_dialect
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Command, Dialect, HostTool, Launch
from tests.actors.scripted.host import write_script
from tests.stories.stories import Story, prompt

MAX_LINE = 2500
TOOL = HostTool(
    name="measure",
    description="Measures a thing.",
    schema={"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
)
LIMIT = 20


@attrs.frozen
class Telling:
    """What was read, in the pieces between what was said: `parts` holds bytes and requests."""

    dialect: Dialect
    launch: Launch
    parts: Sequence[bytes | v.AnyRequest]
    events: Sequence[v.AnyEvent]
    owed: bytes

    def again(self, cuts: Sequence[int] | None) -> tuple[list[v.AnyEvent], bytes]:
        """The same again, the stream cut at these places (None: after every byte). The events, and what was owed."""
        conversation = open_conversation(self.dialect, self.launch)
        conversation.greet()
        events: list[v.AnyEvent] = []
        owed, place = b"", 0
        for part in self.parts:
            if not isinstance(part, bytes):
                conversation.send(part)
                continue
            for piece in pieces(part, place, cuts):
                events += conversation.receive(piece)
                owed += conversation.data_to_send()
            place += len(part)
        return events + conversation.receive(b""), owed

    @property
    def size(self) -> int:
        """Bytes of the whole stream."""
        return sum(len(part) for part in self.parts if isinstance(part, bytes))

    def newlines(self) -> list[int]:
        """The places of the ends of lines."""
        stream = b"".join(part for part in self.parts if isinstance(part, bytes))
        return [place for place, byte in enumerate(stream) if byte == 10]


def pieces(part: bytes, place: int, cuts: Sequence[int] | None) -> Iterator[bytes]:
    """A part of the stream that begins at `place`, cut."""
    if cuts is None:
        yield from (part[n : n + 1] for n in range(len(part)))
        return
    marks = [0, *(cut - place for cut in cuts if place < cut < place + len(part)), len(part)]
    yield from (part[a:b] for a, b in itertools.pairwise(marks))


def open_conversation(dialect: Dialect, launch: Launch) -> Conversation:
    return Conversation(dialect, launch=launch, max_line=MAX_LINE)


def told(name: str, story: Story) -> Telling:
    """Let the scripted agent tell a story in the wire of that name."""
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder) / "script.ndjson", list(map(dict, story.script)))
        dialect = scripted_dialect(script, dialect=name)
        launch = launch_of(name, story, Path(folder))
        with Session(dialect, launch, Path(folder)) as session:
            session.play(story)
        return Telling(
            attrs.evolve(dialect, launch=SCRIPTED_WIRES[name].dialect.launch),
            launch,
            session.parts,
            session.events,
            session.owed,
        )


def launch_of(name: str, story: Story, folder: Path) -> Launch:
    schema = '{"type": "object"}' if "structured_output" in story.needs else None
    tools = (TOOL,) if "host_tools" in story.needs else ()
    return Launch(
        executable=(),
        mode=SCRIPTED_WIRES[name].mode,
        json_schema=schema,
        host_tools=tools,
        cwd=str(folder),
        scratch=str(folder),
    )


class Session:
    """One process of the scripted agent and the conversation with it."""

    def __init__(self, dialect: Dialect, launch: Launch, folder: Path) -> None:
        command = dialect.launch(launch)
        for name, text in command.files.items():
            (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        self.conversation = open_conversation(dialect, launch)
        self.process = start(command, folder)
        self.parts: list[bytes | v.AnyRequest] = []
        self.events: list[v.AnyEvent] = []
        self.owed = b""
        self.seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def play(self, story: Story) -> None:
        """From the greeting to the end of the process."""
        self.write(self.conversation.greet())
        while self.conversation.phase == "greeting" and self.read():
            pass
        self.send(prompt("one"))
        for kind, say in story.moves:
            self.send(say(self.wait(kind)))
        while (self.ended < story.ends or not story.ends) and self.read():
            pass
        self.close()
        while self.read():
            pass
        self.events += self.conversation.receive(b"")

    @property
    def ended(self) -> int:
        return sum(isinstance(event, v.TurnEnded) for event in self.events)

    def send(self, request: v.AnyRequest) -> None:
        self.parts.append(request)
        self.write(self.conversation.send(request))
        if self.conversation.closes_stdin:
            self.close()

    def wait(self, kind: type[v.Event]) -> v.Event:
        """The next event of that kind that no move has waited for."""
        while True:
            for place, event in enumerate(self.events[self.seen :], self.seen):
                if isinstance(event, kind):
                    self.seen = place + 1
                    return event
            if not self.read():
                raise AssertionError(f"the stream ended before {kind.__name__}: {self.events[self.seen :]}")

    def read(self) -> bool:
        """Take one line; False at the end of the stream."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            return False
        self.parts.append(line)
        self.events += self.conversation.receive(line)
        owed = self.conversation.data_to_send()
        self.owed += owed
        self.write(owed)
        return True

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()


def start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    """Start the program, with a limit on its life that stands for one on every wait."""
    environment = {"PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(folder), **command.env}
    pipe = subprocess.PIPE
    argv = ("timeout", "--signal=KILL", str(LIMIT), *command.argv)
    return subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, cwd=folder
    )
