from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from proctor.runtime import (
    ChildSpec,
    Crash,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    Normal,
    Shutdown,
    StartError,
    StartTimeout,
    Supervisor,
    open_supervisor,
)
from proctor.runtime.exits import ExitReason, ExitStatus
from proctor.runtime.processes.process import Process
from proctor.runtime.processes.process_errors import CwdMissing, NoStderr, NotExecutable, NotFound
from proctor.runtime.processes.readiness import File, Output
from proctor.runtime.processes.stopping import Step, fitted
from proctor.runtime.supervision.program import Program, plain_environment, process
from tests.runtime.programs import ENV, appears, gone
from tests.runtime.stage import heard, kinds
from tests.tables import each_row

DEAF = "trap '' TERM; echo ready; n=0; while [ $((n+=1)) -lt 200 ]; do sleep 0.05; done"  # 10 s, not for ever
READY = Output("ready\n")


def shell(script: str, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"id": "p", "name": "p", "env": ENV}
    return process(("sh", "-c", script), **(fields | spec))


def running(sup: Supervisor, name: str = "p") -> Process:
    info = sup.name(name).ref().info
    assert isinstance(info, Process)
    return info


async def ended(sup: Supervisor, name: str = "p") -> ExitReason:
    with sup.name(name).ref().monitor() as monitor:
        return (await monitor).reason


@pytest.mark.covers("S74", "T19")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", Normal()),
        ("exit 4", Normal()),
        ("exit 3", ExitStatus(code=3)),
        ("kill -9 $$", ExitStatus(signal=9)),
        ("kill -15 $$", ExitStatus(signal=15)),
    ],
)
async def test_the_end_of_the_process_ends_the_child_with_the_same_reason(
    script: str, reason: ExitReason, guard: bool
) -> None:
    spec = shell(f"sleep 0.1; {script}", restart="temporary", guard=guard, success_codes=[4])
    async with open_supervisor([spec]) as sup:
        assert await ended(sup) == reason


@pytest.mark.covers("S74")
async def test_the_bridge_starts_nothing_again_by_itself_and_its_supervisor_does(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"echo x >> {starts}; exit 1"
    specs = [shell(script, id=kind, name=kind, restart=kind) for kind in ("temporary", "transient")]
    with pytest.raises(MaxRestartsExceeded) as caught:
        async with open_supervisor(specs[1:], intensity=2):
            await trio.sleep_forever()
    assert starts.read_text().count("x") == 3
    assert [str(error) for error in caught.value.exceptions] == ["the actor ended: exit status 1"] * 3
    async with open_supervisor(specs[:1]) as sup:
        await ended(sup, "temporary")
    assert starts.read_text().count("x") == 4


@pytest.mark.covers("T19", "S74")
async def test_a_stop_sends_the_stop_signal_and_the_end_is_a_shutdown() -> None:
    async with open_supervisor([shell("exec sleep 60")]) as sup:
        ref = sup.name("p").ref()
        await sup.terminate_child("p")
        assert ref.exit_reason == Shutdown()
        assert running_trace(ref.info) == ["terminate", "exited"]


def running_trace(info: object) -> list[str]:
    assert isinstance(info, Process)
    return [what for _, what in info.trace][:-4]


@pytest.mark.covers("S42")
async def test_a_stop_from_outside_ends_it_with_the_reason_it_was_asked_with() -> None:
    async with open_supervisor([shell("exec sleep 60", restart="transient")]) as sup:
        ref = sup.name("p").ref()
        with ref.monitor() as monitor:
            ref.exit(Shutdown("enough"))
            assert (await monitor).reason == Shutdown("enough")


@pytest.mark.covers("T19")
async def test_the_stop_signal_is_the_one_of_the_spec() -> None:
    script = "trap 'exit 7' HUP; echo ready; while :; do sleep 0.05; done"
    async with open_supervisor([shell(script, ready=READY, stop_signal=signal.SIGHUP)]) as sup:
        ref = sup.name("p").ref()
        await sup.terminate_child("p")
        assert ref.exit_reason == ExitStatus(code=7)


@pytest.mark.covers("T19", "S39")
async def test_a_permanent_program_that_takes_its_leave_when_asked_is_no_error() -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    async with open_supervisor([shell(script, ready=READY)]) as sup:
        events = sup.events()
        ref = sup.name("p").ref()
        await sup.terminate_child("p")
        assert ref.exit_reason == Shutdown()
        assert kinds(events) == ["child_exited root/p"]


@pytest.mark.covers("S38", "S74")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_a_process_deaf_to_its_stop_is_killed_within_its_shutdown(guard: bool) -> None:
    async with open_supervisor([shell(DEAF, ready=READY, shutdown=0.3, guard=guard)]) as sup:
        ref = sup.name("p").ref()
        pid = running(sup).pid
        with trio.fail_after(30):
            await sup.terminate_child("p")
        assert ref.exit_reason == Killed()
    await gone(pid)


@pytest.mark.covers("S37", "S38")
@pytest.mark.parametrize("shutdown", [0, "brutal_kill"])
async def test_no_time_to_stop_is_a_kill_at_once(shutdown: Any) -> None:
    async with open_supervisor([shell(DEAF, ready=READY, shutdown=shutdown)]) as sup:
        ref = sup.name("p").ref()
        with trio.fail_after(3):
            await sup.terminate_child("p")
        assert ref.exit_reason == Killed()


@pytest.mark.covers("S45", "S74")
async def test_a_kill_does_not_wait_for_the_ladder_that_runs() -> None:
    async with open_supervisor([shell(DEAF, ready=READY, shutdown=math.inf)]) as sup:
        ref = sup.name("p").ref()
        with ref.monitor() as monitor, trio.fail_after(30):
            ref.exit(Shutdown())
            await trio.sleep(0.1)
            assert ref.exit_reason is None
            ref.kill()
            assert (await monitor).reason == Killed()


@pytest.mark.covers("T19")
async def test_a_killed_child_takes_its_whole_group_with_it(tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/pid; wait"
    async with open_supervisor([shell(script, ready=File(tmp_path / "pid"), restart="temporary")]) as sup:
        await appears(tmp_path / "pid")
        pid = int((tmp_path / "pid").read_text() or 0)
        sup.name("p").kill()
        await gone(pid)


@pytest.mark.covers("T19", "S25")
async def test_a_leader_killed_from_outside_leaves_nothing_of_its_group_when_it_is_back(
    tmp_path: Path,
) -> None:
    script = f"sleep 60 & echo $! >> {tmp_path}/pids; echo ready; wait"
    async with open_supervisor([shell(script, ready=READY)]) as sup:
        first = running(sup).pid
        os.kill(first, signal.SIGKILL)
        with sup.events() as events:
            async for event in events:
                if event.kind == "child_started":
                    break
        assert running(sup).pid != first
        await gone(int((tmp_path / "pids").read_text().split()[0]))


@pytest.mark.covers("S36")
async def test_children_that_are_programs_stop_in_reverse_order(tmp_path: Path) -> None:
    order = tmp_path / "order"

    def one(id: str) -> ChildSpec:
        script = f"trap 'echo {id} >> {order}; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
        return shell(script, id=id, name=id, ready=READY)

    async with open_supervisor([one("a"), one("b"), one("c")]):
        pass
    assert order.read_text().split() == ["c", "b", "a"]


@pytest.mark.covers("S10")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize(
    ("argv", "cwd", "error"),
    [
        (("no-such-program",), None, NotFound),
        (("/etc/passwd",), None, NotExecutable),
        (("true",), "/no/such/directory", CwdMissing),
    ],
)
async def test_a_program_that_cannot_be_run_is_a_start_error_with_its_cause(
    argv: tuple[str, ...], cwd: str | None, error: type[Exception], guard: bool
) -> None:
    with pytest.raises(StartError) as caught:
        async with open_supervisor([process(argv, id="p", env=ENV, cwd=cwd, guard=guard)]):
            pass
    assert type(caught.value.__cause__) is error


async def test_the_reason_of_an_end_says_why_by_the_last_of_stderr() -> None:
    script = "echo started >&2; echo 'cannot open the store' >&2; exit 3"
    async with open_supervisor([], name="fleet") as sup:
        with sup.events() as events:
            ref = await sup.start_child(shell(f"sleep 0.1; {script}", restart="temporary"))
            with ref.monitor() as monitor:
                down = await monitor
            assert isinstance(down.reason, ExitStatus)
            assert down.reason.stderr == b"started\ncannot open the store\n"
            await trio.testing.wait_all_tasks_blocked()
            said = [str(getattr(event, "reason", "")) for event in heard(events)]
    assert "exit status 3; stderr ends 'started\\ncannot open the store'" in said


@pytest.mark.covers("S35")
async def test_a_give_up_says_the_last_of_stderr_too() -> None:
    with pytest.raises(MaxRestartsExceeded) as caught:
        async with open_supervisor([shell("sleep 0.05; echo no disk >&2; exit 1")], intensity=0):
            await trio.sleep_forever()
    assert "exit status 1; stderr ends 'no disk'" in str(caught.value.exceptions[0])


async def test_much_stderr_is_kept_to_the_last_64_KiB_and_quoted_to_the_last_4() -> None:
    program = "import sys; sys.stderr.write('a' * 1_000_000 + 'end'); sys.exit(1)"
    async with open_supervisor([], intensity=0) as sup:
        spec = process(
            (sys.executable, "-I", "-S", "-c", program), id="p", name="p", env=ENV, restart="temporary"
        )
        ref = await sup.start_child(spec)
        with ref.monitor() as monitor:
            reason = (await monitor).reason
        assert isinstance(reason, ExitStatus)
        assert reason.stderr == b"a" * 4093 + b"end"
        assert isinstance(ref.info, Process)
        assert len(ref.info.stderr) == 64 * 1024


async def test_a_program_never_blocks_on_output_that_nobody_wants() -> None:
    program = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000)"
    for stdout in ("pipe", "null"):
        async with open_supervisor([]) as sup:
            argv = (sys.executable, "-I", "-S", "-c", program)
            ref = await sup.start_child(process(argv, id="p", env=ENV, stdout=stdout, restart="temporary"))
            with ref.monitor() as monitor, trio.fail_after(10):
                assert (await monitor).reason == Normal()


async def test_a_listener_gets_all_of_the_output_and_its_error_stops_nothing() -> None:
    got: list[bytes] = []

    def listen(data: bytes) -> None:
        got.append(data)
        raise ValueError("the listener's own")

    async with open_supervisor([]) as sup:
        spec = shell("echo one; sleep 0.1; echo two; echo three", on_output=listen, restart="temporary")
        ref = await sup.start_child(spec)
        with ref.monitor() as monitor:
            assert (await monitor).reason == Normal()
        assert isinstance(ref.info, Process)
        assert str(ref.info.callback_error) == "the listener's own"
    assert b"".join(got) == b"one\ntwo\nthree\n"


async def test_output_may_go_to_a_file_over_restarts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = shell("echo out; echo err >&2; exit 1", stdout=log, stderr=str(log))
    with pytest.raises(MaxRestartsExceeded):
        async with open_supervisor([spec], intensity=1):
            await trio.sleep_forever()
    assert log.read_text().split() == ["out", "err"] * 2


@pytest.mark.covers("T19")
async def test_the_exit_is_not_kept_waiting_by_a_grandchild_in_another_session_that_holds_the_pipe(
    tmp_path: Path,
) -> None:
    script = f"setsid sleep 60 & echo $! > {tmp_path}/pid; exit 3"
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(shell(script, restart="temporary", on_output=bytes.strip))
        with ref.monitor() as monitor, trio.fail_after(30):
            assert (await monitor).reason == ExitStatus(code=3)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.covers("L28")
async def test_a_program_reads_no_input_unless_its_owner_wants_to_write() -> None:
    got: list[bytes] = []
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(shell("cat", restart="temporary"))
        with ref.monitor() as monitor:
            assert (await monitor).reason == Normal()
        ref = await sup.start_child(shell("cat", stdin="pipe", on_output=got.append, restart="temporary"))
        assert isinstance(ref.info, Process)
        await ref.info.send(b"hello\n")
        await sup.terminate_child("p")
        assert ref.exit_reason == Shutdown()
    assert b"".join(got) == b"hello\n"


@pytest.mark.covers("S8", "S27")
async def test_a_restarted_program_is_a_new_process_behind_a_new_ref() -> None:
    async with open_supervisor([shell("exec sleep 60")]) as sup:
        first = running(sup)
        with sup.events() as events:
            os.kill(first.pid, signal.SIGKILL)
            async for event in events:
                if event.kind == "child_started":
                    break
        assert running(sup) is not first
        assert (first.exit, running(sup).exit) == (ExitStatus(signal=9), None)
        assert (running(sup).resident or 0) > 0


async def test_nothing_is_inherited_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    got: list[bytes] = []
    argv = (sys.executable, "-I", "-S", "-c", "print(open('/proc/self/environ').read())")
    async with open_supervisor([]) as sup:
        spec = process(argv, id="p", on_output=got.append, restart="temporary")
        with (await sup.start_child(spec)).monitor() as monitor:
            await monitor
    names = {pair.partition("=")[0] for pair in b"".join(got).decode().strip().split("\0") if pair.strip()}
    assert {"PATH", "LC_TIME"} <= names
    assert names <= set(plain_environment())
    assert "OPENAI_API_KEY" not in names


def test_the_environment_given_is_the_whole_one() -> None:
    spec = process(("true",), id="p", env={"A": "1"})
    assert isinstance(spec.start, Program)
    assert spec.start.command.env == {"A": "1"}
    assert plain_environment({"PATH": "/bin", "KEY": "x", "LC_ALL": "C"}) == {"PATH": "/bin", "LC_ALL": "C"}


@pytest.mark.covers("S2")
@each_row(
    ("fields", "text"),
    [
        ({"id": ""}, "id"),
        ({"shutdown": -1}, "shutdown"),
        ({"restart": "sometimes"}, "restart"),
        ({"stop_signal": signal.SIGKILL}, "stop_signal of 'p' is"),
        ({"stop_signal": 0}, "stop_signal of 'p' is 0: expected a signal that can be caught"),
        ({"success_codes": [256]}, "success_codes"),
        ({"stdout": "null", "on_output": print}, "stdout of 'p' is 'null': expected 'pipe'"),
        ({"stderr": "null", "on_stderr": print}, "stderr of 'p' is 'null': expected 'pipe'"),
        ({"stderr": "null", "ready": READY}, "stderr of 'p' is 'null': expected 'pipe'"),
    ],
)
def test_a_wrong_value_is_refused_where_the_spec_is_made(fields: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"id": "p"} | fields
    with pytest.raises(InvalidSpec, match=text):
        process(("true",), **given)


@pytest.mark.covers("S2")
@pytest.mark.parametrize("argv", [(), "sleep 1", ("a\0b",)])
def test_an_argv_that_no_system_takes_is_refused(argv: Any) -> None:
    with pytest.raises(ValueError, match="argv"):
        process(argv, id="p")


@pytest.mark.covers("S38")
@each_row(
    ("graces", "seconds", "shortened"),
    [
        ((5.0, 5.0), 20.0, [5.0, 5.0]),
        ((5.0, 5.0), 5.0, [2.5, 2.5]),
        ((1.0, 9.0), 5.0, [5 / 6, 25 / 6]),
        ((math.inf,), 3.0, [3.0]),
        ((5.0,), math.inf, [5.0]),
        ((math.inf,), math.inf, [math.inf]),
        ((5.0,), 0.0, [0.0]),
        ((), 1.0, []),
    ],
)
def test_a_ladder_is_shortened_alike_to_fit_into_the_shutdown(
    graces: tuple[float, ...], seconds: float, shortened: list[float]
) -> None:
    ladder = (*(Step("terminate", grace) for grace in graces), Step("kill", 7.0))
    steps = fitted(ladder, seconds)
    assert [step.grace for step in steps[:-1]] == pytest.approx(shortened)
    assert steps[-1] == Step("kill", 7.0)


async def test_without_a_stderr_pipe_nothing_is_quoted_and_no_task_is_spent() -> None:
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(shell("exec sleep 60", stderr="null", restart="temporary"))
        before = trio.lowlevel.current_statistics().tasks_living
        spec = shell("exec sleep 60", id="q", name="q", stderr="null", restart="temporary")
        other = await sup.start_child(spec)
        assert trio.lowlevel.current_statistics().tasks_living == before + 1
        assert isinstance(other.info, Process)
        with pytest.raises(NoStderr):
            _ = other.info.stderr
        with ref.monitor() as monitor:
            os.kill(running(sup).pid, signal.SIGKILL)
            reason = (await monitor).reason
        assert reason == ExitStatus(signal=9)
        assert isinstance(reason, ExitStatus)
        assert reason.stderr == b""


@pytest.mark.covers("X4")
async def test_a_start_that_takes_too_long_is_killed() -> None:
    with pytest.raises(StartError) as caught, trio.fail_after(30) as in_time:
        async with open_supervisor([shell(DEAF, ready=Output("never"), start_timeout=0.3)]):
            pass
    assert not in_time.cancel_called
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, StartTimeout)


@pytest.mark.covers("X4")
@pytest.mark.parametrize(
    ("stderr", "text"),
    [("pipe", "not ready within 0.3 s; stderr ends 'the disk is full'"), ("null", "not ready within 0.3 s")],
)
async def test_a_start_that_takes_too_long_quotes_what_the_program_said(stderr: Any, text: str) -> None:
    spec = shell(
        "echo the disk is full >&2; exec sleep 60", ready=File("never"), stderr=stderr, start_timeout=0.3
    )
    with pytest.raises(StartError) as caught, trio.fail_after(30):
        async with open_supervisor([spec]):
            pass
    assert str(caught.value.__cause__) == text
