"""Each call to the system fails once, at every point of a process's life: a named cause, and nothing left behind."""

from __future__ import annotations

import errno
import gc
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from proctor.runtime import open_supervisor
from proctor.runtime.errors import StartError
from proctor.runtime.exits import ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes import guard
from proctor.runtime.processes.ledger import Swept, open_ledger
from proctor.runtime.processes.notify import Notify
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.process_errors import ProcessError, SpawnFailed
from proctor.runtime.processes.procfs import pid_namespace
from proctor.runtime.processes.stopping import Step
from proctor.runtime.supervision.program import process as program
from tests.runtime.belongings import descriptors
from tests.runtime.hosts import marked
from tests.runtime.programs import AT_ONCE, ENV, everything, sh
from tests.runtime.syscall_faults import FAILURES, Failure, Trial, failing, trials

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

SOON = (Step("close_stdin", 0.3), Step("terminate", 0.3), Step("kill", 0.3))
NOW = (Step("terminate", 0.3), Step("kill", 0.3))
CAT = Command(("cat",), ENV)
BARE = Command(("sleep", "60"), ENV, stdin="null", stdout="null", stderr="null")
FAMILY_OF_TWO = sh("sleep 60 & setsid sleep 60 & read x; exit 3")


async def talk() -> None:
    async with open_process(CAT, ladder=SOON) as process:
        await process.send(b"hello\n")
        process.close_stdin()
        assert await everything(process) == b"hello\n"
    assert process.exit == Normal()


async def talk_much() -> None:
    got = bytearray()

    def keep(data: bytes) -> None:
        got.extend(data)

    async with open_process(CAT, ladder=SOON, on_stdout=keep) as process:
        await process.send(bytes(200_000))
        process.close_stdin()
        await process.wait()
    assert (process.exit, len(got)) == (Normal(), 200_000)


async def stop() -> None:
    command = Command(("sleep", "60"), ENV, stdin="null")
    async with open_process(command, ladder=NOW) as process:
        pass
    assert process.exit in (Shutdown(), Killed())


async def stop_without_pipes() -> None:
    command = Command(("sleep", "60"), ENV, stdin="null", stdout="null", stderr="null")
    async with open_process(command, ladder=NOW) as process, trio.open_nursery() as nursery:
        nursery.start_soon(process.wait)
        nursery.start_soon(process.wait)
        await trio.lowlevel.checkpoint()
        process.begin_stop()
    assert process.exit in (Shutdown(), Killed())


async def talk_guarded() -> None:
    async with open_process(CAT, ladder=SOON, guard=True) as process:
        await process.send(b"hello\n")
        process.close_stdin()
        assert await everything(process) == b"hello\n"
    assert process.exit == Normal()


SCENARIOS: tuple[Callable[[], Awaitable[None]], ...] = (
    talk,
    talk_much,
    stop,
    stop_without_pipes,
    talk_guarded,
)


def complaint(trial: Trial, failure: Failure) -> str | None:
    """What is wrong with the end of a trial."""
    where = f"call {trial.nth}, {trial.call}"
    if trial.left:
        return f"{where}: left {', '.join(trial.left)} behind"
    error = trial.raised
    if error is None:
        return None
    if failure == "short write":
        return f"{where}: {error!r}"
    cause = getattr(error, "cause", None)
    reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "no cause"
    if not isinstance(error, ProcessError) or reason not in str(error) or "; " not in str(error):
        return f"{where}: {type(error).__name__} {error} by {cause!r}"
    return None


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_call_of_the_system_that_fails_is_named_and_leaves_nothing(
    scenario: Callable[[], Awaitable[None]], failure: Failure
) -> None:
    ended = await trials(scenario, failure)
    assert [wrong for trial in ended if (wrong := complaint(trial, failure))] == []
    assert ended or failure == "short write"
    await scenario()


# the ledger of a host, and the sweep of the next one


def named(error: BaseException | None) -> bool:
    """Whether it says which call of the system failed, for what, and what to do; or nothing failed."""
    if error is None or isinstance(error, ProcessError):
        return True
    text = "no ledger of processes can be kept: "
    return (
        isinstance(error, OSError) and error.errno is not None and text in str(error) and "; " in str(error)
    )


async def dead(process: Process) -> bool:
    """Whether it has been killed: its end may come a moment after nobody can see its marker any more."""
    with trio.move_on_after(10):
        await process.wait()
    return process.exit is not None


async def swept(folder: Path) -> Swept:
    async with open_ledger(folder) as ledger:
        return await ledger.sweep(limit=5)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_ledger_is_whole_or_refused_with_its_cause(tmp_path: Path, failure: Failure) -> None:
    folder, lines = tmp_path / "hosts", list[int]()

    async def keep() -> None:
        async with open_ledger(folder) as ledger:
            title = ledger.path.read_text().split("\n")[0]
            assert title.split(" ")[:3] == ["proctor-ledger", "1", ledger.key]
            assert len(title.split(" ")) == 6
            assert "-" not in title.split(" ")[3:]  # it would be another place than that of the next host
            for _ in range(2):
                async with open_process(BARE, ladder=AT_ONCE):
                    pass
            text = ledger.path.read_text()
            # two lines, or one of them torn or left out: never both
            lines.append(sum(len(line.split()) == 3 for line in text.split("\n")[1:-1]))
            assert lines[-1] in (1, 2)

    ended = await trials(keep, failure, dense=40)
    wrong = [trial for trial in ended if trial.left or not named(trial.raised)]
    assert wrong == []
    assert ended
    # what the system has cut short is written in a second part: that costs no line
    assert set(lines) == ({2} if failure == "short write" else {1, 2})
    await swept(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("failure", FAILURES[:-1])
async def test_a_sweep_settles_a_dead_host_or_says_why_not_and_the_next_one_does(
    tmp_path: Path, failure: Failure
) -> None:
    folder, place = tmp_path / "hosts", pid_namespace()
    problems = list[str]()
    nth, hit = 0, True
    gc.collect()  # what earlier tests left is closed before a count, not during it
    while hit:
        nth += 1 if nth < 25 else nth // 4  # then it is the same look at one process after the other
        key = secrets.token_hex(16)
        async with open_process(BARE, marker=f"{key}/1/sleep", ladder=AT_ONCE) as orphan:
            folder.mkdir(exist_ok=True)
            title = f"proctor-ledger 1 {key} {place.machine} {place.boot} {place.namespace}\n"
            (folder / f"{key}.ledger").write_text(title)
            before, found = descriptors(), Swept()
            with failing(failure, nth) as faults:
                try:
                    found = await swept(folder)
                except OSError as error:
                    found = Swept(sure=False, cause=error) if named(error) else found
            hit = bool(faults.hit)
            where = f"call {nth}, {faults.hit}"
            if descriptors() != before:
                problems.append(f"{where}: descriptors are left")
            over = found.hosts == 1 and await dead(orphan)
            busy = failure == "EAGAIN" and faults.hit == "flock"  # the very answer for a host that lives
            if not (over or (not found.sure and found.cause is not None) or busy):
                problems.append(f"{where}: {found}")
            await swept(folder)
            if not await dead(orphan) or list(folder.iterdir()):
                problems.append(f"{where}: the next sweep left {orphan.exit} {list(folder.iterdir())}")
    assert problems == []
    assert nth > 20


# the guard itself, on a machine that fails it

FAULTY = f"""#!{os.path.realpath(sys.executable)} -IS
import os, sys
left = [NTH]
def failing(real):
    def call(*args):
        left[0] -= 1
        if left[0] == 0:
            open("HIT", "w").close()
            raise OSError(NUMBER, os.strerror(NUMBER))
        return real(*args)
    return call
for name in ("pipe2", "pidfd_open", "fork", "read", "open", "dup2", "listdir"):
    setattr(os, name, failing(getattr(os, name)))
program = sys.argv.index("-c") + 1
code, sys.argv = sys.argv[program], ["-c", *sys.argv[program + 1:]]
exec(code)
"""
"""An interpreter on a machine that fails one of its calls."""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM], ids=errno.errorcode.get)
async def test_a_guard_that_the_system_refuses_takes_its_tree_down_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    problems = list[str]()
    nth, hit = 0, True
    while hit:
        nth += 1
        marker, file = f"{secrets.token_hex(16)}/1/sh", tmp_path / f"hit{nth}"
        interpreter = tmp_path / f"python{nth}"
        interpreter.write_text(
            FAULTY.replace("NTH", str(nth)).replace("NUMBER", str(number)).replace("HIT", str(file))
        )
        interpreter.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(interpreter))
        told = ""
        try:
            async with open_process(
                FAMILY_OF_TWO, guard=True, marker=marker, ladder=SOON, drain=0
            ) as process:
                process.close_stdin()
                reason = await process.wait()
            told = f"{reason} {process.stderr!r}"
        except SpawnFailed as error:
            told = str(error)
        hit = file.exists()
        # behind its start it has let go of the pipes, and its status is all that it can say
        ends = {f"{ExitStatus(code=code)} b''" for code in (3, guard.CANNOT_GUARD)}
        if hit and os.strerror(number) not in told and told not in ends:
            problems.append(f"call {nth}: {told}")
        if alive := marked(marker):
            problems.append(f"call {nth}: left {alive}")
    assert problems == []
    assert nth > 6


async def test_a_readiness_that_cannot_be_prepared_is_a_start_failure_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", refuse)
    spec = program(["true"], id="a", ready=Notify())
    with pytest.raises(StartError) as caught:
        async with open_supervisor([spec]):
            pass
    cause = caught.value.__cause__
    assert isinstance(cause, SpawnFailed)
    assert "No space left on device; free space there" in str(cause)
    assert cause.stage == "ready"
