from __future__ import annotations

import builtins
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import quote

import attrs
import pytest
import trio

from proctor.runtime.processes import procfs
from proctor.runtime.processes.ledger import FOLDER, WEEDED, Swept, current_ledger, make_folder, open_ledger
from proctor.runtime.processes.orphans import key_of
from proctor.runtime.processes.process import MARKER, Command, Process, open_process
from proctor.runtime.processes.procfs import PidNamespace, pid_namespace
from proctor.runtime.processes.tags import TAG, tag_folder
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.supervisor import open_supervisor
from tests.runtime.hosts import (
    FAMILY,
    FORKER,
    KEY,
    dead,
    host,
    key_in,
    marked,
    none_marked,
    ready,
    some_marked,
)
from tests.runtime.programs import AT_ONCE, ENV, line, python, sh

HERE = pid_namespace()
STAYS = "echo ready; read x"


def title(place: PidNamespace = HERE, *, key: str = KEY, version: int = 1) -> str:
    return f"proctor-ledger {version} {key} {place.machine} {place.boot} {place.namespace}\n"


def entry(pid: int, *, start: int | None = None, marker: str = f"{KEY}/1/a") -> str:
    stat = procfs.stat_of(pid)
    assert stat is not None
    return f"{pid} {stat.start if start is None else start} {marker}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hosts").mkdir()
    return tmp_path / "hosts"


@pytest.fixture
async def orphan() -> AsyncIterator[Process]:
    async with open_process(sh(STAYS), marker=f"{KEY}/1/a", ladder=AT_ONCE) as process:
        await ready(process)
        yield process


@pytest.fixture
async def stranger() -> AsyncIterator[Process]:
    async with open_process(sh(STAYS), ladder=AT_ONCE) as process:
        await ready(process)
        yield process


async def swept(folder: Path, limit: float = 10.0) -> Swept:
    async with open_ledger(folder) as ledger:
        return await ledger.sweep(limit=limit)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# what a killed host leaves


@pytest.mark.covers("L34")
@pytest.mark.parametrize("program", [FAMILY, FORKER], ids=["family", "forking daemons"])
async def test_what_a_killed_host_left_is_killed_by_the_next(tmp_path: Path, program: str) -> None:
    async with host(tmp_path, program, guarded=False) as victim:
        key = key_in(tmp_path)
        os.kill(victim.pid, signal.SIGKILL)
        await victim.wait()
        await some_marked(key)
        found = await swept(tmp_path / "hosts")
        assert marked(key) == []
    assert (found.hosts, found.left, found.sure) == (1, (), True)
    assert {key_of(one.marker) for one in found.killed} == {key}
    assert left_in(tmp_path / "hosts") == []


@pytest.mark.parametrize("program", [FAMILY, FORKER], ids=["family", "forking daemons"])
async def test_the_sweep_finds_what_is_left_when_guard_and_runtime_die_in_the_same_instant(
    tmp_path: Path, program: str
) -> None:
    async with host(tmp_path, program, guarded=True) as victim:
        key = key_in(tmp_path)
        [[guard, _, _]] = [
            line.split() for line in (tmp_path / "hosts" / f"{key}.ledger").read_text().splitlines()[1:]
        ]
        # The guard first: a stopped host sees nothing of that, while a stopped guard goes on when its parent ends.
        os.kill(victim.pid, signal.SIGSTOP)
        os.kill(int(guard), signal.SIGKILL)
        os.kill(victim.pid, signal.SIGKILL)
        await victim.wait()
        await dead([int(guard)])
        await some_marked(key)  # what no guard can do
        found = await swept(tmp_path / "hosts")
        assert marked(key) == []
    assert (found.hosts, found.left) == (1, ())
    assert found.killed


async def test_a_host_that_lives_is_let_alone(tmp_path: Path) -> None:
    async with host(tmp_path, FAMILY, guarded=True) as other:
        key = key_in(tmp_path)
        before = marked(key)
        found = await swept(tmp_path / "hosts")
        assert (found.hosts, found.killed, found.left) == (0, (), ())
        assert marked(key) == before
        assert other.exit is None
        os.kill(other.pid, signal.SIGKILL)
        await none_marked(key)


async def test_two_sweeps_at_once_share_the_work(folder: Path, orphan: Process) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(orphan.pid))
    both: list[Swept] = []

    async def sweep() -> None:
        both.append(await swept(folder))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep)
        nursery.start_soon(sweep)
    assert sum(found.hosts for found in both) == 1
    assert [one.pid for found in both for one in found.killed] == [orphan.pid]
    assert left_in(folder) == []


# who is whose


async def test_a_process_with_the_number_the_start_and_the_marker_is_killed(
    folder: Path, orphan: Process
) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(orphan.pid))
    found = await swept(folder)
    assert [(one.pid, one.name, one.marker) for one in found.killed] == [(orphan.pid, "sh", f"{KEY}/1/a")]
    assert str(found.killed[0]) == f"sh ({orphan.pid})"
    assert (await orphan.wait()).signal == signal.SIGKILL  # type: ignore[union-attr]


async def test_a_marked_process_that_no_line_names_is_killed(folder: Path, orphan: Process) -> None:
    (folder / f"{KEY}.ledger").write_text(title())
    assert [one.pid for one in (await swept(folder)).killed] == [orphan.pid]


@pytest.mark.covers("L34")
@pytest.mark.parametrize("start", [None, 1], ids=["its own start", "another start"])
async def test_a_stranger_under_a_noted_number_is_untouched(
    folder: Path, stranger: Process, start: int | None
) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(stranger.pid, start=start))
    found = await swept(folder)
    assert (found.hosts, found.killed, found.left, found.strangers) == (1, (), (), (stranger.pid,))
    assert stranger.exit is None
    stat = procfs.stat_of(stranger.pid)
    assert stat is not None
    assert stat.state != "T"


@pytest.mark.covers("L34")
async def test_a_process_marked_by_somebody_else_is_untouched(folder: Path, orphan: Process) -> None:
    (folder / "a.ledger").write_text(title(key="f" * 32))
    assert (await swept(folder)).killed == ()
    assert orphan.exit is None


async def test_a_zombie_is_dead(folder: Path) -> None:
    leaves_one = "sleep 0 & echo $!; exec sleep 600"
    async with open_process(sh(leaves_one), marker=f"{KEY}/1/a", ladder=AT_ONCE) as parent:
        child = int(await line(parent))
        with trio.fail_after(10):
            while (stat := procfs.stat_of(child)) is None or stat.state != "Z":  # noqa: ASYNC110  nobody tells
                await trio.sleep(0.01)
        (folder / f"{KEY}.ledger").write_text(title(key="f" * 32) + entry(child, marker="f" * 32 + "/1/a"))
        found = await swept(folder)
    assert (found.hosts, found.killed, found.left, found.strangers) == (1, (), (), ())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_process_in_the_middle_of_its_exec_is_not_taken_for_one_without_a_marker() -> None:
    seen = set[str | None]()
    for _ in range(300):
        with subprocess.Popen(["sleep", "600"], env={**os.environ, MARKER: f"{KEY}/1/a"}) as process:
            seen.add(procfs.marker_of(process.pid))  # at once: the kernel has just closed what it inherited
            process.kill()
    assert f"{KEY}/1/a" in seen
    assert seen <= {f"{KEY}/1/a", ""}


async def test_a_sweep_looks_again_at_a_process_whose_exec_is_under_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[str]()
    async with open_process(sh("exec sleep 600"), marker=f"{KEY}/1/a", ladder=AT_ONCE) as process:
        environment, line = f"/proc/{process.pid}/environ", f"/proc/{process.pid}/stat"

        real_open: Callable[..., IO[Any]] = open

        def open_before_its_end(path: Any, *args: Any, **kwargs: Any) -> IO[Any]:
            """As the kernel shows it in that moment: no environment, and none announced in its line."""
            if path == environment and len(looks) < 3:
                looks.append(path)
                return io.BytesIO()
            if path == line and len(looks) < 3:
                before, _, after = Path(path).read_bytes().rpartition(b")")
                fields = after.split()
                return io.BytesIO(before + b") " + b" ".join([*fields[:47], b"0", b"0", *fields[49:]]))
            return real_open(path, *args, **kwargs)

        monkeypatch.setattr(builtins, "open", open_before_its_end)
        (folder / f"{KEY}.ledger").write_text(title())
        assert [one.pid for one in (await swept(folder)).killed] == [process.pid]
        assert len(looks) == 3


async def test_a_process_that_may_not_be_looked_at_is_told_and_not_killed(folder: Path) -> None:
    hidden = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('ready', flush=True); time.sleep(600)"
    async with open_process(python(hidden), marker=f"{KEY}/1/a", ladder=AT_ONCE) as process:
        await ready(process)
        (folder / f"{KEY}.ledger").write_text(title() + entry(process.pid))
        try:
            procfs.marker_of(process.pid)
        except PermissionError:
            found = await swept(folder)
            assert [str(one) for one in found.left] == [
                f"{Path(sys.executable).name} ({process.pid}): its environment may not be read"
            ]
            assert (found.hosts, process.exit, left_in(folder)) == (0, None, [f"{KEY}.ledger"])
        else:  # with the right to trace everybody, nothing is hidden
            assert [one.pid for one in (await swept(folder)).killed] == [process.pid]


SWEEPER = """
import os, sys, trio
from pathlib import Path
from typing import IO, Any, NoReturn
from proctor.runtime.processes.ledger import open_ledger
async def main(folder):
    async with open_ledger(Path(folder)) as ledger:
        found = await ledger.sweep()
        print(found.hosts, len(found.killed), *[one.why for one in found.left], sep="|", flush=True)
trio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [("", b"0|0\n"), (f"env -u {MARKER} ", b"0|0|this process descends from it\n")],
    ids=["itself", "its parent"],
)
async def test_a_sweep_kills_neither_itself_nor_what_it_descends_from(
    folder: Path, before: str, said: bytes
) -> None:
    (folder / f"{KEY}.ledger").write_text(title())
    command = Command(
        ("sh", "-c", f'{before}"$0" -c "$1" "$2"; exit 5', sys.executable, SWEEPER, str(folder)),
        {**ENV, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    async with open_process(command, marker=f"{KEY}/1/a") as process:
        assert await line(process) == said
        assert (await process.wait()).code == 5  # type: ignore[union-attr]
    assert left_in(folder) == [f"{KEY}.ledger"]


# files


@pytest.mark.parametrize(
    "rest",
    ["12", "12 34", "12 34 ", "x y z\n", f"99999999999 1 {KEY}/1/a\n", "\n\n", "\x00\x00", "1 1 other/1/a\n"],
    ids=[
        "a number",
        "no marker",
        "an empty marker",
        "words",
        "no such number",
        "empty",
        "zeros",
        "another's",
    ],
)
async def test_a_half_written_or_senseless_line_is_passed_over(
    folder: Path, orphan: Process, rest: str
) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(orphan.pid) + rest)
    found = await swept(folder)
    assert (found.hosts, [one.pid for one in found.killed], found.strangers) == (1, [orphan.pid], ())


@pytest.mark.parametrize(
    "text",
    ["", "proc", title()[:-1], title()[:40], "\xff\xfe", title(key="a"), title(key="")],
    ids=["empty", "a word", "no end", "half of it", "no text", "a short key", "no key"],
)
async def test_a_ledger_without_a_whole_title_holds_nothing_and_is_removed(
    folder: Path, orphan: Process, text: str
) -> None:
    (folder / "a.ledger").write_text(text)
    found = await swept(folder)
    assert (found.killed, left_in(folder)) == ((), [])
    assert orphan.exit is None


async def test_a_ledger_of_a_later_version_is_let_alone(folder: Path, orphan: Process) -> None:
    (folder / "a.ledger").write_text(title(version=2))
    assert (await swept(folder)).killed == ()
    assert (left_in(folder), orphan.exit) == (["a.ledger"], None)


MONTH = 31 * 86400.0


@pytest.mark.parametrize(
    ("place", "age", "left"),
    [
        (PidNamespace(HERE.machine, "another-boot", HERE.namespace), 0.0, []),
        (PidNamespace("another-machine", "another-boot", HERE.namespace), 0.0, ["a.ledger"]),
        (PidNamespace(HERE.machine, HERE.boot, "pid:[1]"), 0.0, ["a.ledger"]),
        (PidNamespace("another-machine", "another-boot", HERE.namespace), MONTH, []),
        (PidNamespace(HERE.machine, HERE.boot, "pid:[1]"), MONTH, []),
    ],
    ids=["an earlier boot", "another machine", "another namespace", "long ago elsewhere", "long ago beside"],
)
async def test_a_ledger_of_another_place_says_nothing_about_the_processes_here(
    folder: Path, orphan: Process, place: PidNamespace, age: float, left: list[str]
) -> None:
    path = folder / "a.ledger"
    path.write_text(title(place) + entry(orphan.pid))
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))
    found = await swept(folder)
    assert (found.hosts, found.killed, left_in(folder)) == (0, (), left)
    assert orphan.exit is None


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
async def test_what_is_no_file_is_no_ledger(folder: Path, tmp_path: Path, orphan: Process, kind: str) -> None:
    (tmp_path / "real").write_text(title() + entry(orphan.pid))
    path = folder / f"{KEY}.ledger"
    match kind:
        case "link":
            path.symlink_to(tmp_path / "real")
        case "folder":
            path.mkdir()
        case _:
            os.mkfifo(path)
    assert (await swept(folder)).killed == ()
    assert (left_in(folder), orphan.exit) == ([path.name], None)


async def test_a_ledger_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "hosts"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    async with open_ledger(folder) as ledger:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert ledger.path.stat().st_mode & 0o777 == 0o600


async def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = Path("/usr")
    if os.geteuid() == 0:
        folder = tmp_path / "theirs"
        folder.mkdir()
        os.chown(folder, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        await open_ledger(folder).__aenter__()
    assert current_ledger() is None


# time


async def test_a_sweep_without_time_leaves_the_ledger_to_the_next(folder: Path, orphan: Process) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(orphan.pid))
    found = await swept(folder, limit=0)
    assert (found.hosts, found.sure, left_in(folder)) == (0, False, [f"{KEY}.ledger"])
    assert (await swept(folder)).hosts == 1
    await orphan.wait()
    assert left_in(folder) == []


async def test_a_cancelled_sweep_leaves_the_ledger_to_the_next(folder: Path, orphan: Process) -> None:
    (folder / f"{KEY}.ledger").write_text(title() + entry(orphan.pid))
    async with open_ledger(folder) as ledger:
        with trio.CancelScope() as scope:
            scope.cancel("not now")
            await ledger.sweep()
        assert scope.cancelled_caught
        assert (folder / f"{KEY}.ledger").exists()
        assert (await ledger.sweep()).hosts == 1


async def test_a_sweep_with_nothing_to_settle_looks_at_no_process(folder: Path) -> None:
    found = await swept(folder)
    assert (found.hosts, found.killed, found.left, found.strangers, found.sure) == (0, (), (), (), True)


# the own ledger


async def test_every_process_below_a_ledger_carries_a_marker_of_its_own_and_is_noted(folder: Path) -> None:
    async with (
        open_ledger(folder) as ledger,
        open_process(sh(STAYS), marker="reviewer/1", ladder=AT_ONCE) as one,
        open_process(sh(STAYS), guard=True, ladder=AT_ONCE) as two,
    ):
        await ready(one)
        await ready(two)
        assert procfs.marker_of(one.pid) == f"{ledger.key}/1/reviewer/1"
        assert procfs.marker_of(two.pid) == procfs.marker_of(two.leader_pid) == f"{ledger.key}/2/sh"
        noted = ledger.path.read_text().splitlines()[1:]
        assert [line.split()[0] for line in noted] == [str(one.pid), str(two.pid)]
    assert left_in(folder) == []


async def test_two_hosts_have_no_marker_in_common(folder: Path) -> None:
    async with open_ledger(folder) as one, open_ledger(folder) as two:
        markers = {ledger.marker("a") for ledger in (one, one, two, two)}
    assert len(markers) == 4


async def test_a_marker_is_one_word(folder: Path) -> None:
    async with open_ledger(folder) as ledger:
        assert ledger.marker("a b\n=é" + "x" * 100) == f"{ledger.key}/1/a_b___" + "x" * 74


@pytest.mark.covers("T17")
async def test_children_of_a_supervisor_in_the_block_are_noted(folder: Path) -> None:
    seen: list[str | None] = []

    async def child(task_status: trio.TaskStatus[None]) -> None:
        async with open_process(sh(STAYS), ladder=AT_ONCE) as process:
            await ready(process)
            seen.append(procfs.marker_of(process.pid))
            task_status.started()
            await trio.sleep_forever()

    async with open_ledger(folder) as ledger, open_supervisor([ChildSpec("a", child)]):
        assert seen == [f"{ledger.key}/1/sh"]


async def test_the_innermost_ledger_is_the_one_and_outside_there_is_none(folder: Path) -> None:
    assert current_ledger() is None
    async with open_ledger(folder) as outer:
        async with open_ledger(folder) as inner:
            assert current_ledger() is inner
        assert current_ledger() is outer
    assert current_ledger() is None


async def test_leaving_kills_what_still_carries_a_marker_and_removes_the_ledger(folder: Path) -> None:
    async with open_ledger(folder) as ledger:
        async with open_process(python(FAMILY + "time.sleep(600)"), ladder=AT_ONCE) as process:
            await ready(process)
        assert marked(ledger.key)  # no guard was above them
    assert marked(ledger.key) == []
    assert left_in(folder) == []


async def test_leaving_kills_what_a_killed_guard_could_not(folder: Path) -> None:
    async with open_ledger(folder) as ledger:
        async with open_process(
            python(FAMILY + "time.sleep(600)"), guard=True, ladder=AT_ONCE, drain=0.1
        ) as process:
            await ready(process)
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        assert marked(ledger.key)
    assert marked(ledger.key) == []


async def test_leaving_kills_also_when_the_block_was_cancelled(folder: Path) -> None:
    ledger = open_ledger(folder)
    with trio.CancelScope() as scope:
        async with ledger:
            async with open_process(python(FAMILY + "time.sleep(600)"), ladder=AT_ONCE) as process:
                await ready(process)
            scope.cancel("enough")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert marked(ledger.key) == []


async def test_a_birth_after_the_end_of_the_ledger_is_not_noted(folder: Path) -> None:
    async with open_ledger(folder) as ledger:
        pass
    ledger.note(os.getpid(), ledger.marker("late"))
    assert left_in(folder) == []


async def test_a_ledger_with_many_lines_is_weeded_and_stays_locked(folder: Path, stranger: Process) -> None:
    async with open_ledger(folder) as ledger, open_ledger(folder) as other:
        async with open_process(sh(STAYS), ladder=AT_ONCE) as process:
            for _ in range(WEEDED):
                ledger.note(process.pid, f"{ledger.key}/1/a")
            assert len(ledger.path.read_text().splitlines()) == WEEDED + 1
        ledger.note(stranger.pid, f"{ledger.key}/2/b")
        title, *lines = ledger.path.read_text().splitlines()
        assert title.split()[2] == ledger.key
        assert [line.split()[::2] for line in lines] == [[str(stranger.pid), f"{ledger.key}/2/b"]]
        assert (await other.sweep()).hosts == 0
        assert ledger.path.exists()
    assert left_in(folder) == []


# temporary folders


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary files"))
    return tmp_path / "temporary files"


def noted(folder: Path, path: Path, place: PidNamespace = HERE) -> Path:
    ledger = folder / f"{KEY}.ledger"
    ledger.write_text(f"{title(place)}folder {quote(str(path))}\n")
    return path


def everything_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def with_secrets(path: Path, key: str = KEY) -> Path:
    (path / "home" / "closed").mkdir(parents=True)
    (path / "home" / "closed" / "key").write_text("secret")
    (path / "home" / "closed").chmod(0o500)
    tag_folder(path, FOLDER, key)
    return path


async def test_the_temporary_folder_of_a_dead_host_is_removed_with_what_is_closed_in_it(
    folder: Path, temporary: Path
) -> None:
    path = with_secrets(noted(folder, temporary / "proctor-a b%c"))
    (path / "out").symlink_to(folder)
    found = await swept(folder)
    assert (found.hosts, found.folders, found.folders_left) == (1, (path,), ())
    assert not path.exists()
    assert left_in(folder) == []


async def test_one_that_was_killed_before_the_folder_had_its_tag_is_removed_when_it_is_empty(
    folder: Path, temporary: Path
) -> None:
    noted(folder, temporary / "a").mkdir()
    assert (await swept(folder)).folders == (temporary / "a",)
    noted(folder, temporary / "never made")
    assert (await swept(folder)).folders == ()
    assert left_in(folder) == []


@pytest.mark.parametrize("kind", ["no tag", "the tag of another host", "a link", "a file"])
async def test_what_stands_where_a_dead_host_had_its_folder_and_is_not_its_own_is_untouched(
    folder: Path, temporary: Path, kind: str
) -> None:
    path = noted(folder, temporary / "a")
    if kind == "a file":
        path.write_text("work")
    elif kind == "a link":
        path.symlink_to(with_secrets(temporary / "elsewhere"))
    else:
        with_secrets(path, "0" * 32)
        if kind == "no tag":
            (path / TAG).unlink()
    before = everything_in(temporary)
    found = await swept(folder)
    assert (found.folders, found.folders_left, found.hosts) == ((), (), 1)
    assert everything_in(temporary) == before
    assert left_in(folder) == []


async def test_the_folders_of_a_host_before_a_reboot_are_removed(folder: Path, temporary: Path) -> None:
    path = with_secrets(noted(folder, temporary / "a", attrs.evolve(HERE, boot="another")))
    assert (await swept(folder)).folders == (path,)
    assert not path.exists()


def refuse(*args: object, **kwargs: object) -> NoReturn:
    raise PermissionError(13, "no")


async def test_a_folder_that_cannot_be_removed_is_told_and_left_to_the_next(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_secrets(noted(folder, temporary / "a"))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)  # as on a file system that became read-only
        found = await swept(folder)
    assert (found.folders, found.folders_left) == ((), (path,))
    assert left_in(folder) == [f"{KEY}.ledger"]
    assert (await swept(folder)).folders == (path,)


async def test_a_folder_is_noted_before_it_is_made_and_goes_with_its_host(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(folder) as own:
        with monkeypatch.context() as patched:
            patched.setattr(os, "mkdir", refuse)
            with pytest.raises(PermissionError):
                own.make_folder("proctor-")
        path = make_folder("proctor-")
        assert (path.stat().st_mode & 0o777, path.parent) == (0o700, temporary)
        assert len(own.path.read_text().splitlines()) == 3
        async with open_ledger(folder) as other:
            assert (await other.sweep()).folders == ()
        (path / "file").touch()
    assert left_in(temporary) == left_in(folder) == []


async def test_a_line_that_the_disk_cut_short_does_not_swallow_the_next(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def cut(fd: int, data: memoryview) -> int:
        return write(fd, data[:5]) if len(data) > 20 else refuse()

    async with open_ledger(folder) as own:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", cut)
            own.note(os.getpid(), f"{own.key}/1/a")
        path = own.make_folder("proctor-")
        lines = own.path.read_text().splitlines()
        assert lines[-1] == f"folder {quote(str(path))}"


async def test_the_folders_that_are_there_survive_the_weeding(folder: Path, temporary: Path) -> None:
    async with open_ledger(folder) as own:
        kept = own.make_folder("proctor-")
        for _ in range(WEEDED):
            gone = own.make_folder("proctor-")
            (gone / TAG).unlink()
            gone.rmdir()
        lines = own.path.read_text().splitlines()
        assert f"folder {quote(str(kept))}" in lines
        assert len(lines) < WEEDED


async def test_without_a_ledger_a_folder_is_made_all_the_same(temporary: Path) -> None:
    assert make_folder("proctor-").parent == temporary
