from __future__ import annotations

import tomllib

import pytest

from proctor.actors.setup.jsonc import Malformed, Unsplicable
from proctor.actors.setup.toml_table import MARK, parse, with_table, without_table
from tests.tables import each_row

PATH = ("mcp_servers", "proctor")
ENTRY: dict[str, object] = {"command": 'C:\\x "y"\x7f', "args": ["serve", "ä"], "tool_timeout_sec": 600}

TEXTS = [
    "",
    "\n",
    "a = 1",
    "a = 1\n",
    "a = 1\n\n",
    "a = 1\r\n[b]\r\nc = 2\r\n",
    "# only a comment",
    "[mcp_servers]\n",
    "[mcp_servers.other]\ncommand = 'x'\n# the end",
    'a = """\n[mcp_servers.proctor]\n"""\n',
]


@pytest.mark.covers("R172")
@each_row("text", TEXTS)
def test_what_was_put_in_and_taken_out_leaves_every_byte(text: str) -> None:
    made = with_table(text, PATH, ENTRY)
    settings = tomllib.loads(made)
    assert settings["mcp_servers"].pop("proctor") == ENTRY
    assert made.startswith(text)
    assert without_table(made, PATH) == text


def test_a_file_that_was_made_for_it_is_gone_with_it() -> None:
    made = with_table(None, PATH, ENTRY)
    assert without_table(made, PATH) is None
    assert without_table(f"{made}\n[b]\nc = 1\n", PATH) == "\n[b]\nc = 1\n"


@each_row("text", TEXTS)
def test_tables_that_came_behind_it_stay(text: str) -> None:
    later = '\n[projects."/srv/x"]\ntrust_level = "trusted"\n'
    assert without_table(with_table(text, PATH, ENTRY) + later, PATH) == text + later


def test_a_table_of_ours_that_was_added_to_goes_whole() -> None:
    made = with_table("a = 1\n", PATH, ENTRY)
    assert without_table(f'{made}\n[mcp_servers.proctor.env]\nT = "x"\n\n# b\'s\n[b]\n', PATH) == (
        "a = 1\n\n\n# b's\n[b]\n"
    )


@pytest.mark.parametrize(
    "theirs",
    [
        '[mcp_servers.proctor]\ncommand = "x"\n',
        '[ mcp_servers . "proctor" ]\ncommand = "x"\n[mcp_servers.proctor.env]\nA = "b"\n',
        "[[mcp_servers.proctor]]\na = 1\n[[mcp_servers.proctor]]\na = 2\n",
    ],
)
def test_a_table_that_somebody_else_wrote_is_found_by_its_headers(theirs: str) -> None:
    assert without_table(f"a = 1\n{theirs}# c\n[d]\n", PATH) == "a = 1\n# c\n[d]\n"


@pytest.mark.parametrize("text", ["mcp_servers = {}\n", "[[mcp_servers]]\na = 1\n", "mcp_servers = 3"])
def test_a_table_that_is_closed_is_left_alone(text: str) -> None:
    with pytest.raises(Unsplicable, match="'mcp_servers' is an inline table or an array"):
        with_table(text, PATH, ENTRY)


def test_a_setting_that_is_no_table_of_its_own_is_not_taken_out() -> None:
    with pytest.raises(Unsplicable, match="not a table of its own"):
        without_table('mcp_servers = { proctor = { command = "x" } }\n', PATH)


def test_a_table_takes_the_place_of_one_with_what_was_added_to_it() -> None:
    old = f'{MARK}\n[mcp_servers.proctor]\ncommand = "old"\n[mcp_servers.proctor.env]\n"A b" = "c"\n'
    entry = {"command": "new", "env": {"A b": "c"}}
    assert parse(with_table(f"a = 1\n\n{old}", PATH, entry)) == {"a": 1, "mcp_servers": {"proctor": entry}}


@pytest.mark.covers("R173")
@pytest.mark.parametrize("text", ["a = ", "[a", "a = 1\na = 2", "\x00", "a = " + "[" * 5000])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)
