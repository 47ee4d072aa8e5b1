from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

import pytest

from proctor.cli.commands import dispatch
from proctor.cli.logs import ROOM, Behind, Json, Text
from tests.proctor.command import proctor
from tests.proctor.scripts import Script

PROMPT = "what-only-the-caller-knows"


def test_a_run_is_logged_on_stderr_as_json_without_what_was_said_R179_L12(home: Path, script: Script) -> None:
    env = {"PROCTOR_LOG": "info", "PROCTOR_LOG_FORMAT": "json"}
    done = proctor("run", script('{"reply": "hello"}'), PROMPT, "--quiet", home=home, env=env)
    assert (done.status, done.out) == (0, "hello\n")
    records = [json.loads(line) for line in done.err.splitlines()]
    assert [record["event"] for record in records] == [
        "adapter_init",
        "run_start",
        "stream_end",
        "adapter_exit",
    ]
    assert {record["level"] for record in records} == {"info"}
    assert {record["logger"] for record in records} == {"proctor.agent"}
    assert records[1]["prompt_chars"] == len(PROMPT)
    assert records[2]["outcome"] == "ok"
    assert PROMPT not in done.err


def test_the_log_is_text_as_well_and_a_wrong_wish_is_said(home: Path, script: Script) -> None:
    agent = script('{"reply": "hello"}')
    text = proctor("run", agent, "hi", "--quiet", home=home, env={"PROCTOR_LOG": "INFO"})
    assert " info proctor.agent: scripted: the turn ended after " in text.err
    wrong = proctor("run", agent, "hi", "--quiet", home=home, env={"PROCTOR_LOG": "loud"})
    assert (wrong.status, wrong.complaint) == (
        0,
        "proctor: PROCTOR_LOG 'loud' is not a choice; accepted: debug, info, warning, error",
    )


def test_a_server_that_starts_is_logged_R179(home: Path) -> None:
    env = {"PROCTOR_LOG": "info", "PROCTOR_LOG_FORMAT": "json"}
    done = proctor("serve", "--agents", "claude", home=home, env=env)
    assert (done.status, done.out) == (0, "")
    records = [json.loads(line) for line in done.err.splitlines()]
    [started] = [record for record in records if record["message"] == "serves stdin and stdout"]
    assert (started["level"], started["logger"]) == ("info", "proctor.serve")


def record(text: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("proctor.x", logging.WARNING, "x.py", 1, text, (), None)
    vars(made).update(fields)
    return made


@pytest.mark.parametrize("shape", ["text", "json"])
def test_a_record_is_one_line_with_its_own_fields(shape: str) -> None:
    if shape == "text":
        assert Text("%(level)s %(name)s: %(message)s").format(record("hi")) == "warning proctor.x: hi"
        return
    told = json.loads(Json().format(record("two\nlines", agent="ä", path=Path("/x"), seconds=1.5)))
    del told["time"]
    assert told == {
        "level": "warning",
        "logger": "proctor.x",
        "message": "two\nlines",
        "agent": "ä",
        "path": "/x",
        "seconds": 1.5,
    }


def test_a_reader_that_does_not_read_holds_up_nobody_and_learns_how_much_it_missed() -> None:
    read, write = os.pipe()
    handler = Behind(write)
    handler.setFormatter(Text("%(message)s"))
    began = time.monotonic()
    for number in range(ROOM + 5000):
        handler.emit(record(f"{number} {'x' * 100}"))
    assert time.monotonic() - began < 30
    seen = b""
    while f"\n{ROOM - 1} ".encode() not in seen:
        seen += os.read(read, 65536)
    handler.emit(record("the last"))
    while b"the last" not in seen:
        seen += os.read(read, 65536)
    assert seen.splitlines()[-1].startswith(b"(")
    assert seen.splitlines()[-1].endswith(b" records were lost before this one) the last")
    handler.finish()
    os.close(read)
    os.close(write)


def test_a_command_called_inside_a_program_leaves_its_logging_alone(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert dispatch(["up", str(tmp_path / "no-such.toml")]) == 2
    logging.getLogger("proctor.agent").warning("still ours")
    assert [record.message for record in caplog.records] == ["still ours"]
    assert "no-such.toml" in capfd.readouterr().err
