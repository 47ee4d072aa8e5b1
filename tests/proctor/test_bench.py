from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.proctor.command import Terminal, processes_with, proctor, running, wait_for
from tests.proctor.test_run import STUBBORN

TASKS = [
    {"id": "one", "prompt": "hello", "check": "grep -q hello"},
    {"id": "two", "prompt": "bye", "check": "grep -q hello"},
]


@pytest.fixture
def tasks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    (home / "script.ndjson").write_text('{"reply": "You said: {prompt}", "cost": 0.5}\n')
    path = home / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    return path


def test_a_benchmark_prints_a_table_and_goes_on_where_it_was(tasks: Path, home: Path) -> None:
    words = ("bench", str(tasks), "--agents", "scripted:script.ndjson")
    done = proctor(*words, home=home)
    assert done.status == 0, done.err
    header, row = done.out.splitlines()
    assert header.split()[:4] == ["agent", "attempts", "score", "95"]
    assert row.split()[:7] == ["scripted", "2", "0.500", "0.095", "to", "0.905", "$1.0000"]
    assert sorted(line.partition("; ")[2] for line in done.err.splitlines()[:2]) == [
        "one scripted: score 1",
        "two scripted: score 0",
    ]
    assert done.err.splitlines()[2] == f"proctor: results: {home}/tasks.results.jsonl"
    again = proctor(*words, "--repeat", "2", home=home)
    assert again.out.splitlines()[1].split()[:2] == ["scripted", "4"]
    assert len((home / "tasks.results.jsonl").read_text().splitlines()) == 4


def test_the_table_as_json(tasks: Path, home: Path) -> None:
    done = proctor(
        "bench", str(tasks), "--agents=scripted:script.ndjson", "-o", "r.jsonl", "--json", home=home
    )
    [agent] = json.loads(done.out)["agents"]
    assert (agent["agent"], agent["attempts"], agent["cost_usd"], agent["failures"]) == (
        "scripted",
        2,
        1.0,
        {},
    )
    assert agent["score"]["mean"] == 0.5
    assert len((home / "r.jsonl").read_text().splitlines()) == 2


def test_agents_of_a_fleet_file_are_compared(tasks: Path, home: Path) -> None:
    (home / "other.ndjson").write_text('{"reply": "hello", "cost": 0.25}\n')
    (home / "fleet.toml").write_text(
        '[[agents]]\nkind = "scripted"\nname = "echo"\nscript = "script.ndjson"\n'
        '[[agents]]\nkind = "scripted"\nname = "fixed"\nscript = "other.ndjson"\n'
    )
    done = proctor("bench", str(tasks), "--fleet", "fleet.toml", "-o", "r.jsonl", home=home)
    assert [line.split()[0] for line in done.out.splitlines()] == ["agent", "echo", "fixed"], done.err
    compared = proctor("bench", "compare", "r.jsonl", home=home)
    row = compared.out.splitlines()[1].split()
    assert row[:6] == ["echo", "fixed", "2", "1", "0", "+0.500"]
    twice = proctor("bench", "compare", "r.jsonl", "r.jsonl", "--json", home=home)
    assert [found["score"]["mean"] for found in json.loads(twice.out)["differences"]] == [0.0, 0.0]


def test_a_spent_budget_shows_what_there_is_and_fails(tasks: Path, home: Path) -> None:
    done = proctor("bench", str(tasks), "--agents=scripted:script.ndjson", "--budget=0.3", home=home)
    assert done.status == 1
    assert done.out.splitlines()[1].split()[:2] == ["scripted", "1"]
    assert "the batch has spent $0.5 of $0.3" in done.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("absent.jsonl", "--agents=scripted:script.ndjson"), 2, "absent.jsonl: cannot be read: No such file or directory"),
        (("tasks.jsonl",), 2, "--agents: name the agents, such as --agents claude,codex, or a fleet file with --fleet"),
        (("tasks.jsonl", "--agents=clade"), 2, "unknown agent 'clade' (did you mean 'claude'?)"),
        (("tasks.jsonl", "--agents=scripted:script.ndjson", "--limit=0"), 2, "--limit must be 1 or more, got 0"),
        (("tasks.jsonl", "--agents=scripted:script.ndjson", "--repeat=0"), 2, "--repeat must be 1 or more, got 0"),
        (("tasks.jsonl", "--agents=scripted:script.ndjson", "--budget=-1"), 2, "--budget must be a number of US dollars above 0, got -1"),
        (("tasks.jsonl", "more.jsonl"), 2, "too many words: 'more.jsonl'"),
        (("tasks.jsonl", "--fleet=absent.toml"), 2, "absent.toml: cannot be read"),
        (("compare",), 2, "compare takes one file of results or two"),
        (("compare", "absent"), 2, "absent: cannot be read"),
        (("compare", "tasks.jsonl"), 2, "tasks.jsonl:1: is no result of a batch"),
        (("compare", "empty.jsonl"), 2, "empty.jsonl: has no results"),
        (("bad.jsonl", "--agents=scripted:script.ndjson"), 2, "bad.jsonl:1: prompt is missing"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_named_before_anything_runs(
    words: tuple[str, ...], status: int, text: str, tasks: Path, home: Path
) -> None:
    (home / "empty.jsonl").write_text("")
    (home / "bad.jsonl").write_text('{"id": "x"}\n')
    done = proctor("bench", *words, home=home)
    assert (done.status, done.out) == (status, "")
    assert text in done.err
    assert not list(home.glob("*.results.jsonl"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_stops_what_runs_shows_what_there_is_and_the_next_command_goes_on(
    number: signal.Signals, status: int, tasks: Path, home: Path
) -> None:
    slow = home / "slow.ndjson"
    slow.write_text(
        '{"turn": "waits", "when": "bye"}\n{"say": "begun"}\n{"sleep": 60}\n{"turn": "other"}\n{"reply": "hello"}\n'
    )
    words = ("bench", str(tasks), "--agents", f"scripted:{slow}", "-o", str(home / "r.jsonl"))
    with running(*words, home=home) as command:
        command.said(b"one scripted: score 1", command.err)
        # the second task is in its turn
        wait_for(home / "r.jsonl.state/recordings", "*two*/1/stdin.ndjson")
        command.signal(number)
        command.said(b"a second signal kills", command.err)
        assert command.said(b"scripted").split()[:2] == [b"agent", b"attempts"]
        assert command.end() == status
    assert processes_with(str(slow)) == []
    slow.write_text('{"reply": "hello"}\n')
    done = proctor(*words, home=home)
    assert (done.status, done.out.splitlines()[1].split()[:3]) == (0, ["scripted", "2", "1.000"]), done.err


def test_the_progress_on_a_terminal_is_one_line(tasks: Path, home: Path) -> None:
    with Terminal(["bench", str(tasks), "--agents", "scripted:script.ndjson"], home) as terminal:
        assert terminal.end() == 0
    assert "\r\x1b[K1/2, 0 failed, $0.50, about " in terminal.shown
    assert "\r\x1b[K2/2, 0 failed, $1.00; " in terminal.shown


def test_a_second_interrupt_kills_at_once(tasks: Path, home: Path) -> None:
    stubborn = home / "stubborn.ndjson"
    stubborn.write_text("".join(f"{line}\n" for line in STUBBORN))
    with running("bench", str(tasks), "--agents", f"scripted:{stubborn}", home=home) as command:
        wait_for(home / "tasks.results.jsonl.state/recordings", "*two*/1/stdin.ndjson")
        command.signal(signal.SIGINT)
        command.said(b"a second signal kills", command.err)
        command.signal(signal.SIGINT)
        assert command.end(5) == 130
    assert processes_with(str(stubborn)) == []
