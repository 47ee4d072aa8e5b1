from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.runtime.processes import procfs
from proctor.runtime.processes.orphans import find_marked
from tests.proctor.command import Running, proctor, running, wait_for
from tests.proctor.scripts import Script
from tests.runtime.hosts import KEY

FLEET = '[[agents]]\nkind = "scripted"\nname = "a"\nscript = "{script}"\nprompt = "hi"\n'


@pytest.fixture
def orphan(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that a host left, which is noted in the state folder as dead."""
    folder, place = home / "state" / "proctor" / "hosts", procfs.pid_namespace()
    folder.mkdir(parents=True)
    title = f"proctor-ledger 1 {KEY} {place.machine} {place.boot} {place.namespace}\n"
    (folder / f"{KEY}.ledger").write_text(title)
    env = {"PATH": os.environ["PATH"], "PROCTOR_MARKER": f"{KEY}/1/a"}
    with subprocess.Popen(["sleep", "600"], env=env, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_start_kills_what_an_earlier_one_left_and_says_so_in_a_line(
    home: Path, tmp_path: Path, script: Script, orphan: subprocess.Popen[bytes], command: str
) -> None:
    agent = script('{"reply": "hello"}')
    (tmp_path / "fleet.toml").write_text(FLEET.format(script=agent.partition(":")[2]))
    words = ("run", agent, "hi", "--quiet") if command == "run" else ("up", str(tmp_path / "fleet.toml"))
    done = proctor(*words, home=home)
    told = f"proctor: killed a process that an earlier run had left: sleep ({orphan.pid})"
    assert (done.status, done.complaint) == (0, told)
    assert orphan.wait() == -signal.SIGKILL
    assert list((home / "state" / "proctor" / "hosts").iterdir()) == []
    assert told not in proctor(*words, home=home).err


def test_the_next_run_finds_what_a_run_left_that_died_together_with_its_guard(
    home: Path, script: Script
) -> None:
    hangs = script('{"fault": "daemon:600"}', '{"say": "I begin."}', '{"sleep": 600}')
    with running("run", hangs, "hi", home=home) as command:
        command.said(b"I begin.")
        ledger = wait_for(home / "state" / "proctor" / "hosts", "*.ledger")
        noted = [re.split(" +", line) for line in ledger.read_text().splitlines()[1:]]
        noted = [words for words in noted if words[0] != "folder"]
        [(guard, _, marker)] = noted
        assert marker.startswith(f"{ledger.stem}/1/")
        command.signal(signal.SIGSTOP)  # it sees nothing of the other's death
        os.kill(int(guard), signal.SIGKILL)
        command.signal(signal.SIGKILL)
        command.end()
    assert find_marked({ledger.stem})
    done = proctor("run", script('{"reply": "hello"}'), "hi", "--quiet", home=home)
    killed, removed = done.err.splitlines()
    assert re.match(r"proctor: killed a process that an earlier run had left: sleep \(\d+\)$", killed)
    assert re.match(r"proctor: removed a temporary folder that an earlier run had left: /\S+$", removed)
    assert find_marked({ledger.stem}) == ()


SECRET = "do-not-leave-me-behind"
SPREADS = (
    '{"tool": "Bash", "input": {}, "run": "printenv TOKEN > $HOME/.netrc; printenv TOKEN > $TMPDIR/work; echo"}',
    '{"say": "It is spread: {cwd}"}',
    '{"sleep": 600}',
)


def holding(folder: Path, secret: str) -> list[Path]:
    """The files below it in which the secret is."""
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@contextmanager
def host_with_secrets(agent: str, home: Path, temporary: Path) -> Generator[Running]:
    words = ("run", agent, "hi", "--home", "private", "--no-record", "--permission", "allow")
    env = {"TMPDIR": str(temporary)}
    with running(*words, "--env", f"TOKEN={SECRET}", home=home, env=env) as command:
        command.said(b"It is spread")
        yield command


@pytest.mark.parametrize("start", ["run", "doctor"])
def test_no_file_of_a_host_with_secrets_that_was_killed_is_left_after_the_next_start(
    home: Path, script: Script, temporary: Path, start: str
) -> None:
    with host_with_secrets(script(*SPREADS), home, temporary) as command:
        assert len(holding(temporary, SECRET)) >= 2
        command.signal(signal.SIGKILL)
        command.end()
    assert holding(temporary, SECRET)
    words = ("doctor",) if start == "doctor" else ("run", script('{"reply": "hello"}'), "hi", "--quiet")
    done = proctor(*words, home=home, env={"TMPDIR": str(temporary)})
    assert re.search(r"removed a temporary folder that an earlier run had left: \S+", done.out + done.err)
    assert [*temporary.iterdir()] == []


def test_the_files_of_a_host_that_lives_are_not_removed_by_the_next_start(
    home: Path, script: Script, temporary: Path
) -> None:
    with host_with_secrets(script(*SPREADS), home, temporary) as command:
        before = holding(temporary, SECRET)
        done = proctor(
            *("run", script('{"reply": "hello"}'), "hi", "--quiet"),
            home=home,
            env={"TMPDIR": str(temporary)},
        )
        assert (done.status, done.err) == (0, "")
        assert holding(temporary, SECRET) == before != []
        command.signal(signal.SIGTERM)
        command.end()
    assert [*temporary.iterdir()] == []
