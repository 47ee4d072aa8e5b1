from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.actors.scripted.host import Frame, Host, run_once

COUNT: list[Frame] = [{"reply": "turn {turn} of incarnation {incarnation}"}]
STREAM = ("-p", "go", "--output-format", "stream-json", "--verbose")


def session_of(host: Host, text: str = "x") -> str:
    session: str = host.ask(text)["session_id"]
    return session


def test_a_resumed_session_goes_on_where_it_was(tmp_path: Path) -> None:
    with Host(tmp_path, COUNT) as host:
        session = session_of(host)
        host.ask("y")
        host.close()
    with Host(tmp_path, COUNT, f"--resume={session}") as host:
        result = host.ask("z")
        assert result["result"] == "turn 3 of incarnation 2"
        assert result["session_id"] == session


def test_the_cost_goes_on_across_incarnations(tmp_path: Path) -> None:
    script: list[Frame] = [{"reply": "x", "cost": 0.25}]
    with Host(tmp_path, script) as host:
        session = session_of(host)
    with Host(tmp_path, script, f"--resume={session}") as host:
        assert host.ask("y")["total_cost_usd"] == 0.5


def test_the_next_turn_of_the_script_is_remembered(tmp_path: Path) -> None:
    script: list[Frame] = [{"reply": "a"}, {"reply": "b"}, {"reply": "c"}]
    with Host(tmp_path, script) as host:
        session = session_of(host)
    with Host(tmp_path, script, "--resume", session) as host:
        assert host.ask("y")["result"] == "b"


def test_a_turn_cut_by_death_is_played_again(tmp_path: Path) -> None:
    script: list[Frame] = [{"reply": "a"}, {"fault": "crash@once"}, {"reply": "b"}]
    with Host(tmp_path, script) as host:
        session = session_of(host)
        host.prompt("y")
        host.rest()
        assert host.wait() == -9
    with Host(tmp_path, script, f"--resume={session}") as host:
        assert host.ask("y")["result"] == "b"


@pytest.mark.covers("L37")
@pytest.mark.parametrize("name", ["cb3d329d-a2e7-4b6a-8978-7c257a35fc4a", "../../etc/passwd", ""])
def test_an_unknown_session_is_refused_as_the_real_cli_refuses_it(tmp_path: Path, name: str) -> None:
    with Host(tmp_path, COUNT, f"--resume={name}") as host:
        result = host.frame()
        assert (result["subtype"], result["is_error"], result["num_turns"]) == (
            "error_during_execution",
            True,
            0,
        )
        assert result["errors"] == [f"No conversation found with session ID: {name}"]
        assert result["session_id"] != name
        assert "terminal_reason" not in result
        assert host.rest() == []
        assert host.wait() == 1
        assert "No conversation found" in host.error()


def test_a_fork_copies_the_session_to_a_new_id_and_leaves_the_old_one(tmp_path: Path) -> None:
    new = str(uuid.uuid4())
    with Host(tmp_path, COUNT) as host:
        old = session_of(host)
    with Host(tmp_path, COUNT, f"--resume={old}", "--fork-session", f"--session-id={new}") as host:
        result = host.ask("y")
        assert (result["session_id"], result["result"]) == (new, "turn 2 of incarnation 2")
    with Host(tmp_path, COUNT, f"--resume={old}") as host:
        assert host.ask("z")["result"] == "turn 2 of incarnation 2"


def test_a_fork_without_a_chosen_id_gets_a_new_one(tmp_path: Path) -> None:
    with Host(tmp_path, COUNT) as host:
        old = session_of(host)
    with Host(tmp_path, COUNT, f"--resume={old}", "--fork-session") as host:
        assert session_of(host) != old


def test_a_session_id_in_use_is_refused(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    with Host(tmp_path, COUNT, f"--session-id={name}") as host:
        assert session_of(host) == name
    with Host(tmp_path, COUNT, f"--session-id={name}") as host:
        assert host.rest() == []
        assert host.wait() == 1
        assert host.error() == f"Error: Session ID {name} is already in use.\n"


def test_a_session_that_was_not_kept_cannot_be_resumed(tmp_path: Path) -> None:
    with Host(tmp_path, COUNT, "--no-session-persistence") as host:
        session = session_of(host)
    with Host(tmp_path, COUNT, f"--resume={session}") as host:
        assert host.frame()["subtype"] == "error_during_execution"


def test_a_home_that_cannot_be_written_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Host(tmp_path, COUNT, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "file")}) as host:
        assert host.ask("x")["is_error"] is False


def test_without_a_config_directory_sessions_are_kept_in_the_home(tmp_path: Path) -> None:
    with Host(tmp_path, COUNT, env={"CLAUDE_CONFIG_DIR": "", "HOME": str(tmp_path)}) as host:
        session = session_of(host)
    assert (tmp_path / ".local" / "state" / "proctor" / "scripted" / f"{session}.json").exists()


def test_the_session_file_names_the_prompt_of_a_turn_that_never_ended(tmp_path: Path) -> None:
    with Host(tmp_path, [{"sleep": 60}]) as host:
        host.prompt("long work")
        session = host.until("system", "init")[-1]["session_id"]
    state = json.loads((tmp_path / "scripted" / f"{session}.json").read_text())
    assert (state["turns"], state["cursor"], state["prompt"]) == (1, 0, "long work")


def test_a_turn_may_wait_for_a_later_incarnation(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"turn": "again", "incarnation": 2},
        {"reply": "welcome back"},
        {"turn": ""},
        {"reply": "welcome"},
    ]
    with Host(tmp_path, script) as host:
        result = host.ask("x")
        assert result["result"] == "welcome"
    with Host(tmp_path, script, f"--resume={result['session_id']}") as host:
        assert host.ask("x")["result"] == "welcome back"


def test_one_shot_prints_the_text(tmp_path: Path) -> None:
    done = run_once(tmp_path, [{"reply": "you said {prompt}"}], "-p", "hello")
    assert (done.returncode, done.stdout) == (0, b"you said hello\n")


@pytest.mark.covers("C22", "L28")
def test_one_shot_takes_its_prompt_from_stdin(tmp_path: Path) -> None:
    done = run_once(tmp_path, [{"reply": "you said {prompt}"}], "-p", stdin=b"hello\nthere\n")
    assert (done.returncode, done.stdout) == (0, b"you said hello\nthere\n")


def test_one_shot_as_json_is_one_result_or_with_verbose_one_array(tmp_path: Path) -> None:
    done = run_once(tmp_path, COUNT, "-p", "x", "--output-format", "json")
    assert json.loads(done.stdout)["type"] == "result"
    done = run_once(tmp_path, COUNT, "-p", "x", "--output-format=json", "--verbose")
    assert [f["type"] for f in json.loads(done.stdout)] == ["system", "assistant", "result"]


def test_one_shot_as_a_stream_exits_by_its_result(tmp_path: Path) -> None:
    done = run_once(tmp_path, [{"end": "authentication"}], *STREAM)
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == [
        "system",
        "assistant",
        "result",
    ]
    assert done.returncode == 1


def test_one_shot_without_any_prompt_is_refused(tmp_path: Path) -> None:
    done = run_once(tmp_path, COUNT, "-p")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Error: Input must be provided")


def test_the_version_is_told_without_a_script(tmp_path: Path) -> None:
    assert run_once(tmp_path, COUNT, "--version").stdout == b"2.1.330 (Claude Code)\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-p", "x", "--output-format", "stream-json"), b"requires --verbose"),
        (("-p", "--input-format=stream-json"), b"requires output-format=stream-json"),
        ((*STREAM, "--session-id", "not-a-uuid"), b"Must be a valid UUID"),
        ((*STREAM, "--resume=a", f"--session-id={uuid.uuid4()}"), b"also needs --fork-session"),
        ((*STREAM, "--=x"), b"unknown option"),
    ],
)
def test_flags_that_the_real_cli_refuses_are_refused(
    tmp_path: Path, words: tuple[str, ...], text: bytes
) -> None:
    done = run_once(tmp_path, COUNT, *words)
    assert (done.returncode, done.stdout) == (1, b"")
    assert text in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_flags_that_mean_nothing_here_are_accepted(tmp_path: Path) -> None:
    words = (
        "--add-dir",
        "a",
        "b",
        "--max-turns",
        "3",
        "--setting-sources",
        "",
        "--mcp-config={}",
        "--novelty=1",
    )
    assert run_once(tmp_path, [{"reply": "{prompt}"}], "-p", "hello", *words).stdout == b"hello\n"
