"""The source of `proctor top` against a real host, which is killed, stopped for a while, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from proctor.actors.client.sockets import running_hosts
from proctor.cli.top.board import Board
from proctor.cli.top.feed import Feed
from tests.proctor.command import once, running
from tests.proctor.test_verbs import Up, started


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Up]:
    """A fleet that the test may end, in the home of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield from started(tmp_path)


def state(board: Board, name: str) -> str:
    agent = board.agent(name)
    return "" if agent is None else str(agent["state"])


def trouble(board: Board) -> str:
    return board.frame(0.0).trouble


def test_a_view_answers_its_agents_and_outlives_their_host(own: Up, tmp_path: Path) -> None:
    [host] = running_hosts()
    feed, reports = Feed(host, 10.0), list[tuple[str, bool]]()
    feed.start()
    try:
        board = feed.board
        once(lambda: state(board, "asks") == "idle")
        feed.watch("asks")
        feed.post("asks", "queue", {"prompt": "go"}, lambda *report: reports.append(report))
        once(lambda: "asks" in board.frame(0.0).approvals)
        [first] = board.frame(0.0).approvals["asks"]
        feed.post(
            "asks",
            f"approvals/{first['id']}/deadline",
            {"seconds": 3600.0},
            lambda *report: reports.append(report),
        )
        # the stream of approvals has the new end of the same one
        once(lambda: board.frame(0.0).approvals["asks"][0]["ends"] > first["ends"] + 3000)
        [asked] = board.frame(0.0).approvals["asks"]
        feed.post(
            "asks", f"approvals/{asked['id']}", {"decision": "allow"}, lambda *report: reports.append(report)
        )
        once(lambda: "says: Hello!" in feed.events())
        once(lambda: not board.frame(0.0).approvals)
        feed.post("nothing", "stop", None, lambda *report: reports.append(report))
        once(lambda: len(reports) == 4)
        assert sorted(reports) == [
            ("asks: 1 h left", False),
            ("asks: allowed", False),
            ("asks: queued", False),
            ("nothing: there is no agent 'nothing'; proctor ps lists the agents", True),
        ]

        os.kill(own.command.process.pid, signal.SIGSTOP)
        once(lambda: "does not answer" in trouble(board))
        os.kill(own.command.process.pid, signal.SIGCONT)
        once(lambda: trouble(board) == "")

        os.kill(own.command.process.pid, signal.SIGKILL)
        once(lambda: "has ended" in trouble(board))
        own.command.process.wait()
        with running("up", str(tmp_path / "demo.toml"), home=own.home) as again:
            once(lambda: board.frame(0.0).fleet["pid"] == again.process.pid)
            once(lambda: trouble(board) == "" and state(board, "asks") == "idle")
    finally:
        feed.close()
