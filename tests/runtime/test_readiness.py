from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proctor.runtime import (
    ChildSpec,
    Crash,
    InvalidSpec,
    Killed,
    Shutdown,
    StartError,
    StartTimeout,
    open_supervisor,
)
from proctor.runtime.cell import Control
from proctor.runtime.exits import Exit, ExitStatus, Normal
from proctor.runtime.notify import Notify, belongs
from proctor.runtime.process import Process
from proctor.runtime.process_errors import PortTaken
from proctor.runtime.program import process
from proctor.runtime.readiness import File, Output, Port, Readiness
from tests.runtime.programs import ENV, appears

QUIET = trio.testing.wait_all_tasks_blocked


def shell(script: str, ready: Readiness, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"id": "p", "name": "p", "env": ENV, "restart": "temporary"}
    return process(("sh", "-c", script), ready=ready, **(fields | spec))


def program(source: str, ready: Readiness, *argv: str, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"id": "p", "name": "p", "env": ENV, "restart": "temporary"}
    return process((sys.executable, "-I", "-S", "-c", source, *argv), ready=ready, **(fields | spec))


@attrs.define
class Recorder:
    """A `task_status` that notes what it is told."""

    warden: Control | None = None
    told: list[object] = attrs.field(factory=list[object])
    news: trio.Event = attrs.field(factory=trio.Event)
    process: Process | None = None

    def started(self, value: object = None) -> None:
        assert isinstance(value, Process)
        self.process = value
        self._note("started")

    def beat(self) -> None:
        self._note("beat")

    def extend(self, seconds: float) -> None:
        self._note(seconds)

    def ready(self, is_ready: bool = True) -> None:
        self._note(is_ready)

    def _note(self, what: object) -> None:
        self.told.append(what)
        self.news.set()
        self.news = trio.Event()

    async def until(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.told) < count:
                await self.news.wait()


# -- output


def ends_in_80(data: bytes) -> bool:
    return data.endswith(b"80\n")


def holds_needle(data: bytes) -> bool:
    return b"needle" in data


PATTERNS: dict[str, Any] = {
    "text": "listening on",
    "bytes": b"listening on",
    "pattern": re.compile(rb"listening on \d+\n"),
    "function": ends_in_80,
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("to", ["", " >&2"], ids=["stdout", "stderr"])
async def test_a_process_is_ready_when_it_says_so_and_not_before_X5_S7(
    pattern: Any, to: str, tmp_path: Path
) -> None:
    script = f"(echo starting; printf 'liste'; sleep 0.1; echo > {tmp_path}/now; echo 'ning on 80'){to}; exec sleep 60"
    async with open_supervisor([shell(script, Output(pattern))]) as sup:
        assert (tmp_path / "now").exists()
        assert isinstance(sup.name("p").ref().info, Process)


async def test_what_is_said_on_the_other_stream_does_not_count_X5() -> None:
    spec = shell("echo ready >&2; sleep 0.2; echo done", Output("ready", "stdout"))
    async with open_supervisor([]) as sup:
        with pytest.raises(StartError) as caught:
            await sup.start_child(spec)
    assert caught.value.reason == Normal()


@pytest.mark.parametrize(
    "pattern",
    ["needle", re.compile(rb"need.e"), holds_needle],
    ids=["text", "pattern", "function"],
)
async def test_a_pattern_is_found_beyond_what_is_kept_and_across_reads_X5(pattern: Any) -> None:
    source = """
import os, time
os.write(1, b"x" * 300_000 + b"nee")
time.sleep(0.1)
os.write(1, b"dle" + b"y" * 300_000)
time.sleep(60)
"""
    with trio.fail_after(10):
        async with open_supervisor([program(source, Output(pattern, "stdout"))]):
            pass


async def test_output_is_read_on_once_it_was_found_X5() -> None:
    got: list[bytes] = []
    source = "import os; os.write(1, b'ready'); os.write(1, b'x' * 1_000_000)"
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(program(source, Output("ready"), on_output=got.append))
        with ref.monitor() as monitor, trio.fail_after(5):
            assert (await monitor).reason == Normal()
    assert sum(map(len, got)) == 1_000_005


async def test_an_error_of_the_function_is_the_failure_of_the_start_X5() -> None:
    def test(data: bytes) -> bool:
        raise KeyError("the test's own")

    with pytest.raises(StartError) as caught:
        async with open_supervisor([shell("echo x; exec sleep 60", Output(test))]):
            pass
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Output(""), "pattern of 'Output' is ''"),
        (lambda: Output(re.compile("x")), "a pattern of bytes"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Port(0), "port of 'Port' is 0: expected a number from 1 to 65535"),
    ],
)
def test_a_readiness_that_makes_no_sense_is_refused_S2(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        make()


# -- ending or being ended before it is ready


@pytest.mark.parametrize(
    "ready", [Output("never"), File("never"), Port(1), Notify()], ids=["output", "file", "port", "notify"]
)
async def test_a_process_that_ends_before_it_is_ready_is_a_start_error_with_its_exit_and_stderr_X5_S10(
    ready: Readiness, tmp_path: Path
) -> None:
    spec = shell("sleep 0.1; echo 'no licence' >&2; exit 3", ready, cwd=tmp_path)
    with (
        pytest.raises(StartError, match="exit status 3; stderr ends 'no licence'") as caught,
        trio.fail_after(5),
    ):
        async with open_supervisor([spec]):
            pass
    assert caught.value.reason == ExitStatus(code=3)


@pytest.mark.parametrize(
    "ready", [Output("never"), File("never"), Port(1), Notify()], ids=["output", "file", "port", "notify"]
)
async def test_a_process_not_ready_in_time_is_killed_and_leaves_nothing_X4_X5_S11(
    ready: Readiness, tmp_path: Path
) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    with pytest.raises(StartError) as caught, trio.fail_after(5):
        async with open_supervisor([shell(script, ready, cwd=tmp_path, start_timeout=0.4)]):
            pass
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, StartTimeout)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_stop_while_it_becomes_ready_goes_by_the_ladder_X5_D5(tmp_path: Path) -> None:
    script = f"trap 'echo asked > {tmp_path}/asked; exit 0' TERM; echo > {tmp_path}/up; while :; do sleep 0.02; done"
    status = Recorder()
    async with trio.open_nursery() as nursery:
        start = shell(script, Output("never")).start
        nursery.start_soon(_ending_with, Normal(), start, status)
        await appears(tmp_path / "up")
        assert status.warden is not None
        status.warden.stop(Shutdown())
    assert (tmp_path / "asked").exists()
    assert status.told == []


async def _ending_with(reason: object, start: Any, status: Recorder) -> None:
    if reason == Normal():
        await start(task_status=status)
        return
    with pytest.raises(Exit) as ended:
        await start(task_status=status)
    assert ended.value.reason == reason


@pytest.mark.parametrize(("how", "reason"), [("stop", Shutdown("no")), ("kill", Killed())])
async def test_a_start_ended_before_the_process_is_there_starts_none_T6(
    how: str, reason: object, tmp_path: Path
) -> None:
    def end(status: Recorder) -> None:
        assert status.warden is not None
        if how == "stop":
            status.warden.stop(Shutdown("no"))
        else:
            status.warden.kill()

    status = Recorder()
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        start = shell(f"touch {tmp_path}/started", Port(server.getsockname()[1])).start
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ending_with, reason, start, status)
            while status.warden is None:
                await trio.lowlevel.checkpoint()
            end(status)
    assert os.listdir(tmp_path) == []


# -- a file


async def test_a_process_is_ready_when_its_file_is_there_X5(tmp_path: Path) -> None:
    script = "sleep 0.2; echo > ready; exec sleep 60"
    async with open_supervisor([shell(script, File("ready"), cwd=tmp_path)]):
        assert (tmp_path / "ready").exists()


async def test_the_file_of_an_earlier_run_does_not_count_until_it_is_written_anew_X5(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("old")
    with trio.fail_after(5):
        async with open_supervisor([shell(f"sleep 0.2; echo new > {ready}; exec sleep 60", File(ready))]):
            assert ready.read_text() == "new\n"


# -- a port

LISTEN = """
import socket, sys, time
time.sleep(0.2)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def test_a_process_is_ready_when_its_port_takes_connections_also_after_a_restart_X5() -> None:
    port = free_port()
    with trio.fail_after(10):
        spec = program(LISTEN, Port(port), str(port), restart="permanent")
        async with open_supervisor([spec]) as sup:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            with sup.events() as events:
                sup.name("p").kill()
                async for event in events:
                    if event.kind == "child_started":
                        break
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()


async def test_a_port_that_somebody_else_answers_is_a_failed_start_and_starts_nothing_X5(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StartError) as caught:
            async with open_supervisor([shell(f"touch {tmp_path}/started", Port(port))]):
                pass
    assert isinstance(caught.value.__cause__, PortTaken)
    assert f"port {port} of 127.0.0.1 is answered by another process already" in str(caught.value.__cause__)
    assert os.listdir(tmp_path) == []


# -- a notify socket

SAY = """
import os, socket, sys, time
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.connect(os.environ["NOTIFY_SOCKET"])
def say(text):
    out.send(text.encode())
"""


async def test_a_process_is_ready_when_it_notifies_and_its_status_can_be_seen_X5() -> None:
    source = SAY + "say('STATUS=loading'); time.sleep(0.1); say('READY=1\\nSTATUS=serving'); time.sleep(60)"
    async with open_supervisor([program(source, Notify())]) as sup:
        info = sup.name("p").ref().info
        assert isinstance(info, Process)
        assert info.status == "serving"


async def test_what_a_process_notifies_reaches_the_supervisor_in_order_X4_X5_X6() -> None:
    source = (
        SAY
        + """
for text in ("WATCHDOG=1", "EXTEND_TIMEOUT_USEC=2500000", "EXTEND_TIMEOUT_USEC=soon", "READY=0", "nonsense", "",
             "READY=1", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=1", "RELOADING=1", "READY=1", "STOPPING=1\\nSTATUS=bye"):
    say(text)
time.sleep(60)
"""
    )
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ending_with, Killed(), program(source, Notify()).start, status)
        await status.until(6)
        assert status.told == [2.5, "started", "beat", False, True, False]
        assert status.process is not None
        assert status.process.status == "bye"
        assert status.warden is not None
        status.warden.kill()


def modes(path: Path) -> list[tuple[bool, int]]:
    folder = path.parent
    return [(path.is_socket(), folder.stat().st_mode & 0o777)] if folder.exists() else []


async def test_the_socket_is_private_and_gone_with_the_process_X5(tmp_path: Path) -> None:
    source = (
        SAY
        + f"open({str(tmp_path / 'path')!r}, 'w').write(os.environ['NOTIFY_SOCKET']); say('READY=1'); time.sleep(60)"
    )
    before = sorted(os.listdir("/proc/self/fd"))
    async with open_supervisor([program(source, Notify())]):
        path = Path((tmp_path / "path").read_text())
        assert modes(path) == [(True, 0o700)]
    assert modes(path) == []
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_stranger_is_not_heard_and_a_child_of_the_process_is_X5(tmp_path: Path) -> None:
    source = (
        SAY
        + f"""
open({str(tmp_path / "path")!r}, 'w').write(os.environ['NOTIFY_SOCKET'])
while not os.path.exists({str(tmp_path / "go")!r}):
    time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    say('STATUS=child\\nREADY=1')
time.sleep(60)
"""
    )
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ending_with, Killed(), program(source, Notify(), guard=True).start, status)
        await appears(tmp_path / "path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"STATUS=stranger\nREADY=1", (tmp_path / "path").read_text())
        await trio.sleep(0.1)
        assert status.told == []
        (tmp_path / "go").touch()
        await status.until(1)
        assert status.process is not None
        assert status.process.status == "child"
        assert status.warden is not None
        status.warden.kill()


async def test_descriptors_that_come_with_a_message_are_not_taken_X5() -> None:
    source = (
        SAY
        + """
for _ in range(20):
    socket.send_fds(out, [b"FDSTORE=1"], [0, 1, 2])
say("READY=1")
time.sleep(60)
"""
    )
    async with open_supervisor([]) as sup:
        before = len(os.listdir("/proc/self/fd"))
        await sup.start_child(program(source, Notify()))
        assert len(os.listdir("/proc/self/fd")) == before + 3  # the socket, a pidfd, stderr
        await sup.terminate_child("p")


async def test_the_watchdog_of_the_spec_is_told_to_the_program_X6() -> None:
    source = SAY + "say('READY=1\\nSTATUS=' + os.environ['WATCHDOG_USEC']); time.sleep(60)"
    spec = program(source, Notify(), watchdog=2.5)
    status = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ending_with, Killed(), spec.start, status)
        await status.until(1)
        assert status.process is not None
        assert status.process.status == "2500000"
        assert status.warden is not None
        status.warden.kill()


def test_a_sender_belongs_by_session_by_descent_or_when_it_can_no_longer_be_asked_X5() -> None:
    own = os.getpid()
    assert belongs(own, os.getsid(0))
    assert belongs(own, os.getppid())
    assert not belongs(1, own)
    assert belongs(2**22 + 1, own)
