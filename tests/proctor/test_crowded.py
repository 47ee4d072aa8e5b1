"""Servers that more clients come to than files may be open."""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from proctor.actors.serving.capacity import CONNECTIONS, connection_limit
from tests.proctor.command import Running, running
from tests.proctor.scripts import ANSWERS, Fleet, agent
from tests.proctor.test_web import address, ready

IDLE = 1000


@contextmanager
def idle_clients(where: str, count: int) -> Generator[None]:
    """So many connections on which nothing is ever sent."""
    host, _, port = where.removeprefix("http://").rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        yield


def files_of(command: Running) -> tuple[str, str]:
    """Its soft and hard limit of open files."""
    limits = Path(f"/proc/{command.process.pid}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
    return line.split()[3], line.split()[4]


@pytest.mark.parametrize(
    ("soft", "hard"), [(128, 128), (64, 512)], ids=["a small limit", "one that is raised"]
)
def test_a_thousand_idle_connections_keep_no_other_client_and_no_agent_waiting(
    soft: int, hard: int, home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    words = ("web", str(path), "--listen", "127.0.0.1:0", "--no-token")
    with running(*words, home=home, under=f"ulimit -Sn {soft}; ulimit -Hn {hard}") as command:
        where = address(command)
        assert files_of(command) == (str(hard), str(hard))
        with httpx2.Client(base_url=where, timeout=30, verify=False) as client:
            ready(client)
            with idle_clients(where, IDLE):
                with httpx2.Client(base_url=where, timeout=30, verify=False) as newcomer:
                    assert newcomer.get("/readyz").json()["ready"]
                answers = [
                    client.post("/agents/a/turns", json={"prompt": "you", **more}).json()["answer"]["text"]
                    for more in ({}, {"session_id": "s"})  # the second one starts a process
                ]
        command.signal(signal.SIGTERM)
        said = command.err.read().decode()
        assert command.end() == 0
    assert answers == ["All is well, you"] * 2
    assert len([line for line in said.splitlines() if "unauthenticated connections" in line]) == 1


def test_the_connections_are_what_half_of_the_files_bear() -> None:
    cases = {1: 1, 128: 64, 1024: 512, 20_000: CONNECTIONS, resource.RLIM_INFINITY: CONNECTIONS}
    assert {files: connection_limit(files) for files in cases} == cases
