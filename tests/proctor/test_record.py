from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.actors.scripted import PROGRAM
from tests.proctor.command import EXAMPLES, PROCTOR, Terminal, environment, proctor, running, wait_for

FILES = ["meta.json", "stderr.txt", "stdin.ndjson", "stdout.ndjson"]
ODD = b"one\n\0\xff two\r\nwithout an end"


def python(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


def meta(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "meta.json").read_text())
    return found


def test_bytes_pass_unchanged_and_are_recorded(home: Path, tmp_path: Path) -> None:
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d[::-1])"
    argv = [*PROCTOR, "record", "-o", str(tmp_path / "r"), *python(code)]
    done = subprocess.run(argv, input=ODD, capture_output=True, env=environment(home), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, ODD, ODD[::-1])
    assert sorted(os.listdir(tmp_path / "r" / "1")) == FILES
    parts = [(tmp_path / "r" / "1" / name).read_bytes() for name in FILES[1:]]
    assert parts == [ODD[::-1], ODD, ODD]


@pytest.mark.parametrize(
    ("code", "status", "raw"),
    [("raise SystemExit(7)", 7, 7), ("import os; os.kill(os.getpid(), 9)", 137, -9), ("", 0, 0)],
)
def test_the_status_is_the_programs_own(code: str, status: int, raw: int, home: Path, tmp_path: Path) -> None:
    assert proctor("record", "-o", str(tmp_path / "r"), *python(code), home=home).status == status
    said = meta(tmp_path / "r" / "1")
    assert (said["exit_code"], said["stopper"]) == (raw, "nobody")


def test_a_signal_is_passed_on_and_answered_by_the_program(home: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal\n"  # it may be asked while it still says that it is up, where it cannot print again
        "def stop(*_): os.write(1, b'asked to stop\\n'); os._exit(5)\n"
        "signal.signal(signal.SIGTERM, stop); print('up', flush=True); signal.pause()"
    )
    with running("record", "-o", str(tmp_path / "r"), *python(code), home=home) as command:
        command.said(b"up\n")
        command.signal(signal.SIGTERM)
        command.said(b"asked to stop\n")
        assert command.end() == 5
    assert meta(tmp_path / "r" / "1")["stopper"] == "owner"


def test_a_reader_that_sleeps_holds_nothing_up_and_misses_nothing(home: Path, tmp_path: Path) -> None:
    size, ready = 8_000_000, tmp_path / "ready"
    code = f"import sys; sys.stdout.write('x' * {size}); sys.stdout.flush(); open({str(ready)!r}, 'w')"
    with running("record", "-o", str(tmp_path / "r"), *python(code), home=home) as command:
        wait_for(tmp_path, "ready")  # all was taken from the program, and we have read nothing
        assert len(command.out.read()) == size
        assert command.end() == 0


def test_a_reader_that_leaves_stops_the_program(home: Path, tmp_path: Path) -> None:
    code = "while True: print('y' * 1000)"
    with running("record", "-o", str(tmp_path / "r"), *python(code), home=home) as command:
        command.out.read(10)
        command.out.close()
        assert command.end() == 141


def test_nothing_is_left_behind_that_the_program_started(home: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess\n"
        "left = subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "print(left.pid)"
    )
    done = proctor("record", "-o", str(tmp_path / "r"), *python(code), home=home)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.out), 0)


def test_values_of_the_environment_are_not_recorded_but_the_program_has_them(
    home: Path, tmp_path: Path
) -> None:
    code = "import os; raise SystemExit(len(os.environ['A_KEY']))"
    argv = [*PROCTOR, "record", "-o", str(tmp_path / "r"), *python(code)]
    done = subprocess.run(argv, env=environment(home, A_KEY="of-great-worth"), check=False)
    assert done.returncode == len("of-great-worth")
    files = [path for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert not [path for path in files if b"of-great-worth" in path.read_bytes()]
    names = meta(tmp_path / "r" / "1")["environment"]
    assert isinstance(names, list)
    assert "A_KEY" in names
    assert (tmp_path / "r" / "1").stat().st_mode & 0o777 == 0o700


def test_lines_typed_at_a_terminal_reach_the_program(home: Path, tmp_path: Path) -> None:
    code = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"
    with Terminal(["record", "-o", str(tmp_path / "r"), *python(code)], home) as terminal:
        wait_for(tmp_path, "r/1/stdin.ndjson")
        terminal.press("hello\n")
        terminal.until("got hello")
        terminal.press("\x04")
        assert terminal.end() == 0
    assert (tmp_path / "r" / "1" / "stdin.ndjson").read_bytes() == b"hello\n"


def test_what_was_recorded_is_replayed(home: Path, tmp_path: Path) -> None:
    cli = [sys.executable, "-I", "-S", str(PROGRAM), f"--script={EXAMPLES / 'hello.ndjson'}"]
    flags = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    prompt = {"type": "user", "message": {"role": "user", "content": "hi there"}}
    argv = [*PROCTOR, "record", "-o", str(tmp_path / "r"), "--", *cli, *flags]
    for _ in range(2):
        done = subprocess.run(
            argv,
            input=json.dumps(prompt).encode() + b"\n",
            capture_output=True,
            env=environment(home),
            check=True,
        )
        assert b"Hello! You said: hi there" in done.stdout
    assert sorted(os.listdir(tmp_path / "r")) == ["1", "2", "lock"]
    assert proctor("replay", str(tmp_path / "r"), home=home).out == "Hello! You said: hi there\n"


def test_two_do_not_record_in_one_directory(home: Path, tmp_path: Path) -> None:
    code = "print('up', flush=True); input()"
    pipe = subprocess.PIPE
    argv = [*PROCTOR, "record", "-o", str(tmp_path / "r"), *python(code)]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=environment(home)) as first:
        assert first.stdout is not None
        assert select.select([first.stdout], [], [], 60)[0]
        second = proctor("record", "-o", str(tmp_path / "r"), *python(""), home=home)
        assert second.status == 2
        assert "is in use by another recording" in second.complaint
        first.communicate(b"\n")


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ([], 2, "proctor: no command: "),
        (["--", "no-such-program"], 69, "proctor: 'no-such-program': there is no such program"),
        (["-o", "/dev/null/x", "--", "true"], 1, "proctor: cannot write the run directory"),
    ],
    ids=["no command", "no program", "no directory"],
)
def test_what_cannot_be_recorded_is_one_line(
    words: list[str], status: int, complaint: str, home: Path
) -> None:
    done = proctor("record", *words, home=home)
    assert done.status == status
    assert done.complaint.startswith(complaint)
