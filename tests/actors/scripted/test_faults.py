from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from proctor.actors.scripted.script import FAULTS
from tests.actors.scripted.host import Frame, Host, pid_alive, run_once

HELLO: list[Frame] = [{"reply": "hello {prompt}"}]


def fault(*specs: str) -> list[str]:
    return [f"--fault={spec}" for spec in specs]


def types(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["type"] for line in lines]


@pytest.mark.covers("R189", "L32")
def test_crash_kills_the_process_after_its_line(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("crash@line=2")) as host:
        host.prompt("x", named=False)
        assert types(host.rest()) == ["system", "assistant"]
        assert host.wait() == -signal.SIGKILL


def test_crash_in_a_later_turn_leaves_the_first_alone(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("crash@turn=2")) as host:
        assert host.ask("x")["result"] == "hello x"
        host.prompt("y")
        assert types(host.rest())[-1] == "system"
        assert host.wait() == -signal.SIGKILL


def test_crash_in_the_greeting_comes_before_the_reply_or_after_it(tmp_path: Path) -> None:
    for line, answers in ((0, 0), (1, 1)):
        with Host(tmp_path, HELLO, *fault(f"crash@turn=0@line={line}")) as host:
            host.request("initialize")
            assert len(host.rest()) == answers
            assert host.wait() == -signal.SIGKILL


def test_a_fault_once_leaves_the_resumed_session_alone(tmp_path: Path) -> None:
    flags = fault("crash@once")
    with Host(tmp_path, HELLO, *flags) as host:
        host.prompt("x")
        session = host.until("system", "init")[-1]["session_id"]
        assert host.rest() == []
    with Host(tmp_path, HELLO, f"--resume={session}", *flags) as host:
        assert host.ask("y")["result"] == "hello y"


def test_a_fault_once_under_a_key_needs_no_session(tmp_path: Path) -> None:
    flags = fault("crash@turn=0@once=greeting")
    with Host(tmp_path, HELLO, *flags) as host:
        host.request("initialize")
        host.rest()
        assert host.wait() == -signal.SIGKILL
    with Host(tmp_path, HELLO, *flags) as host:
        assert host.ask("x")["is_error"] is False


def test_faults_come_from_the_environment_too(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, env={"PROCTOR_FAULT": "garbage, exit:4@line=2"}) as host:
        host.prompt("x")
        assert b"[SandboxDebug] this line is not JSON\n" in host.rest()
        assert host.wait() == 4


def test_exit_leaves_with_its_status(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("exit:7")) as host:
        host.prompt("x", named=False)
        assert types(host.rest()) == ["system"]
        assert host.wait() == 7


def test_stop_is_stopped_and_goes_on_when_it_is_continued(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("stop")) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        _, status = os.waitpid(host.process.pid, os.WUNTRACED)
        assert (os.WIFSTOPPED(status), host.quiet()) == (True, True)
        host.process.send_signal(signal.SIGCONT)
        assert host.result()["result"] == "hello x"


def test_mute_closes_its_output_and_stays(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("mute")) as host:
        host.prompt("x", named=False)
        host.rest()
        assert host.process.poll() is None
        host.process.terminate()
        assert host.wait() == 143


def test_hang_answers_nothing_any_more_and_dies_by_sigterm(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("hang")) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        host.request("interrupt")
        host.stdin.close()
        assert host.quiet()
        host.process.terminate()
        assert host.wait() == 143


@pytest.mark.covers("R189")
@pytest.mark.parametrize(("arg", "least"), [("2500", 2500), ("300KB", 1000)])
def test_flood_writes_so_many_lines_and_the_turn_goes_on(tmp_path: Path, arg: str, least: int) -> None:
    with Host(tmp_path, HELLO, *fault(f"flood:{arg}")) as host:
        host.prompt("x")
        frames = host.until("result")
        assert len([f for f in frames if f["type"] == "stream_event"]) >= least
        assert frames[-1]["result"] == "hello x"


def test_ignore_eof_stays_after_the_end_of_stdin(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("ignore_eof")) as host:
        host.ask("x")
        host.until("command_lifecycle")
        host.stdin.close()
        assert host.quiet()
        assert host.process.poll() is None
        host.process.terminate()
        assert host.wait() == 143


def test_ignore_eof_still_ends_when_asked(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("ignore_eof")) as host:
        host.request("end_session")
        host.rest()
        assert host.wait() == 0


@pytest.mark.covers("R189")
def test_ignore_term_goes_on_through_every_signal_but_kill(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("ignore_term")) as host:
        host.reply(host.request("initialize"))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            host.process.send_signal(number)
        assert host.ask("x")["result"] == "hello x"


@pytest.mark.covers("R070")
def test_garbage_prints_lines_that_are_not_json_and_the_turn_goes_on(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("garbage:3")) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        assert [host.line() for _ in range(3)] == [b"[SandboxDebug] this line is not JSON\n"] * 3
        assert host.result()["result"] == "hello x"


def test_bad_utf8_is_one_line_that_does_not_decode(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("bad_utf8")) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        with pytest.raises(UnicodeDecodeError):
            (host.line() or b"").decode()
        assert host.result()["result"] == "hello x"


def test_oversized_is_one_frame_of_so_many_megabytes(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("oversized:3")) as host:
        host.prompt("x", named=False)
        host.until("system", "init")
        assert len(host.line() or b"") > 3_000_000
        assert host.result()["result"] == "hello x"


def test_stderr_is_filled_with_so_many_bytes(tmp_path: Path) -> None:
    done = run_once(tmp_path, HELLO, "-p", "x", *fault("stderr:200KB"))
    assert len(done.stderr) == 200_000
    assert done.stdout == b"hello x\n"


@pytest.mark.covers("L31")
def test_exit_after_success_disagrees_with_the_result(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("exit_after_success:3")) as host:
        assert host.ask("x")["is_error"] is False
        assert host.wait() == 3


def test_exit_after_success_waits_for_a_success(tmp_path: Path) -> None:
    with Host(tmp_path, [{"end": "api_error"}, *HELLO], *fault("exit_after_success:3")) as host:
        assert host.ask("x")["is_error"] is True
        assert host.ask("x")["is_error"] is False
        assert host.wait() == 3


@pytest.mark.covers("L29")
def test_linger_stays_after_the_final_event_whatever_the_host_says(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("linger")) as host:
        host.ask("x")
        host.reply(host.request("end_session"))
        host.stdin.close()
        assert host.quiet()
        host.process.terminate()
        assert host.wait() == 143


@pytest.mark.covers("L29")
def test_linger_keeps_a_one_shot_run_too(tmp_path: Path) -> None:
    words = fault("linger")
    with Host(tmp_path, HELLO, "--input-format=text", *words) as host:
        host.stdin.write(b"x")
        host.stdin.close()
        assert host.result()["result"] == "hello x"
        assert host.quiet()
        host.process.terminate()
        assert host.wait() == 143


@pytest.mark.covers("L30")
def test_error_then_silence_reports_an_error_and_never_ends_the_turn(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("error_then_silence")) as host:
        host.prompt("x", named=False)
        assert host.until("assistant")[-1]["error"] == "server_error"
        host.request("interrupt")
        assert host.quiet()


@pytest.mark.covers("L37")
def test_refuse_resume_knows_no_session(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO) as host:
        session = host.ask("x")["session_id"]
    with Host(tmp_path, HELLO, f"--resume={session}", *fault("refuse_resume@once")) as host:
        assert host.frame()["errors"] == [f"No conversation found with session ID: {session}"]
        assert host.wait() == 1
    with Host(tmp_path, HELLO, f"--resume={session}", *fault("refuse_resume@once")) as host:
        assert host.ask("y")["session_id"] == session


@pytest.mark.covers("L38")
def test_limit_refuses_until_its_reset_and_then_works_again(tmp_path: Path) -> None:
    flags = fault("limit:1")
    with Host(tmp_path, HELLO, *flags) as host:
        host.prompt("x", named=False)
        frames = host.until("result")
        assert [f["type"] for f in frames] == ["system", "rate_limit_event", "assistant", "result"]
        info, result = frames[1]["rate_limit_info"], frames[-1]
        assert info["status"] == "rejected"
        assert 0 < info["resetsAt"] - time.time() <= 2
        assert (frames[2]["error"], result["api_error_status"], result["is_error"]) == (
            "rate_limit",
            429,
            True,
        )
        assert host.ask("y")["api_error_status"] == 429
        assert host.close() == 1
    time.sleep(max(0.0, info["resetsAt"] - time.time()))
    with Host(tmp_path, HELLO, f"--resume={result['session_id']}", *flags) as host:
        assert host.ask("z")["result"] == "hello z"


@pytest.mark.covers("L33")
def test_daemon_leaves_a_process_that_outlives_the_agent(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("daemon:60")) as host:
        host.prompt("x")
        notice = host.until("system", "informational")[-1]
        pid = int(re.findall(r"\d+", notice["content"])[0])
        assert host.result()["result"] == "hello x"
        assert host.close() == 0
    assert pid_alive(pid)
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGKILL)


def test_silent_greeting_never_answers_initialize(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("silent_greeting")) as host:
        host.request("initialize")
        assert host.quiet()
        assert host.close() == 0


def test_cut_dies_in_the_middle_of_a_line(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("cut@line=2")) as host:
        host.prompt("x", named=False)
        first, last = host.rest()
        assert json.loads(first)["subtype"] == "init"
        assert last.startswith(b'{"type":"assistant"')
        assert not last.endswith(b"\n")
        assert host.wait() == -signal.SIGKILL


def test_slow_delays_every_line(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("slow:0.1")) as host:
        begun = time.monotonic()
        host.prompt("x", named=False)
        host.result()
        assert time.monotonic() - begun >= 0.3


@pytest.mark.covers("L36")
def test_auth_retries_and_ends_with_401(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("auth:2")) as host:
        host.prompt("x", named=False)
        frames = host.until("result")
        assert [f["attempt"] for f in frames if f.get("subtype") == "api_retry"] == [1, 2]
        assert frames[-2]["error"] == "authentication_failed"
        assert (frames[-1]["subtype"], frames[-1]["api_error_status"]) == ("success", 401)


def test_retry_reports_its_attempts_and_succeeds(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("retry:2")) as host:
        host.prompt("x", named=False)
        frames = host.until("result")
        assert [f["attempt"] for f in frames if f.get("subtype") == "api_retry"] == [1, 2]
        assert frames[-1]["is_error"] is False


@pytest.mark.covers("L39")
def test_approval_never_asks_and_ignores_the_answer(tmp_path: Path) -> None:
    with Host(tmp_path, HELLO, *fault("approval_never")) as host:
        host.prompt("x", named=False)
        asked = host.until("control_request")[-1]["request_id"]
        host.answer(asked, behavior="allow", updatedInput={})
        assert host.quiet()
        host.request("interrupt")
        assert host.frame() == {"type": "control_cancel_request", "request_id": asked}
        assert host.result()["terminal_reason"] == "aborted_tools"


@pytest.mark.covers("L10")
def test_lost_prompt_exits_with_success_and_says_nothing(tmp_path: Path) -> None:
    words = ("-p", "--output-format", "stream-json", "--verbose", *fault("lost_prompt"))
    done = run_once(tmp_path, HELLO, *words, stdin=b"x")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_fault_may_be_a_step_of_the_script(tmp_path: Path) -> None:
    script: list[Frame] = [{"say": "working"}, {"fault": "crash@once"}, {"reply": "done"}]
    with Host(tmp_path, script) as host:
        host.prompt("x")
        session = host.until("assistant")[-1]["session_id"]
        assert host.rest() == []
        assert host.wait() == -signal.SIGKILL
    with Host(tmp_path, script, f"--resume={session}") as host:
        assert host.ask("x")["result"] == "done"


def test_every_fault_has_a_test() -> None:
    named = set(re.findall(r'fault\(f?"([a-z0-9_]+)', Path(__file__).read_text()))
    assert named == set(FAULTS)
