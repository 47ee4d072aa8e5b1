from __future__ import annotations

from pathlib import Path

import pytest

import proctor
from proctor.actors.process.orphans import describe_sweep, hosts_folder, track_processes
from proctor.actors.runs import ask
from proctor.runtime.processes import procfs
from proctor.runtime.processes.ledger import Swept, current_ledger, open_ledger
from proctor.runtime.processes.orphans import Orphan
from proctor.runtime.processes.process import open_process
from tests.actors.far_end import plan_of
from tests.runtime.hosts import KEY
from tests.runtime.programs import AT_ONCE, sh


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "proctor" / "hosts"


def ledger_of_the_dead(folder: Path) -> Path:
    place = procfs.pid_namespace()
    folder.mkdir(parents=True)
    path = folder / f"{KEY}.ledger"
    path.write_text(f"proctor-ledger 1 {KEY} {place.machine} {place.boot} {place.namespace}\n")
    return path


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.covers("L34")
async def test_a_supervisor_kills_what_an_earlier_host_left_and_keeps_a_ledger(folder: Path) -> None:
    ledger_of_the_dead(folder)
    async with (
        open_process(sh("read x"), marker=f"{KEY}/1/a", ladder=AT_ONCE) as orphan,
        proctor.open_supervisor(),
    ):
        assert await orphan.wait() == proctor.ExitStatus(signal=9)
        ledger = current_ledger()
        assert ledger is not None
        assert left_in(folder) == [ledger.path.name]
    assert left_in(folder) == []


async def test_a_run_without_a_tree_does_too(folder: Path, tmp_path: Path) -> None:
    ledger_of_the_dead(folder)
    async with open_process(sh("read x"), marker=f"{KEY}/1/a", ladder=AT_ONCE) as orphan:
        assert (await ask(plan_of(tmp_path), "hi")).ok
        assert await orphan.wait() == proctor.ExitStatus(signal=9)
    assert left_in(folder) == []


async def test_inside_of_a_ledger_no_other_is_opened(tmp_path: Path) -> None:
    async with open_ledger(tmp_path / "own") as ledger, track_processes(), proctor.open_supervisor():
        assert current_ledger() is ledger
    assert left_in(tmp_path) == ["own"]


async def test_what_was_found_is_told_in_a_line(folder: Path) -> None:
    said: list[str] = []

    async def told(text: str) -> None:
        said.append(text)

    ledger_of_the_dead(folder)
    async with open_process(sh("read x"), marker=f"{KEY}/1/a", ladder=AT_ONCE) as orphan:
        async with track_processes(told):
            pass
        assert said == [f"killed a process that an earlier run had left: sh ({orphan.pid})"]
    async with track_processes(told):
        pass
    assert len(said) == 1


async def test_a_folder_that_cannot_be_made_keeps_nothing_from_being_started(folder: Path) -> None:
    folder.parent.parent.write_text("in the way")
    async with proctor.open_supervisor():
        assert current_ledger() is None


def test_the_folder_is_the_users_and_absolute() -> None:
    assert hosts_folder({"XDG_STATE_HOME": "/a"}) == Path("/a/proctor/hosts")
    assert hosts_folder({"XDG_STATE_HOME": "b"}) == hosts_folder({})
    assert hosts_folder({}).is_absolute()


def test_an_account_names_the_first_and_counts_the_rest() -> None:
    several = tuple(Orphan(pid, 1, "sh", "m") for pid in range(1, 8))
    stuck = Orphan(9, 1, "cat", "m", "it was killed and does not die")
    assert list(describe_sweep(Swept(killed=several, left=(stuck,), sure=False))) == [
        "killed 7 processes that an earlier run had left: sh (1), sh (2), sh (3), sh (4), sh (5), and 2 more",
        "an earlier run has left a process that could not be killed: cat (9): it was killed and does not die",
        "could not check everything that an earlier run left; the next start checks again",
    ]
    assert list(describe_sweep(Swept(hosts=3))) == []
