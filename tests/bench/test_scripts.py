from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from bench import faces, fleet, idle, longline, overhead, service, views, warm
from bench.contest import Contender, Stopwatch, Work, hold, table
from bench.peers.entries import IDLERS, SERVER, crowds

ROOT = Path(__file__).parents[2]


def test_a_script_alone_prints_its_table() -> None:
    command = [sys.executable, "-m", "bench.ndjson", "--rounds=1", "--lines=20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    first = [line.split("|")[1].strip() for line in done.stdout.splitlines()]
    assert first[0] == "work"
    assert first[2:] == ["NDJSON"] * 9
    assert done.stderr == ""


def test_a_delay_is_told_as_the_one_in_the_middle_and_the_one_of_a_hundred() -> None:
    watch = Stopwatch()
    watch.wall, watch.cpu = 10.0, 2.0
    delays = [number / 1000 for number in reversed(range(1000))]
    told = fleet.figures(fleet.Fleet(5, 20, 10), watch, delays, 50_000)
    assert (told["cores"], told["per_event"], told["delivered"], told["bytes"]) == (0.2, 2000, 1.0, 10_000)
    assert (told["p50"], told["p99"]) == (500, 990)


def test_the_guards_of_a_fleet_and_the_load_of_the_machine_have_their_columns() -> None:
    watch = Stopwatch()
    watch.wall = watch.cpu = 1.0
    told = fleet.figures(fleet.Fleet(1, 20, 1), watch, [], 1000)
    found = {"ours": {**told, **fleet.guard_costs([os.getpid()]), "load": 7.04, "waiting": 0.5}}
    head, _, row = ([cell.strip() for cell in line.split("|")] for line in fleet.table(found).splitlines())
    assert head[-5:-1] == ["CPU ms a guard", "KB a guard", "load", "waiting"]
    assert (float(row[-5]) > 0, float(row[-4]) > 1000, *row[-3:-1]) == (True, True, "7.0", "0.50")


def test_the_watch_of_a_fleet_begins_with_no_collection_that_would_be_in_the_first_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collections: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append("at the start"))
    ear = fleet.Ear()
    ear.start()
    ear.stop()
    assert collections == []


@pytest.mark.parametrize(("megabytes", "seen"), [(1, "Text"), (40, "Garbled")])
def test_a_long_line_says_what_it_came_as(megabytes: int, seen: str) -> None:
    assert longline.row(megabytes, 1)[::5] == (str(megabytes), seen)


def test_what_is_added_to_a_command_line_is_told_and_one_that_is_absent_has_a_row() -> None:
    rows = overhead.rows(1, 1, ("scripted",))
    table = overhead.table({**rows, "gone": None}).splitlines()
    assert table[2].startswith("| scripted | ")
    assert table[3] == "| gone | not installed |  |  |  |  |"


@pytest.mark.covers("R126", "L14")
def test_a_run_that_finds_a_process_ready_is_measured_beside_one_that_starts_its_own() -> None:
    taken = warm.rows(1)
    assert {*taken} == {"cold", "warm"}
    assert [line.split(" | ")[0] for line in warm.table(taken).splitlines()[2:]] == ["| cold", "| warm"]


def test_the_cost_of_a_viewer_is_what_the_host_takes_more_with_it() -> None:
    assert views.table({0: [2.0, 1.0, 3.0], 1: [4.0], 2: [5.0]}).splitlines()[2:] == [
        "| 0 | 2.0 | 1.0 to 3.0 |  |  |",
        "| 1 | 4.0 | 4.0 to 4.0 | 2.0 | 2.0 |",
        "| 2 | 5.0 | 5.0 to 5.0 | 3.0 | 1.5 |",
    ]
    assert {count: len(shares) for count, shares in trio.run(views.measure, 3, 20, 0.1, 1).items()} == {
        0: 1,
        1: 1,
        2: 1,
    }


def test_a_kind_of_idle_actor_that_is_not_there_has_a_row_that_says_so() -> None:
    assert idle.table({"here": [1, 2, 3, 4], "gone": []}).splitlines()[2:] == [
        "| here | 1 | 2 | 3 | 4 |",
        "| gone | not installed |  |  |  |",
    ]


def test_what_others_measure_themselves_is_told_of_each_of_them() -> None:
    reported = idle.reported(20, 1)
    assert {peer.name for peer in (*IDLERS, SERVER)} == {*reported, *crowds()}
    assert [len(reported[SERVER.name])] == [0 if SERVER.absent() else 4]


@pytest.mark.parametrize(("lines", "per_write"), [(1, 1), (15, 16), (512, 16), (599, 600), (1025, 600)])
def test_the_writer_writes_as_many_lines_as_it_is_told(lines: int, per_write: int) -> None:
    command = [sys.executable, "-I", "-S", "bench/writer.py", str(lines), str(per_write)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout.count(b"\n") == lines + 2


def test_the_order_turns_from_round_to_round_and_ratios_are_taken_within_one() -> None:
    order: list[str] = []

    def contender(name: str, *cpu: float) -> Contender:
        left = iter(cpu)

        def run(size: int) -> Stopwatch:
            order.append(name)
            watch = Stopwatch()
            watch.wall, watch.cpu = 0.5, next(left)
            return watch

        return Contender("ours", name, run)

    work = Work("w", 1000, "a", (contender("a", 9, 1, 10, 3), contender("b", 9, 2, 50, 3)))
    a, b = hold(work, 3)
    assert order == [*"ab", *"ab", *"ba", *"ab"]  # the first two are not counted
    assert (b.rate, b.cpu, b.ratio, b.lowest, b.highest) == (2000, 3000, 0.5, 0.2, 1.0)
    assert table([a, b]).splitlines()[2:] == [
        "| w    | ours | **a**     |      2,000 |           3000.00 |        1.00 |              |",
        "| w    | ours | b         |      2,000 |           3000.00 |        0.50 | 0.20 to 1.00 |",
    ]


def test_the_ways_to_trio_are_measured_in_calls_and_in_events() -> None:
    calls, events = faces.rows(64, 300, 1)
    assert {"Trio", "proctor.sync", "proctor.aio"} <= {*calls, *events}
    assert all(seconds > 0 for seconds in (*calls.values(), *events.values()))
    printed = faces.table((calls, events)).splitlines()
    assert printed[0] == "| a call by | µs | more than in Trio |"
    assert len(printed) == len(calls) + len(events) + 5


def test_each_request_of_a_service_whose_agents_are_killed_has_an_end() -> None:
    pytest.importorskip("fastapi")
    found = service.rows(20, 1, 2)
    for one in found.values():
        assert (sum(one.replies.values()), one.lost) == (20, 0)
        assert one.lateness
    assert found["no agent asked"].replies == {404: 20}
    assert service.table(found).count("\n") == 3
