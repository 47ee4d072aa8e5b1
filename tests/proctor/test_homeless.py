from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.proctor.command import EXAMPLES, Ended
from tests.proctor.unknown_user import as_unknown_user

HELLO = f"scripted:{EXAMPLES / 'hello.ndjson'}"


@pytest.fixture(params=["no home", "a home that cannot be written"])
def homeless(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    if request.param == "no home":
        return None
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    return home


def test_a_run_answers_without_a_home_and_keeps_its_recording(tmp_path: Path, homeless: Path | None) -> None:
    done = as_unknown_user("run", HELLO, "hi", tmp=tmp_path / "tmp", home=homeless)
    assert (done.status, done.out) == (0, "Hello! You said: hi\n")
    [folder] = (tmp_path / "tmp").glob("proctor-*")
    assert len(list(folder.glob("runs/*/1/meta.json"))) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_ours_is_not_used_without_a_home(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for uid in {54321, os.getuid()}:
        (tmp_path / "tmp" / f"proctor-{uid}").symlink_to(tmp_path)
    done = as_unknown_user("run", HELLO, "hi", tmp=tmp_path / "tmp", home=None)
    assert done.status == 1
    assert "it belongs to another user; set XDG_STATE_HOME" in done.complaint
    done = as_unknown_user("run", HELLO, "hi", "--no-record", tmp=tmp_path / "tmp", home=None)
    assert (done.status, done.out) == (0, "Hello! You said: hi\n")


def test_the_doctor_says_where_the_state_is_without_a_home(tmp_path: Path, homeless: Path | None) -> None:
    done = as_unknown_user("doctor", "--output=json", tmp=tmp_path / "tmp", home=homeless)
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert checks["state"]["grade"] == checks["recordings"]["grade"] == checks["leftovers"]["grade"] == "ok"
    assert str(tmp_path / "tmp") in checks["state"]["text"]
    assert {"claude", "codex", "opencode", "gemini"} <= set(checks)


@pytest.mark.parametrize("words", [("health",), ("setup", "--dry-run"), ("setup", "--client=claude")])
def test_every_command_about_clis_works_without_a_home(
    words: tuple[str, ...], tmp_path: Path, homeless: Path | None
) -> None:
    done = as_unknown_user(*words, tmp=tmp_path / "tmp", home=homeless, PROCTOR_CLAUDE="/nowhere/claude")
    assert done.status in (0, 1)
    assert "internal error" not in done.err
    assert "Traceback" not in done.err
    assert done.out.splitlines()


def test_setup_without_a_home_says_what_to_set(tmp_path: Path) -> None:
    done: Ended = as_unknown_user("setup", "--client=gemini", tmp=tmp_path / "tmp", home=None)
    assert done.status == 1
    assert "there is no home folder; set HOME" in done.out or os.getuid() != 0


SPY = r"""
host=$PPID
until tr '\0' ' ' < /proc/$host/cmdline | grep -q 'proctor [s]erve '; do host=$(cut -d ' ' -f 4 /proc/$host/stat); done
cat /proc/$host/environ > "$1" 2> /dev/null || echo refused > "$1"
kill -TERM $host
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("listens", [("--http", "127.0.0.1:0"), ("--probes", "127.0.0.1:0")])
def test_an_agent_of_a_served_fleet_cannot_read_the_token_even_while_it_starts(
    listens: tuple[str, str], tmp_path: Path
) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    tmp.chmod(0o777)
    fleet = tmp_path / "fleet.toml"
    command = json.dumps(["sh", "-c", SPY, "spy", str(tmp / "seen")])
    fleet.write_text(f'[[agents]]\nkind = "acp"\nname = "spy"\nargv = {command}\nrestart = "temporary"\n')
    words = ("serve", f"--fleet={fleet}", *listens, "--token-env", "TOKEN")
    as_unknown_user(*words, tmp=tmp, home=None, TOKEN="0123456789abcdef0123")
    assert (tmp / "seen").read_text() == "refused\n"
