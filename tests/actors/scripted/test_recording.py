from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.scripted import check_script
from proctor.actors.scripted.script import load_script
from tests.actors.scripted.host import Frame, Host, run_program

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "claude"
NAMES = sorted(path.name.removesuffix(".stdout.ndjson") for path in TRANSCRIPTS.glob("*.stdout.ndjson"))
SMALL = [name for name in NAMES if (TRANSCRIPTS / f"{name}.stdout.ndjson").stat().st_size < 1_000_000]


def lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line and b"__elided__" not in line]


def recorded(name: str) -> list[bytes]:
    return lines(TRANSCRIPTS / f"{name}.stdout.ndjson")


def frames(data: list[bytes]) -> list[Frame]:
    return [json.loads(line) for line in data]


def test_every_frame_of_a_recording_is_in_one_place() -> None:
    def is_split(name: str) -> bool:
        script, all_lines = load_script(str(TRANSCRIPTS / name)), recorded(name)
        replies = [reply for kept in script.replies.values() for reply in kept]
        turns = [*script.greeting, *(line for turn in script.turns for _, line in turn.frames)]
        in_turns = set(turns)
        complete = len(turns) + len(replies) == len(all_lines)
        return complete and [line for line in all_lines if line in in_turns] == turns

    assert len(SMALL) > 200
    assert [name for name in SMALL if not is_split(name)] == []


ONESHOT = (
    "b_stream",
    "c_partial_tool",
    "d_parallel",
    "d_subagent",
    "i_flaky",
    "k_hook_events",
    "w_bg_default",
)
BROKEN = (
    "l_sigkill_bash",
    "l_sigterm_bash",
    "l_sighup_bash",
    "f_crash_stream1",
    "l_sigterm_startup",
    "i_401",
)


@pytest.mark.parametrize("name", [*ONESHOT, *BROKEN])
def test_a_recorded_run_is_repeated_with_its_exit(name: str) -> None:
    meta = json.loads((TRANSCRIPTS / f"{name}.meta.json").read_bytes())
    words = ("-p", "--output-format", "stream-json", "--verbose")
    done = run_program(TRANSCRIPTS / name, *words, stdin=b"go")
    assert done.stdout.splitlines() == recorded(name)
    assert done.stderr == (TRANSCRIPTS / f"{name}.stderr.txt").read_bytes()
    assert done.returncode == meta["exit_code"]


def test_a_recorded_session_answers_each_prompt_with_its_turn(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_queue") as host:
        texts = [host.ask("x").get("result") for _ in range(2)]
    results = [f.get("result") for f in frames(recorded("e_queue")) if f["type"] == "result"]
    assert texts == results[:2]


def test_the_ids_that_the_host_chooses_now_replace_the_recorded_ones(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_queue") as host:
        name = host.prompt("x")
        told = host.until("result")
        assert {
            f["command_uuid"] for f in told if f["type"] == "command_lifecycle" and f["state"] == "started"
        } == {name}
        assert told[-1]["user_message_uuids"] == [name]


def test_a_result_gets_the_id_of_the_prompt_where_the_recorded_host_gave_none(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_session") as host:
        name = host.prompt("x")
        assert host.result()["user_message_uuids"] == [name]


def test_requests_get_the_recorded_replies_under_the_ids_of_now(tmp_path: Path) -> None:
    wanted = {
        f["response"].get("request_id"): f["response"]
        for f in frames(recorded("e_session"))
        if "response" in f
    }
    with Host(tmp_path, TRANSCRIPTS / "e_session") as host:
        assert host.reply(host.request("initialize"))["response"] == wanted["init-1"]["response"]
        assert host.reply(host.request("set_model"))["response"] == {"model": "claude-haiku-4-5"}
        assert host.reply(host.request("novelty"))["error_code"] == "unsupported_request"


def test_a_recorded_question_waits_for_the_answer_of_now(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_perm_rewrite") as host:
        host.prompt("x")
        asked = host.until("control_request")[-1]["request_id"]
        assert host.quiet()
        host.answer(asked, behavior="allow")
        assert host.result()["subtype"] == "success"


def test_an_interrupt_cuts_a_recorded_turn(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_perm_rewrite") as host:
        host.prompt("x")
        asked = host.until("control_request")[-1]["request_id"]
        host.request("interrupt")
        assert host.frame() == {"type": "control_cancel_request", "request_id": asked}
        assert host.result()["subtype"] == "error_during_execution"


def test_a_prompt_after_the_end_of_a_recording_ends_with_an_error(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "b_stream") as host:
        host.ask("x")
        assert host.ask("y")["errors"] == ["no turn of the script answers this prompt"]


def test_a_resumed_recording_goes_on_with_its_next_turn(tmp_path: Path) -> None:
    script = TRANSCRIPTS / "e_queue"
    with Host(tmp_path, script) as host:
        session = host.ask("x")["session_id"]
    with Host(tmp_path, script, f"--resume={session}") as host:
        second = host.ask("y")
    results = [f for f in frames(recorded("e_queue")) if f["type"] == "result"]
    assert second["uuid"] == results[1]["uuid"]


def test_turns_that_nobody_asked_for_follow_the_turn_before_them(tmp_path: Path) -> None:
    with Host(tmp_path, TRANSCRIPTS / "e_end_session_bg") as host:
        script = load_script(str(TRANSCRIPTS / "e_end_session_bg"))
        host.prompt("x")
        told = [host.frame() for _ in script.turns[0].frames]
        assert told[-1] == json.loads(script.turns[0].frames[-1][1])


def run_directory(folder: Path, times: list[float] | None, exit_code: int | None = 0) -> Path:
    folder.mkdir()
    told: list[dict[str, Any]] = [
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "result", "subtype": "success", "is_error": False, "result": "a", "session_id": "s"},
    ]
    (folder / "stdout.ndjson").write_text("".join(json.dumps(frame) + "\n" for frame in told))
    (folder / "meta.json").write_text(json.dumps({"line_times_s": times, "exit_code": exit_code}))
    return folder


def test_a_run_directory_is_a_script_without_the_files_it_lacks(tmp_path: Path) -> None:
    folder = run_directory(tmp_path / "run", None, None)
    check_script(folder)
    with Host(tmp_path, folder) as host:
        assert host.ask("x")["result"] == "a"
        assert host.close() == 0


@pytest.mark.parametrize(("speed", "least"), [("0", 0.0), ("2", 0.3)])
def test_speed_keeps_the_recorded_pauses(tmp_path: Path, speed: str, least: float) -> None:
    folder = run_directory(tmp_path / "run", [0.1, 0.8])
    with Host(tmp_path, folder, f"--speed={speed}") as host:
        begun = time.monotonic()
        host.ask("x")
        assert time.monotonic() - begun >= least


def test_a_fault_acts_in_a_recording_too(tmp_path: Path) -> None:
    folder = run_directory(tmp_path / "run", None)
    with Host(tmp_path, folder, "--fault=crash") as host:
        host.prompt("x")
        assert len(host.rest()) == 1
        assert host.wait() == -9
