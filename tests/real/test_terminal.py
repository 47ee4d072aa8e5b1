"""A person at the terminal of `proctor run` with the real Claude Code, in front of a fake of its model."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Text, Tool
from tests.proctor.command import Terminal
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome

QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red", "description": "like fire"}, {"label": "blue", "description": "like water"}],
    "multiSelect": False,
}


def _answered(words: list[str], home: Path) -> tuple[int, str]:
    with Terminal(words, home) as terminal:
        terminal.until("first.txt — allow? [y/N, ")
        terminal.press("y\n")
        terminal.until("second.txt — allow? [y/N, ")
        terminal.press("d\n")
        terminal.until("why? ")
        terminal.press("Not on a Friday\n")
        terminal.until("a number, or an answer of your own: ")
        terminal.press("2\n")
        return terminal.end(), terminal.shown


@newest_claude
async def test_what_is_answered_at_the_terminal_reaches_the_model(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi, tmp_path: Path
) -> None:
    first, second = claude_home.work / "first.txt", claude_home.work / "second.txt"
    messages_api.play(
        Tool("Write", {"file_path": str(first), "content": "one\ntwo\n"}),
        Tool("Write", {"file_path": str(second), "content": "three\n"}),
        Tool("AskUserQuestion", {"questions": [QUESTION]}),
        Text("all done"),
    )
    named = [f"--env={name}={value}" for name, value in claude_home.environment.items()]
    words = ["run", "claude", "work", f"--executable={claude_cli.path}", f"--cwd={claude_home.work}", *named]
    status, shown = await trio.to_thread.run_sync(_answered, words, claude_home.home)
    assert status == 0
    assert "\x1b[32m+one\x1b[0m\r\n\x1b[32m+two\x1b[0m\r\n" in shown
    assert (first.read_text(), second.exists()) == ("one\ntwo\n", False)
    written, denied, chosen = [request.tool_results[-1].text for request in messages_api.scripted[1:]]
    assert "first.txt" in written
    assert "denied at the terminal: Not on a Friday" in denied
    assert '"Which colour?"="blue"' in chosen
    assert claude_home.leftovers() == []
