"""Completion of the command line by a real bash, with the names of a fleet that runs."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from proctor.cli.app import build_app
from proctor.cli.commands.completion import completion_script
from tests.proctor.command import PROCTOR, environment, proctor
from tests.proctor.test_verbs import Up, up
from tests.tables import each_row

__all__ = ("up",)


def completed(lines: list[list[str]], home: Path) -> list[list[str]]:
    """What bash offers for the last word of each line; one bash asks for all."""
    asked = [
        f'COMP_WORDS=({shlex.join(["proctor", *words])})\nCOMP_CWORD={len(words)}\n_proctor\necho "${{COMPREPLY[@]}}"'
        for words in lines
    ]
    script = f'proctor() {{ {shlex.join(PROCTOR)} "$@"; }}\neval "$(proctor completion bash)"\n' + "\n".join(
        asked
    )
    done = subprocess.run(
        ["bash", "-c", script], env=environment(home), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


ROWS: list[tuple[list[str], list[str]]] = [
    (["des"], ["describe"]),
    (["stop", ""], ["answers", "asks", "hangs", "hovers", "wonders", "writes"]),
    (["stop", "h"], ["hangs", "hovers"]),
    (["logs", "-f", "an"], ["answers"]),
    (["ask", "answers", ""], []),
    (["ps", ""], ["demo"]),
    (["ps", "-o", ""], ["table", "json", "jsonl"]),
    (["ps", "--time"], ["--timeout"]),
    (["wait", "--for", "i"], ["idle"]),
    (["up", "--s"], ["--strict"]),
    (["up", ""], []),  # bash offers files then
    (["run", "--permission", ""], ["deny", "allow", "ask"]),
    (["run", "--mode", "one"], ["oneshot"]),
    (["run", "--cwd", "x"], []),
    (["completion", "b"], ["bash"]),
]


def test_bash_completes_commands_options_and_names_that_run(up: Up) -> None:
    offered = completed([words for words, _ in ROWS], up.home)
    assert list(zip((" ".join(words) for words, _ in ROWS), offered, strict=True)) == [
        (" ".join(words), expected) for words, expected in ROWS
    ]


@each_row("shell", ["bash", "zsh", "fish"])
def test_every_command_is_completed_in_every_shell(shell: str) -> None:
    script = completion_script(shell)
    commands = [name for name in build_app() if not name.startswith("-")]
    assert [name for name in commands if f" {name}" not in script] == []
    assert f"proctor completion {shell}" in script.splitlines()[0]


def test_without_a_fleet_there_are_no_names(home: Path) -> None:
    ended = proctor("completion", "agents", home=home)
    assert (ended.status, ended.out, ended.err) == (0, "", "")
