"""`proctor attach`: what a typed line means, and a terminal on a real host that dies and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.ui.attached import COMMANDS, HELP, Approvals, Hint, Leave, Send, Typed
from tests.proctor.command import Terminal, once, proctor, running
from tests.proctor.test_verbs import Up, started

TOOL: dict[str, Any] = {
    "agent": "a",
    "id": "q 1",
    "tool": "Bash",
    "input": {"command": "rm x"},
    "description": "remove it",
    "seconds_left": 60.0,
    "choices": ["allow", "deny", "always"],
    "diff": "-x",
    "questions": [],
}
COLOUR = {
    "text": "Which?",
    "header": "",
    "options": [{"label": "red", "description": "hot"}, {"label": "blue", "description": ""}],
    "multiple": False,
}
ASKED = {
    **TOOL,
    "id": "q2",
    "choices": ["allow", "deny"],
    "questions": [COLOUR, {**COLOUR, "multiple": True}],
}
MESSAGE = Send("steer", {"text": "go on"}, Send("queue", {"prompt": "go on"}))


def decided(decision: str, message: str = "") -> Send:
    return Send("approvals/q%201", {"decision": decision, "message": message})


@pytest.mark.parametrize(
    ("line", "idle", "asked"),
    [
        ("go on\n", MESSAGE, None),
        ("y\n", Send("steer", {"text": "y"}, Send("queue", {"prompt": "y"})), decided("allow")),
        ("YES", Send("steer", {"text": "YES"}, Send("queue", {"prompt": "YES"})), decided("allow")),
        ("/always", None, decided("always")),
        ("/deny not now", None, decided("deny", "not now")),
        ("/deny", None, decided("deny")),
        ("n not now", Send("steer", {"text": "n not now"}, Send("queue", {"prompt": "n not now"})), decided("deny", "not now")),
        ("yes please", Send("steer", {"text": "yes please"}, Send("queue", {"prompt": "yes please"})), None),
        ("/steer go", Send("steer", {"text": "go"}), Send("steer", {"text": "go"})),
        ("/queue /compact", Send("queue", {"prompt": "/compact"}), Send("queue", {"prompt": "/compact"})),
        ("/interrupt", Send("interrupt"), Send("interrupt")),
        ("/detach", Leave(), Leave()),
        ("/steer", Hint(("/steer takes TEXT",)), Hint(("/steer takes TEXT",))),
        ("/detach now", Hint(("/detach takes no text",)), Hint(("/detach takes no text",))),
        ("/help", Hint(HELP), Hint(HELP)),
        ("", Hint(()), None),
    ],
)  # fmt: skip
def test_a_line_is_a_message_or_the_answer_to_what_is_open(
    line: str, idle: Typed | None, asked: Typed | None
) -> None:
    approvals = Approvals()
    without = approvals.read(line)
    approvals.put(TOOL)
    found = approvals.read(line)
    # None: a hint, and nothing is sent
    assert without == idle if idle is not None else isinstance(without, Hint)
    assert found == asked if asked is not None else isinstance(found, Hint)


def test_questions_are_answered_one_after_the_other_and_the_next_approval_follows() -> None:
    approvals = Approvals()
    shown = approvals.put(ASKED)
    assert shown == [
        "? 1 of 2: Which? (1 min left)",
        "  1. red: hot",
        "  2. blue",
        "  a number, or an answer of your own; /deny REASON denies",
    ]
    assert approvals.put(TOOL) == ["one more approval waits behind the open one"]
    assert approvals.put({**TOOL, "seconds_left": 120.0}) == ["Bash: 2 min left"]
    assert isinstance(approvals.read("/allow"), Hint)
    second = approvals.read("2")
    assert isinstance(second, Hint)
    assert second.lines[0] == "? 2 of 2: Which? (1 min left)"
    sent = approvals.read("1, 2")
    assert sent == Send("approvals/q2", {"decision": "allow", "answers": ["blue", "red, blue"]})
    assert approvals.settle("other") == []
    assert approvals.settle("q2") == [
        "? Bash: rm x (2 min left)",
        "  remove it",
        "  -x",
        "  y allow, a always in this session, n REASON deny",
    ]
    approvals.clear()
    assert approvals.read("y") == Send("steer", {"text": "y"}, Send("queue", {"prompt": "y"}))


def test_every_command_is_in_the_help() -> None:
    assert [word for word in COMMANDS if not any(line.startswith(word) for line in HELP)] == []


# -- at a terminal


@pytest.fixture
def own(tmp_path: Path) -> Generator[Up]:
    """A fleet that the test may end."""
    yield from started(tmp_path)


def test_without_a_terminal_it_says_what_else_there_is(own: Up) -> None:
    ended = own("attach", "answers")
    assert (ended.status, ended.complaint) == (
        2,
        "proctor: attach needs a terminal; proctor logs -f follows an agent, proctor send sends it a prompt",
    )


def test_an_agent_is_followed_from_its_last_turn_spoken_to_answered_and_left(own: Up) -> None:
    own("ask", "answers", "of old")
    own("send", "answers", "the last one")
    once(lambda: own.state("answers") == "idle")
    with Terminal(["attach", "answers"], own.home) as terminal:
        assert "of old" not in terminal.until("All is well, the last one")
        assert "> the last one" in terminal.shown
        terminal.press("and now?\n")
        assert "queued" in terminal.until("All is well, and now?")
        terminal.press("\x04")
        assert terminal.end() == 0
    with Terminal(["attach", "asks"], own.home) as terminal:
        terminal.until("/help shows what can be typed")
        terminal.press("go\n")
        terminal.until("? Bash: rm x (")
        terminal.press("perhaps\n")
        terminal.until("that is no answer to the open approval")
        terminal.press("y\n")
        terminal.until("Hello!")
        terminal.press("\x03")
        assert terminal.end() == 0
    assert own.state("asks") == "idle"


def test_leaving_ends_no_turn_and_a_turn_is_interrupted_by_its_word(own: Up) -> None:
    with Terminal(["attach", "hangs"], own.home) as terminal:
        terminal.until("/help shows")
        terminal.press("work\n")
        terminal.until("I begin.")
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait(10)
    assert own.state("hangs") == "working"
    with Terminal(["attach", "hangs"], own.home) as terminal:
        assert "> work" in terminal.until("I begin.")
        terminal.press("/interrupt\n")
        terminal.until("turn interrupted")
        own("stop", "hangs")
        terminal.until("hangs is stopped")
        own("start", "hangs")
        terminal.until("hangs is back: ")
        own("send", "hangs", "again")
        assert "> again" in terminal.until("I begin.")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
    assert own.state("hangs") == "working"


def test_the_next_host_is_followed_when_one_is_killed_or_taken_down(own: Up, tmp_path: Path) -> None:
    with Terminal(["attach", "answers"], own.home) as terminal:
        terminal.until("/help shows")
        os.kill(own.command.process.pid, signal.SIGKILL)
        own.command.process.wait()
        terminal.until(
            "has ended; start the fleet again with proctor up; waiting for the next one, Ctrl-C leaves"
        )
        with running("up", str(tmp_path / "demo.toml"), home=own.home) as again:
            terminal.until(f"the host of fleet 'demo' is back: process {again.process.pid}")
            once(lambda: own.state("answers") == "idle")
            own("send", "answers", "here")
            terminal.until("All is well, here")
            proctor("down", home=own.home)
            terminal.until("waiting for the next one")
        with running("up", str(tmp_path / "demo.toml"), home=own.home) as third:
            terminal.until(f"is back: process {third.process.pid}")
            (tmp_path / "demo.toml").write_text(
                (tmp_path / "demo.toml").read_text().replace('name = "answers"', 'name = "other"')
            )
            own("reload")
            terminal.until("answers is not in the fleet 'demo' any more")
            assert terminal.end() == 1
