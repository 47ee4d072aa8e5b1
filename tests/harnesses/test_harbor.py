from __future__ import annotations

import json
import subprocess
import sys
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
TASK = {
    "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 120.0\n[environment]\nbuild_timeout_sec = 60.0\n',
    "instruction.md": "Write `done` into answer.txt.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": 'test -f answer.txt; echo $((1 - $?)) > "$MACHINE/logs/verifier/reward.txt"\n',
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """proctor of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=BOUND)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture
def trial(
    tmp_path: Path,
    wheel: Path,
    program_of: Callable[[str], Path],
    claude_home: ClaudeHome,
    messages_api: MessagesApi,
) -> Callable[..., Any]:
    """One trial with the newest Claude Code, against the fake API: its result, and the folder of its logs."""
    folder = tmp_path / "trial"
    for name, text in TASK.items():
        path = folder / "task" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(program_of(CLAUDES[-1]))
    (programs / "python3").symlink_to(HARNESSES)
    known = ("HOME", "TMPDIR", "LANG")
    config = {
        "model": "anthropic/claude-opus-5-5",
        "agent": {"kind": "claude", "package": f"{wheel}[cli]", "python": HARNESSES},
        "env": {
            name: value for name, value in claude_home.environment.items() if name not in (*known, "PATH")
        },
        "only": {
            **{name: claude_home.environment[name] for name in known},
            "PATH": f"{programs}:/usr/bin:/bin",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))

    async def run(*steps: Step) -> tuple[dict[str, Any], Path]:
        messages_api.play(*steps)
        with trio.fail_after(BOUND):
            done = await trio.run_process(
                [HARNESSES, str(ROOT / "tests/harnesses/harbor_trial.py"), str(folder)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        result: dict[str, Any] = json.loads(done.stdout)
        [logs] = (folder / "trials").glob("*/agent")
        return result, logs

    return run


async def test_a_trial_has_its_reward_its_trajectory_and_its_numbers(trial: Callable[..., Any]) -> None:
    result, logs = await trial(
        Tool("Bash", {"command": "echo done > answer.txt", "description": "x"}), Text("It is done.")
    )
    assert result["exception_info"] is None, result["exception_info"]
    assert result["verifier_result"]["rewards"] == {"reward": 1}
    spent = result["agent_result"]
    trajectory = json.loads((logs / "trajectory.json").read_text())
    final = trajectory["final_metrics"]
    assert (spent["n_input_tokens"], spent["n_output_tokens"]) == (
        final["total_prompt_tokens"],
        final["total_completion_tokens"],
    )
    assert spent["n_output_tokens"] > 0
    assert spent["cost_usd"] > 0
    assert [call["function_name"] for step in trajectory["steps"] for call in step.get("tool_calls", ())] == [
        "Bash"
    ]
    assert trajectory["steps"][0]["message"] == TASK["instruction.md"]
    assert (logs / "answer.txt").read_text() == "It is done.\n"


async def test_a_trial_without_an_answer_is_an_error_of_its_agent_and_has_a_trajectory(
    trial: Callable[..., Any],
) -> None:
    result, logs = await trial(Repeat(Status(400, "no such thing")))
    assert result["exception_info"]["exception_type"] == "NonZeroAgentExitCodeError"
    assert result["verifier_result"]["rewards"] == {"reward": 0}
    trajectory = json.loads((logs / "trajectory.json").read_text())
    assert trajectory["steps"][-1]["extra"]["ending"] == "invalid_request"
