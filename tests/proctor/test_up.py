from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proctor.command import EXAMPLES, ROOT, Ended, once, processes_with, proctor, running, wait_recorded
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent
from tests.runtime.programs import installed


def told(ended: Ended, who: str) -> list[str]:
    """What was told of one of them, in order."""
    lines = [re.fullmatch(r"\d\d:\d\d:\d\d  (\S+) +(.*)", line) for line in ended.out.splitlines()]
    return [line[2] for line in lines if line and line[1] == who]


def in_order(lines: list[str], *wanted: str) -> bool:
    rest = iter(lines)
    return all(any(re.match(pattern, line) for line in rest) for pattern in wanted)


NO_NETWORK = """
import sys
def refuse(event, details):
    named = event == "socket.connect" and not isinstance(details[1], (str, bytes))
    if named or event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise SystemExit(f"{event} {details}")
sys.addaudithook(refuse)
"""
CRASHES = ('{"say": "I begin."}', '{"fault": "crash"}', '{"reply": "never"}')


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """An environment in which no agent is installed and the command dies of every look at a network."""
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "sitecustomize.py").write_text(NO_NETWORK)
    path = f"{tmp_path / 'offline'}:{ROOT / 'src'}"
    return {"PATH": str(tmp_path / "nothing-is-installed"), "PYTHONPATH": path}


def test_without_a_network_a_look_at_it_ends_the_command(offline: dict[str, str]) -> None:
    look = "import socket; socket.getaddrinfo('localhost', 80)"
    done = subprocess.run([sys.executable, "-c", look], env=offline, check=False, capture_output=True)
    assert b"socket.getaddrinfo" in done.stderr


@pytest.mark.covers("P11")
def test_the_demo_tells_of_an_answer_a_death_a_resumption_and_a_limit(
    home: Path, offline: dict[str, str]
) -> None:
    done = proctor("up", str(EXAMPLES / "demo.toml"), home=home, env=offline)
    assert (done.status, done.err) == (0, "")
    assert in_order(
        told(done, "reader"),
        "started",
        "asked: What",
        "session ",
        "Bash: ls",
        "says: Answer 1",
        "answered",
        "stopped",
    )
    assert in_order(
        told(done, "phoenix"),
        "started$",
        "asked: ",
        "says: I begin",
        "killed by SIGKILL in mid-turn",
        r"restarting in \S+ s \(1 of 3 in 1 min\): killed by SIGKILL",
        "resumed session ",
        "continues: ",
        "says: I have resumed session",
        "answered",
        "stopped",
    )
    assert in_order(
        told(done, "sleeper"),
        "started",
        r"parked: usage limit of .*, until .*\(in ",
        "woke: ",
        "answered",
        "stopped",
    )
    table = done.out.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split()[:3] == ["agent", "result", "starts"]
    assert [row.split()[:3] for row in table[1:]] == [
        ["reader", "answered", "1"],
        ["phoenix", "answered", "2"],
        ["sleeper", "answered", "1"],
    ]


def test_the_last_answer_is_shown_whole_at_the_end_with_its_session(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("a", script='"a.ndjson"', prompt='"x"'),
        a=('{"reply": "first line\\nsecond line\\nthird line"}',),
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 0
    session = re.search(r"session (\S+),", done.out)
    assert session is not None
    [run] = (home / "state" / "proctor" / "runs").iterdir()
    assert done.out.endswith(
        f"):\n  first line\n  second line\n  third line\n  session: {session[1]}\n  recording: {run}\n"
    )
    assert re.search(r"^a \(answered, \$0\.\d+\):$", done.out, re.MULTILINE)


def test_with_json_every_event_is_a_line_and_each_agent_has_a_result_last(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("good", script='"good.ndjson"', prompt='"x"'),
        agent("bad", script='"bad.ndjson"', prompt='"x"'),
        agent("gone", script='"gone.ndjson"', prompt='"x"'),
        good=ANSWERS,
        bad=('{"end": "api_error", "status": 500}',),
        gone=CRASHES,
    )
    done = proctor("up", str(path), "--json", home=home)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert done.status == 1
    *events, good, bad, gone = records
    assert {event["agent"] for event in events if event["type"] == "turn_started"} == {"good", "bad", "gone"}
    started = {event["path"] for event in events if event["type"] == "child_started"}
    assert started == {"fleet/good", "fleet/bad", "fleet/gone"}
    assert [one["type"] for one in (good, bad, gone)] == ["result"] * 3
    assert [(one["agent"], one["ok"], one["outcome"]) for one in (good, bad, gone)] == [
        ("good", True, "ok"),
        ("bad", False, "failed"),
        ("gone", False, None),
    ]
    assert good["answer"]["text"] == "All is well, x"
    assert Path(good["recording"]).is_dir()
    assert {
        event["session_id"] for event in events if event["type"] == "started" and event["agent"] == "good"
    } == {good["session_id"]}
    assert "gone ended in mid-turn" in gone["failure"]


def test_the_worktree_that_stays_is_named_at_the_end(home: Path, fleet: Fleet, tmp_path: Path) -> None:
    place = tmp_path / "repo"
    git = ("git", "-C", str(place), "-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    script = ({"tool": "Write", "run": "echo work > file"}, {"reply": "done"})
    path = fleet(
        agent("a", script='"a.ndjson"', prompt='"x"', workspace='"worktree"', cwd=f'"{place}"'),
        a=tuple(json.dumps(step) for step in script),
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 0, done.err
    worktree = re.search(r"^  worktree: (.+)$", done.out, re.MULTILINE)
    assert worktree is not None, done.out
    assert (Path(worktree[1]) / "file").read_text() == "work\n"


def test_a_prompt_that_fails_makes_the_command_fail(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("good", script='"good.ndjson"', prompt='"x"'),
        agent("bad", script='"bad.ndjson"', prompt='"x"'),
        good=ANSWERS,
        bad=('{"end": "api_error", "status": 500}',),
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 1
    assert in_order(told(done, "bad"), "failed")
    assert in_order(told(done, "good"), r"answered")


def test_a_request_that_died_with_its_process_is_told_and_not_repeated(home: Path, fleet: Fleet) -> None:
    path = fleet("intensity = 3", agent("a", script='"a.ndjson"', prompt='"x"'), a=CRASHES)
    done = proctor("up", str(path), home=home)
    assert done.status == 1
    assert in_order(told(done, "a"), "killed by SIGKILL in mid-turn", "no answer: a ended in mid-turn")


def test_a_root_that_gives_up_says_because_of_whom_how_often_and_why(home: Path, fleet: Fleet) -> None:
    path = fleet(
        'intensity = 2\nperiod = "1m"\nname = "fleet"',
        agent("a", script='"a.ndjson"', prompt='"x"', on_crash='"retry"'),
        a=CRASHES,
    )
    done = proctor("up", str(path), "--strict", home=home)
    assert done.status == 1
    assert in_order(
        told(done, "a"),
        r"restarting in \S+ s \(1 of 2 in 1 min\)",
        r"restarting in \S+ s \(2 of 2 in 1 min\)",
    )
    assert done.complaint == (
        "proctor: fleet gave up: more than 2 restarts in 60 s of a; "
        "last causes: killed by SIGKILL, killed by SIGKILL, killed by SIGKILL"
    )


def test_what_a_fleet_has_spent_counts_in_its_next_life(home: Path, fleet: Fleet) -> None:
    path = fleet(
        'intensity = 0\nname = "fleet"\nbudget = { usd = 0.4, period = "1d", then = "escalate" }',
        agent("a", script='"a.ndjson"', prompt='"x"'),
        a=('{"say": "Dear."}', '{"end": "completed", "cost": 0.5}'),
    )
    first, second = [proctor("up", str(path), home=home) for _ in range(2)]
    assert first.status == 0
    assert second.status == 1
    assert "a is stopped: the tree has spent $0.5 of $0.4 in 86400 s" in second.out + second.err


def test_a_child_that_cannot_start_ends_the_command_with_its_own_words(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("a", script='"a.ndjson"', prompt='"x"', faults='["silent_greeting"]', greeting="0.5"), a=ANSWERS
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 1
    assert done.complaint.startswith(
        "proctor: no agent of fleet is left: a: could not start: a did not answer the greeting within 0.5 s"
    )


def test_an_agent_that_is_not_installed_is_told_before_anything_starts(home: Path, fleet: Fleet) -> None:
    path = fleet('[[agents]]\nkind = "claude"\nname = "c"\nexecutable = "nowhere"')
    done = proctor("up", str(path), home=home)
    assert (done.status, done.out) == (69, "")
    assert "Claude Code is not installed" in done.complaint


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_stops_the_fleet_in_reverse_order_and_leaves_nothing(
    home: Path, fleet: Fleet, number: signal.Signals, status: int
) -> None:
    path = fleet(
        'stop_order = "reverse"',
        agent("first", script='"one.ndjson"'),
        '[[supervisors]]\nname = "others"',
        agent("second", script='"two.ndjson"', prompt='"x"').replace("[[agents]]", "[[supervisors.agents]]"),
        one=ANSWERS,
        two=HANGS,
    )
    with running("up", str(path), home=home) as command:
        out = command.said(b"says: I begin.").decode()
        # they start together: one that is not ready cannot be seen to stop
        if "first          started" not in out:
            out += command.said(b"first          started").decode()
        command.signal(number)
        out += command.out.read().decode()
        assert command.end() == status
    done = Ended(status, out, "")
    assert out.index("others/second  stopped") < out.index("first          stopped")
    assert in_order(told(done, "others/second"), "started", "asked", "says", "stopped")
    assert (
        processes_with(str(path.parent / "one.ndjson")) + processes_with(str(path.parent / "two.ndjson"))
        == []
    )


def test_a_second_interrupt_kills_the_fleet(home: Path, fleet: Fleet) -> None:
    stubborn = (
        '{"fault": "ignore_eof"}',
        '{"fault": "ignore_term"}',
        '{"say": "I begin."}',
        '{"fault": "hang"}',
        *ANSWERS,
    )
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=stubborn)
    with running("up", str(path), home=home) as command:
        command.said(b"says: I begin.")
        command.signal(signal.SIGINT)
        command.said(b"a second signal kills", command.err)
        command.signal(signal.SIGINT)
        assert command.end(5) == 130
    assert processes_with(str(path.parent / "a.ndjson")) == []


def test_an_interrupt_ends_a_command_that_waits_for_its_reader_only(home: Path, fleet: Fleet) -> None:
    many = (*(f'{{"say": "line {n} {"x" * 150}"}}' for n in range(3000)), *ANSWERS)
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=many)
    with running("up", str(path), home=home) as command:
        wait_recorded(home / "state" / "proctor" / "runs")
        command.signal(signal.SIGINT)
        assert command.end(20) == 130


def test_an_interrupt_does_not_wait_for_a_start(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("quick", script='"a.ndjson"'),
        agent("slow", script='"a.ndjson"', faults='["silent_greeting"]'),
        a=ANSWERS,
    )
    with running("up", str(path), home=home) as command:
        command.said(b"quick  started")
        command.signal(signal.SIGINT)
        assert command.end(20) == 130
        assert b"slow   start aborted" in command.out.read()
    assert processes_with(str(path.parent / "a.ndjson")) == []


def test_a_root_that_shuts_itself_down_ends_the_command(home: Path, fleet: Fleet) -> None:
    keys = {"prompt": '"x"', "restart": '"transient"', "significant": "true"}
    path = fleet(
        'auto_shutdown = "any_significant"',
        agent("leader", script='"leaves.ndjson"', **keys),
        agent("other", script='"a.ndjson"'),
        leaves=('{"fault": "exit_after_success:0"}', *ANSWERS),
        a=ANSWERS,
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 0
    assert told(done, "fleet") == ["the root ended: shutdown (auto_shutdown)"]
    for end in ("answered", "stopped"):  # in either order: its answer goes to the disk meanwhile
        assert in_order(told(done, "leader"), end)


def test_an_agent_without_a_prompt_keeps_the_fleet_up(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("idle", script='"a.ndjson"'), agent("busy", script='"a.ndjson"', prompt='"x"'), a=ANSWERS
    )
    with running("up", str(path), home=home) as command:
        command.said(b"busy  answered")
        command.signal(signal.SIGINT)
        assert command.end() == 130


def test_a_reader_that_leaves_ends_the_fleet(home: Path, fleet: Fleet) -> None:
    many = (*(f'{{"say": "line {n}", "delay": 0.02}}' for n in range(2000)), *ANSWERS)
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=many)
    with running("up", str(path), home=home) as command:
        command.out.readline()
        command.out.close()
        assert command.end() == 141
        assert b"Traceback" not in command.err.read()
    assert processes_with(str(path.parent / "a.ndjson")) == []


def test_an_agent_of_a_nested_supervisor_is_told_with_its_path_and_its_own_intensity(
    home: Path, fleet: Fleet
) -> None:
    nested = agent("a", script='"a.ndjson"', prompt='"x"', on_crash='"resume"').replace(
        "[[agents]]", "[[supervisors.agents]]"
    )
    path = fleet(
        '[[supervisors]]\nname = "g"\nintensity = 4\nperiod = 30',
        nested,
        a=('{"say": "I begin."}', '{"fault": "crash@once"}', '{"reply": "done"}'),
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 0
    assert in_order(told(done, "g/a"), "killed", r"restarting in \S+ s \(1 of 4 in 30 s\)", "answered")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = = 1\n", "line 1, column 5: Invalid value"),
        ("[[agents]]\nkind = 'scripted'\nname = \"x\n", "line 3, column 10: Illegal character"),
        ("", "no agent: add a table [[agents]] with kind and name"),
    ],
)
def test_a_file_that_is_no_fleet_is_one_line_and_status_2(
    home: Path, fleet: Fleet, text: str, line: str
) -> None:
    path = fleet(text)
    done = proctor("up", str(path), home=home)
    assert done.status == 2
    assert done.complaint.startswith(f"proctor: {path}: {line}")


def test_a_file_that_is_not_there_is_one_line(home: Path, tmp_path: Path) -> None:
    done = proctor("up", str(tmp_path / "none.toml"), home=home)
    assert (done.status, done.complaint) == (
        2,
        f"proctor: {tmp_path / 'none.toml'}: cannot be read: No such file or directory",
    )


def test_every_fault_of_a_file_is_a_line_of_its_own(home: Path, fleet: Fleet) -> None:
    path = fleet('strategy = "x"', agent("a", script='"a.ndjson"', restart='"on"', park="1"), a=ANSWERS)
    done = proctor("up", str(path), home=home)
    assert done.status == 2
    assert [line.removeprefix(f"proctor: {path}:") for line in done.err.splitlines()] == [
        "1: strategy: 'x' is not a choice; accepted: one_for_one, one_for_all, rest_for_one",
        "7: agent 'a': agents[0].park: expected true or false, got 1",
        "6: agent 'a': agents[0].restart: 'on' is not a choice; accepted: permanent, transient, temporary",
    ]


def test_the_servers_of_the_file_run_before_the_agents_and_are_stopped_behind_them(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    listens = "echo opencode server listening on http://127.0.0.1:9/; exec sleep 600"
    path = fleet(
        agent("a", script='"a.ndjson"', prompt='"well?"'),
        f'[[servers]]\nname = "shared"\nexecutable = "{installed(tmp_path / "opencode", listens)}"',
        a=('{"reply": "All is well."}',),
    )
    done = proctor("up", str(path), home=home)
    assert done.status == 0
    told = ("shared  started", "a       started", "a       stopped", "shared  stopped")
    order = [done.out.index(text) for text in told]
    assert order == sorted(order)
    assert processes_with(str(tmp_path)) == []


BASH = '{"tool": "Bash", "input": {"command": "rm x"}, "ask": true, "result": "gone"}'
WAITS = (
    BASH,
    '{"reply": "One, {prompt}"}',
    BASH,
    '{"reply": "Two, {prompt}"}',
    '{"reply": "Three, {prompt}"}',
)


def test_it_ends_only_when_what_other_terminals_have_sent_is_answered_too(home: Path, fleet: Fleet) -> None:
    keys = {"script": '"waits.ndjson"', "permission": '"ask"', "prompt": '"first"'}
    path = fleet(agent("waits", **keys), waits=WAITS)
    with running("up", str(path), home=home) as command:
        once(lambda: "Bash" in proctor("approvals", home=home).out)
        for prompt in ("next", "last"):
            assert proctor("send", "waits", prompt, home=home).status == 0
        assert proctor("approve", "waits", home=home).status == 0
        assert b"One, first" in command.said(b"the prompts are answered; 2 more requests to be answered")
        once(lambda: "Bash" in proctor("approvals", home=home).out)
        assert proctor("approve", "waits", home=home).status == 0
        shown = command.out.read()
        assert command.end() == 0
    assert shown.index(b"Two, next") < shown.index(b"Three, last") < shown.index(b"stopping")
