from __future__ import annotations

import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.operations.health import Adapter
from proctor.actors.plan.discovery import Product
from proctor.cli.cleanup_proof import Proof
from proctor.cli.commands import doctor
from proctor.runtime.processes import procfs
from proctor.runtime.processes.ledger import Swept
from proctor.runtime.processes.orphans import Orphan, find_marked
from tests.proctor.command import Ended, processes_with, proctor, running
from tests.runtime.programs import installed
from tests.tables import each_row

NAMES = [
    "python",
    "platform",
    "pidfd",
    "proc",
    "guard",
    "subreaper",
    "state",
    "leftovers",
    "recordings",
    "files",
    "claude",
    "codex",
    "opencode",
    "gemini",
    "credentials",
]


def grades(done: Ended) -> dict[str, str]:
    return {name: grade for grade, name, *_ in (line.split() for line in done.out.splitlines())}


def program(tmp_path: Path, script: str) -> dict[str, str]:
    return {"PROCTOR_CLAUDE": str(installed(tmp_path / "claude", script))}


def test_a_machine_that_is_fit_passes_every_check(home: Path, tmp_path: Path) -> None:
    [(_, path)] = program(tmp_path, "echo 2.1.9").items()
    env = {f"PROCTOR_{name.upper()}": path for name in ("claude", "codex", "opencode", "gemini")}
    done = proctor("doctor", home=home, env=env)
    assert (done.status, done.err) == (0, "")
    assert grades(done) == dict.fromkeys(NAMES, "ok")
    assert f"Claude Code 2.1.9 at {tmp_path}/claude" in done.out


def test_an_agent_that_is_not_installed_is_a_warning(home: Path) -> None:
    done = proctor("doctor", home=home, env={"PROCTOR_CLAUDE": "/no/such/program"})
    assert (done.status, grades(done)["claude"]) == (0, "warn")


@pytest.mark.covers("R027")
def test_an_agent_that_does_not_work_is_a_failure_with_what_it_said(home: Path, tmp_path: Path) -> None:
    done = proctor("doctor", home=home, env=program(tmp_path, "echo out; echo broken >&2; exit 3"))
    assert (done.status, grades(done)["claude"]) == (1, "fail")
    [line] = [line for line in done.out.splitlines() if " claude " in line]
    assert "exit status 3" in line
    assert "out" in line
    assert "broken" in line


def test_a_state_folder_that_cannot_be_written_is_a_failure(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = proctor("doctor", home=home, env={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert (done.status, grades(done)["state"]) == (1, "fail")
    assert "set XDG_STATE_HOME" in done.out


def test_a_recording_without_a_tag_is_counted_and_left(home: Path) -> None:
    run = home / "state" / "proctor" / "runs" / "20260101-000000-agent-abcdefgh"
    run.mkdir(parents=True)
    (run / "lock").touch()
    done = proctor("doctor", home=home)
    assert (done.status, grades(done)["recordings"]) == (0, "warn")
    assert f"1 without a tag in {run.parent}" in done.out
    assert run.is_dir()


def test_keys_are_told_by_name_only(home: Path) -> None:
    done = proctor("doctor", home=home, env={"OPENAI_API_KEY": "very-secret"})
    assert "set: OPENAI_API_KEY; agents do not get them unless they are named" in done.out
    assert "very-secret" not in done.out


def test_the_checks_as_json_are_the_same_checks(home: Path) -> None:
    done = proctor("doctor", "-o", "json", home=home)
    facts: dict[str, Any] = json.loads(done.out)
    assert facts["ok"] is True
    assert [check["name"] for check in facts["checks"]] == NAMES
    assert {check["grade"] for check in facts["checks"]} <= {"ok", "warn"}


@each_row(
    ("check", "grade"),
    [
        (doctor.check_python((3, 10, 9)), "fail"),
        (doctor.check_python((3, 11, 0)), "ok"),
        (doctor.check_platform("Darwin", "24"), "warn"),
        (doctor.check_files(256), "warn"),
        (doctor.check_files(1024), "ok"),
        (doctor.check_files(resource.RLIM_INFINITY), "ok"),
    ],
)
def test_a_check_that_is_not_ok_says_what_to_do(check: doctor.Check, grade: doctor.Grade) -> None:
    assert check.grade == grade
    assert bool(check.advice) == (grade != "ok")


def test_a_check_is_one_line() -> None:
    assert str(doctor.Check("proc", "fail", "no\n/proc\x1b", "mount it")) == (
        "fail  proc         no /proc\\x1b; mount it"
    )


async def test_a_product_is_looked_for_as_agents_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_OTHER", str(tmp_path))
    other = Product(name="Other", program="other", variable="PROCTOR_OTHER", places=(), install="get it")
    [check] = await doctor.check_products({"other": Adapter(other)})
    assert (check.grade, "it is a directory" in check.text) == ("fail", True)


# the proof


@pytest.mark.covers("L23")
def test_a_killed_runtime_leaves_nothing_and_a_stranger_goes_on(home: Path) -> None:
    done = proctor("doctor", "--prove-cleanup", "--children", "6", home=home)
    first, second, *rest = done.out.splitlines()
    assert done.err == ""
    assert first == (  # a guard and two for each child, and the one that forks the guards
        "killed a runtime with 6 children and 19 processes below it, 6 of them in sessions of their own"
    )
    assert second.endswith(": nothing")
    assert rest == [
        "killed by the sweep of the next start: nothing",
        "a foreign process with a recorded pid: untouched",
        "proved",
    ]
    assert done.status == 0


def test_the_proof_as_json(home: Path) -> None:
    done = proctor("doctor", "--prove-cleanup", "--children", "1", "-o", "json", home=home)
    facts: dict[str, Any] = json.loads(done.out)
    assert facts.pop("seconds") < 5
    assert (done.status, facts) == (
        0,
        {
            "holds": True,
            "children": 1,
            "processes": 4,
            "apart": 2,
            "left": [],
            "swept": [],
            "stranger_untouched": True,
        },
    )


def test_a_proof_without_time_lists_what_was_left_and_its_status_says_so(home: Path) -> None:
    done = proctor("doctor", "--prove-cleanup", "--children", "4", "--seconds", "0", "-o", "json", home=home)
    facts: dict[str, Any] = json.loads(done.out)
    left = facts["left"]  # guards are quick: it may be nothing
    assert (done.status, facts["holds"], facts["stranger_untouched"]) == (bool(left), not left, True)
    assert {orphan["marker"].rpartition("/")[2] for orphan in left} <= {"family", "alone"}


@pytest.mark.parametrize("name", ["left", "killed", "unkillable", "unsure", "harmed"])
def test_a_proof_holds_when_nothing_is_left_and_nobody_harmed(name: str) -> None:
    one = (Orphan(1, 1, "sh", "m"),)
    swept = Swept(
        killed=one if name == "killed" else (),
        left=one if name == "unkillable" else (),
        sure=name != "unsure",
    )
    proof = Proof(
        children=1,
        processes=4,
        apart=2,
        seconds=0.1,
        left=one if name == "left" else (),
        swept=swept,
        untouched=name != "harmed",
    )
    assert proof.holds == (name == "killed")
    assert list(proof.lines())[-1] == ("proved" if name == "killed" else "NOT proved")


@pytest.mark.parametrize("words", [("--children", "0"), ("--seconds", "-1"), ("--seconds", "inf")])
def test_a_proof_of_nothing_is_refused(words: tuple[str, str], home: Path) -> None:
    done = proctor("doctor", "--prove-cleanup", *words, home=home)
    assert (done.status, done.complaint) == (
        2,
        "proctor: --children is 1 or more, --seconds 0 or more (see proctor doctor --help)",
    )


def the_runtime_of(doctor: int) -> tuple[int, str]:
    """The pid and the key of the runtime that is to be killed, once it has begun to start children."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        for pid in Path(f"/proc/{doctor}/task/{doctor}/children").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            ledgers = list(Path(words[3]).glob("*.ledger")) if "proctor.cli.orphan_fixture" in words else []
            if ledgers and find_marked({ledgers[0].stem}):
                return int(pid), ledgers[0].stem
        time.sleep(0.02)
    raise AssertionError("no runtime was started")


def test_an_interrupted_proof_leaves_nothing_either(home: Path) -> None:
    with running("doctor", "--prove-cleanup", "--children", "400", home=home) as command:
        victim, key = the_runtime_of(command.process.pid)
        command.signal(signal.SIGINT)
        assert command.end() == 130
        assert procfs.stat_of(victim) is None
    limit = time.monotonic() + 5
    while find_marked({key}) and time.monotonic() < limit:
        time.sleep(0.02)
    assert find_marked({key}) == ()


PROGRAMS = {
    "garbage": "#!/bin/sh\nhead -c 2000 /dev/urandom\n",
    "core": "#!/bin/sh\nkill -SEGV $$\n",
    "flood": "#!/bin/sh\nexec head -c 10000000 /dev/zero\n",
    "endless": "#!/bin/sh\nexec cat /dev/zero\n",
    "script without interpreter": "#!/nowhere/sh\n",
    "no program": "\x7fELF is no program",
}
WHY = {
    "garbage": "exit status 0, expected a version",
    "core": "killed by SIGSEGV",
    "flood": "more than 65536 bytes, expected a version",
    "endless": "more than 65536 bytes, expected a version",
    "script without interpreter": "cannot be started",
    "no program": "cannot be started",
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_doctor_survives_a_cli_that_says_no_version(kind: str, home: Path) -> None:
    program = home / "program"
    program.write_text(PROGRAMS[kind])
    program.chmod(0o755)
    done = proctor("doctor", "--output=json", home=home, env={"PROCTOR_CODEX": str(program)})
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert (done.status, checks["codex"]["grade"]) == (1, "fail")
    assert WHY[kind] in checks["codex"]["text"]
    assert "credentials" in checks


def test_the_doctor_survives_clis_that_are_none_and_one_that_hangs(home: Path) -> None:
    folder, plain, hangs = home / "folder", home / "plain", home / "hangs"
    number = str(100_000_000 + os.getpid())  # of seconds: another run on this machine looks for another
    folder.mkdir()
    plain.write_text("x")
    hangs.write_text(f"#!/bin/sh\nsleep {number} &\nwait\n")
    hangs.chmod(0o755)
    named = {"CLAUDE": folder, "CODEX": plain, "OPENCODE": home / "nowhere", "GEMINI": hangs}
    done = proctor(
        "doctor", "--output=json", home=home, env={f"PROCTOR_{k}": str(path) for k, path in named.items()}
    )
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    found = {
        name: (checks[name]["grade"], checks[name]["text"])
        for name in ("claude", "codex", "opencode", "gemini")
    }
    assert [grade for grade, _ in found.values()] == ["fail", "fail", "warn", "fail"]
    assert "it is a directory" in found["claude"][1]
    assert "no execute permission" in found["codex"][1]
    assert "OpenCode is not installed; install it with: " in found["opencode"][1]
    assert "no answer within 10 s" in found["gemini"][1]
    assert processes_with(number) == []
