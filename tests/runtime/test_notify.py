from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio

from proctor.runtime import Killed, open_supervisor
from proctor.runtime.processes.notify import Notify, belongs
from proctor.runtime.processes.process import Process
from tests.runtime.belongings import descriptors, descriptors_at_first
from tests.runtime.programs import appears
from tests.runtime.starting import Recorder, ending_with, program

SAY = """
import os, socket, sys, time
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.connect(os.environ["NOTIFY_SOCKET"])
def say(text):
    out.send(text.encode())
"""


@pytest.mark.covers("X5")
async def test_a_process_is_ready_when_it_notifies_and_its_status_can_be_seen() -> None:
    source = SAY + "say('STATUS=loading'); time.sleep(0.1); say('READY=1\\nSTATUS=serving'); time.sleep(10)"
    async with open_supervisor([program(source, Notify())]) as sup:
        info = sup.name("p").ref().info
        assert isinstance(info, Process)
        assert info.status == "serving"


@pytest.mark.covers("X4", "X5", "X6")
async def test_what_a_process_notifies_reaches_the_supervisor_in_order() -> None:
    source = (
        SAY
        + """
for text in ("WATCHDOG=1", "EXTEND_TIMEOUT_USEC=2500000", "EXTEND_TIMEOUT_USEC=soon", "READY=0", "nonsense", "",
             "READY=1", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=1", "RELOADING=1", "READY=1", "STOPPING=1\\nSTATUS=bye"):
    say(text)
time.sleep(10)
"""
    )
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending_with, Killed(), program(source, Notify()).start, status)
        await status.until(6)
        assert status.told == [2.5, "started", "beat", False, True, False]
        assert status.process is not None
        assert status.process.status == "bye"
        assert status.delegate is not None
        status.delegate.kill()


def modes(path: Path) -> list[tuple[bool, int]]:
    folder = path.parent
    return [(path.is_socket(), folder.stat().st_mode & 0o777)] if folder.exists() else []


@pytest.mark.covers("X5")
async def test_the_socket_is_private_and_gone_with_the_process(tmp_path: Path) -> None:
    source = (
        SAY
        + f"open({str(tmp_path / 'path')!r}, 'w').write(os.environ['NOTIFY_SOCKET']); say('READY=1'); time.sleep(10)"
    )
    before = descriptors_at_first()
    async with open_supervisor([program(source, Notify())]):
        path = Path((tmp_path / "path").read_text())
        assert modes(path) == [(True, 0o700)]
    assert modes(path) == []
    assert descriptors() == before


@pytest.mark.covers("X5")
async def test_a_stranger_is_not_heard_and_a_child_of_the_process_is(tmp_path: Path) -> None:
    source = (
        SAY
        + f"""
open({str(tmp_path / "path")!r}, 'w').write(os.environ['NOTIFY_SOCKET'])
while not os.path.exists({str(tmp_path / "go")!r}):
    time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    say('STATUS=child\\nREADY=1')
time.sleep(10)
"""
    )
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending_with, Killed(), program(source, Notify(), guard=True).start, status)
        await appears(tmp_path / "path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"STATUS=stranger\nREADY=1", (tmp_path / "path").read_text())
        await trio.sleep(0.1)
        assert status.told == []
        (tmp_path / "go").touch()
        await status.until(1)
        assert status.process is not None
        assert status.process.status == "child"
        assert status.delegate is not None
        status.delegate.kill()


@pytest.mark.covers("X5")
async def test_descriptors_that_come_with_a_message_are_not_taken() -> None:
    source = (
        SAY
        + """
for _ in range(20):
    socket.send_fds(out, [b"FDSTORE=1"], [0, 1, 2])
say("READY=1")
time.sleep(10)
"""
    )
    async with open_supervisor([]) as sup:
        before = len(descriptors_at_first())
        await sup.start_child(program(source, Notify()))
        assert len(descriptors()) == before + 4  # the socket, a pidfd, stderr, and what watches it
        await sup.terminate_child("p")


@pytest.mark.covers("X6")
async def test_the_watchdog_of_the_spec_is_told_to_the_program() -> None:
    source = SAY + "say('READY=1\\nSTATUS=' + os.environ['WATCHDOG_USEC']); time.sleep(10)"
    spec = program(source, Notify(), watchdog=2.5)
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending_with, Killed(), spec.start, status)
        await status.until(1)
        assert status.process is not None
        assert status.process.status == "2500000"
        assert status.delegate is not None
        status.delegate.kill()


@pytest.mark.covers("X5")
def test_a_sender_belongs_by_session_by_descent_or_when_it_can_no_longer_be_asked() -> None:
    own = os.getpid()
    assert belongs(own, os.getsid(0))
    assert belongs(own, os.getppid())
    assert not belongs(1, own)
    assert belongs(2**22 + 1, own)
