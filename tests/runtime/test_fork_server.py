"""Guards that the fork server of a host has forked: the same as those that were started by themselves, whatever becomes of it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import attrs
import pytest
import trio

from proctor.runtime.exits import ExitReason, ExitStatus, Normal
from proctor.runtime.processes import fork_server, procfs
from proctor.runtime.processes.ledger import Ledger, open_ledger
from proctor.runtime.processes.process import MARKER, Command, Process, open_process
from proctor.runtime.processes.process_errors import CwdMissing, NotExecutable, NotFound
from tests.runtime.belongings import belongings_at_first, children, descriptors
from tests.runtime.hosts import FAMILY, key_in, marked, none_marked, ready
from tests.runtime.programs import AT_ONCE, ENV, QUICK, everything, python, sh

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncGenerator[Ledger]:
    """Of a host that has started its first guard; the next one is forked."""
    before = belongings_at_first()
    async with open_ledger(tmp_path / "hosts") as opened:
        assert await ended("exit 0") == Normal()
        yield opened
    with trio.fail_after(60):
        # the last look of a ledger at all processes is left to its thread where the machine is slow
        while left := {*descriptors().items()} - {*before.descriptors.items()}:
            assert all("/proc" in what for _, what in left), left
            await trio.sleep(0.01)
    assert children() == before.children


async def ended(script: str) -> ExitReason:
    async with open_process(sh(script), guard=True, ladder=QUICK) as process:
        return await process.wait()


def is_forked(process: Process) -> bool:
    return b"guard.serve()" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


async def is_next_forked() -> bool:
    """Whether the next guard is; its program does what it should in any case."""
    async with open_process(sh("read x; exit 5"), guard=True, ladder=QUICK) as process:
        forked = is_forked(process)  # while it lives: /proc shows no command of the dead
        process.close_stdin()
        assert await process.wait() == ExitStatus(code=5)
    return forked


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def servers_of(ledger: Ledger) -> list[int]:
    """The numbers of the processes of this host that serve, one or none; a guard has a marker of its own."""
    return [pid for pid in marked(ledger.key) if (procfs.marker_of(pid) or "").endswith("/guards")]


def server_of(ledger: Ledger) -> int:
    [pid] = servers_of(ledger)
    return pid


async def test_the_first_guard_of_a_host_is_started_by_itself_and_the_later_ones_are_forked(
    tmp_path: Path,
) -> None:
    forked, parents = list[bool](), set[int]()
    async with open_ledger(tmp_path / "hosts"):
        for _ in range(3):
            async with open_process(sh("echo ready; read x"), guard=True, ladder=QUICK) as process:
                await ready(process)
                stat = procfs.stat_of(process.pid)
                assert stat is not None
                parents.add(stat.parent)
                forked.append(is_forked(process))
    assert (forked, parents) == ([False, True, True], {os.getpid()})


async def test_a_host_of_one_guard_has_no_fork_server(ledger: Ledger) -> None:
    assert marked(ledger.key) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", Normal()),
        ("exit 77", ExitStatus(code=77)),
        ("kill -9 $$", ExitStatus(signal=9)),
        ("kill -SEGV $$", ExitStatus(signal=11)),
        ("kill -USR1 $$", ExitStatus(signal=10)),
    ],
)
async def test_the_exit_of_a_forked_guard_is_the_programs_own(
    ledger: Ledger, script: str, reason: ExitReason
) -> None:
    assert marked(ledger.key) == []
    assert await ended(script) == reason


INVENTORY = """
import os, resource, sys
sys.stdin.read()
for n in sorted(os.listdir("/proc/self/fd"), key=int):
    try: print(n, os.readlink("/proc/self/fd/" + n).partition(":")[0])
    except OSError: pass
print(sorted((k, v) for k, v in os.environb.items() if k != b"MARKER"))
print(os.getcwd(), oct(os.umask(0)), os.getgroups(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))
print([resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")])
print(os.getsid(0) == os.getpgid(0) == os.getppid())
print([line for line in open("/proc/self/status") if line.startswith(("SigB", "SigI", "SigC", "Cap", "NoNew", "Seccomp:"))])
""".replace("MARKER", MARKER)


async def inventory(cwd: Path, env: dict[str, str]) -> tuple[bool, bytes]:
    command = attrs.evolve(python(INVENTORY), cwd=str(cwd), env={**ENV, **env}, stderr=cwd / "errors")
    async with open_process(command, guard=True, ladder=QUICK) as process:
        forked = is_forked(process)
        process.close_stdin()
        output = await everything(process)
    assert (cwd / "errors").read_bytes() == b""
    return forked, output


async def test_a_program_below_a_forked_guard_has_all_that_one_below_a_started_guard_has(
    tmp_path: Path,
) -> None:
    env = {"LC_ALL": "C", "empty": "", "a=b"[:1]: "x=y", "LINES": "a\nb"}
    (tmp_path / "wörk").mkdir()
    umask, limit = os.umask(0o027), resource.getrlimit(resource.RLIMIT_CORE)
    try:
        async with open_ledger(tmp_path / "hosts"):
            await ended("exit 0")
            assert (
                await ended("exit 0") == Normal()
            )  # the server is there, with the mask and the limits of now
            os.umask(0o077)
            resource.setrlimit(resource.RLIMIT_CORE, (0, limit[1]))
            forked = await inventory(tmp_path / "wörk", env)
        async with open_ledger(tmp_path / "hosts"):
            started = await inventory(tmp_path / "wörk", env)
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_CORE, limit)
    assert (forked, started) == ((True, started[1]), (False, forked[1]))


async def test_no_environment_of_a_program_is_seen_at_the_server_or_at_another_guard(ledger: Ledger) -> None:
    command = attrs.evolve(sh("echo ready; read x"), env={**ENV, "KEY": "secret"})
    async with open_process(command, guard=True, ladder=QUICK) as one:
        await ready(one)
        async with open_process(sh("echo ready; read x"), guard=True, ladder=QUICK) as two:
            await ready(two)
            pids = {server_of(ledger), one.pid, two.pid, two.leader_pid}
            seen = {pid: environment(pid) for pid in pids}
            assert [pid for pid, text in seen.items() if b"secret" in text] == []
            markers = [procfs.marker_of(pid) for pid in (one.pid, one.leader_pid, two.pid, two.leader_pid)]
    assert markers == [f"{ledger.key}/{n}/sh" for n in (2, 2, 4, 4)]


async def test_what_cannot_be_started_is_refused_as_without_a_fork_server(ledger: Ledger) -> None:
    assert marked(ledger.key) == []
    refused = {
        CwdMissing: attrs.evolve(sh("exit 0"), cwd="/nowhere"),
        NotFound: Command(("no-such-program",), ENV),
        NotExecutable: Command(("/etc/passwd",), ENV),
    }
    for kind, command in refused.items():
        with pytest.raises(kind):
            async with open_process(command, guard=True):
                pass
    assert await is_next_forked()


async def test_a_request_that_is_too_long_is_started_by_itself(ledger: Ledger) -> None:
    assert marked(ledger.key) == []
    command = attrs.evolve(sh('read x; test "${#LONG}" = 100000'), env={**ENV, "LONG": "x" * 100_000})
    async with open_process(command, guard=True) as process:
        assert not is_forked(process)
        process.close_stdin()
        assert await process.wait() == Normal()
    assert await is_next_forked()


async def test_a_server_that_was_killed_is_replaced_until_its_chances_are_over(ledger: Ledger) -> None:
    forked = list[bool]()
    for _ in range(fork_server.CHANCES + 1):
        forked += [await is_next_forked() for _ in range(2)]
        if forked[-1]:
            os.kill(server_of(ledger), signal.SIGKILL)
    assert forked == [True, True, *[False, True] * (fork_server.CHANCES - 1), False, False]


async def test_a_server_that_is_killed_in_the_middle_of_starts_costs_none_of_them(ledger: Ledger) -> None:
    exits = list[ExitReason]()

    async def start() -> None:
        exits.append(await ended("exit 5"))

    assert await ended("exit 0") == Normal()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(start)
            if number % 7 == 3:
                await trio.lowlevel.checkpoint()
                for pid in servers_of(ledger):
                    os.kill(pid, signal.SIGKILL)
    assert exits == [ExitStatus(code=5)] * 20


async def test_a_server_that_was_stopped_holds_up_no_start(ledger: Ledger) -> None:
    ledger.guards.patience = 0.2
    assert await ended("exit 0") == Normal()
    if len(marked(ledger.key)):  # on a machine in great need it was too slow already
        os.kill(server_of(ledger), signal.SIGSTOP)
    assert await ended("exit 5") == ExitStatus(code=5)


async def test_a_server_whose_group_cannot_be_killed_is_killed_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    assert await ended("exit 0") == Normal()
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", refuse)
        ledger.guards.close()
    assert marked(ledger.key) == []


async def test_a_start_that_is_cancelled_while_it_waits_leaves_nothing(ledger: Ledger) -> None:
    async def start() -> None:
        async with open_process(sh("sleep 60"), guard=True, ladder=AT_ONCE):
            await trio.sleep_forever()

    for steps in range(8):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(start)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert {*marked(ledger.key)} <= children()
    ledger.guards.close()
    assert marked(ledger.key) == []


@pytest.mark.parametrize("limit", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS], ids=["descriptors", "memory"])
async def test_a_server_that_the_system_refuses_leaves_the_start_to_the_host(
    ledger: Ledger, limit: int
) -> None:
    assert await ended("exit 0") == Normal()
    resource.prlimit(server_of(ledger), limit, (4, 4))
    assert not await is_next_forked()
    assert await ended("exit 5") == ExitStatus(code=5)


@pytest.mark.parametrize("machine", ["unheard-of", "another"])
async def test_on_another_machine_each_guard_is_started_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    real = os.uname()
    # there the number is that of another call, which the kernel refuses with these arguments
    name = machine if machine != "another" else {"x86_64": "aarch64"}.get(real.machine, "x86_64")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*real[:4], name)))
    async with open_ledger(tmp_path / "hosts"):
        for _ in range(fork_server.CHANCES + 2):
            assert not await is_next_forked()


async def test_two_hundred_at_once_end_each_with_its_own_status(ledger: Ledger) -> None:
    assert marked(ledger.key) == []
    exits = dict[int, ExitReason]()

    async def start(number: int) -> None:
        exits[number] = await ended(f"exit {number}")

    async with trio.open_nursery() as nursery:
        for number in range(1, 201):
            nursery.start_soon(start, number)
    assert exits == {number: ExitStatus(code=number) for number in range(1, 201)}


async def test_a_forked_guard_takes_the_whole_tree_down(ledger: Ledger) -> None:
    assert await ended("exit 0") == Normal()
    async with open_process(python(FAMILY + "time.sleep(60)"), guard=True, ladder=QUICK) as process:
        await ready(process)
        assert is_forked(process)
        assert len(marked(ledger.key)) > 4
    assert marked(ledger.key) == servers_of(ledger)


HOST = f"""
import sys, trio
from pathlib import Path
from proctor.runtime.processes.ledger import open_ledger
from proctor.runtime.processes.process import Command, open_process
async def start(program):
    async with open_process(Command((sys.executable, "-I", "-S", program), {ENV!r}), guard=True) as process:
        await process.receive()
        print("up", flush=True)
        await trio.sleep_forever()
async def main(folder, program):
    async with open_ledger(Path(folder)), trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(start, program)
trio.run(main, *sys.argv[1:])
"""
PAIR = "import os, time\nif os.fork() == 0: os.setsid()\nelse: print('ready', flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize("up", [0, 1, 2, 9, 50])
async def test_nothing_survives_a_host_that_is_killed_while_it_starts_fifty(tmp_path: Path, up: int) -> None:
    (tmp_path / "program.py").write_text(PAIR)
    env = {**ENV, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = (sys.executable, "-c", HOST, str(tmp_path / "hosts"), str(tmp_path / "program.py"))
    async with open_process(Command(words, env), ladder=AT_ONCE) as victim:
        seen = b""
        while seen.count(b"\n") < up:
            seen += await victim.receive()
        while not [*(tmp_path / "hosts").glob("*.ledger")]:  # noqa: ASYNC110  it does not say so
            await trio.sleep(0.01)
        key = key_in(tmp_path)
        os.kill(victim.pid, signal.SIGKILL)
        await none_marked(key)
