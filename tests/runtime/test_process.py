from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import trio

from proctor.runtime.exits import ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.process_errors import (
    CwdMissing,
    NoStderr,
    NoStdin,
    NoStdout,
    NotExecutable,
    NotFound,
    ProcessGone,
    SpawnFailed,
    StdinClosed,
)
from proctor.runtime.processes.stopping import Step
from tests.runtime.belongings import descriptors, descriptors_at_first
from tests.runtime.hosts import marked
from tests.runtime.programs import AT_ONCE, ENV, everything, gone, line, python, sh


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


@pytest.mark.covers("R106", "R030")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize(
    ("argv", "cwd", "error", "text"),
    [
        (("no-such-program",), None, NotFound, "no such program on the PATH of its environment"),
        (("/no/such/program",), None, NotFound, "no such program at that path"),
        (("/etc/passwd/x",), None, NotFound, "no such program at that path"),
        (("/etc/passwd",), None, NotExecutable, "cannot be executed: Permission denied"),
        (("/",), None, NotExecutable, "cannot be executed"),
        (("true",), "/no/such/directory", CwdMissing, "cannot enter the directory '/no/such/directory'"),
        (("true",), "/etc/passwd", CwdMissing, "cannot enter the directory '/etc/passwd'"),
        (("true", "x" * 3_000_000), None, SpawnFailed, "Argument list too long"),
    ],
)
async def test_what_cannot_be_started_is_told_apart(
    argv: tuple[str, ...], cwd: str | None, error: type[SpawnFailed], text: str, guard: bool
) -> None:
    with pytest.raises(error, match=text) as caught:
        async with open_process(Command(argv, ENV, cwd), guard=guard):
            pass
    assert type(caught.value) is error
    assert caught.value.argv0 == argv[0]
    assert caught.value.stage in ("spawn", "guard")
    assert caught.value.cause is not None


@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_a_script_without_its_interpreter_is_not_executable(tmp_path: Path, guard: bool) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(NotExecutable, match="but not the interpreter its first line names"):
        async with open_process(Command((str(script),), ENV), guard=guard):
            pass


@contextlib.contextmanager
def no_descriptor_left() -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.covers("R030")
async def test_a_machine_without_descriptors_says_at_which_stage() -> None:
    before = descriptors_at_first()
    with no_descriptor_left(), pytest.raises(SpawnFailed, match="Too many open files") as caught:
        await open_process(sh("true")).__aenter__()
    assert caught.value.stage == "pipes"
    assert descriptors() == before


@pytest.mark.parametrize(
    ("argv", "env", "text"),
    [
        ((), {}, "give a sequence of strings"),
        ("sleep 1", {}, "give a sequence of strings"),
        (("a\0b",), {}, "argv contains a NUL byte"),
        (("a",), {"A": "\0"}, "env contains a NUL byte"),
    ],
)
def test_a_command_that_no_system_takes_is_refused(
    argv: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Command(argv, env)


def test_a_command_does_not_show_its_environment() -> None:
    assert "secret" not in repr(Command(("x",), {"API_KEY": "secret"}))


@pytest.mark.covers("C08")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize("env", [{}, {"A": "1", "PATH": "/bin"}, {"LC_ALL": "C"}], ids=repr)
async def test_the_environment_is_the_one_given_and_nothing_else(env: dict[str, str], guard: bool) -> None:
    command = Command((sys.executable, "-I", "-S", "-c", "print(open('/proc/self/environ').read())"), env)
    async with open_process(command, guard=guard) as process:
        said = (await everything(process)).decode().strip().strip("\0")
    assert dict(pair.split("=", 1) for pair in said.split("\0") if pair) == env


@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_no_descriptor_but_the_three_pipes_is_inherited(guard: bool) -> None:
    async with open_process(
        python("import os; print(sorted(os.listdir('/proc/self/fd')))"), guard=guard
    ) as process:
        assert await everything(process) == b"['0', '1', '2', '3']\n"  # 3 is the listing's own


@pytest.mark.covers("T19", "L33")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_a_process_leads_a_session_in_the_directory_given(tmp_path: Path, guard: bool) -> None:
    async with open_process(Command(("sh", "-c", "pwd; cat"), ENV, str(tmp_path)), guard=guard) as process:
        assert os.getsid(process.pid) == os.getpgid(process.leader_pid) == process.pgid == process.pid
        assert await line(process) == f"{tmp_path}\n".encode()


@pytest.mark.covers("T6")
async def test_nothing_is_started_in_a_cancelled_scope(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_process(sh(f"touch {tmp_path}/started")):
            raise AssertionError
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == []


@pytest.mark.covers("R048")
async def test_many_starts_at_once_let_others_run_between_any_two_of_them() -> None:
    passes = Passes()
    starts: list[int] = []

    async def start() -> None:
        async with open_process(sh("true"), on_birth=lambda _: starts.append(passes.number)) as running:
            await running.wait()

    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(start)
    trio.lowlevel.remove_instrument(passes)
    assert len(set(starts)) == len(starts) == 16


async def test_starts_that_are_cancelled_while_another_has_its_turn_start_nothing() -> None:
    starts: list[int] = []

    async def start(scope: trio.CancelScope) -> None:
        async with open_process(
            sh("exec sleep 60"), ladder=AT_ONCE, on_birth=lambda one: begun(one.pid, scope)
        ):
            await trio.sleep_forever()

    def begun(pid: int, scope: trio.CancelScope) -> None:
        starts.append(pid)
        scope.cancel()

    for times in (1, 2):  # the turn is free again
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(start, nursery.cancel_scope)
        assert len(starts) == times


@pytest.mark.covers("R048")
async def test_busy_worker_threads_do_not_keep_a_process_from_starting() -> None:
    release = threading.Event()
    limiter = trio.to_thread.current_default_thread_limiter()

    async def occupy() -> None:
        await trio.to_thread.run_sync(release.wait)

    async with trio.open_nursery() as nursery:
        for _ in range(int(limiter.total_tokens)):
            nursery.start_soon(occupy)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(30):
            async with open_process(sh("echo started"), guard=True) as process:
                assert await everything(process) == b"started\n"
        release.set()


@pytest.mark.covers("T19", "L32")
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
async def test_an_exit_of_its_own_is_told_by_its_status(script: str, reason: object) -> None:  # L3
    async with open_process(sh(script), success_codes=frozenset({0, 4})) as process:
        assert await process.wait() == reason
    assert process.exit == reason


@pytest.mark.covers("T19", "R040")
async def test_a_process_that_closes_its_output_and_lives_on_is_running() -> None:  # R0
    async with open_process(sh("exec >&- 2>&-; read line; exit 5")) as process:
        assert await process.receive() == b""
        assert process.exit is None
        await process.send(b"go\n")
        assert await process.wait() == ExitStatus(code=5)


@pytest.mark.covers("T19", "R040")
async def test_a_process_whose_grandchild_holds_the_pipe_has_ended() -> None:  # R0
    async with open_process(sh("sleep 60 & echo started"), drain=0.1) as process:
        assert await process.wait() == Normal()
        assert await everything(process) == b"started\n"


@pytest.mark.covers("T19")
async def test_output_of_a_grandchild_is_waited_for_some_time() -> None:
    async with open_process(sh("(sleep 0.2; echo late) & echo early"), drain=30) as process:
        assert await process.wait() == Normal()
        assert await everything(process) == b"early\nlate\n"


@pytest.mark.covers("R041")
async def test_a_kill_from_outside_is_noticed_without_anyone_reading() -> None:
    async with open_process(sh("sleep 60")) as process:
        os.kill(process.pid, signal.SIGKILL)
        with trio.fail_after(30):
            assert await process.wait() == ExitStatus(signal=9)


async def test_the_time_a_process_has_run_stands_still_after_its_exit() -> None:
    async with open_process(sh("exit 0")) as process:
        await process.wait()
        elapsed = process.elapsed
        await trio.sleep(0.01)
        assert process.elapsed == elapsed > 0
        assert process.resident is None


@pytest.mark.covers("R049")
async def test_the_memory_of_a_running_process_can_be_seen() -> None:
    async with open_process(sh("echo; sleep 60"), ladder=AT_ONCE) as process:
        await line(process)
        assert 100_000 < (process.resident or 0) < 100_000_000


@pytest.mark.covers("R039", "R065")
async def test_the_last_bytes_without_a_newline_are_there_every_time() -> None:
    ends: list[bytes] = []

    async def run(numbers: Iterator[int]) -> None:
        for number in numbers:
            async with open_process(sh(f"echo one; printf 'last {number}'")) as process:
                if number % 2:
                    await process.wait()
                ends.append(await everything(process))

    numbers = iter(range(1000))
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(run, numbers)
    assert sorted(ends) == sorted(f"one\nlast {number}".encode() for number in range(1000))


@pytest.mark.covers("C05", "R064")
async def test_a_megabyte_on_stderr_before_the_first_line_blocks_nobody() -> None:
    program = "import sys; sys.stderr.write('e' * 1_000_000); print('first')"
    async with open_process(python(program), stderr_limit=1000) as process:
        assert await everything(process) == b"first\n"
    assert process.stderr == b"e" * 1000
    assert process.stderr_total == 1_000_000


@pytest.mark.covers("L20")
async def test_a_callback_that_raises_does_not_end_the_reader() -> None:
    got: list[bytes] = []

    def listen(data: bytes) -> None:
        got.append(data)
        raise ValueError("the listener's own")

    async with open_process(sh("echo one >&2; sleep 0.1; echo two >&2"), on_stderr=listen) as process:
        await process.wait()
    assert b"".join(got) == process.stderr == b"one\ntwo\n"
    assert str(process.callback_error) == "the listener's own"


@pytest.mark.covers("R038")
async def test_what_was_printed_before_a_timeout_is_still_to_be_had() -> None:
    printed = trio.Event()
    script = sh("for i in $(seq 50); do echo $i; done; echo done >&2; sleep 60")
    async with open_process(script, ladder=AT_ONCE, on_stderr=lambda _: printed.set()) as process:
        await printed.wait()
    assert process.exit == Killed()
    assert (await everything(process)).split() == [str(i).encode() for i in range(1, 51)]
    assert await process.receive() == b""


async def test_a_process_flushing_more_than_a_pipe_holds_ends_politely() -> None:
    program = "import sys; sys.stdin.read(); sys.stdout.write('x' * 3_000_000)"
    async with open_process(python(program)) as process:
        pass
    assert process.exit == Normal()
    kept = len(await everything(process))
    assert (kept, kept + process.discarded) == (1024 * 1024, 3_000_000)


async def test_a_consumer_outside_the_block_gets_the_rest_after_it_was_left() -> None:
    got: list[bytes] = []

    async def consume(process: Process) -> None:
        got.append(await everything(process))

    async with trio.open_nursery() as nursery, open_process(sh("cat; echo rest")) as process:
        nursery.start_soon(consume, process)
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert got == [b"rest\n"]


@pytest.mark.covers("R097")
async def test_messages_of_many_tasks_arrive_whole() -> None:
    async with open_process(Command(("cat",), ENV)) as process, trio.open_nursery() as nursery:
        for number in range(100):
            message = json.dumps({"number": number, "fill": "x" * 64 * 1024}).encode() + b"\n"
            nursery.start_soon(process.send, message)
        said = b""
        while said.count(b"\n") < 100:
            said += await process.receive()
    assert sorted(json.loads(one)["number"] for one in said.splitlines()) == list(range(100))


@pytest.mark.covers("R104")
async def test_writing_and_reading_go_on_at_the_same_time() -> None:
    async with open_process(Command(("cat",), ENV)) as process, trio.open_nursery() as nursery:
        nursery.start_soon(process.send, b"x" * 5_000_000)
        count = 0
        while count < 5_000_000:
            count += len(await process.receive())


@pytest.mark.covers("R099")
async def test_output_flows_after_the_input_has_ended() -> None:
    async with open_process(sh("cat >/dev/null; echo answer")) as process:
        process.close_stdin()
        process.close_stdin()
        assert await everything(process) == b"answer\n"
        with pytest.raises((StdinClosed, ProcessGone)):
            await process.send(b"more")


@pytest.mark.covers("R062", "R108", "R098")
async def test_writing_after_stdin_was_closed_is_an_error_at_once() -> None:
    async with open_process(sh("sleep 60"), ladder=AT_ONCE) as process:
        process.close_stdin()
        with pytest.raises(StdinClosed, match=rf"'sh': stdin is closed.*pid {process.pid}, after 0\.\d\d s"):
            await process.send(b"x")  # R108


@pytest.mark.covers("R062", "R106", "R098", "R100")
async def test_writing_to_a_dead_process_is_an_error_at_once_with_its_exit_and_stderr() -> None:
    said = trio.Event()
    async with open_process(sh("echo boom >&2; exit 1"), on_stderr=lambda _: said.set()) as process:
        await process.wait()
        assert await everything(process) == b""
        await said.wait()
        with pytest.raises(ProcessGone, match="stdin is closed") as caught:
            await process.send(b"x")
    assert (caught.value.exit, caught.value.stderr) == (ExitStatus(code=1), b"boom\n")
    assert (caught.value.pid, caught.value.stage) == (process.pid, "stdin")  # R106


@pytest.mark.covers("T19")
async def test_a_closed_reader_is_an_error_at_once_and_not_the_reason_of_the_exit() -> None:
    async with open_process(sh("exec <&-; echo closed; sleep 0.2; exit 6")) as process:
        await line(process)
        with pytest.raises(StdinClosed, match="the process closed its end"):
            await process.send(b"x")
        assert await process.wait() == ExitStatus(code=6)


async def test_a_sender_blocked_by_a_grandchild_that_holds_stdin_is_freed_by_the_exit() -> None:
    async with open_process(sh("exec 3<&0; sleep 60 <&3 & echo; sleep 0.2; exit 3"), drain=0) as process:
        await line(process)
        with pytest.raises(ProcessGone), trio.fail_after(30):
            await process.send(bytes(1_000_000))


async def test_a_message_cut_by_a_deadline_closes_stdin() -> None:
    async with open_process(sh("sleep 60"), ladder=AT_ONCE) as process:
        with trio.move_on_after(0.05):
            await process.send(bytes(1_000_000))
        assert process.stdin_closed_at is not None
        with pytest.raises(StdinClosed):
            await process.send(b"next\n")


@pytest.mark.covers("R029", "L28")
async def test_a_stream_that_is_no_pipe_has_its_own_error() -> None:
    command = Command(("cat",), ENV, stdin="null", stdout="null", stderr="null")
    async with open_process(command) as process:
        assert await process.wait() == Normal()
        with pytest.raises(NoStdin):
            await process.send(b"x")
        with pytest.raises(NoStdout):
            await process.receive()
        with pytest.raises(NoStderr):
            _ = process.stderr


async def test_a_process_that_takes_no_input_is_told_to_stop_without_a_wait_for_it() -> None:
    command = Command(("sh", "-c", "echo; exec sleep 60"), ENV, stdin="null")
    with trio.fail_after(30):
        async with open_process(command, ladder=(Step("close_stdin", 50), Step("terminate"))) as process:
            await line(process)
    assert process.exit == Shutdown()


@pytest.mark.covers("R058")
async def test_a_second_reader_of_the_output_is_refused() -> None:
    async with open_process(sh("read x; echo $x")) as process, trio.open_nursery() as nursery:
        nursery.start_soon(process.receive)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with pytest.raises(trio.BusyResourceError):
            await process.receive()
        await process.send(b"\n")


@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_a_marked_process_and_what_it_starts_can_be_found(guard: bool) -> None:
    marker = f"{os.getpid()}-marked-{guard}"
    async with open_process(
        sh("sleep 60 & echo $!; wait"), guard=guard, marker=marker, ladder=AT_ONCE
    ) as process:
        child = int(await line(process))
        assert set(marked(marker)) == {process.pid, process.leader_pid, child}
    await gone(child)
    assert marked(marker) == []
