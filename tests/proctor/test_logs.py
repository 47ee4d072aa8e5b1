from __future__ import annotations

import json
import logging
import os
import signal
import time
from pathlib import Path

import httpx2
import pytest

from proctor.cli.app import dispatch
from proctor.cli.log import ROOM, BackgroundHandler
from proctor.cli.ui.log_format import JsonFormatter, TextFormatter
from tests.proctor.command import proctor_process, running
from tests.proctor.scripts import Fleet, Script, agent
from tests.proctor.test_degraded import until_absent
from tests.proctor.test_up import CRASHES

PROMPT = "what-only-the-caller-knows"
ASKS = ('{"tool": "Bash", "input": {"command": "rm x"}, "ask": true, "result": "gone"}', '{"reply": "done"}')


@pytest.mark.covers("R179", "L12")
def test_a_run_is_logged_on_stderr_as_json_without_what_was_said(home: Path, script: Script) -> None:
    env = {"PROCTOR_LOG": "info", "PROCTOR_LOG_FORMAT": "json"}
    done = proctor_process("run", script('{"reply": "hello"}'), PROMPT, "--quiet", home=home, env=env)
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
    text = proctor_process("run", agent, "hi", "--quiet", home=home, env={"PROCTOR_LOG": "INFO"})
    assert " info proctor.agent: scripted: the turn ended after " in text.err
    wrong = proctor_process("run", agent, "hi", "--quiet", home=home, env={"PROCTOR_LOG": "loud"})
    assert (wrong.status, wrong.complaint) == (
        0,
        "proctor: PROCTOR_LOG 'loud' is not a choice; accepted: debug, info, warning, error",
    )


@pytest.mark.covers("R179")
def test_a_server_that_starts_is_logged(home: Path) -> None:
    env = {"PROCTOR_LOG": "info", "PROCTOR_LOG_FORMAT": "json"}
    done = proctor_process("serve", "--agents", "claude", home=home, env=env)
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
        assert (
            TextFormatter("%(level)s %(name)s: %(message)s").format(record("hi")) == "warning proctor.x: hi"
        )
        return
    told = json.loads(JsonFormatter().format(record("two\nlines", agent="ä", path=Path("/x"), seconds=1.5)))
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
    handler = BackgroundHandler(write)
    handler.setFormatter(TextFormatter("%(message)s"))
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


def test_a_server_logs_by_default_what_befalls_its_agents_and_nothing_but_json(
    home: Path, fleet: Fleet
) -> None:
    crashing = agent("a", script='"a.ndjson"', prompt='"x"', on_crash='"retry"')
    asking = agent("b", script='"b.ndjson"', permission='"ask"')
    refused = agent("c", script='"c.ndjson"')
    path = fleet(
        "intensity = 1\nperiod = 60",
        crashing,
        asking,
        refused,
        a=CRASHES,
        b=ASKS,
        c=('{"end": "authentication"}',),
    )
    env = {"PROCTOR_LOG_FORMAT": "json"}
    with running("web", str(path), "--listen", "127.0.0.1:0", "--no-token", home=home, env=env) as command:
        first = command.said(b'"message": "serving fleet on ', command.err).decode()
        where = json.loads(first.splitlines()[-1])["message"].rpartition(" ")[2]
        with httpx2.Client(base_url=where, timeout=30, verify=False) as client:
            until_absent(client)
            client.post("/agents/c/turns", json={"prompt": PROMPT})
            client.post("/agents/b/turns", json={"prompt": PROMPT}, headers={"prefer": "respond-async"})
            [question] = until_asked(client)
            client.post(f"/agents/b/approvals/{question['id']}", json={"decision": "allow"})
            client.post("/agents/b/stop")
        command.signal(signal.SIGTERM)
        said = first + command.err.read().decode()
        assert command.end() == 0
    facts = [json.loads(line) for line in said.splitlines()]
    by_event = {record.get("event"): record for record in facts}
    assert by_event["adapter_exit"]["level"] in ("info", "warning")
    restarts = [record for record in facts if record.get("event") == "child_restarting"]
    assert [(record["child"], record["cause"], record["level"]) for record in restarts] == [
        ("a", "killed by SIGKILL", "warning")
    ]
    assert "(1 of 1 in 1 min)" in restarts[0]["message"]
    assert (by_event["max_restarts"]["child"], by_event["max_restarts"]["cause"]) == (
        "a",
        "killed by SIGKILL",
    )
    assert (by_event["agent_failed"]["agent"], by_event["agent_failed"]["level"]) == ("c", "warning")
    assert (by_event["approval"]["agent"], by_event["http_approval_answered"]["decision"]) == ("b", "allow")
    assert by_event["http_agent_stopped"]["agent"] == "b"
    assert PROMPT not in said


def until_asked(client: httpx2.Client) -> list[dict[str, str]]:
    """The open questions of agent b, once there is one."""
    limit = time.monotonic() + 60
    while not (found := client.get("/agents/b/approvals").json()["approvals"]):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return list(found)


def test_a_command_that_serves_on_stdin_says_on_stderr_that_it_is_up(home: Path) -> None:
    done = proctor_process("serve", "--agents", "claude", home=home)
    assert done.status == 0
    assert "info proctor.serve: serves stdin and stdout" in done.err


def test_what_a_command_says_is_json_too_when_it_is_asked_for(home: Path, tmp_path: Path) -> None:
    done = proctor_process("web", str(tmp_path / "none.toml"), home=home, env={"PROCTOR_LOG_FORMAT": "json"})
    assert done.status == 2
    assert "cannot be read" in json.loads(done.complaint)["message"]
