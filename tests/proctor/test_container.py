"""The command as the first process of a container: no HOME, a root that is read-only, and nobody else to collect orphans."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from tests.proctor.command import PATIENCE, PROCTOR, ROOT, once
from tests.proctor.scripts import HANGS, Fleet, agent

SPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
READ_ONLY = "mount -o remount,ro,bind /"


def has_spaces() -> bool:
    """Whether a process may have namespaces of its own here, with a root that is read-only."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run([*SPACES, "sh", "-c", READ_ONLY], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_spaces(), reason="no user namespaces")


@attrs.frozen
class Container:
    """A command that runs in namespaces of its own; `first` is its first process, as it is known outside."""

    process: subprocess.Popen[str]
    first: int
    bare: Sequence[str]

    def inside(self, *words: str) -> str:
        """What a program says that runs in the container, beside the command."""
        enter = ("nsenter", "-t", str(self.first), "-U", "-m", "-p", "--preserve-credentials")
        done = subprocess.run(
            [*enter, *self.bare, *words], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.stdout

    def proctor(self, *words: str) -> str:
        return self.inside(*PROCTOR, *words)

    def zombies(self) -> list[str]:
        return [line for line in self.inside("ps", "-eo", "stat,args").splitlines() if line.startswith("Z")]

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out


@contextmanager
def contained(*words: str, writable: Path | None) -> Generator[Container]:
    """The command in a container in which only the folder `writable` can be written, if any; it is its TMPDIR."""
    bare, steps = ["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT / 'src'}"], [READ_ONLY]
    if writable is not None:
        writable.mkdir()
        bare, steps = [*bare, f"TMPDIR={writable}"], [f"mount -t tmpfs tmpfs {writable}", READ_ONLY]
    command = [*SPACES, "sh", "-c", f'{" && ".join(steps)} && exec "$@"', "sh", *bare, *PROCTOR, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    first = 0
    try:
        # `unshare` is the parent of the first process
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        first = int(once(children.read_text))
        yield Container(process, first, bare)
    finally:
        with suppress(ProcessLookupError):
            os.kill(first or process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def test_the_first_process_collects_orphans_and_stops_its_fleet_in_order(
    tmp_path: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"hangs.ndjson"'), hangs=HANGS)
    with contained("up", str(path), writable=tmp_path / "tmp") as container:
        once(lambda: " idle " in container.proctor("ps"))
        assert container.proctor("send", "a", "work") == "a queued\n"
        once(lambda: " working " in container.proctor("ps"))
        container.inside("sh", "-c", "for one in 1 2 3; do (exec sleep 0.1 &); done")
        container.inside("sleep", "0.3")
        assert container.zombies() == []
        container.inside("kill", "-TERM", "1")
        status, out = container.end()
    assert status == 128 + signal.SIGTERM
    assert "stopping; a second signal kills at once" in out
    assert "a  stopped" in out


def test_the_container_ends_as_its_command_does(tmp_path: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"hangs.ndjson"'), hangs=HANGS)
    with contained("up", str(path), writable=tmp_path / "one") as container:
        once(lambda: " idle " in container.proctor("ps"))
        assert container.proctor("down") == ""
        assert container.end()[0] == 128 + signal.SIGTERM
    with contained("up", str(path), writable=tmp_path / "two") as container:
        once(lambda: " idle " in container.proctor("ps"))
        [host] = container.inside("sh", "-c", "cat /proc/1/task/1/children").split()
        container.inside("kill", "-KILL", host)
        assert container.end()[0] == 128 + signal.SIGKILL


@pytest.mark.parametrize("words", [("up",), ("run", "--no-record"), ("ps",), ("doctor",)])
def test_where_nothing_can_be_written_a_line_says_what_to_mount(
    words: tuple[str, ...], tmp_path: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"hangs.ndjson"'), hangs=HANGS)
    target = {"up": [str(path)], "run": [f"scripted:{tmp_path / 'hangs.ndjson'}", "hi"]}.get(words[0], [])
    with contained(*words, *target, writable=None) as container:
        status, out = container.end()
    assert status != 0
    assert "internal error" not in out
    assert "Traceback" not in out
    expected = (
        "no fleet runs under this user" if words[0] == "ps" else "mount one, as docker run --tmpfs /tmp does"
    )
    assert expected in out
