"""`proctor service`, and what a command says to the service manager that started it."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from proctor.cli.commands.service import unit_of
from proctor.cli.service_manager import ServiceManager
from tests.proctor.command import PATIENCE, proctor, running
from tests.proctor.scripts import HANGS, Fleet, agent


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE)

    def receive(self) -> str:
        """The next message."""
        return self.socket.recv(4096).decode()

    def until(self, first: str) -> str:
        """The next message that begins so."""
        while not (message := self.receive()).startswith(first):
            pass
        return message


@pytest.fixture(params=["file", "abstract"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Manager, str]]:
    """A manager, and its `NOTIFY_SOCKET`."""
    name = str(tmp_path / "notify") if request.param == "file" else f"@proctor-test-{os.getpid()}"
    manager = Manager(name.replace("@", "\0"))
    yield manager, name
    manager.socket.close()


def test_a_fleet_says_when_it_has_started_that_it_lives_and_when_it_stops(
    named: tuple[Manager, str], home: Path, fleet: Fleet
) -> None:
    manager, name = named
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=HANGS)
    env = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}
    with running("up", str(path), home=home, env=env) as command:
        assert manager.until("READY=1") == "READY=1\nSTATUS=fleet runs"
        for _ in range(3):
            assert manager.until("WATCHDOG") == "WATCHDOG=1"
        command.signal(signal.SIGTERM)
        assert manager.until("STOPPING") == "STOPPING=1\nSTATUS=stopping by SIGTERM"
        command.end()


async def test_the_event_loop_is_reported_twice_within_the_time_of_the_manager(
    named: tuple[Manager, str], autojump_clock: MockClock
) -> None:
    manager, name = named
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
    with trio.move_on_after(19):
        await ServiceManager(environ).keep_alive()
    assert [manager.receive() for _ in range(4)] == ["WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere/at/all"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "ten"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "10", "WATCHDOG_PID": "1"},
    ],
)
async def test_without_a_manager_that_asks_nothing_is_said_and_nothing_fails(environ: dict[str, str]) -> None:
    manager = ServiceManager(environ)
    manager.ready("up")
    manager.stopping("down")
    await manager.keep_alive()


def test_a_unit_is_written_and_removed_again(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=HANGS)
    unit = home / ".config" / "systemd" / "user" / "proctor-fleet.service"
    shown = proctor("service", "install", str(path), "--dry-run", home=home)
    assert (shown.status, unit.exists()) == (0, False)
    done = proctor("service", "install", str(path), home=home)
    assert (done.status, done.err) == (0, "")
    assert "systemctl --user enable --now proctor-fleet.service" in done.out
    assert shown.out == f"# {unit}\n{unit.read_text()}"
    assert proctor("service", "remove", str(path), home=home).status == 0
    gone = proctor("service", "remove", str(path), home=home)
    assert (gone.status, "this fleet is no service" in gone.complaint) == (2, True)


def test_a_unit_that_cannot_be_written_is_one_line(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=HANGS)
    (home / ".config").write_text("a file")
    done = proctor("service", "install", str(path), home=home)
    assert (done.status, "cannot be written: " in done.complaint) == (2, True)


def test_a_path_with_signs_of_systemd_in_it_is_the_same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", '/a "b"/bin:/c%d')
    file = Path('/my "fleets"/100% $HOME\\x/f.toml')
    unit = dict(line.partition("=")[::2] for line in unit_of("f", file).splitlines() if "=" in line)
    # systemd reads words as a shell does, then its own specifiers and variables
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(unit["ExecStart"])]
    assert words == [sys.executable, "-P", "-m", "proctor", "up", str(file)]
    assert unit["WorkingDirectory"].replace("%%", "%") == str(file.parent)
    assert shlex.split(unit["Environment"])[0].replace("%%", "%") == 'PATH=/a "b"/bin:/c%d'
