from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import get_args

import attrs
import jsonschema_rs
import pytest
from trio.testing import MockClock

from proctor.actors.errors import BadOption, ConfigRefused
from proctor.actors.setup import config_file, jsonc
from proctor.actors.setup.registration import (
    ACTIONS,
    CLIENTS,
    Goal,
    Registration,
    SetupRequest,
    is_present,
    register,
)
from tests.runtime.programs import installed
from tests.tables import each_row

CONFIGS = Path(__file__).parent / "configs"
REQUEST = SetupRequest(argv=("/opt/proctor/bin/proctor", "serve"))
REMOVED = attrs.evolve(REQUEST, goal="remove")
FILES: Mapping[str, str] = {
    "claude": ".claude.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "gemini": ".gemini/settings.json",
}
GOLDEN: Mapping[str, tuple[str, str, str]] = {
    "claude": ("claude.before.json", "claude.after.json", "claude.new.json"),
    "codex": ("codex.before.toml", "codex.after.toml", "codex.new.toml"),
    "opencode": ("opencode.before.jsonc", "opencode.after.jsonc", "opencode.new.json"),
    "gemini": ("gemini.before.json", "gemini.after.json", "gemini.new.json"),
}

clients = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


async def done(client: str, home: Path, request: SetupRequest = REQUEST, **environ: str) -> Registration:
    return await register(CLIENTS[client], request, {"HOME": str(home), **environ})


def file_of(client: str, home: Path) -> Path:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def below(folder: Path) -> list[str]:
    """The files there, at any depth."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()]


def populated(client: str, home: Path) -> Path:
    path = file_of(client, home)
    shutil.copy(CONFIGS / GOLDEN[client][0], path)
    return path


# golden files


@pytest.mark.covers("R170", "C09")
@clients
async def test_a_client_without_a_file_gets_one(client: str, home: Path) -> None:
    made = await done(client, home)
    path = home / FILES[client]
    assert (made.error, made.action, made.path) == (None, "add", path)
    assert path.read_bytes() == (CONFIGS / GOLDEN[client][2]).read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.covers("R170", "R172")
@clients
async def test_a_clients_own_settings_and_comments_stay_as_they_are(client: str, home: Path) -> None:
    path = populated(client, home)
    path.chmod(0o640)
    made = await done(client, home)
    assert (made.error, made.action) == (None, "add")
    assert path.read_bytes() == (CONFIGS / GOLDEN[client][1]).read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.covers("R172")
@clients
async def test_a_second_time_changes_nothing(client: str, home: Path) -> None:
    path = populated(client, home)
    await done(client, home)
    was = path.stat()
    made = await done(client, home)
    assert (made.error, made.action, made.lines) == (None, "keep", ())
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (was.st_ino, was.st_mtime_ns)


@clients
async def test_removing_leaves_what_was_there_before_to_the_byte(client: str, home: Path) -> None:
    path = populated(client, home)
    await done(client, home)
    made = await done(client, home, REMOVED)
    assert (made.error, made.action) == (None, "remove")
    assert path.read_bytes() == (CONFIGS / GOLDEN[client][0]).read_bytes()
    assert (await done(client, home, REMOVED)).action == "keep"


@clients
async def test_a_file_that_was_made_is_gone_again(client: str, home: Path) -> None:
    await done(client, home)
    await done(client, home, REMOVED)
    assert below(home) == []


@pytest.mark.covers("R171")
@clients
async def test_a_dry_run_changes_nothing_and_names_the_file(client: str, home: Path) -> None:
    path = populated(client, home)
    before = path.read_bytes()
    dry = await done(client, home, attrs.evolve(REQUEST, dry_run=True))
    assert (path.read_bytes(), below(home)) == (before, [FILES[client]])
    assert dry == await done(client, home)
    assert dry.path == path


@pytest.mark.covers("C09")
def test_opencodes_entry_is_one_of_its_published_schema() -> None:
    # McpLocalConfig of the document that `opencode serve` 1.18.33 gives of itself
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["local"]},
            "command": {"type": "array", "items": text},
            "cwd": text,
            "environment": {"type": "object", "additionalProperties": text},
            "enabled": {"type": "boolean"},
            "timeout": {"type": "integer", "exclusiveMinimum": 0},
        },
        "required": ["type", "command"],
        "additionalProperties": False,
    }
    jsonschema_rs.validate(schema, dict(CLIENTS["opencode"].entry(REQUEST.argv)))


# what is shown


@clients
async def test_what_is_shown_are_the_lines_of_ours_alone(client: str, home: Path) -> None:
    populated(client, home)
    made, gone = await done(client, home), await done(client, home, REMOVED)
    [first, *_] = made.lines
    assert all(line.startswith("+ ") for line in made.lines)
    assert "proctor" in first
    assert "/opt/proctor/bin/proctor" in " ".join(made.lines)
    assert gone.lines == (f"- {CLIENTS[client].key}.proctor",)
    assert "secret" not in repr((made, gone))


# whose entry it is


def with_entry(client: str, home: Path, argv: tuple[str, ...], more: str = "") -> Path:
    path = file_of(client, home)
    file_format, entry = CLIENTS[client].file_format, {**CLIENTS[client].entry(argv)}
    if more:
        entry["cwd"] = more
    path.write_text(file_format.put(None, (CLIENTS[client].key, "proctor"), entry))
    return path


OURS = (
    ("/old/bin/proctor", "serve"),
    ("/usr/bin/python3", "-m", "proctor", "serve", "--fleet", "x.toml"),
)


@clients
@pytest.mark.parametrize("argv", OURS, ids=["script", "module"])
async def test_an_older_entry_of_ours_is_brought_up_to_date_and_keeps_its_owners_settings(
    client: str, argv: tuple[str, ...], home: Path
) -> None:
    path = with_entry(client, home, argv, more="/srv/mine")
    made = await done(client, home)
    assert (made.error, made.action) == (None, "replace")
    entry = CLIENTS[client].file_format.read(path.read_text())[CLIENTS[client].key]["proctor"]
    assert entry == {**CLIENTS[client].entry(REQUEST.argv), "cwd": "/srv/mine"}
    assert "/srv/mine" not in repr(made.lines)


@clients
async def test_an_entry_of_ours_with_other_settings_is_left_to_its_owner(client: str, home: Path) -> None:
    path = with_entry(client, home, REQUEST.argv, more="/srv/mine")
    before = path.read_bytes()
    assert (await done(client, home)).action == "keep"
    assert path.read_bytes() == before


@clients
@pytest.mark.parametrize("goal", get_args(Goal))
async def test_an_entry_of_somebody_elses_is_left_alone_unless_forced(
    client: str, goal: Goal, home: Path
) -> None:
    path = with_entry(client, home, ("/opt/other", "serve", "very-secret"))
    before = path.read_bytes()
    refused = await done(client, home, attrs.evolve(REQUEST, goal=goal))
    assert refused.error == "its server 'proctor' belongs to another program; use --force or another --name"
    assert path.read_bytes() == before
    forced = await done(client, home, attrs.evolve(REQUEST, goal=goal, force=True))
    assert forced.error is None
    assert "very-secret" not in repr((refused, forced))
    left = CLIENTS[client].file_format.read(path.read_text()) if path.exists() else None
    expected = {CLIENTS[client].key: {"proctor": CLIENTS[client].entry(REQUEST.argv)}}
    assert left == (expected if goal == "register" else None)


def test_every_wish_has_a_deed_for_every_standing() -> None:
    goals, states = ({pair[place] for pair in ACTIONS} for place in (0, 1))
    assert len(ACTIONS) == len(goals) * len(states) == 8


@each_row("name", ["", "a b", "a.b", "ä", "x" * 65, "a\nb"])
def test_a_name_that_not_every_client_takes_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="which every client accepts"):
        SetupRequest(argv=("x",), name=name)


# files that are left alone


@pytest.mark.covers("R173", "C10")
@clients
@pytest.mark.parametrize("text", [b"{bad", b"", b"\xff\xfe", b"[1]", b"a = "])
async def test_a_file_that_cannot_be_read_is_left_alone(client: str, text: bytes, home: Path) -> None:
    path = file_of(client, home)
    path.write_bytes(text)
    made = await done(client, home)
    if client == "codex" and text in (b"", b"[1]"):
        assert made.error is None  # which is TOML
        return
    assert made.error is not None
    assert made.path == path
    assert path.read_bytes() == text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("client", "text", "by_hand"),
    [
        ("codex", "mcp_servers = {}\n", "[mcp_servers.proctor]"),
        ("claude", '{"mcpServers": []}', '"mcpServers": {"proctor": {"type": "stdio"'),
    ],
)
async def test_a_place_that_takes_no_entry_is_left_alone_and_what_to_add_is_said(
    client: str, text: str, by_hand: str, home: Path
) -> None:
    path = file_of(client, home)
    path.write_text(text)
    made = await done(client, home)
    assert made.error is not None
    assert made.error.startswith("it cannot be edited without changing other settings: ")
    assert made.by_hand[0].startswith(by_hand)
    assert path.read_text() == text


@pytest.mark.covers("R174")
@clients
@pytest.mark.parametrize("dry", [False, True])
async def test_a_missing_home_is_an_error_that_names_it(client: str, dry: bool, tmp_path: Path) -> None:
    made = await done(client, tmp_path / "none", attrs.evolve(REQUEST, dry_run=dry))
    assert made.error == f"the folder {str(tmp_path / 'none')!r} does not exist"
    assert below(tmp_path) == []


@pytest.fixture
def nobody() -> Generator[Path]:
    """A home of root's, and we are not root. Where we are none anyway, a home that may not be written."""
    folder = Path(tempfile.mkdtemp())
    for client in CLIENTS:
        populated(client, folder)
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.covers("R174")
@clients
async def test_a_file_without_permission_is_an_error_that_names_it(client: str, nobody: Path) -> None:
    path = nobody / FILES[client]
    before = path.read_bytes()
    for dry in (True, False):
        made = await done(client, nobody, attrs.evolve(REQUEST, dry_run=dry))
        assert made.error is not None
        assert "permission" in made.error
        assert made.path == path
        assert path.read_bytes() == before


@clients
async def test_a_folder_in_the_place_of_the_file_is_an_error(client: str, home: Path) -> None:
    file_of(client, home).mkdir()
    made = await done(client, home)
    assert made.error == "it cannot be read: is a directory"


# where the file is


async def test_each_clients_own_variable_moves_its_file(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "xdg").mkdir(parents=True)
    named = {
        "CLAUDE_CONFIG_DIR": str(other),
        "CODEX_HOME": str(other),
        "XDG_CONFIG_HOME": str(other / "xdg"),
        "GEMINI_CLI_HOME": str(other),
    }
    paths = [
        (await register(CLIENTS[client], REQUEST, {"HOME": str(home), **named})).path for client in CLIENTS
    ]
    assert paths == [
        other / ".claude.json",
        other / "config.toml",
        other / "xdg/opencode/opencode.json",
        other / ".gemini/settings.json",
    ]
    assert (await done("opencode", home, OPENCODE_CONFIG=str(other / "o.jsonc"))).path == other / "o.jsonc"
    assert below(home) == []


async def test_claudes_older_file_is_used_where_it_is(home: Path) -> None:
    (home / ".claude").mkdir()
    (home / ".claude" / ".config.json").write_text("{}")
    assert (await done("claude", home)).path == home / ".claude" / ".config.json"


async def test_of_opencodes_two_files_the_one_with_the_entry_is_used(home: Path) -> None:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text("{}")
    assert (await done("opencode", home)).path == folder / "opencode.jsonc"
    (folder / "opencode.json").write_text("{}")
    assert (await done("opencode", home, REMOVED)).path == folder / "opencode.jsonc"
    assert (await done("opencode", home)).path == folder / "opencode.json"
    (folder / "opencode.json").write_text("{")
    broken = await done("opencode", home)
    assert broken.path == folder / "opencode.json"
    assert broken.error is not None


@clients
def test_a_client_is_here_when_its_program_or_its_file_is(client: str, home: Path, tmp_path: Path) -> None:
    product = CLIENTS[client].product
    environ = {"HOME": str(home), "PATH": str(tmp_path)}
    assert not is_present(CLIENTS[client], environ)
    assert is_present(CLIENTS[client], {**environ, product.variable: str(tmp_path)})
    installed(tmp_path / product.program)
    assert is_present(CLIENTS[client], environ)
    file_of(client, home).touch()
    assert is_present(CLIENTS[client], {**environ, "PATH": "/none"})


# the file


async def test_a_link_stays_a_link_and_its_target_is_changed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "config.toml"
    shutil.copy(CONFIGS / "codex.before.toml", target)
    link = file_of("codex", home)
    link.symlink_to(target)
    await done("codex", home)
    assert link.readlink() == target
    assert target.read_bytes() == (CONFIGS / "codex.after.toml").read_bytes()


async def test_a_link_that_leads_nowhere_or_to_itself(home: Path, tmp_path: Path) -> None:
    link = file_of("codex", home)
    link.symlink_to(tmp_path / "new.toml")
    assert (await done("codex", home)).error is None
    assert tomllib.loads((tmp_path / "new.toml").read_text())["mcp_servers"]["proctor"]
    link.unlink()
    link.symlink_to(link)
    assert (await done("codex", home)).error is not None


def test_a_file_that_changed_since_it_was_read_is_not_written(home: Path) -> None:
    path = populated("codex", home)
    file = config_file.read(path)
    path.write_text("model = 'new'\n")
    with pytest.raises(ConfigRefused, match="another program changed it just now"):
        config_file.write(file, "x = 1\n", anchor=home)
    assert path.read_text() == "model = 'new'\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_keeps_its_owner(home: Path) -> None:
    path = populated("codex", home)
    os.chown(path, 12345, 54321)
    await done("codex", home)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


# the lock of a program that writes its file while it runs


async def test_claudes_lock_is_waited_for_and_then_the_file_is_left_alone(
    home: Path, autojump_clock: MockClock
) -> None:
    path = populated("claude", home)
    lock = home / ".claude.json.lock"
    lock.mkdir()
    made = await done("claude", home)
    assert made.error == f"another program holds {str(lock)!r}; try again"
    assert (path.read_bytes(), lock.is_dir()) == ((CONFIGS / "claude.before.json").read_bytes(), True)


async def test_a_lock_that_nobody_renews_is_nobodys(home: Path, autojump_clock: MockClock) -> None:
    populated("claude", home)
    lock = home / ".claude.json.lock"
    lock.mkdir()
    os.utime(lock, (1, 1))
    assert (await done("claude", home)).error is None
    assert not lock.exists()


@pytest.mark.covers("R174")
@clients
async def test_a_file_that_leads_back_to_itself_is_told_and_left_alone(client: str, home: Path) -> None:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path)
    made = await done(client, home)
    assert made.error is not None
    assert made.path == path
    assert path.is_symlink()


async def test_a_lock_that_was_not_taken_is_not_let_go(home: Path) -> None:
    path = home / "later" / ".claude.json"
    async with config_file.locked(path):  # there is no folder to hold it in
        (home / "later" / ".claude.json.lock").mkdir(parents=True)
    assert (home / "later" / ".claude.json.lock").is_dir()


async def test_the_lock_is_held_while_the_file_is_written(home: Path) -> None:
    lock = home / ".claude.json.lock"
    async with config_file.locked(home / ".claude.json"):
        assert lock.is_dir()
    assert not lock.exists()


def test_a_text_of_plain_json_stays_one() -> None:
    text = (CONFIGS / "claude.after.json").read_text()
    assert jsonc.parse(text, comments=False)["größe"] == 1.5
