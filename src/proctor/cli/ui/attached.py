"""The texts of a terminal that is attached to an agent: what is shown of its approvals, and what a typed line means.

Pure. While an approval is open a line is its answer, and only a clear word decides: a text that was meant for the agent must not
allow a tool. All else is a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import attrs

from proctor.actors.durations import format_duration
from proctor.actors.tools.menus import MenuQuestion
from proctor.cli.ui.text import one_line, printable, tool_use

Record = Mapping[str, Any]
WIDE = 2000
"""Characters of a tool call that are shown: a person must see what is approved."""


@attrs.frozen
class Send:
    """A request about the agent; `otherwise` is sent in its place when it is refused."""

    rest: str
    body: Record | None = None
    otherwise: Send | None = None


@attrs.frozen
class Hint:
    """Lines for the person who typed."""

    lines: tuple[str, ...]


@attrs.frozen
class Leave:
    """The terminal is to leave the agent."""


Typed = Send | Hint | Leave


@attrs.frozen
class Command:
    """A line that begins with a slash: what it makes of the text behind its word, and its help. `takes` names that text."""

    make: Callable[[Approvals, str], Typed]
    help: str
    takes: str = ""
    optional: bool = False


@attrs.define
class Approvals:
    """The open approvals of an agent by id, the oldest first, and the answers so far to the questions of the first."""

    _open: dict[str, Record] = attrs.field(factory=dict[str, Record])
    _given: list[str] = attrs.field(factory=list[str])

    def put(self, approval: Record) -> list[str]:
        """Add one that is open; one that has more time replaces itself. Returns what is to be shown."""
        is_new = approval["id"] not in self._open
        self._open[approval["id"]] = approval
        if not is_new:
            return [f"{approval['tool']}: {format_duration(approval['seconds_left'])} left"]
        return self.shown() if len(self._open) == 1 else ["one more approval waits behind the open one"]

    def settle(self, id: str) -> list[str]:
        """Take one away that is settled. Returns what is to be shown: the next one."""
        if id not in self._open:
            return []
        was_first = id == next(iter(self._open))
        del self._open[id]
        if not was_first:
            return []
        self._given.clear()
        return self.shown()

    def clear(self) -> None:
        """The host that asked is gone."""
        self._open.clear()
        self._given.clear()

    def shown(self) -> list[str]:
        """The first one, with what can be typed; nothing where none is open."""
        first = next(iter(self._open.values()), None)
        return [] if first is None else [*_lines(first, len(self._given))]

    def decide(self, decision: str, message: str = "") -> Typed:
        """Decide the first one."""
        if (first := next(iter(self._open.values()), None)) is None:
            return Hint(("no approval is open",))
        if decision not in first["choices"] or (decision == "allow" and first["questions"]):
            return Hint((f"{first['tool']} cannot be decided so", *self.shown()))
        return Send(_path(first), {"decision": decision, "message": message})

    def read(self, line: str) -> Typed:
        """What a line means."""
        word, _, text = line.strip().partition(" ")
        if word.startswith("/"):
            return _command(self, word, text.strip())
        first = next(iter(self._open.values()), None)
        if first is None:
            return Hint(()) if not word else _message(line.strip())
        if not word:
            return Hint(tuple(self.shown()))
        return self._answer(first, line.strip()) if first["questions"] else self._decision(word, text.strip())

    def _decision(self, word: str, text: str) -> Typed:
        decision = _WORDS.get(word.lower())
        if decision is None or (text and decision != "deny"):
            return Hint(
                (
                    "that is no answer to the open approval; /steer TEXT and /queue TEXT are sent all the same",
                    *self.shown(),
                )
            )
        return self.decide(decision, text)

    def _answer(self, first: Record, line: str) -> Typed:
        questions = first["questions"]
        self._given.append(_menu(questions[len(self._given)]).answer(line))
        if len(self._given) < len(questions):
            return Hint(tuple(self.shown()))
        answers, self._given = self._given, []
        return Send(_path(first), {"decision": "allow", "answers": answers})


_WORDS: Mapping[str, str] = {
    "y": "allow", "yes": "allow", "a": "always", "always": "always", "n": "deny", "no": "deny",
}  # fmt: skip


def _message(text: str) -> Send:
    # refused where no turn runs, or where its command line takes nothing during one
    return Send("steer", {"text": text}, otherwise=Send("queue", {"prompt": text}))


COMMANDS: Mapping[str, Command] = {
    "/steer": Command(lambda _, text: Send("steer", {"text": text}), "send it to the running turn", "TEXT"),
    "/queue": Command(
        lambda _, text: Send("queue", {"prompt": text}),
        "send it as a turn of its own, behind what waits",
        "TEXT",
    ),
    "/interrupt": Command(lambda _, text: Send("interrupt"), "end the running turn; the session continues"),
    "/allow": Command(lambda approvals, text: approvals.decide("allow"), "let the tool run, as y"),
    "/always": Command(
        lambda approvals, text: approvals.decide("always"), "and do not ask again for the like of it, as a"
    ),
    "/deny": Command(
        lambda approvals, text: approvals.decide("deny", text),
        "keep the tool from running, as n",
        "REASON",
        optional=True,
    ),
    "/detach": Command(lambda _, text: Leave(), "leave; the agent goes on, as after Ctrl-C and Ctrl-D"),
    "/help": Command(lambda _, text: Hint(HELP), "this help"),
}
"""What a line may begin with, with its help."""


def _command(approvals: Approvals, word: str, text: str) -> Typed:
    command = COMMANDS.get(word)
    if command is None:
        return Hint(
            (f"{word} is no command; /help lists them. /queue TEXT sends a text that begins with a slash",)
        )
    if bool(text) != bool(command.takes) and not (command.optional and not text):
        return Hint((f"{word} takes {command.takes or 'no text'}",))
    return command.make(approvals, text)


def _usage(word: str, command: Command) -> str:
    takes = f"[{command.takes}]" if command.optional else command.takes
    return f"{word} {takes}".rstrip()


HELP: tuple[str, ...] = (
    "A line is sent to the running turn; where none runs, or the command line takes nothing during one, as a turn of its own.",
    "While an approval is open a line answers it.",
    *(f"{_usage(word, command):<16}  {command.help}" for word, command in COMMANDS.items()),
)
"""What can be typed."""


def _path(approval: Record) -> str:
    return f"approvals/{quote(approval['id'], safe='')}"


def _menu(question: Record) -> MenuQuestion:
    options = tuple((option["label"], option["description"] or "") for option in question["options"])
    return MenuQuestion(question["text"], question["header"] or "", options, question["multiple"])


def _lines(approval: Record, given: int) -> Iterator[str]:
    left = f"({format_duration(approval['seconds_left'])} left)"
    if questions := approval["questions"]:
        which = f"{given + 1} of {len(questions)}: " if len(questions) > 1 else ""
        head, *menu = printable(_menu(questions[given]).format()).splitlines()
        yield f"? {which}{head} {left}"
        yield from menu[:-1]
        yield f"  {menu[-1].rstrip(': ')}; /deny REASON denies"
        return
    yield f"? {tool_use(approval['tool'], approval['input'], WIDE)} {left}"
    if approval["description"] not in (None, approval["tool"]):
        yield f"  {one_line(approval['description'], WIDE)}"
    for line in (approval["diff"] or "").splitlines():
        yield f"  {printable(line)}"
    always = ", a always in this session" if "always" in approval["choices"] else ""
    yield f"  y allow{always}, n REASON deny"
