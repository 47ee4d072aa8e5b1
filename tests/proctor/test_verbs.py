"""The verbs against a real host of scripted agents."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.proctor.command import Ended, Running, once, proctor, running
from tests.proctor.scripts import ANSWERS, HANGS, agent

ASKS = (
    '{"tool": "Bash", "input": {"command": "rm x"}, "ask": true, "result": "done"}',
    '{"reply": "Hello!"}',
)
WRITES = (
    '{"tool": "Write", "input": {"file_path": "new.txt", "content": "one\\ntwo\\n"}, "ask": true, "result": "done"}',
    '{"reply": "Written."}',
)
COLOUR: dict[str, Any] = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red"}, {"label": "blue"}],
    "multiSelect": False,
}
SIZES = {**COLOUR, "question": "Which sizes?", "multiSelect": True}
QUESTIONS = (
    json.dumps(
        {"tool": "AskUserQuestion", "input": {"questions": [COLOUR]}, "ask": True, "result": "{input}"}
    ),
    '{"reply": "Thank you."}',
    json.dumps(
        {"tool": "AskUserQuestion", "input": {"questions": [SIZES]}, "ask": True, "result": "{input}"}
    ),
    '{"reply": "Thank you."}',
)
ALL = "demo/answers, demo/asks, demo/hangs, demo/hovers, demo/wonders, demo/writes"
SETTLED = "it is settled or never existed; proctor approvals lists the open ones"


@attrs.frozen
class Up:
    """A running fleet, and the verbs in its home."""

    home: Path
    command: Running

    def __call__(self, *words: str) -> Ended:
        return proctor(*words, home=self.home)

    def records(self, *words: str) -> list[dict[str, Any]]:
        ended = self(*words, "-o", "json")
        assert (ended.status, ended.err) == (0, "")
        found: list[dict[str, Any]] = json.loads(ended.out)
        return found

    def state(self, name: str) -> str:
        [record] = [record for record in self.records("ps") if record["name"] == name]
        return str(record["state"])

    def busy(self, name: str) -> None:
        """Have an agent work."""
        assert self("send", name, "work").out == f"{name} queued\n"
        once(lambda: self.state(name) == "working")


def started(folder: Path, name: str = "demo") -> Generator[Up]:
    """A fleet of this name that runs in a home of its own."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    scripts = {"answers": ANSWERS, "hangs": HANGS, "asks": ASKS, "writes": WRITES, "wonders": QUESTIONS}
    for script, lines in scripts.items():
        (folder / f"{script}.ndjson").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"{name}.toml").write_text(
        "\n".join(
            [
                agent("answers", script='"answers.ndjson"'),
                agent("hangs", script='"hangs.ndjson"'),
                agent("hovers", script='"hangs.ndjson"'),
                agent("asks", script='"asks.ndjson"', permission='"ask"'),
                agent("writes", script='"writes.ndjson"', permission='"ask"'),
                agent("wonders", script='"wonders.ndjson"', permission='"ask"'),
            ]
        )
    )
    with running("up", str(folder / f"{name}.toml"), home=home) as command:
        up = Up(home, command)
        once(lambda: up("ps", name).status == 0)
        once(lambda: {record["state"] for record in up.records("ps", name)} == {"idle"})
        yield up


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    """One fleet for all tests that leave it as it was."""
    yield from started(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def own(tmp_path: Path) -> Generator[Up]:
    """A fleet that the test may end."""
    yield from started(tmp_path)


# -- what is there


def test_the_lists_show_the_fleet_and_its_agents(up: Up) -> None:
    [found] = up.records("ls")
    assert (found["fleet"], found["pid"], found["agents"]) == ("demo", up.command.process.pid, 6)
    lines = [json.loads(line) for line in up("ps", "demo", "-o", "jsonl").out.splitlines()]
    assert sorted(line["path"] for line in lines) == [
        f"demo/{name}" for name in ("answers", "asks", "hangs", "hovers", "wonders", "writes")
    ]
    top, *branches = up("tree").out.splitlines()
    assert top == "demo  running"
    assert sorted(branch.split()[0] for branch in branches) == [
        "answers",
        "asks",
        "hangs",
        "hovers",
        "wonders",
        "writes",
    ]
    assert up("ls").out.split()[:5] == ["FLEET", "PID", "SINCE", "AGENTS", "NEEDS"]


def test_an_agent_is_described_with_its_open_approvals(up: Up) -> None:
    shown = up("describe", "demo/ans").out
    [record] = up.records("describe", "answers")
    assert "\npath " in shown
    assert re.search(r"^last_event +(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$", shown, re.MULTILINE)
    assert re.search(r"^memory +[1-9]\d* MB$", shown, re.MULTILINE)
    assert re.search(rf"^cwd +{Path.cwd()}$", shown, re.MULTILINE)
    assert (record["name"], record["open_approvals"]) == ("answers", [])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("ps", "other"), "no fleet 'other' runs under this user; these do: demo"),
        (
            ("ask", "nothing", "x"),
            f"no agent of a fleet that runs has the name 'nothing'; these are there: {ALL}",
        ),
        (
            ("stop", "other/answers"),
            "no agent of fleet 'other' has the name 'other/answers'; these are there: none",
        ),
        (("ask", "h", "x"), "'h' is the name of demo/hangs, demo/hovers; name one"),
        (("ask", "h*", "x"), "'h*' is the name of demo/hangs, demo/hovers; name one"),
        (("approve", "answers"), "answers has no open approval; proctor approvals lists those of all agents"),
        (
            ("deny", "asks", "none"),
            f"agent 'asks' has no open approval 'none': {SETTLED}",
        ),
        (
            ("answer", "wonders", "x"),
            "wonders has no open question; proctor approvals lists what is open",
        ),
        (("wait", "--for", "done", "--timeout", "50ms"), "the end of fleet 'demo' has not come in time"),
    ],
)
def test_what_cannot_be_done_is_one_line_that_says_what_to_do(
    words: tuple[str, ...], complaint: str, up: Up
) -> None:
    ended = up(*words)
    assert (ended.status, ended.out) == (124 if words[0] == "wait" else 1, "")
    assert ended.complaint == f"proctor: {complaint}"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("ps", "--all"), "unrecognized arguments: --all (see proctor ps --help)"),
        (("ask", "a"), "the following arguments are required: prompt (see proctor ask --help)"),
        (
            ("wait", "--for", "joy"),
            "argument --for: invalid choice: 'joy' (choose from 'idle', 'done') (see proctor wait --help)",
        ),
        (
            ("ps", "--timeout", "soon"),
            "expected a duration such as 90, '30s' or '1h30m', or 0 or 'none' for no limit, got 'soon' (see proctor ps --help)",
        ),
        (
            ("budget", "--usd", "-1"),
            "argument --usd: invalid amount value: '-1' (see proctor budget --help)",
        ),
    ],
)
def test_a_usage_error_is_one_line(words: tuple[str, ...], complaint: str, home: Path) -> None:
    ended = proctor(*words, home=home)
    assert (ended.status, ended.out, ended.complaint) == (2, "", f"proctor: {complaint}")


def test_a_verb_explains_itself_and_stands_in_the_help(home: Path) -> None:
    for words in (("wait", "--help"), ("help", "wait")):
        assert "Wait until a fleet is idle" in proctor(*words, home=home).out
    assert "Wait until a fleet is idle" in proctor("--help", home=home).out


# -- requests


def test_an_agent_is_asked_by_the_beginning_of_its_name_and_its_answer_is_printed(up: Up) -> None:
    ended = up("ask", "demo/ans", "you")
    assert (ended.status, ended.out, ended.err) == (0, "All is well, you\n", "")
    piped = proctor("ask", "answers", "-", home=up.home, stdin=b"all")
    assert piped.out == "All is well, all\n"


def test_an_ask_whose_time_is_over_ends_as_run_does(up: Up) -> None:
    ended = up("ask", "hangs", "x", "--timeout", "200ms")
    assert ended.status == 124
    assert ended.complaint.startswith("proctor: ")
    once(lambda: up.state("hangs") == "idle")


def test_a_turn_is_queued_steered_and_interrupted(up: Up) -> None:
    up.busy("hovers")
    assert up("interrupt", "hov").out == "hovers delivered\n"
    once(lambda: up.state("hovers") == "idle")
    late = up("steer", "hovers", "faster")
    assert late.status == 1
    assert late.out.startswith("hovers refused (no turn is running")


def test_agents_are_stopped_started_and_restarted_by_a_pattern(up: Up) -> None:
    ended = up("stop", "h*")
    assert (ended.status, ended.out) == (0, "hangs stopped\nhovers stopped\n")
    assert (up.state("hangs"), up.state("hovers")) == ("stopped", "stopped")
    assert up.records("ps")[-1]["name"] == "hovers"  # those that need nobody come last
    assert up("start", "hangs").out == "hangs idle\n"
    again = up("start", "h*")
    assert (again.status, again.out) == (1, "hovers idle\n")
    assert again.complaint.startswith("proctor: hangs: child 'hangs' is running")
    assert up("restart", "hangs").out == "hangs idle\n"


def test_agents_are_parked_killed_and_started_again_by_a_pattern(up: Up) -> None:
    parked = "by the operator: until Monday"
    assert up("park", "h*", "-m", "until Monday", "--for", "2h").out == (
        f"hangs parked ({parked})\nhovers parked ({parked})\n"
    )
    assert up("unpark", "h*").out == "hangs idle\nhovers idle\n"
    assert up("kill", "hangs").status == 0
    once(lambda: up.state("hangs") == "idle")
    assert [record["restarts"] for record in up.records("ps") if record["name"] == "hangs"] == [1]
    assert up("reset-failed", "h*").out == "hangs idle\nhovers idle\n"
    assert {record["restarts"] for record in up.records("ps")} == {0}
    [described] = up.records("describe", "hangs")
    assert [restart["cause"] for restart in described["restart_history"]] == ["killed"]
    assert re.search(
        r"^restarted (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d: killed$", up("describe", "hangs").out, re.MULTILINE
    )


def test_an_approval_is_listed_and_decided_once(up: Up) -> None:
    up("send", "asks", "go")
    [approval] = once(lambda: up.records("approvals"))
    assert up.records("ps")[0]["name"] == "asks"
    assert (approval["tool"], approval["input"]) == ("Bash", {"command": "rm x"})
    assert "rm x" in up("approvals", "demo").out
    ended = up("approve", "asks")
    assert (ended.status, ended.out) == (0, f"asks  {approval['id']}  allowed\n")
    second = up("deny", "asks", approval["id"], "-m", "no")
    assert (second.status, second.complaint.partition(": ")[2].partition(":")[0]) == (
        1,
        f"agent 'asks' has no open approval {approval['id']!r}",
    )
    once(lambda: up.state("asks") == "idle")
    up("send", "asks", "go")
    once(lambda: up.records("approvals"))
    assert up("deny", "asks", "-m", "not today").out.endswith("  denied\n")
    once(lambda: up.state("asks") == "idle")
    logged = up("logs", "asks").out.splitlines()
    assert "Bash: rm x" in logged
    assert "Bash allowed" in logged


def test_an_approval_is_shown_with_its_diff_given_more_time_and_allowed_for_always(up: Up) -> None:
    up("send", "writes", "go")
    [approval] = once(lambda: up.records("approvals"))
    listed, shown = up("approvals").out, up("describe", "writes").out
    assert "  +2 -0  " in listed
    assert "--- new.txt\n  +++ new.txt\n  @@ -0,0 +1,2 @@\n  +one\n  +two\n" in shown
    assert f"approval {approval['id']}: Write: new.txt\n  allow, deny, always; " in shown
    assert up("extend", "writes", "2h").out == f"writes  {approval['id']}  2 h left\n"
    assert up("approve", "writes", "--always").out == f"writes  {approval['id']}  allowed\n"
    once(lambda: up.state("writes") == "idle")


def test_a_question_is_answered_once_by_a_number_an_option_or_a_text(up: Up) -> None:
    up("send", "wonders", "go")
    [asked] = once(lambda: up.records("approvals"))
    short = up("answer", "wonders", "blue", "S")
    assert (short.status, short.complaint) == (
        1,
        "proctor: wonders asks 1: Which colour?. Give an answer for each, in order",
    )
    assert up("answer", "wonders", "2").out == f"wonders  {asked['id']}  allowed\n"
    late = up("answer", "wonders", "red", "--id", asked["id"])
    assert late.complaint.startswith(f"proctor: wonders has no open question {asked['id']!r}; ")
    once(lambda: up.state("wonders") == "idle")
    up("send", "wonders", "go")
    once(lambda: up.records("approvals"))
    assert up("answer", "wonders", "1", "a text").status == 0
    once(lambda: up.state("wonders") == "idle")
    raw = [json.loads(line) for line in up("logs", "wonders", "--raw").out.splitlines()]
    results = [json.loads(event["text"])["answers"] for event in raw if event["type"] == "tool_result"]
    assert results == [{"Which colour?": "blue"}, {"Which sizes?": "red, a text"}]


def test_the_requests_of_a_fleet_are_listed_by_agent_and_state(up: Up) -> None:
    up("ask", "answers", "first of all")
    up.busy("hovers")
    up("send", "hovers", "next")
    waiting = up.records("requests", "--agent", "hov", "--state", "waiting")
    running = up.records("requests", "demo", "--agent", "hovers", "--state", "running")
    assert [(one["prompt"], one["agent"]) for one in (*waiting, *running)] == [
        ("next", "hovers"),
        ("work", "hovers"),
    ]
    assert [one["prompt"] for one in up.records("requests", "--limit", "1")] == ["next"]
    title, first, *_ = up("requests", "--agent", "demo/hovers").out.splitlines()
    assert title.split() == ["AGENT", "FATE", "AGE", "COST", "KEY", "PROMPT"]
    assert first.split()[:2] == ["hovers", "waiting"]
    assert first.endswith(f"  {waiting[0]['key']}  next")
    up("interrupt", "hovers")
    once(lambda: [one["prompt"] for one in up.records("requests", "--state", "running")] == ["next"])
    ended = up.records("requests", "--agent", "hovers", "--state", "ended")
    assert {one["outcome"] for one in ended} == {"interrupted"}
    up("interrupt", "hovers")
    once(lambda: up.state("hovers") == "idle")


def test_a_budget_is_shown_given_and_changed(up: Up) -> None:
    assert up("budget").out.split("\n")[1].split() == ["demo", "no", "limit"]
    first = up("budget", "answers", "--usd", "5").out.split("\n")[1]
    assert first.split() == ["answers", "$0.0000", "$5.0000", "1", "d", "park"]
    [record] = up.records("budget", "answers", "--per", "2h")
    assert (record["agent"], record["usd"], record["per"], record["spent_usd"]) == ("answers", 5.0, 7200.0, 0)
    assert up("budget", "answers", "--usd", "none").out.split("\n")[1].split() == ["answers", "no", "limit"]
    both = up("budget", "answers", "--usd", "none", "--per", "1d")
    assert (both.status, both.complaint.partition(" (")[0]) == (
        2,
        "proctor: --usd none removes the budget: leave --per out",
    )
    without = up("budget", "hangs", "--per", "2h")
    assert (without.status, without.complaint.partition(" (")[0]) == (
        2,
        "proctor: --per is the time of a budget: name its dollars too, with --usd",
    )


def test_the_events_of_an_agent_are_shown_as_lines_and_as_they_are(up: Up) -> None:
    up("ask", "answers", "once")
    assert "says: All is well, once" in up("logs", "answers").out.splitlines()
    raw = [json.loads(line) for line in up("logs", "answers", "--raw").out.splitlines()]
    assert [event["text"] for event in raw if event["type"] == "text"][-1] == "All is well, once"
    with running("logs", "answers", "-f", home=up.home) as following:
        following.said(b"once")
        up("ask", "answers", "more")
        following.said(b"says: All is well, more")


def test_a_fleet_is_waited_for_until_it_is_idle(up: Up) -> None:
    up.busy("hovers")
    late = up("wait", "--for", "idle", "--timeout", "50ms")
    assert (late.status, late.complaint) == (
        124,
        "proctor: a time when fleet 'demo' is idle has not come in time",
    )
    with running("wait", "demo", "--for", "idle", home=up.home) as waiting:
        up("interrupt", "hovers")
        assert waiting.end() == 0
    assert up("wait", "--for", "idle").status == 0


# -- the end


@pytest.mark.parametrize("command", ["up", "web"])
def test_a_fleet_file_is_read_again(command: str, tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "f.toml"
    home.mkdir()
    (tmp_path / "s.ndjson").write_text("".join(f"{line}\n" for line in ANSWERS))

    def written(*agents: str) -> None:
        file.write_text("\n".join(agents))

    def scripted(name: str, **keys: str) -> str:
        return agent(name, script='"s.ndjson"', **keys)

    written(scripted("a"), scripted("b"), scripted("c"))
    with running(command, str(file), home=home) as host:
        up = Up(home, host)
        once(lambda: up("ps").status == 0 and {one["state"] for one in up.records("ps")} == {"idle"})
        pids = {record["name"]: record["pid"] for record in up.records("ps")}
        written(scripted("a"), scripted("b", model='"other"'), scripted("d", prompt='"x"'))
        found = "added d\nremoved c\nchanged b"
        assert up("reload", "--dry-run").out == f"{found}\n1 unchanged\n"
        assert {record["name"] for record in up.records("ps")} == {"a", "b", "c"}
        done = up("reload")
        later = "goes on as before until it is restarted by reload --restart"
        assert (done.status, done.out) == (0, f"{found} {later}\n1 unchanged\n")
        once(lambda: {one["name"]: one["turns"] for one in up.records("ps")} == {"a": 0, "b": 0, "d": 1})
        assert up("reload", "--restart").out == "changed b restarted\n2 unchanged\n"
        now = {record["name"]: record["pid"] for record in up.records("ps")}
        assert (now["a"] == pids["a"], now["b"] == pids["b"]) == (True, False)
        assert up("ask", "d", "again").out == "All is well, again\n"
        file.write_text("[[agents]]")
        refused = up("reload")
        assert refused.status == 1
        assert refused.complaint.startswith(f"proctor: {file}:")
        assert {record["name"] for record in up.records("ps")} == {"a", "b", "d"}


def test_a_fleet_that_is_taken_down_has_ended_and_who_waits_for_that_goes_on(own: Up) -> None:
    with (
        running("wait", home=own.home) as waiting,
        running("logs", "hangs", "-f", home=own.home) as following,
    ):
        own.busy("hangs")
        following.said(b"I begin.")
        once(lambda: follows(waiting.process.pid, own))
        ended = own("down", "demo")
        assert (ended.status, ended.out, ended.err) == (0, "", "")
        assert waiting.end() == 0
        assert following.end() == 0
    assert own("ls", "-o", "jsonl").out == ""
    assert own.command.end() == 128 + signal.SIGTERM
    assert (
        own("down").complaint
        == "proctor: no fleet runs under this user; start one with proctor up FLEET.toml"
    )


def test_a_fleet_is_taken_down_when_its_turns_have_ended(own: Up) -> None:
    own.busy("hangs")
    with running("down", "--grace", "10m", home=own.home) as stopping:
        once(lambda: own("ask", "answers", "x").status == 1)  # no new work is taken
        assert own("interrupt", "hangs").status == 0
        assert stopping.end() == 0


@pytest.mark.parametrize("words", [("ask", "hangs", "x"), ("wait",), ("logs", "hangs", "-f")])
def test_a_verb_whose_host_is_killed_ends_with_a_line(words: tuple[str, ...], own: Up) -> None:
    own.busy("hovers")
    with running(*words, home=own.home) as waiting:
        if words[0] == "ask":
            once(lambda: own.state("hangs") == "working")
        elif words[0] == "logs":
            own("send", "hangs", "x")
            waiting.said(b"I begin.")
        else:
            once(lambda: listening(waiting.process.pid))
        own.command.signal(signal.SIGKILL)
        assert waiting.end() == 1
        err = waiting.err.read().decode()
    pid = own.command.process.pid
    assert (
        err
        == f"proctor: the host of fleet 'demo' (process {pid}) has ended; start the fleet again with proctor up\n"
    )


def listening(pid: int) -> bool:
    """Whether a process has a connection, and waits."""
    return bool(sockets(pid))


def follows(pid: int, up: Up) -> bool:
    """Whether a process keeps its connection while the host answers others: then it reads a stream."""
    before = sockets(pid)
    up("ps")
    return bool(before) and sockets(pid) == before


def sockets(pid: int) -> set[str]:
    links = set[str]()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            links.add(os.readlink(path))
    return {link for link in links if link.startswith("socket:")}


def test_a_request_to_an_agent_that_was_stopped_says_how_to_start_it(own: Up) -> None:
    own("stop", "answers")
    for verb in ("ask", "send"):
        refused = own(verb, "answers", "hello")
        assert refused.complaint.endswith(
            "agent 'answers' is not running; wait until it runs, or start it: proctor start"
        )


def test_a_host_that_answers_nothing_is_reported_and_listed(own: Up) -> None:
    pid = own.command.process.pid
    os.kill(pid, signal.SIGSTOP)
    ended = own("ps", "--timeout", "100ms")
    [listed] = own.records("ls", "--timeout", "100ms")
    os.kill(pid, signal.SIGCONT)
    line = f"the host of fleet 'demo' (process {pid}) does not answer: it may be overloaded, or stopped"
    assert (ended.status, ended.complaint.startswith(f"proctor: {line}")) == (124, True)
    assert f"kill -CONT {pid} lets" in ended.complaint
    assert (listed["pid"], listed["agents"]) == (pid, None)
    assert listed["needs_you"].startswith(line)


def test_of_two_fleets_an_agent_is_named_with_its_own(own: Up, tmp_path: Path) -> None:
    for other in started(tmp_path, "second"):
        ambiguous = own("ask", "answers", "x")
        assert (
            ambiguous.complaint == "proctor: 'answers' is the name of demo/answers, second/answers; name one"
        )
        assert own("ask", "second/answers", "you").out == "All is well, you\n"
        assert own("down").complaint == "proctor: 2 fleets run: demo, second; name one"
        assert own("down", "second").status == 0
        assert other.command.end() == 128 + signal.SIGTERM
