"""Whatever proctor makes is its owner's alone, under any umask."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import httpx2
import pytest

from tests.proctor.command import ROOT, proctor_process, running
from tests.proctor.scripts import ANSWERS, agent
from tests.proctor.test_web import address, ready

WATCHING = """
import json, os, sys

LOG = os.environ.get("TEST_MODES")

def modes(path):
    try:
        yield [path, os.lstat(path).st_mode]
    except OSError:
        return
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            full = os.path.join(folder, name)
            yield [full, os.lstat(full).st_mode]

def watch(event, given):
    if event not in ("os.remove", "os.rmdir", "os.rename", "shutil.rmtree"):
        return
    path = os.fsdecode(given[0])
    if not os.path.isabs(path):
        folder = given[-1]
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd(), path)
    lines = "".join(json.dumps(found) + "\\n" for found in modes(path))
    fd = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, lines.encode())
    os.close(fd)

if LOG:
    sys.addaudithook(watch)
"""
"""Notes the mode of whatever goes: what is there for a moment only could not be looked at afterwards."""


@attrs.frozen
class Place:
    """Where a command works: all folders that it may make something in, its environment and its umask."""

    root: Path
    umask: int

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def first(self) -> str:
        """What the command's process does before all else; the programs that it starts do it by `sitecustomize`."""
        return f"import os; os.umask({self.umask})\n{WATCHING}"

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "PYTHONPATH": f"{self.root / 'site'}:{ROOT / 'src'}",
            "TMPDIR": str(self.root / "tmp"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "TEST_MODES": str(self.root / "modes"),
        }

    def script(self, *lines: str) -> Path:
        path = self.root / "work" / "agent.ndjson"
        path.write_text("".join(f"{line}\n" for line in lines or ANSWERS))
        return path

    def fleet(self, **keys: str) -> Path:
        path = self.root / "work" / "fleet.toml"
        path.write_text(agent("a", script=f'"{self.script()}"', **keys))
        return path

    def run(self, *words: str) -> None:
        ended = proctor_process(*words, home=self.home, env=self.env, first=self.first)
        assert ended.status == 0, ended

    def found(self) -> Iterator[tuple[str, int]]:
        for path in self.root.rglob("*"):
            yield str(path), path.lstat().st_mode
        if (self.root / "modes").exists():
            for line in (self.root / "modes").read_text().splitlines():
                path, mode = json.loads(line)
                yield path, mode


def _run(at: Place) -> None:
    at.run("run", f"scripted:{at.script()}", "hi")


def _run_with_folders_that_are_not_there(at: Place) -> None:
    record = at.root / "work" / "a" / "b" / "records"
    at.run("run", f"scripted:{at.script()}", "hi", "--record", str(record), "--home", "private")


def _record(at: Place) -> None:
    at.run("record", "-o", str(at.root / "work" / "new" / "r"), "--", sys.executable, "-c", "print(1)")


def _setup(at: Place) -> None:
    for client in ("claude", "codex", "opencode"):
        at.run("setup", "--client", client)
    at.run("setup", "--remove")


def _up_in_a_worktree(at: Place) -> None:
    repository = at.root / "work" / "repository"
    repository.mkdir()
    (repository / "a").write_text("a")
    for words in ("init -q", "add a", "-c user.name=a -c user.email=a@b.c commit -q -m a"):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)
    at.run("up", str(at.fleet(cwd=f'"{repository}"', workspace='"worktree"', prompt='"hi"')))


def _web(at: Place) -> None:
    words = ("web", str(at.fleet()), "--sessions", str(at.root / "work" / "s" / "sessions"))
    with running(*words, home=at.home, env=at.env, first=at.first) as command:
        where = address(command).removeprefix("unix:")
        with httpx2.Client(
            base_url="http://localhost", transport=httpx2.HTTPTransport(uds=where), timeout=30
        ) as client:
            ready(client)
            for more in ({}, {"session_id": "s"}):
                assert client.post("/agents/a/turns", json={"prompt": "x", **more}).status_code == 200
        command.signal(signal.SIGTERM)
        assert command.end() == 0


def _doctor(at: Place) -> None:
    proctor_process("doctor", home=at.home, env=at.env, first=at.first)


CASES: tuple[Callable[[Place], None], ...] = (
    _run,
    _run_with_folders_that_are_not_there,
    _record,
    _setup,
    _up_in_a_worktree,
    _web,
    _doctor,
)


@pytest.mark.parametrize("umask", [0o000, 0o777], ids=["000", "777"])
@pytest.mark.parametrize("case", CASES)
def test_what_a_command_makes_is_its_owners_alone(
    case: Callable[[Place], None], umask: int, tmp_path: Path
) -> None:
    at = Place(tmp_path / "all", umask)
    for name in ("home", "tmp", "run", "work", "site"):
        (at.root / name).mkdir(parents=True, mode=0o700)
    (at.root / "site" / "sitecustomize.py").write_text(WATCHING)
    given = {path for path, _ in at.found()} | {str(at.root / "modes")}
    case(at)
    made = [(path, mode) for path, mode in at.found() if path not in given and not is_foreign(at, path)]
    wrong = [f"{stat.filemode(mode)} {path}" for path, mode in made if not is_private(mode)]
    assert made
    assert wrong == []


def is_foreign(at: Place, path: str) -> bool:
    """What git, the test or the interpreter has made."""
    rest = os.path.relpath(path, at.root / "work")
    own = rest in ("agent.ndjson", "fleet.toml")
    in_repository = rest.startswith("repository") and ".git/proctor" not in rest
    in_worktree = ".git/proctor/worktrees/" in rest
    probe = (
        os.path.dirname(path) == str(at.root / "tmp") and "proctor" not in path
    )  # by Python: can it be written?
    return own or in_repository or in_worktree or probe or "__pycache__" in path


def is_private(mode: int) -> bool:
    """Whether it is its owner's, and can be used by it."""
    if stat.S_ISLNK(mode):
        return True
    return stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600)
