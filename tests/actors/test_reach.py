"""Agents whose command line is started by way of another command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import attrs
import pytest
import trio

import proctor
from proctor.actors.errors import BadOption, StartRefused
from proctor.actors.fleet.fleet import load_fleet
from proctor.actors.operations.health import adapters_of
from proctor.actors.plan.plan import plan_of
from proctor.runtime import Command
from proctor.runtime.processes.procfs import children_of
from tests.proctor.command import processes_with

SHELL = ("sh", "-c", '"$@"; exit $?', "sh")
"""It stays above what it runs."""
HANGS = ('{"fault": "ignore_term"}', '{"fault": "ignore_eof"}', '{"say": "I begin."}', '{"fault": "hang"}')


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "agent.ndjson"
    path.write_text('{"reply": "All is well, {prompt}"}\n')
    return path


@pytest.mark.parametrize("reach", [("env", "REACHED=1"), SHELL], ids=["env", "a shell that stays"])
async def test_an_agent_answers_by_way_of_another_command(reach: tuple[str, ...], script: Path) -> None:
    answer = await proctor.ask(proctor.scripted("a", script, reach=reach), "you", timeout=60)
    assert (answer.ok, answer.text) == (True, "All is well, you")


async def test_a_tree_keeps_an_agent_below_a_shell_and_takes_both_down(script: Path) -> None:
    async with proctor.open_supervisor([proctor.scripted("a", script, reach=SHELL)]) as sup:
        agent = sup.agent("a")
        assert [(await agent.ask(word)).text for word in ("x", "y")] == ["All is well, x", "All is well, y"]
        leader = (await agent.status()).pid
        assert leader is not None
        [shell] = children_of(leader)
        [program] = children_of(shell)
    for pid in (leader, shell, program):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_what_ignores_every_request_to_stop_is_killed_below_the_other_command_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stubborn.ndjson"
    path.write_text("".join(f"{line}\n" for line in HANGS))
    spec = proctor.scripted("a", path, reach=SHELL, shutdown=0.5)
    with trio.move_on_after(5) as scope:
        async with proctor.stream(spec, "x", timeout=None) as run:
            async for event in run:
                if isinstance(event, proctor.TextDelta):
                    scope.cancel()
    assert processes_with(str(path)) == []


async def test_the_exit_of_the_other_command_is_the_agents(tmp_path: Path) -> None:
    path = tmp_path / "agent.ndjson"
    path.write_text('{"say": "I begin."}\n{"fault": "exit:3"}\n')
    answers = [
        await proctor.ask(proctor.scripted("a", path, reach=reach), "x", timeout=60)
        for reach in (None, SHELL)
    ]
    assert [(answer.outcome, answer.error) for answer in answers[1:]] == [
        (answer.outcome, answer.error) for answer in answers[:1]
    ]
    assert "status 3" in str(answers[1].error)


async def test_another_command_that_fails_before_the_agent_begins_is_named_with_what_it_said(
    script: Path,
) -> None:
    reach = ("sh", "-c", "echo no such box >&2; exit 125")
    with pytest.raises(StartRefused, match="no such box"):
        await proctor.ask(proctor.scripted("a", script, reach=reach), "x", timeout=60)


async def test_a_function_is_given_the_whole_command_and_its_result_is_started(
    script: Path, tmp_path: Path
) -> None:
    seen = list[Command]()

    def elsewhere(command: Command) -> Command:
        seen.append(command)
        there = " ".join(map(shlex.quote, command.argv))
        argv = ("sh", "-c", f"cd {shlex.quote(str(tmp_path))} && {there}")
        return attrs.evolve(command, argv=argv, cwd=None)

    spec = proctor.scripted("a", script, reach=elsewhere, cwd="/not/on/this/machine", env={"MINE": "1"})
    answer = await proctor.ask(spec, "you", timeout=60)
    assert answer.ok, answer
    [command] = seen
    assert (command.cwd, command.env["MINE"]) == ("/not/on/this/machine", "1")


def test_a_program_behind_another_command_is_not_looked_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    plan = plan_of(proctor.claude("a", reach=("docker", "exec", "-i", "box")))
    assert plan.locate() == ("claude",)
    named = plan_of(proctor.claude("a", reach=("docker", "exec", "-i", "box"), executable="/opt/claude"))
    assert named.locate() == ("/opt/claude",)
    assert adapters_of({"a": plan}) == {}


@pytest.mark.parametrize("wrong", ["ssh host", (), ("",), ("a", 1), ("a\0b",), 7])
def test_a_value_that_is_no_way_is_refused(wrong: object, script: Path) -> None:
    with pytest.raises(BadOption, match="reach must be a sequence of words"):
        proctor.scripted("a", script, reach=wrong)  # type: ignore[arg-type]


async def test_a_function_that_gives_no_command_is_named(script: Path) -> None:
    spec = proctor.scripted("a", script, reach=lambda command: command.argv)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadOption, match="must return a Command"):
        await proctor.ask(spec, "x", timeout=60)


async def test_a_fleet_file_names_the_other_command(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(
        f'[[agents]]\nkind = "scripted"\nname = "a"\nscript = "{script}"\nreach = ["env", "REACHED=1"]\n'
    )
    [spec] = load_fleet(path).specs()
    answer = await proctor.ask(spec, "you", timeout=60)
    assert answer.text == "All is well, you"
