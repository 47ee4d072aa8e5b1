"""`proctor runs`, `show`, `cost` and `resume`: what is read of recordings, and how one is gone on with."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.proctor.command import proctor, running
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent

DAY = 86400.0


@pytest.fixture
def two_runs(home: Path, fleet: Fleet) -> Path:
    """One fleet has run: an agent that answered, and one that failed."""
    path = fleet(
        agent("good", script='"good.ndjson"', prompt='"x"'),
        agent("bad", script='"bad.ndjson"', prompt='"x"', start_order='"sequential"'),
        good=ANSWERS,
        bad=('{"say": "I try."}', '{"end": "api_error", "status": 500}'),
    )
    assert proctor("up", str(path), home=home).status == 1
    return home


def records(*words: str, home: Path) -> list[dict[str, Any]]:
    done = proctor(*words, "-o", "json", home=home)
    assert (done.status, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_past_runs_are_listed_with_their_ends_and_costs(two_runs: Path) -> None:
    done = proctor("runs", home=two_runs)
    assert done.status == 0
    [title, *rows] = done.out.splitlines()
    assert title.split()[:4] == ["run", "agent", "kind", "begun"]
    by_agent = {row.split()[1]: row for row in rows}
    assert "answered" in by_agent["good"]
    assert by_agent["good"].endswith("All is well, x")
    assert "failed" in by_agent["bad"]
    found = records("runs", "--agent", "go*", home=two_runs)
    assert [(run["agent"], run["outcome"], run["turns"], run["is_running"]) for run in found] == [
        ("good", "ok", 1, False)
    ]
    assert Path(found[0]["path"]).is_dir()
    assert len(records("runs", "-n", "1", home=two_runs)) == 1
    assert len(records("runs", "-n", "0", "--since", "1h", home=two_runs)) == 2


def test_where_nothing_was_recorded_nothing_is_listed(home: Path) -> None:
    assert records("runs", home=home) == []
    assert records("cost", home=home) == [{"agent": "total", "turns": 0, "cost_usd": 0, "unknown": 0}]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("runs", "--since", "soon"), "--since: expected"),
        (("runs", "-n", "-1"), "--number is 0 or more"),
        (("show", "nobody"), "no run 'nobody' below"),
        (("resume", "nobody", "on"), "no run 'nobody' below"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: tuple[str, ...], why: str, home: Path) -> None:
    done = proctor(*words, home=home)
    assert (done.status, done.out) == (2, "")
    assert why in done.complaint


def test_a_run_is_shown_from_its_first_event_to_its_last(two_runs: Path) -> None:
    [bad] = records("runs", "--agent", "bad", home=two_runs)
    for name in (bad["id"], bad["path"], "bad"):
        done = proctor("show", name, home=two_runs)
        assert done.status == 1
        assert f"session:     {bad['session_id']}" in done.out
        assert "result:      failed" in done.out
        assert "\nI try.\n" in done.out
    done = proctor("show", "good", "--json", home=two_runs)
    assert done.status == 0
    kinds = [json.loads(line)["type"] for line in done.out.splitlines()]
    assert "turn_started" in kinds
    assert "turn_ended" in kinds


def test_a_run_is_written_as_a_trajectory_and_as_markdown(two_runs: Path) -> None:
    done = proctor("show", "good", "-o", "atif", home=two_runs)
    assert done.status == 0
    trajectory = json.loads(done.out)
    assert trajectory["schema_version"] == "ATIF-v1.8"
    assert [(step["source"], step["message"]) for step in trajectory["steps"]] == [
        ("user", "x"),
        ("agent", "All is well, x"),
    ]
    done = proctor("show", "bad", "-o", "md", home=two_runs)
    assert done.status == 0
    assert done.out.startswith("# bad\n")
    assert "\n## Prompt\n\n> x\n\nI try.\n" in done.out
    moved = two_runs / "elsewhere" / Path(records("runs", "--agent", "good", home=two_runs)[0]["path"]).name
    shutil.copytree(records("runs", "--agent", "good", home=two_runs)[0]["path"], moved)
    assert proctor("show", str(moved), home=two_runs).status == 0
    assert proctor("show", str(moved.parent), home=two_runs).status == 2
    assert proctor("show", "good", "-o", "json", home=two_runs).out.count('"turn_ended"') == 1


def test_a_run_of_a_killed_host_was_cut_off_and_one_that_works_works(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=HANGS)
    with running("up", str(path), home=home) as command:
        command.said(b"says: I begin.")
        [run] = records("runs", home=home)
        assert (run["is_running"], run["is_in_turn"]) == (True, True)
        assert "works" in proctor("runs", home=home).out
        command.signal(signal.SIGKILL)
        command.end()
    [run] = records("runs", home=home)
    assert (run["is_running"], run["is_in_turn"], run["outcome"]) == (False, True, None)
    done = proctor("show", "a", home=home)
    assert (done.status, "was cut off" in done.out) == (1, True)


def test_a_run_is_gone_on_with_in_its_conversation_and_folder(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    place = tmp_path / "project"
    place.mkdir()
    path = fleet(
        agent("a", script='"a.ndjson"', prompt='"x"', cwd=f'"{place}"'),
        a=(
            '{"turn": "first", "when": "x"}',
            '{"reply": "one"}',
            '{"turn": ""}',
            '{"reply": "{prompt}: {session} in {cwd}"}',
        ),
    )
    assert proctor("up", str(path), home=home).status == 0
    [first] = records("runs", home=home)
    done = proctor("resume", first["id"], "and then", "--quiet", home=home)
    assert (done.status, done.out.strip()) == (0, f"and then: {first['session_id']} in {place}")


def test_a_run_without_a_conversation_cannot_be_gone_on_with(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), agent("b", script='"a.ndjson"', prompt='"x"'), a=ANSWERS)
    with running("up", str(path), home=home) as command:
        command.said(b"answered")
        command.signal(signal.SIGINT)
        command.end()
    done = proctor("resume", "a", "on", home=home)
    assert (done.status, "has no session to go on with" in done.complaint) == (2, True)


def test_costs_are_added_up_by_agent_by_model_and_by_the_day_of_the_prompt(home: Path) -> None:
    runs = home / "state" / "proctor" / "runs"
    begun = 1_795_000_000.0
    ended = [
        {"at": begun, "model": "large", "cost_usd": 0.5},
        {"at": begun + DAY, "model": "small", "cost_usd": 0.25},
        {"at": begun + DAY, "model": "small", "cost_usd": None},
    ]
    write_run(runs / "20261118-000000-one-abcdefgh", ended)
    write_run(runs / "20261118-000000-two-ijklmnop", ended[:1])
    assert records("cost", home=home) == [
        {"agent": "one", "turns": 3, "cost_usd": 0.75, "unknown": 1},
        {"agent": "two", "turns": 1, "cost_usd": 0.5, "unknown": 0},
        {"agent": "total", "turns": 4, "cost_usd": 1.25, "unknown": 1},
    ]
    by_model = records("cost", "--by", "model", "--agent", "one", home=home)
    assert [(row["model"], row["cost_usd"]) for row in by_model] == [
        ("large", 0.5),
        ("small", 0.25),
        ("total", 0.75),
    ]
    assert [row["cost_usd"] for row in records("cost", "--by", "day", home=home)] == [1.0, 0.25, 1.25]
    table = proctor("cost", home=home).out.splitlines()
    assert table[-1].split() == ["total", "4", "1", "$1.2500"]


def write_run(folder: Path, turns: list[dict[str, Any]]) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "1" / "meta.json").write_text('{"cli": "claude", "argv": ["claude"]}')
    lines = [{"type": "started", "frame": 1, "turn": "1.1", "session_id": "s", "model": "other"}]
    for number, turn in enumerate(turns, 1):
        place = {"frame": number, "turn": f"1.{number}"}
        lines.append({"type": "notice", **place, "code": "sent", "text": "asked", "data": {"at": turn["at"]}})
        facts = {key: value for key, value in turn.items() if key != "at"}
        lines.append({"type": "turn_ended", **place, "ending": "completed", "text": "done", **facts})
    (folder / "events.ndjson").write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )
