from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from proctor.runtime import (
    Crash,
    InvalidSpec,
    Killed,
    Shutdown,
    StartError,
    StartTimeout,
    open_supervisor,
)
from proctor.runtime.exits import ExitStatus, Normal
from proctor.runtime.processes.notify import Notify
from proctor.runtime.processes.process import Process
from proctor.runtime.processes.process_errors import PortTaken
from proctor.runtime.processes.readiness import File, Output, Port, Readiness
from tests.runtime.belongings import descriptors, descriptors_at_first
from tests.runtime.programs import appears
from tests.runtime.starting import Recorder, ending_with, program, shell

QUIET = trio.testing.wait_all_tasks_blocked


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


@pytest.mark.covers("X5", "S7")
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("to", ["", " >&2"], ids=["stdout", "stderr"])
async def test_a_process_is_ready_when_it_says_so_and_not_before(
    pattern: Any, to: str, tmp_path: Path
) -> None:
    script = f"(echo starting; printf 'liste'; sleep 0.1; echo > {tmp_path}/now; echo 'ning on 80'){to}; exec sleep 60"
    async with open_supervisor([shell(script, Output(pattern))]) as sup:
        assert (tmp_path / "now").exists()
        assert isinstance(sup.name("p").ref().info, Process)


@pytest.mark.covers("X5")
async def test_what_is_said_on_the_other_stream_does_not_count() -> None:
    spec = shell("echo ready >&2; sleep 0.2; echo done", Output("ready", "stdout"))
    async with open_supervisor([]) as sup:
        with pytest.raises(StartError) as caught:
            await sup.start_child(spec)
    assert caught.value.reason == Normal()


@pytest.mark.covers("X5")
@pytest.mark.parametrize(
    "pattern",
    ["needle", re.compile(rb"need.e"), holds_needle],
    ids=["text", "pattern", "function"],
)
async def test_a_pattern_is_found_beyond_what_is_kept_and_across_reads(pattern: Any) -> None:
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


@pytest.mark.covers("X5")
async def test_output_is_read_on_once_it_was_found() -> None:
    got: list[bytes] = []
    source = "import os; os.write(1, b'ready'); os.write(1, b'x' * 1_000_000)"
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(program(source, Output("ready"), on_output=got.append))
        with ref.monitor() as monitor, trio.fail_after(30):
            assert (await monitor).reason == Normal()
    assert sum(map(len, got)) == 1_000_005


@pytest.mark.covers("X5")
async def test_an_error_of_the_function_is_the_failure_of_the_start() -> None:
    def test(data: bytes) -> bool:
        raise KeyError("the test's own")

    with pytest.raises(StartError) as caught:
        async with open_supervisor([shell("echo x; exec sleep 60", Output(test))]):
            pass
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.covers("S2")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Output(""), "pattern of 'Output' is ''"),
        (lambda: Output(re.compile("x")), "a pattern of bytes"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Port(0), "port of 'Port' is 0: expected a number from 1 to 65535"),
    ],
)
def test_a_readiness_that_makes_no_sense_is_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        make()


# -- ending or being ended before it is ready


@pytest.mark.covers("X5", "S10")
@pytest.mark.parametrize(
    "ready", [Output("never"), File("never"), Port(1), Notify()], ids=["output", "file", "port", "notify"]
)
async def test_a_process_that_ends_before_it_is_ready_is_a_start_error_with_its_exit_and_stderr(
    ready: Readiness, tmp_path: Path
) -> None:
    spec = shell("sleep 0.1; echo 'no licence' >&2; exit 3", ready, cwd=tmp_path)
    with (
        pytest.raises(StartError, match="exit status 3; stderr ends 'no licence'") as caught,
        trio.fail_after(30),
    ):
        async with open_supervisor([spec]):
            pass
    assert caught.value.reason == ExitStatus(code=3)


@pytest.mark.covers("X4", "X5", "S11")
@pytest.mark.parametrize(
    "ready", [Output("never"), File("never"), Port(1), Notify()], ids=["output", "file", "port", "notify"]
)
async def test_a_process_not_ready_in_time_is_killed_and_leaves_nothing(
    ready: Readiness, tmp_path: Path
) -> None:
    before = descriptors_at_first()
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; n=0; while [ $((n+=1)) -lt 2000 ]; do sleep 0.05; done"
    with pytest.raises(StartError) as caught, trio.fail_after(30) as in_time:
        async with open_supervisor([shell(script, ready, cwd=tmp_path, start_timeout=0.4)]):
            pass
    assert not in_time.cancel_called
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, StartTimeout)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert descriptors() == before


@pytest.mark.covers("X5", "D5")
async def test_a_stop_while_it_becomes_ready_goes_by_the_ladder(tmp_path: Path) -> None:
    script = f"trap 'echo asked > {tmp_path}/asked; exit 0' TERM; echo > {tmp_path}/up; while :; do sleep 0.02; done"
    status = Recorder()
    async with trio.open_nursery() as nursery:
        start = shell(script, Output("never")).start
        nursery.start_soon(ending_with, Shutdown(), start, status)
        await appears(tmp_path / "up")
        assert status.delegate is not None
        status.delegate.stop(Shutdown())
    assert (tmp_path / "asked").exists()
    assert status.told == []


@pytest.mark.covers("T6")
@pytest.mark.parametrize(("how", "reason"), [("stop", Shutdown("no")), ("kill", Killed())])
async def test_a_start_ended_before_the_process_is_there_starts_none(
    how: str, reason: object, tmp_path: Path
) -> None:
    def end(status: Recorder) -> None:
        assert status.delegate is not None
        if how == "stop":
            status.delegate.stop(Shutdown("no"))
        else:
            status.delegate.kill()

    status = Recorder()
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        start = shell(f"touch {tmp_path}/started", Port(server.getsockname()[1])).start
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ending_with, reason, start, status)
            while status.delegate is None:
                await trio.lowlevel.checkpoint()
            end(status)
    assert os.listdir(tmp_path) == []


# -- a file


@pytest.mark.covers("X5")
async def test_a_process_is_ready_when_its_file_is_there(tmp_path: Path) -> None:
    script = "sleep 0.2; echo > ready; exec sleep 60"
    async with open_supervisor([shell(script, File("ready"), cwd=tmp_path)]):
        assert (tmp_path / "ready").exists()


@pytest.mark.covers("X5")
async def test_the_file_of_an_earlier_run_does_not_count_until_it_is_written_anew(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("old")
    with trio.fail_after(30):
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


@pytest.mark.covers("X5")
async def test_a_process_is_ready_when_its_port_takes_connections_also_after_a_restart() -> None:
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


@pytest.mark.covers("X5")
async def test_a_port_that_somebody_else_answers_is_a_failed_start_and_starts_nothing(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StartError) as caught:
            async with open_supervisor([shell(f"touch {tmp_path}/started", Port(port))]):
                pass
    assert isinstance(caught.value.__cause__, PortTaken)
    assert f"port {port} of 127.0.0.1 is already in use by another process" in str(caught.value.__cause__)
    assert os.listdir(tmp_path) == []
