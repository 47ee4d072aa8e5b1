"""`proctor bench` with three real CLIs against the fakes: killed twice and resumed, its table is that of an undisturbed one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import proctor
from proctor.actors.plan.options import AgentOptions
from proctor.runtime.processes.process import Command, open_process
from tests.fakes.messages_api import MessagesApi, open_messages_api
from tests.fakes.model_api import ModelApi, open_completions_api
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.fakes.steps import Repeat, Text
from tests.real import agents
from tests.real.conftest import CLAUDES
from tests.real.homes import MINIMAL_PATH, ClaudeHome, make_home, until
from tests.runtime.programs import AT_ONCE

ROOT = Path(__file__).parents[2]
TASKS = int(os.environ.get("PROCTOR_BENCH_TASKS", "2"))
"""Tasks for each agent: few beside the other tests, 20 for the whole proof."""
ANSWER = Repeat(Text("The work is done.", chunk=4, delay=0.2))
SAME = ("agent", "attempts", "score", "failures", "usage", "cost_usd")
"""What no kill may change in the table."""


def toml(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value if isinstance(value, bool | int) else str(value))


def fleet(folder: Path, options: Mapping[str, AgentOptions]) -> Path:
    """A fleet file of an agent of each kind."""
    lines = list[str]()
    for kind, given in options.items():
        plain: dict[str, Any] = {
            **given,
            "env": [f"{name}={value}" for name, value in given.get("env", {}).items()],
        }
        lines += [
            "[[agents]]",
            f'kind = "{kind}"',
            f'name = "{kind}"',
            *(f"{k} = {toml(v)}" for k, v in plain.items()),
        ]
    path = folder / "fleet.toml"
    path.write_text("\n".join(lines))
    return path


def bench(folder: Path, results: Path) -> Command:
    words = ("bench", "tasks.jsonl", "--fleet", "fleet.toml", "--limit", "3", "--json", "-o", str(results))
    (folder / "own").mkdir(exist_ok=True)
    own = {
        "PATH": MINIMAL_PATH,
        "HOME": str(folder / "own"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(ROOT / "src"),
    }
    return Command((sys.executable, "-m", "proctor", *words), {**os.environ, **own}, str(folder))


async def finished(command: Command) -> list[dict[str, Any]]:
    """The table of a benchmark that runs to its end."""
    out, err = bytearray(), bytearray()
    async with open_process(command, ladder=AT_ONCE, on_stdout=out.extend, on_stderr=err.extend) as process:
        with trio.fail_after(300):
            exit = await process.wait()
    assert isinstance(exit, proctor.Normal), (exit, bytes(err).decode())
    found: list[dict[str, Any]] = json.loads(bytes(out))["agents"]
    return found


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("kills", [2])
async def test_a_benchmark_of_three_clis_that_is_killed_twice_has_the_table_of_one_that_is_not(
    kills: int, program_of: Callable[[str], Path], opencode_cli: Path, tmp_path: Path
) -> None:
    async with (
        open_messages_api() as claude_api,
        open_responses_api() as codex_api,
        open_completions_api() as model_api,
    ):
        apis: tuple[MessagesApi | ResponsesApi | ModelApi, ...] = (claude_api, codex_api, model_api)
        for api in apis:
            api.play(ANSWER)
        homes, options = homes_of(
            tmp_path, program_of, opencode_cli, claude_api.url, codex_api.url, model_api.url
        )
        fleet(tmp_path, options)
        tasks = [
            {
                "id": f"t{n}",
                "prompt": f"Do {n}.",
                "setup": "echo begun > note",
                "check": "grep -q done && test -f note",
            }
            for n in range(TASKS)
        ]
        (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
        expected = await finished(bench(tmp_path, tmp_path / "undisturbed.jsonl"))
        asked = [len(api.scripted) for api in apis]
        path = tmp_path / "killed.jsonl"
        for number in range(kills):
            wanted = lines(path) + TASKS // 2 + number
            async with open_process(bench(tmp_path, path), ladder=AT_ONCE):
                await until(partial(_has, path, wanted), within=120)
        found = await finished(bench(tmp_path, path))
        again = [len(api.scripted) - before for api, before in zip(apis, asked, strict=True)]
    assert [[row[name] for name in SAME] for row in found] == [
        [row[name] for name in SAME] for row in expected
    ]
    assert [(row["agent"], row["attempts"], row["score"]["mean"]) for row in found] == [
        (kind, TASKS, 1.0) for kind in ("claude", "codex", "opencode")
    ]
    assert lines(path) == lines(tmp_path / "undisturbed.jsonl") == 3 * TASKS
    taken_up = sum(one.resumed or len(one.tries) - 1 for one in proctor.load_results(path))
    assert taken_up > 0, "no kill has met an attempt in progress"
    # what a kill cuts off is asked for once more, three attempts at a time; nothing that had ended is
    assert sum(again) <= sum(asked) + kills * 3
    assert [left for home in homes for left in home.leftovers()] == []


def _has(path: Path, wanted: int) -> bool:
    return lines(path) >= wanted


def homes_of(
    root: Path,
    program_of: Callable[[str], Path],
    opencode: Path,
    claude_url: str,
    codex_url: str,
    model_url: str,
) -> tuple[list[ClaudeHome], dict[str, AgentOptions]]:
    """A home for each kind, and options that point it at its fake."""
    claude = make_home(root / "claude", claude_url)
    codex = agents.codex_home(root / "codex", codex_url)
    third = agents.opencode_home(root / "opencode", model_url)
    claude_options: AgentOptions = {
        "executable": program_of(CLAUDES[-1]),
        "env": claude.environment,
        "retries": 2,
    }
    codex_options = agents.codex_options(program_of("codex-0.169.0"), codex, codex_url)
    codex_options.pop("cwd", None)
    third_options: AgentOptions = {"executable": opencode, "env": third.environment, "model": "fake/m1"}
    return [claude, codex, third], {
        "claude": claude_options,
        "codex": codex_options,
        "opencode": third_options,
    }
