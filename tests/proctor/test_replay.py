from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proctor.command import EXAMPLES, ROOT, Ended, environment, proctor

TRANSCRIPTS = ROOT / "tests" / "transcripts" / "claude"


def recorded(home: Path, *words: str) -> Path:
    """The run directory of a run of the hello script."""
    agent = f"scripted:{EXAMPLES / 'hello.ndjson'}"
    assert proctor("run", agent, "hi there", "--record", str(home / "runs"), *words, home=home).status == 0
    [folder] = (home / "runs").iterdir()
    return folder


def replay(home: Path, *words: object) -> Ended:
    return proctor("replay", *map(str, words), home=home)


@pytest.mark.parametrize(("mode", "inner"), [("session", ""), ("session", "1"), ("oneshot", "")])
def test_a_recorded_run_is_played_as_it_was(mode: str, inner: str, home: Path) -> None:
    done = replay(home, recorded(home, "--mode", mode) / inner)
    assert (done.status, done.out) == (0, "Hello! You said: hi there\n")


def test_the_newest_incarnation_is_played_unless_one_is_named(home: Path) -> None:
    folder = recorded(home)
    (folder / "1").rename(folder / "2")
    (folder / "10").mkdir()
    for name in ("stdout.ndjson", "stdin.ndjson", "meta.json"):
        text = (folder / "2" / name).read_text()
        (folder / "10" / name).write_text(text.replace("Hello!", "Newest!"))
    assert replay(home, folder).out == "Newest! You said: hi there\n"
    assert replay(home, folder / "2").out == "Hello! You said: hi there\n"


def test_every_turn_of_a_session_is_played_and_the_first_bad_end_is_the_status(home: Path) -> None:
    done = replay(home, TRANSCRIPTS / "e_session")
    assert done.out.startswith("turn one\ntouched\nnot touched\n")
    assert "Bash allowed" in done.err
    assert "Bash denied: it was denied when it was recorded" in done.err
    assert "replay was interrupted" in done.err
    assert done.status == 1


def test_events_come_as_json_with_an_answer_behind_each_turn(home: Path) -> None:
    done = replay(home, TRANSCRIPTS / "e_session", "--json")
    kinds = [json.loads(line)["type"] for line in done.out.splitlines()]
    prompts = [
        line for line in (TRANSCRIPTS / "e_session.stdin.ndjson").read_text().splitlines() if '"user"' in line
    ]
    assert kinds.count("answer") == kinds.count("turn_ended") == len(prompts)
    assert kinds[-1] == "answer"


def test_a_fault_strikes_a_replay_as_it_does_a_script(home: Path) -> None:
    done = replay(home, recorded(home), "--fault", "crash@turn=1")
    assert done.status == 1
    assert done.complaint.startswith("proctor: replay was killed by the system")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "'nowhere' is not a recording: no such directory"),
        (["."], "'.' is not a recording: no stdout.ndjson in it, and in no folder 1, 2, ... of it"),
        ([str(TRANSCRIPTS / "e_eof_none")], "holds no prompt that could be sent again"),
        ([str(TRANSCRIPTS / "b_stream"), "--fault", "odd"], "--fault: unknown fault 'odd'"),
        ([str(TRANSCRIPTS / "b_stream"), "--speed", "-1"], "--speed is 0 or more"),
        (
            [str(TRANSCRIPTS.parent / "acp" / "gemini_text")],
            "recordings of '@google/gemini-cli 0.61.0' cannot be played; known: claude, scripted",
        ),
    ],
    ids=["nowhere", "no recording", "no prompt", "no fault", "no speed", "no dialect"],
)
def test_what_cannot_be_played_is_one_line_and_status_2(words: list[str], complaint: str, home: Path) -> None:
    done = replay(home, *words)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.complaint


HOST = """\
import sys, trio, proctor
async def main(script, dialect, runs):
    agent = proctor.scripted("a", script, dialect=dialect, record=runs)
    async with proctor.open_supervisor([agent]) as sup:
        print((await sup.agent("a").ask("hi there")).text, flush=True)
        await trio.sleep_forever()
trio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("dialect", ["claude", "codex", "opencode"])
def test_the_run_of_a_host_that_was_killed_is_played(dialect: str, home: Path) -> None:
    words = [sys.executable, "-c", HOST, str(EXAMPLES / "hello.ndjson"), dialect, str(home / "runs")]
    with subprocess.Popen(words, env=environment(home), stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"Hello! You said: hi there\n"
        host.kill()
    [folder] = (home / "runs").iterdir()
    path = folder / "1" / "meta.json"
    meta = json.loads(path.read_bytes())
    assert (meta["cli"], "exit" in meta) == ("scripted", False)
    path.write_text(json.dumps({**meta, "cli": dialect}))  # as of the command line itself
    with (folder / "1" / "stdout.ndjson").open("ab") as lines:
        lines.write(b'{"type": "ass')  # the disk had room for no more
    done = replay(home, folder)
    assert (done.status, done.out) == (0, "Hello! You said: hi there\n")
