from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.actors.scripted.host import Frame, Host, pid_alive, run_once

ECHO: list[Frame] = [{"reply": "turn {turn}: {prompt}"}]
SLOW: list[Frame] = [{"say": "one two three", "deltas": 3, "delay": 30}, {"reply": "never"}]


def test_a_prompt_gets_init_text_and_one_result(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        name = host.prompt("hi")
        frames = host.until("result")
        assert [f["state"] for f in frames if f["type"] == "command_lifecycle"] == ["queued", "started"]
        kinds = [(f["type"], f.get("subtype")) for f in frames if f["type"] != "command_lifecycle"]
        assert kinds == [("system", "init"), ("assistant", None), ("result", "success")]
        assert frames[-1]["result"] == "turn 1: hi"
        assert frames[-1]["user_message_uuids"] == [name]
        assert frames[-1]["terminal_reason"] == "completed"
        assert host.frame()["state"] == "completed"
        assert host.close() == 0


def test_initialize_is_answered_before_any_prompt(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO, "--model=sonnet") as host:
        body = host.reply(host.request("initialize", hooks=None))["response"]
        assert body["claude_code_version"] == "2.1.330"
        assert body["models"][0]["resolvedModel"] == "sonnet"
        assert body["pid"] == host.process.pid


def test_each_prompt_plays_the_next_turn_and_the_last_repeats(tmp_path: Path) -> None:
    with Host(tmp_path, [{"reply": "a"}, {"say": "b"}, {"end": "completed"}, {"reply": "c"}]) as host:
        assert [host.ask("x")["result"] for _ in range(4)] == ["a", "b", "c", "c"]


def test_a_turn_with_when_answers_the_prompts_it_matches(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"turn": "sums", "when": "[0-9] ?\\+"},
        {"reply": "a sum"},
        {"turn": ""},
        {"reply": "other"},
    ]
    with Host(tmp_path, script) as host:
        assert [host.ask(p)["result"] for p in ("1 + 1", "hello", "2+2")] == ["a sum", "other", "a sum"]


def test_a_prompt_that_no_turn_answers_ends_with_an_error(tmp_path: Path) -> None:
    with Host(tmp_path, [{"turn": "t", "when": "sesame"}, {"reply": "open"}]) as host:
        assert host.ask("pepper")["errors"] == ["no turn of the script answers this prompt"]
        assert host.ask("sesame")["result"] == "open"


def test_partial_messages_come_only_when_asked_for(tmp_path: Path) -> None:
    script: list[Frame] = [{"think": "hm"}, {"reply": "abcdef", "deltas": 3}]
    with Host(tmp_path, script) as host:
        host.prompt("x")
        assert not [f for f in host.until("result") if f["type"] == "stream_event"]
    with Host(tmp_path, script, "--include-partial-messages") as host:
        host.prompt("x")
        events = [f["event"] for f in host.until("result") if f["type"] == "stream_event"]
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        assert [d.get("text", d.get("thinking")) for d in deltas] == ["hm", "ab", "cd", "ef"]
        assert events[-1]["type"] == "message_stop"


def test_queued_prompts_get_one_result_each(tmp_path: Path) -> None:
    with Host(tmp_path, [{"sleep": 0.3}, {"reply": "{prompt}"}]) as host:
        names = [host.prompt(text) for text in ("a", "b", "c")]
        results = [host.result() for _ in names]
        assert [r["result"] for r in results] == ["a", "b", "c"]
        assert [r["user_message_uuids"] for r in results] == [[name] for name in names]
        assert results[0]["queued_turn_count"] == 2


def test_an_interrupt_ends_the_turn_and_the_session_lives(tmp_path: Path) -> None:
    with Host(tmp_path, [*SLOW, {"reply": "next"}], "--include-partial-messages") as host:
        host.prompt("x")
        host.until("stream_event")
        request = host.request("interrupt")
        assert host.reply(request)["response"] == {"still_queued": []}
        result = host.result()
        assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
        assert result["terminal_reason"] == "aborted_streaming"
        assert host.ask("y")["result"] == "next"


def test_text_said_before_an_interrupt_is_kept_and_marked(tmp_path: Path) -> None:
    script: list[Frame] = [{"say": "abcdef" * 100, "deltas": 100, "delay": 0.05}]
    with Host(tmp_path, script, "--include-partial-messages") as host:
        host.prompt("x")
        while host.until("stream_event")[-1]["event"]["type"] != "content_block_delta":
            continue
        host.request("interrupt")
        aborted = [f for f in host.until("result") if f.get("aborted")]
        assert aborted[0]["message"]["content"][0]["text"].startswith("abcdef")


def test_an_interrupt_with_nothing_running_changes_nothing(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        assert host.reply(host.request("interrupt"))["response"] == {"still_queued": []}
        assert host.ask("x")["result"] == "turn 1: x"


def test_an_interrupt_right_behind_its_prompt_cuts_that_turn(tmp_path: Path) -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "x"}}
    interrupt = {"type": "control_request", "request_id": "i", "request": {"subtype": "interrupt"}}
    with Host(tmp_path, [*SLOW, {"reply": "next"}]) as host:
        host.send_line(json.dumps(prompt).encode() + b"\n" + json.dumps(interrupt).encode())
        assert host.result()["terminal_reason"] == "aborted_streaming"
        host.send_line(json.dumps(interrupt).encode() + b"\n" + json.dumps(prompt).encode())
        assert host.result()["result"] == "next"


def test_end_session_right_behind_a_prompt_cuts_that_turn(tmp_path: Path) -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "x"}}
    end = {"type": "control_request", "request_id": "e", "request": {"subtype": "end_session"}}
    with Host(tmp_path, SLOW) as host:
        host.send_line(json.dumps(prompt).encode() + b"\n" + json.dumps(end).encode())
        assert host.result()["subtype"] == "error_during_execution"
        assert host.wait() == 1


def test_a_prompt_of_twenty_megabytes_is_taken(tmp_path: Path) -> None:
    with Host(tmp_path, [{"reply": "ok"}]) as host:
        assert host.ask("x" * 20_000_000)["result"] == "ok"


def test_an_interrupt_can_drop_the_queue(tmp_path: Path) -> None:
    with Host(tmp_path, [*SLOW, {"reply": "{prompt}"}]) as host:
        host.prompt("first")
        host.until("system", "init")
        name = host.prompt("second")
        host.until("command_lifecycle")
        request = host.request("interrupt", cancel_queued=True)
        frames = host.until("control_response")
        assert frames[-1]["response"]["request_id"] == request
        assert frames[-1]["response"]["response"] == {"still_queued": [], "cancelled": [name]}
        assert host.result()["terminal_reason"] == "aborted_streaming"
        assert host.ask("third")["result"] == "third"


def test_set_model_shows_in_the_next_turn(tmp_path: Path) -> None:
    with Host(tmp_path, [{"reply": "{model}"}]) as host:
        assert host.reply(host.request("set_model", model="haiku"))["response"] == {"model": "haiku"}
        host.prompt("x")
        frames = host.until("result")
        assert next(f for f in frames if f.get("subtype") == "init")["model"] == "haiku"
        assert frames[-1]["result"] == "haiku"


@pytest.mark.parametrize(
    ("subtype", "fields", "code"),
    [
        ("set_permission_mode", {"mode": "bogus"}, "invalid_mode"),
        ("set_permission_mode", {"mode": "bypassPermissions"}, "bypass_not_launched"),
        ("no_such_thing", {}, "unsupported_request"),
    ],
)
def test_requests_that_the_real_cli_refuses_are_refused(
    tmp_path: Path, subtype: str, fields: dict[str, str], code: str
) -> None:
    with Host(tmp_path, ECHO) as host:
        reply = host.reply(host.request(subtype, **fields))
        assert (reply["subtype"], reply["error_code"]) == ("error", code)


def test_end_session_idle_exits_with_success(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        host.ask("x")
        assert "response" not in host.reply(host.request("end_session"))
        assert host.wait() == 0


def test_end_session_in_a_turn_aborts_it_and_exits_with_failure(tmp_path: Path) -> None:
    with Host(tmp_path, SLOW) as host:
        host.prompt("x")
        host.until("system", "init")
        host.request("end_session")
        assert host.result()["subtype"] == "error_during_execution"
        assert host.wait() == 1


TOOL: Frame = {"tool": "Bash", "input": {"command": "touch a"}, "ask": True, "result": "ran {input}"}


def test_a_question_is_asked_and_the_rewritten_input_used(tmp_path: Path) -> None:
    with Host(tmp_path, [TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        request = host.until("control_request")[-1]
        assert request["request"]["subtype"] == "can_use_tool"
        assert request["request"]["input"] == {"command": "touch a"}
        host.answer(request["request_id"], behavior="allow", updatedInput={"command": "touch b"})
        frames = host.until("result")
        assert frames[0]["message"]["content"][0]["content"] == 'ran {"command":"touch b"}'
        assert frames[-1]["permission_denials"] == []


def test_a_denied_tool_does_not_run_and_is_recorded(tmp_path: Path) -> None:
    with Host(tmp_path, [{**TOOL, "run": f"touch {tmp_path}/made"}, {"reply": "done"}]) as host:
        host.prompt("x")
        host.answer(
            host.until("control_request")[-1]["request_id"], behavior="deny", message="policy says no"
        )
        frames = host.until("result")
        content = frames[0]["message"]["content"][0]
        assert (content["content"], content["is_error"]) == ("policy says no", True)
        assert frames[-1]["permission_denials"][0]["tool_name"] == "Bash"
        assert (frames[-1]["result"], frames[-1]["is_error"]) == ("done", False)
        assert not (tmp_path / "made").exists()


def test_a_denial_with_interrupt_ends_the_turn(tmp_path: Path) -> None:
    with Host(tmp_path, [TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        request = host.until("control_request")[-1]["request_id"]
        host.answer(request, behavior="deny", message="stop", interrupt=True)
        assert host.result()["terminal_reason"] == "aborted_tools"


@pytest.mark.covers("L39")
@pytest.mark.parametrize("answer", [{"behavior": "perhaps"}, {"behavior": "allow", "updatedInput": 3}, {}])
def test_a_malformed_answer_is_a_denial(tmp_path: Path, answer: dict[str, object]) -> None:
    with Host(tmp_path, [TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        host.answer(host.until("control_request")[-1]["request_id"], **answer)
        assert len(host.result()["permission_denials"]) == 1


def test_a_session_rule_stops_later_questions(tmp_path: Path) -> None:
    with Host(tmp_path, [TOOL, TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        rule = {
            "type": "addRules",
            "rules": [{"toolName": "Bash"}],
            "behavior": "allow",
            "destination": "session",
        }
        host.answer(
            host.until("control_request")[-1]["request_id"], behavior="allow", updatedPermissions=[rule]
        )
        assert not [f for f in host.until("result") if f["type"] == "control_request"]


def test_an_interrupt_withdraws_an_open_question(tmp_path: Path) -> None:
    with Host(tmp_path, [TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        asked = host.until("control_request")[-1]["request_id"]
        host.request("interrupt")
        assert host.frame() == {"type": "control_cancel_request", "request_id": asked}
        assert host.result()["terminal_reason"] == "aborted_tools"


def test_the_end_of_stdin_denies_an_open_question(tmp_path: Path) -> None:
    with Host(tmp_path, [TOOL, {"reply": "done"}]) as host:
        host.prompt("x")
        host.until("control_request")
        host.stdin.close()
        assert len(host.result()["permission_denials"]) == 1
        assert host.wait() == 0


@pytest.mark.covers("L15")
def test_without_a_surface_for_questions_the_tool_is_denied_at_once(tmp_path: Path) -> None:
    words = ("-p", "go", "--output-format", "stream-json", "--verbose")
    done = run_once(tmp_path, [TOOL, {"reply": "done"}], *words)
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert "permission_denied" in [f.get("subtype") for f in frames]
    assert len(frames[-1]["permission_denials"]) == 1
    assert done.returncode == 0


def running(tmp_path: Path) -> list[Frame]:
    return [{"tool": "Bash", "run": f"echo $$ > {tmp_path}/pid; sleep 60 & wait"}, {"reply": "done"}]


def tool_pid(tmp_path: Path) -> int:
    path = tmp_path / "pid"
    while not (path.exists() and path.read_text().strip()):
        time.sleep(0.01)
    return int(path.read_text())


def test_a_tool_really_runs_and_its_output_is_the_result(tmp_path: Path) -> None:
    with Host(tmp_path, [{"tool": "Bash", "run": "echo out; exit 3"}, {"reply": "done"}]) as host:
        host.prompt("x")
        content = host.until("user")[-1]["message"]["content"][0]
        assert (content["content"], content["is_error"]) == ("out", True)


def test_an_interrupt_kills_the_running_tool(tmp_path: Path) -> None:
    with Host(tmp_path, running(tmp_path)) as host:
        host.prompt("x")
        pid = tool_pid(tmp_path)
        host.request("interrupt")
        assert host.result()["terminal_reason"] == "aborted_tools"
        assert not pid_alive(pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stop_signal_ends_the_process_without_a_result_and_its_tool_too(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Host(tmp_path, running(tmp_path)) as host:
        host.prompt("x")
        pid = tool_pid(tmp_path)
        host.process.send_signal(number)
        assert not [line for line in host.rest() if b'"result"' in line]
        assert host.wait() == code
        assert not pid_alive(pid)


def test_sigint_in_a_turn_aborts_it_and_exits_with_success(tmp_path: Path) -> None:
    with Host(tmp_path, SLOW) as host:
        host.prompt("x")
        host.until("system", "init")
        host.process.send_signal(signal.SIGINT)
        assert host.result()["terminal_reason"] == "aborted_streaming"
        assert host.wait() == 0


def test_sigint_idle_exits_with_success(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        host.ask("x")
        host.process.send_signal(signal.SIGINT)
        assert host.wait() == 0


def test_the_end_of_stdin_finishes_the_running_turn_first(tmp_path: Path) -> None:
    with Host(tmp_path, [{"sleep": 0.2}, {"reply": "done"}]) as host:
        host.prompt("x")
        host.stdin.close()
        assert host.result()["result"] == "done"
        assert host.wait() == 0


def test_the_last_result_decides_the_exit_status(tmp_path: Path) -> None:
    with Host(tmp_path, [{"end": "api_error"}, {"reply": "ok"}]) as host:
        assert host.ask("x")["is_error"] is True
        assert host.ask("y")["is_error"] is False
        assert host.close() == 0
    with Host(tmp_path, [{"end": "api_error"}]) as host:
        host.ask("x")
        assert host.close() == 1


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"type":"user","message":', "SyntaxError"),
        (b'{"type":"user","message":{"role":"assistant"}}', "'assistant'"),
    ],
)
def test_a_line_that_is_no_user_message_ends_the_process(tmp_path: Path, line: bytes, text: str) -> None:
    with Host(tmp_path, ECHO) as host:
        host.send_line(line)
        assert host.rest() == []
        assert host.wait() == 1
        assert text in host.error()


def test_blank_lines_unknown_types_and_a_missing_newline_are_accepted(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        host.stdin.write(
            b'\r\n\n{"type":"novelty"}\n{"type":"user","message":{"role":"user","content":"hi"}}'
        )
        host.stdin.close()
        assert host.result()["result"] == "turn 1: hi"
        assert host.wait() == 0


def test_a_line_may_come_byte_by_byte(tmp_path: Path) -> None:
    line = json.dumps(
        {"type": "user", "message": {"role": "user", "content": "gr\u00fc\u00df dich"}}, ensure_ascii=False
    )
    with Host(tmp_path, ECHO) as host:
        for byte in line.encode() + b"\n":
            host.stdin.write(bytes([byte]))
            host.stdin.flush()
        assert host.result()["result"] == "turn 1: gr\u00fc\u00df dich"


def test_content_blocks_are_a_prompt_too(tmp_path: Path) -> None:
    with Host(tmp_path, ECHO) as host:
        blocks = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
        host.send({"type": "user", "message": {"role": "user", "content": blocks}})
        assert host.result()["result"] == "turn 1: a\nb"


def test_a_turn_nobody_asked_for_follows_by_itself(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"reply": "a"},
        {"turn": "news", "unasked": 0.05},
        {"reply": "by the way"},
        {"reply": "b"},
    ]
    with Host(tmp_path, script) as host:
        assert "origin" not in host.ask("x")
        unasked = host.result()
        assert (unasked["result"], unasked["origin"]) == ("by the way", {"kind": "task-notification"})
        assert "user_message_uuids" not in unasked
        assert host.ask("y")["result"] == "b"


ENDS = {
    "authentication": ("success", "api_error", 401),
    "limit": ("success", "api_error", 429),
    "overloaded": ("success", "api_error", 529),
    "api_error": ("success", "api_error", 500),
    "invalid_request": ("success", "api_error", 400),
    "prompt_too_long": ("success", "prompt_too_long", 400),
    "model_not_found": ("success", "api_error", 404),
    "model_refused": ("success", "api_error", None),
    "max_turns": ("error_max_turns", "max_turns", None),
    "budget": ("error_max_budget_usd", "budget_exhausted", None),
    "schema_unmet": ("error_max_structured_output_retries", "structured_output_retry_exhausted", None),
    "error": ("error_during_execution", None, None),
}


@pytest.mark.covers("L31")
@pytest.mark.parametrize("ending", ENDS)
def test_every_ending_has_the_result_of_the_real_cli(tmp_path: Path, ending: str) -> None:
    with Host(tmp_path, [{"end": ending, "text": "why"}]) as host:
        result = host.ask("x")
        assert result["is_error"] is True
        assert (result["subtype"], result.get("terminal_reason"), result["api_error_status"]) == ENDS[ending]
        assert result.get("result", result.get("errors")) in ("why", ["why"])


def test_structured_output_cost_and_usage_are_as_the_script_says(tmp_path: Path) -> None:
    step = {"reply": "x", "structured": {"n": 1}, "cost": 0.5, "usage": {"input_tokens": 7}}
    with Host(tmp_path, [step]) as host:
        result = host.ask("x")
        assert result["structured_output"] == {"n": 1}
        assert result["result"] == '{"n":1}'
        assert result["usage"]["input_tokens"] == 7
        assert host.ask("y")["total_cost_usd"] == 1.0


def test_retries_notices_raw_frames_and_raw_lines_are_written_as_they_are(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"retry": 2, "times": 2, "status": 529, "error": "overloaded", "delay": 0.001},
        {"notice": "mind {turn}", "tag": "t"},
        {"frame": {"type": "hologram", "at": "{turn}"}},
        {"line": "[SandboxDebug]"},
        {"reply": "done"},
    ]
    with Host(tmp_path, script) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        assert [host.frame()["attempt"] for _ in range(2)] == [2, 3]
        assert host.frame()["content"] == "mind 1"
        assert host.frame() == {"type": "hologram", "at": "{turn}"}
        assert host.line() == b"[SandboxDebug]\n"


def test_a_reader_that_went_away_is_ignored(tmp_path: Path) -> None:
    script: list[Frame] = [
        {"sleep": 0.2},
        {"tool": "Bash", "run": f"touch {tmp_path}/made"},
        {"reply": "done"},
    ]
    with Host(tmp_path, script) as host:
        host.prompt("x")
        host.until("system", "init")
        host.stdout.close()
        host.stdin.close()
        assert host.wait() == 0
        assert (tmp_path / "made").exists()
