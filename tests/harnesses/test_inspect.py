from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Repeat, Status, Step, Text, Tool
from tests.harnesses.conftest import HARNESSES
from tests.real.conftest import CLAUDES
from tests.real.homes import ClaudeHome

ROOT = Path(__file__).parents[2]
BOUND = 300.0


@pytest.fixture
def evaluated(
    tmp_path: Path, program_of: Callable[[str], Path], claude_home: ClaudeHome, messages_api: MessagesApi
) -> Callable[..., Any]:
    """The log of an evaluation of one sample with the newest Claude Code, against the fake API."""
    options = {"executable": str(program_of(CLAUDES[-1])), "env": dict(claude_home.environment), "retries": 1}
    (tmp_path / "config.json").write_text(json.dumps(options))

    async def run(*steps: Step) -> dict[str, Any]:
        messages_api.play(*steps)
        with trio.fail_after(BOUND):
            done = await trio.run_process(
                [HARNESSES, str(ROOT / "tests/harnesses/inspect_eval.py"), str(tmp_path)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env={**claude_home.environment, "PYTHONPATH": str(ROOT / "src")},
            )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        log: dict[str, Any] = json.loads(done.stdout)
        return log

    return run


async def test_a_sample_has_its_score_its_messages_and_its_numbers(evaluated: Callable[..., Any]) -> None:
    log = await evaluated(
        Tool("Bash", {"command": "echo done > answer.txt", "description": "x"}), Text("It is done.")
    )
    assert log["status"] == "success", log["error"]
    [sample] = log["samples"]
    assert sample["scores"]["wrote_it"]["value"] == "C"
    assert [message["role"] for message in sample["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert sample["output"]["completion"] == "It is done."
    assert sample["output"]["usage"]["output_tokens"] > 0
    assert sample["metadata"]["cost_usd"] > 0


async def test_a_sample_without_an_answer_fails_with_the_reason(evaluated: Callable[..., Any]) -> None:
    log = await evaluated(Repeat(Status(400, "no such thing")))
    assert log["status"] == "error"
    assert "no such thing" in log["error"]["message"]
