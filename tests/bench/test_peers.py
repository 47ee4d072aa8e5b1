from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from math import isnan, nan
from pathlib import Path

import pytest

from bench import fleet
from bench.contest import Contender, Stopwatch, Work, hold, table
from bench.peers import entries, keepers
from bench.peers.entries import Peer, in_part
from tests.tables import each_row

ROOT = Path(__file__).parents[2]
ALL = (
    *entries.STREAMERS,
    *entries.FLEETS,
    *entries.MAILBOXES,
    *entries.SPAWNERS,
    *entries.KEEPERS,
    *entries.IDLERS,
    entries.SERVER,
)
WORKS = {
    "NDJSON": {"NDJSON": 9},
    "Mailbox": {
        "call, 1": 14,
        "call, 2": 14,
        "cast, 1": 13,
        "cast, 2": 13,
        "stream items": 3,
        "open requests, 20": 2,
        "notices, 5": 1,
        "notices, 20": 1,
    },
    "Starts": {"start, 1": 8, "start, 64": 8, "guarded start, 1": 2},
    "Restarts": {"restart, 1": 9, "restart, 2": 9},
    "Kept requests": {"accepted by one": 2, "accepted by 50": 2},
}
"""The rows of each work, in the tables that have one work or more."""


def watched(wall: float, cpu: float) -> Stopwatch:
    watch = Stopwatch()
    watch.wall, watch.cpu = wall, cpu
    return watch


def never(size: int) -> Stopwatch:
    raise AssertionError("an absent contender was run")


def cells(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines()]


def test_a_contender_that_is_absent_is_not_run_and_its_row_says_why() -> None:
    here = Contender("limit", "here", lambda size: watched(1, 1))
    gone = Contender("peer", "gone", never, absent="not installed")
    results = hold(Work("w", 10, "here", (gone, here)), 3)
    assert isnan(results[0].ratio)
    assert cells(table(results))[2:] == [
        ["w", "peer", "gone", "not installed", "", "", ""],
        ["w", "limit", "**here**", "10", "100000.00", "1.00", ""],
    ]


def test_one_that_works_elsewhere_is_compared_by_wall_time_and_may_not_know_its_cpu_time() -> None:
    here = Contender("limit", "here", lambda size: watched(1, 0.25))
    apart = Contender("peer", "apart", lambda size: watched(2, nan), by="wall")
    [_, row] = cells(table(hold(Work("w", 10, "here", (here, apart)), 1)))[2:]
    assert row == ["w", "peer", "apart", "5", "", "0.50 (wall)", "0.50 to 0.50"]


@pytest.mark.parametrize(
    ("size", "one_in", "actors", "part"),
    [(1000, 10, 1, 100), (1000, 10, 7, 98), (1000, 1, 4, 1000), (3, 100, 1, 1), (1, 1, 4, 4)],
)
def test_a_slow_peer_does_a_part_and_tells_the_time_of_all(
    size: int, one_in: int, actors: int, part: int
) -> None:
    asked: list[int] = []

    def run(operations: int) -> Stopwatch:
        asked.append(operations)
        return watched(operations * 2, operations)

    watch = in_part(run, one_in, actors)(size)
    assert asked == [part]
    assert [watch.wall, watch.cpu] == pytest.approx([size * 2, size])


def test_what_needs_a_process_for_each_does_not_enter_with_a_thousand() -> None:
    peer = Peer("p", "none", "none", requires="pytest", each=True)
    assert [peer.enter(actors).absent for actors in (1, 1000)] == ["", "a process each"]


def test_a_package_or_a_program_that_is_not_there_is_not_looked_for_any_further() -> None:
    package = Peer("p", "none", "none", requires="no_such_package", each=True)
    program = Peer("p", "none", "none", requires="no-such-program", needs="program")
    assert {peer.enter(1000).absent for peer in (package, program)} == {"not installed"}


@pytest.mark.covers("R194")
def test_everything_is_a_table_each_and_programs_that_are_not_there_have_rows_that_say_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    sizes = [f"{name}=2" for name in ("actors", "programs", "kills", "at-once", "children")]
    sizes += [
        "lines=20",
        "operations=20",
        "rounds=1",
        "seconds=1",
        "turns=1",
        "starts=1",
        "clients=2",
        "requests=4",
        "megabytes=8",
        "open=20",
        "notices=20",
    ]
    command = [sys.executable, "-m", "bench", *(f"--{size}" for size in sizes)]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=480, check=True)
    tables = {
        title: [row for row in cells(table) if row][2:]
        for title, table in (part.split("\n", 1) for part in done.stdout.split("## ")[1:])
    }
    assert {title: Counter(row[0] for row in rows) for title, rows in tables.items() if title in WORKS} == {
        title: Counter(works) for title, works in WORKS.items()
    }
    assert [*tables] == [
        "NDJSON", "Long lines", "Fleet", "Overhead", "Warm", "Commands", "Mailbox", "Starts", "Agents",
        "Restarts", "Events over HTTP", "Views of a fleet", "Idle",
        "Kept requests", "Spans", "Faces", "Service", "Growth",
    ]  # fmt: skip
    missing = Counter(
        cell for rows in tables.values() for row in rows if "not installed" in row for cell in row
    )
    assert {peer.name: missing[peer.name] for peer in ALL if peer.needs == "program"} == {
        "Erlang ports, self-reported": 1,
        "Erlang gen_server": 4,
        "Erlang port": 2,
        "Erlang supervisor + port": 2,
        "runit": 2,
        "s6": 2,
        "supervisord": 2,
        "circus": 2,
        "an Erlang gen_server, self-reported": 1,
    }
    told = {name: figures for name, *figures in tables["Fleet"]}
    assert {*told} == {*fleet.CONTENDERS, *(peer.name for peer in entries.FLEETS)}
    heard = {name for name in fleet.CONTENDERS if float(told[name][4] or 0) > 0}
    assert heard == {*fleet.CONTENDERS} - {"agents, nobody reads"}
    assert [row[0] for row in tables["Events over HTTP"]] == ["1 that read", "and 1 that never do"]
    assert done.stderr == ""


@each_row("peer", ALL, ids=[peer.name for peer in ALL])
def test_a_peer_is_a_function_of_its_module_that_is_imported_where_it_is_there(peer: Peer) -> None:
    assert (ROOT / "bench" / "peers" / f"{peer.module}.py").is_file()
    assert peer.absent() or callable(peer.load())


def test_a_bell_hears_each_of_those_it_holds_and_lets_them_go(tmp_path: Path) -> None:
    bell = keepers.Bell(tmp_path)
    programs = [subprocess.Popen([str(bell.script)]) for _ in range(3)]
    heard = bell.hear(3)
    bell.close()
    assert [program.wait(timeout=30) for program in programs] == [0] * 3
    assert sorted(heard) == sorted(program.pid for program in programs)


@pytest.mark.parametrize(("name", "argv0"), [("runit", "runsv"), ("s6", "s6-supervise")])
def test_a_supervisor_of_one_has_a_folder_for_each(name: str, argv0: str, tmp_path: Path) -> None:
    with closing(keepers.Bell(tmp_path)) as bell:
        commands = keepers.KEEPERS[name].lay(tmp_path, bell, 2)
        folders = [Path(folder) for _, folder in commands]
        assert [program for program, _ in commands] == [argv0] * 2
        assert [(folder / "run").resolve() for folder in folders] == [bell.script.resolve()] * 2


@pytest.mark.parametrize(
    ("name", "programs"), [("supervisord", ["numprocs=3"]), ("circus", ["[watcher:kept2]"])]
)
def test_a_supervisor_of_many_is_told_how_many(name: str, programs: list[str], tmp_path: Path) -> None:
    with closing(keepers.Bell(tmp_path)) as bell:
        [argv] = keepers.KEEPERS[name].lay(tmp_path, bell, 3)
    lines = Path(argv[-1]).read_text().splitlines()
    assert set(programs) <= set(lines)
    assert any(line.endswith(f"/bin/sh {bell.script}") for line in lines)
