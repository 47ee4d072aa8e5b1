from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from proctor.protocols.vocabulary import AnyEvent
from tests.proctor.command import (
    PATIENCE,
    PROCTOR,
    Terminal,
    environment,
    processes_with,
    proctor,
    proctor_process,
    running,
    wait_recorded,
)
from tests.proctor.scripts import HANGS, Script

ECHO = '{"reply": "You said: {prompt}"}'
STUBBORN = (
    '{"fault": "ignore_eof"}',
    '{"fault": "ignore_term"}',
    '{"say": "I begin."}',
    '{"fault": "hang"}',
    ECHO,
)


def test_the_answer_is_on_stdout_and_the_rest_on_stderr(home: Path, script: Script) -> None:
    done = proctor(
        "run", script('{"tool": "Bash", "input": {"command": "ls -l"}, "result": "x"}', ECHO), "hi", home=home
    )
    assert (done.status, done.out) == (0, "You said: hi\n")
    assert "Bash: ls -l" in done.err


def test_quiet_says_nothing_beside_the_answer(home: Path, script: Script) -> None:
    assert proctor("run", script(ECHO), "hi", "--quiet", home=home).err == ""


def test_text_is_shown_once_whether_it_came_in_pieces_or_not(home: Path, script: Script) -> None:
    agent = script('{"say": "one two three", "deltas": 3}', '{"reply": "four"}')
    assert proctor("run", agent, "hi", home=home).out == "one two three\nfour\n"


def test_every_line_of_json_decodes_and_the_last_is_the_answer(home: Path, script: Script) -> None:
    done = proctor("run", script('{"reply": "a b", "deltas": 2}'), "hi", "--json", home=home)
    *lines, last = done.out.splitlines()
    kinds = [type(msgspec.json.decode(line, type=AnyEvent)).__name__ for line in lines]
    assert [kinds.count(kind) for kind in ("TextDelta", "Text", "TurnEnded")] == [2, 1, 1]
    answer = msgspec.json.decode(last)
    assert (answer["type"], answer["ok"], answer["text"]) == ("answer", True, "a b")
    assert (Path(answer["recording"]) / "1" / "stdout.ndjson").is_file()


def test_a_run_that_cannot_start_ends_json_with_a_failure_record(home: Path) -> None:
    done = proctor("run", "claude", "hi", "--json", "--executable=/nowhere/claude", home=home)
    assert msgspec.json.decode(done.out)["error"] == "NotInstalled"
    assert done.status == 69


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("claud", "hi"),
            "unknown agent 'claud' (did you mean 'claude'?); known: claude, codex, opencode, gemini, acp:COMMAND, scripted:FILE",
        ),
        (
            ("llama", "hi"),
            "unknown agent 'llama'; known: claude, codex, opencode, gemini, acp:COMMAND, scripted:FILE",
        ),
        (("claude:x", "hi"), "agent 'claude:x': 'claude' takes no argument"),
        (("scripted", "hi"), "agent 'scripted' needs a FILE: write scripted:FILE"),
        (("scripted:nowhere", "hi"), "nowhere"),
        (("claude", "hi", "--timeout=soon"), "--timeout must be a duration such as 90, '30s' or '1h30m'"),
        (("claude", "hi", "--env=NOT_SET_HERE"), "--env 'NOT_SET_HERE': not set here"),
        (("claude", "hi", "--cwd=nowhere"), "--cwd must be the path of a directory, got 'nowhere'"),
        (("claude", "hi", "--permission=ask"), "--permission 'ask': there is no terminal to ask at"),
        (("claude", "hi", "--permission=alow"), 'Did you mean "allow"?'),
        (("claude", "hi", "--modell=x"), "unknown option '--modell' (did you mean '--model'?)"),
        (("claude", "-x"), "unknown option '-x'; put a prompt that starts with - after --"),
        (("claude", "hi", "there"), "too many words: 'there'; put a prompt of several words in quotes"),
        ((), "AGENT needs a value"),
        (("claude", ""), "the prompt is empty"),
        (("claude", "hi", "--record=x", "--no-record"), "exclude each other"),
    ],
)
def test_wrong_words_are_one_line_and_status_2(home: Path, words: tuple[str, ...], line: str) -> None:
    executable = home / "claude"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    done = proctor("run", *words, home=home, env={"PROCTOR_CLAUDE": str(executable)})
    assert done.status == 2
    assert done.complaint.startswith("proctor: ")
    assert line in done.complaint
    assert done.out == ""


def test_a_command_that_is_not_known_is_one_line(home: Path) -> None:
    done = proctor("rnu", home=home)
    assert (done.status, "unknown command 'rnu' (did you mean 'run'?)" in done.complaint) == (2, True)


@pytest.mark.covers("R022", "R023", "R028")
def test_an_agent_that_is_not_installed_is_told_with_the_places_and_the_cure(
    home: Path,
) -> None:
    done = proctor("run", "claude", "hi", home=home, env={"PATH": ""})
    assert done.status == 69
    assert "(looked for PROCTOR_CLAUDE (not set); 'claude' on PATH ()" in done.complaint
    assert "npm install -g @anthropic-ai/claude-code" in done.complaint
    kept = [
        path.relative_to(home / "state").parts[:2] for path in (home / "state").rglob("*") if path.is_file()
    ]
    assert set(kept) <= {
        ("proctor", "scripted")
    }  # the agent's own sessions, as a real one keeps them in its home


def test_a_prompt_from_stdin_is_the_same_with_a_dash_and_without(home: Path, script: Script) -> None:
    agent = script(ECHO)
    for words in (("run", agent, "-"), ("run", agent)):
        assert proctor(*words, home=home, stdin=b"from a pipe").out == "You said: from a pipe\n"


@pytest.mark.covers("C06")
def test_a_prompt_of_5_mb_arrives_whole(home: Path, script: Script) -> None:
    agent = script('{"reply": "{prompt}"}')
    prompt = "".join(f"{n:07}\n" for n in range(5 * 2**20 // 8)).rstrip()
    done = proctor("run", agent, "-", "--json", home=home, stdin=prompt.encode())
    assert msgspec.json.decode(done.out.splitlines()[-1])["text"] == prompt


@pytest.mark.parametrize(
    "words",
    [
        ("-x is odd",),
        ("--", "-x is odd"),
        ("--quiet", "-x is odd"),
        ("-x is odd", "--quiet"),
    ],
)
def test_a_prompt_that_starts_with_a_dash_arrives(home: Path, script: Script, words: tuple[str, ...]) -> None:
    assert proctor("run", script(ECHO), *words, home=home).out == "You said: -x is odd\n"  # R187


@pytest.mark.covers("R187")
def test_a_prompt_with_shell_words_arrives_verbatim(home: Path, script: Script) -> None:
    prompt = "$(rm -rf x); `y` && \"z\" 'q' \\ | > *"
    assert proctor("run", script(ECHO), prompt, home=home).out == f"You said: {prompt}\n"


@pytest.mark.parametrize(
    ("stdin", "line"),
    [
        (b"abc\xffdef", "the prompt on stdin is not UTF-8: byte 3 is 0xff"),
        (b"", "the prompt on stdin is empty"),
        (b" \n", "the prompt on stdin is empty"),
    ],
)
def test_a_stdin_that_is_no_prompt_is_one_line(home: Path, script: Script, stdin: bytes, line: str) -> None:
    done = proctor("run", script(ECHO), home=home, stdin=stdin)
    assert done.status == 2
    assert line in done.complaint


def test_a_stdin_that_is_closed_is_one_line(home: Path, script: Script) -> None:
    complaint = b"proctor: stdin is closed: there is no prompt to read\n"
    assert shell('"$0" -m proctor run "$1" <&-', script(ECHO), home) == (2, complaint)


def shell(line: str, agent: str, home: Path) -> tuple[int, bytes]:
    """Status and stderr of a shell's line; `$0` is Python, `$1` the agent."""
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, agent],
        capture_output=True,
        env=environment(home),
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.covers("R044")
def test_a_deadline_is_status_124_and_says_where_the_recording_is(home: Path, script: Script) -> None:
    done = proctor("run", script(*HANGS), "hi", "--timeout=2s", "--quiet", home=home)
    assert done.status == 124
    assert "proctor: scripted did not finish in time" in done.complaint
    recording = Path(done.complaint.partition("(recording: ")[2].rstrip(")"))
    assert (recording / "1" / "stdout.ndjson").is_file()
    assert "I begin." in done.out


def test_a_usage_limit_is_status_75_and_says_until_when(home: Path, script: Script) -> None:
    done = proctor("run", script('{"fault": "limit:3600"}', ECHO), "hi", "--quiet", home=home)
    assert done.status == 75
    assert "scripted is parked on a usage limit until " in done.complaint
    assert "(in " in done.complaint


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (('{"end": "authentication"}',), "scripted is not logged in"),
        (('{"end": "api_error", "status": 500}',), "scripted failed"),
        (('{"end": "max_turns"}',), "scripted used up its turns or its budget"),
        (('{"say": "I begin."}', '{"fault": "exit:3"}', ECHO), "scripted crashed: exit status 3"),
        (
            ('{"say": "I begin."}', '{"fault": "crash"}', ECHO),
            "scripted was killed by the system: killed by SIGKILL",
        ),
    ],
)
def test_a_run_that_fails_is_status_1_and_one_line(
    home: Path, script: Script, lines: tuple[str, ...], said: str
) -> None:
    done = proctor("run", script(*lines), "hi", "--quiet", home=home)
    assert done.status == 1
    assert said in done.complaint


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupt_stops_in_order_and_leaves_nothing(
    home: Path, script: Script, number: signal.Signals, status: int
) -> None:
    agent = script(*HANGS)
    with running("run", agent, "hi", home=home) as command:
        command.said(b"I begin.\n")
        command.signal(number)
        assert command.end() == status
        assert b"stopping; a second signal kills at once" in command.err.read()
    assert processes_with(agent.partition(":")[2]) == []


def test_a_hangup_that_nohup_had_ignored_stays_ignored(home: Path, script: Script) -> None:
    nohup = ("nohup", *PROCTOR, "run", script('{"say": "I begin."}', '{"sleep": 1}', ECHO), "hi")
    pipe = subprocess.PIPE
    with subprocess.Popen(nohup, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(home)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.readline() == b"I begin.\n"
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == 0


def test_what_a_terminal_would_obey_never_reaches_it_in_a_complaint_a_note_or_json(
    home: Path, script: Script
) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    complaints = [
        proctor("run", f"acp:{evil}", "hi", home=home).err,
        proctor("run", "claude", "hi", "--executable", f"/nowhere/{evil}", home=home).err,
        proctor("replay", f"/nowhere/{evil}", home=home).err,
        proctor("up", f"/nowhere/{evil}", home=home).err,
        proctor("run", f"--{evil}", home=home).err,
    ]
    for complaint in complaints:
        assert complaint
        assert not {*complaint} & {*evil} - {*"]0;owned31m"}, complaint
    agent = script('{"say": "\x9b31m\u202e"}', ECHO)
    with Terminal(["run", agent, "hi", "--json"], home) as terminal:
        assert terminal.end() == 0
    assert "\\u009b31m\\u202e" in terminal.shown
    assert not {*terminal.shown} & {"\x9b", "\u202e"}


def test_a_second_interrupt_does_not_wait_for_the_ladder(home: Path, script: Script) -> None:
    agent = script(*STUBBORN)
    with running("run", agent, "hi", home=home) as command:
        command.said(b"I begin.\n")
        command.signal(signal.SIGINT)
        command.said(b"a second signal kills", command.err)
        command.signal(signal.SIGINT)
        assert command.end(5) == 130
    assert processes_with(agent.partition(":")[2]) == []


def test_an_interrupted_run_still_ends_json_with_its_answer_record(home: Path, script: Script) -> None:
    with running("run", script(*HANGS), "hi", "--json", home=home) as command:
        command.said(b"I begin.")
        command.signal(signal.SIGINT)
        rest = command.out.read()
        assert command.end() == 130
    last = msgspec.json.decode(rest.splitlines()[-1])
    assert (last["type"], last["ok"]) == ("answer", False)


def test_a_reader_that_leaves_ends_the_run_as_a_broken_pipe_does(home: Path, script: Script) -> None:
    lines = (f'{{"say": "line {n} {"x" * 200}"}}' for n in range(2000))
    agent = script(*lines, '{"sleep": 600}', ECHO)
    with running("run", agent, "hi", home=home) as command:
        command.out.readline()
        command.out.close()
        assert command.end() == 141
        assert b"Traceback" not in command.err.read()
    assert processes_with(agent.partition(":")[2]) == []


@pytest.mark.covers("R053")
def test_a_reader_that_sleeps_gets_every_byte_and_costs_no_memory(home: Path, script: Script) -> None:
    said = [f"{n:06} {'x' * 10_000}" for n in range(3000)]
    agent = script(*(f'{{"say": "{line}"}}' for line in said), '{"reply": "end"}')
    with running("run", agent, "hi", "--quiet", home=home) as command:
        wait_recorded(home / "state" / "proctor" / "runs")
        status = Path(f"/proc/{command.process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 150_000  # kB, of 30 MB said
        assert command.out.read().decode() == "".join(f"{line}\n" for line in (*said, "end"))
        assert command.end() == 0


MEGABYTES = int(os.environ.get("PROCTOR_REQUIREMENTS_MEGABYTES", "10"))
"""How much is written in small pieces for a reader that sleeps; asked for: 1000."""


@pytest.mark.covers("R053")
def test_a_flood_of_pieces_for_a_reader_that_sleeps_costs_no_memory(home: Path, script: Script) -> None:
    agent = script(f'{{"fault": "flood:{MEGABYTES}MB"}}', '{"reply": "the end"}')
    with running("run", agent, "hi", "--quiet", "--timeout=900", home=home) as command:
        meta = wait_recorded(home / "state" / "proctor" / "runs", patience=60 + MEGABYTES)
        status = Path(f"/proc/{command.process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 150_000  # kB
        # what is long is recorded in parts
        recorded = meta.parent.glob("stdout*.ndjson")
        said = sum(part.read_bytes().count(b'"12345678"') for part in recorded)
        assert sum(part.count(b"12345678") for part in iter(lambda: command.out.read(8 * 2**16), b"")) == said
        assert command.end(PATIENCE + MEGABYTES) == 0


@pytest.mark.parametrize(
    ("redirection", "complaint"),
    [
        (">&-", b"proctor: cannot write to stdout: Bad file descriptor\n"),
        (">/dev/full", b"proctor: cannot write to stdout: No space left on device\n"),
    ],
)
def test_a_stdout_that_takes_nothing_is_one_line(
    home: Path, script: Script, redirection: str, complaint: bytes
) -> None:
    assert shell(f'"$0" -m proctor run "$1" hi --quiet {redirection}', script(ECHO), home) == (1, complaint)


def test_a_closed_stderr_hides_no_answer(home: Path, script: Script) -> None:
    assert shell('"$0" -m proctor run "$1" hi 2>&- | grep -q "You said: hi"', script(ECHO), home) == (0, b"")


def test_one_shot_mode_answers_too(home: Path, script: Script) -> None:
    assert proctor("run", script(ECHO), "hi", "--mode=oneshot", home=home).out == "You said: hi\n"


def test_nothing_is_left_in_the_state_folder_without_recording(home: Path, script: Script) -> None:
    assert proctor("run", script(ECHO), "hi", "--no-record", home=home).status == 0
    kept = [
        path.relative_to(home / "state").parts[:2] for path in (home / "state").rglob("*") if path.is_file()
    ]
    assert set(kept) <= {
        ("proctor", "scripted")
    }  # the agent's own sessions, as a real one keeps them in its home


@pytest.mark.covers("R013")
def test_an_environment_variable_and_a_folder_reach_the_agent(
    home: Path, script: Script, tmp_path: Path
) -> None:
    agent = script('{"tool": "Bash", "input": {"command": "x"}, "run": "echo $GIVEN; pwd"}', ECHO)  # R013
    done = proctor("run", agent, "hi", "--json", "--env", "GIVEN=value", "--cwd", str(tmp_path), home=home)
    results = [e for e in map(msgspec.json.decode, done.out.splitlines()) if e["type"] == "tool_result"]
    assert results[0]["text"].split() == ["value", str(tmp_path)]


@pytest.mark.covers("R020", "L12")
def test_the_prompt_is_in_no_message_of_ours(home: Path, script: Script) -> None:
    done = proctor("run", script('{"end": "api_error"}'), "a secret thing", home=home)
    assert "secret" not in done.err


def test_a_state_folder_that_cannot_be_written_is_one_line_with_a_way_out(home: Path, script: Script) -> None:
    (home / "state").write_text("in the way")
    done = proctor("run", script(ECHO), "hi", home=home)
    assert done.status == 1
    assert "cannot write the run directory" in done.complaint
    assert "--no-record runs without a recording" in done.complaint


def test_the_version_is_one_line(home: Path) -> None:
    done = proctor("--version", home=home)
    assert (done.status, done.out.split()[0]) == (0, "proctor")


def test_help_shows_examples_and_the_exit_statuses(home: Path) -> None:
    done = proctor("--help", home=home)
    assert done.status == 0
    assert "proctor run claude" in done.out
    assert "124  deadline" in done.out


def test_without_the_extra_one_line_says_what_to_install(home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith(("cyclopts", "rich", "platformdirs", "_", "proctor")):
            (bare / path.name).symlink_to(path)
    env = environment(home)
    env["PYTHONPATH"] += f"{os.pathsep}{bare}"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "proctor", "run"],
        capture_output=True,
        env=env,
        timeout=PATIENCE,
        check=False,
    )
    expected = b"proctor: the command line needs its extra packages: pip install 'proctor[cli]'\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_an_error_of_our_own_is_one_line_and_a_traceback_on_request(home: Path, tmp_path: Path) -> None:
    (tmp_path / "cyclopts.py").write_text("raise RuntimeError('broken\\nhere')\n")
    broken = {"PYTHONPATH": os.pathsep.join((str(tmp_path), environment(home)["PYTHONPATH"]))}
    done = proctor_process("run", home=home, env=broken)
    expected = "proctor: internal error: RuntimeError: broken here (set PROCTOR_TRACEBACK=1 to see where)"
    assert (done.status, done.complaint) == (70, expected)
    shown = proctor_process("run", home=home, env={**broken, "PROCTOR_TRACEBACK": "1"})
    assert "Traceback" in shown.err
