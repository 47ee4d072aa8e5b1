from __future__ import annotations

from typing import Any

import attrs
import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.claude.dialect import launch
from proctor.protocols.dialect import Command, HostHook, Launch
from proctor.protocols.errors import ArgumentTooLong
from proctor.protocols.mcp import Server
from tests.tables import each_row

ISOLATED = ("--strict-mcp-config", "--setting-sources=", "--disallowedTools=ListAgents,SendMessage")
ONESHOT = ("claude", "-p", "--output-format=stream-json", "--verbose")
SESSION = (*ONESHOT, "--input-format=stream-json", "--permission-prompt-tool=stdio")
NEW, OLD = (2, 1, 330), (2, 1, 197)


def wanted(**fields: Any) -> Launch:
    chosen: dict[str, Any] = {"executable": ("claude",), "version": NEW, "partial": False, **fields}
    return Launch(**chosen)


def added(command: Command, **base: Any) -> list[str]:
    """The arguments of a command that its plain twin has not."""
    return [argument for argument in command.argv if argument not in launch(wanted(**base)).argv]


@pytest.mark.covers("R016", "R018", "L03", "C01")
def test_a_session_by_default() -> None:
    assert launch(wanted()).argv == (*SESSION, *ISOLATED)
    plain = Launch(executable=("claude",), version=NEW)
    assert launch(plain).argv == (*SESSION, *ISOLATED, "--include-partial-messages")


def test_a_one_shot_run_by_default() -> None:
    assert launch(wanted(mode="oneshot")).argv == (*ONESHOT, *ISOLATED)


@pytest.mark.covers("R017", "L19")
def test_everything_at_once() -> None:
    command = launch(
        Launch(
            executable=("node", "cli.js"),
            version=NEW,
            model="sonnet",
            resume="ses",
            fork=True,
            session_id="id",
            permission_mode="acceptEdits",
            system_prompt="be brief",
            append_system_prompt="be kind",
            tools=("Bash", "Read"),
            allowed_tools=("Bash(git log:*)", "Read"),
            disallowed_tools=("WebFetch",),
            add_dirs=("a", "b c"),
            mcp={"a": Server(command="x")},
            scratch="/s",
            json_schema='{"type":"object"}',
            max_turns=3,
            max_budget_usd=0.5,
            persist=False,
            user_settings=True,
            retries=2,
            extra=("--effort", "low"),
        )
    )
    assert command.argv == (
        "node",
        "cli.js",
        *SESSION[1:],
        "--strict-mcp-config",
        "--disallowedTools=WebFetch,ListAgents,SendMessage",
        "--model=sonnet",
        "--resume=ses",
        "--session-id=id",
        "--system-prompt=be brief",
        "--append-system-prompt=be kind",
        '--json-schema={"type":"object"}',
        "--max-turns=3",
        "--max-budget-usd=0.5",
        "--include-partial-messages",
        "--fork-session",
        "--no-session-persistence",
        "--permission-mode=acceptEdits",
        "--tools=Bash,Read",
        "--mcp-config=/s/mcp.json",
        "--allowedTools=Bash(git log:*),Read",
        "--add-dir=a",
        "--add-dir=b c",
        "--system-prompt-snapshot=off",
        "--effort",
        "low",
    )
    assert command.ignored == ()


FIELDS: list[tuple[str, Any, list[str]]] = [
    ("model", "opus", ["--model=opus"]),  # R014
    ("resume", "ses", ["--resume=ses"]),
    ("session_id", "ses", ["--session-id=ses"]),
    ("partial", True, ["--include-partial-messages"]),
    ("permission_mode", "plan", ["--permission-mode=plan"]),
    ("permission_mode", "manual", ["--permission-mode=default"]),
    ("system_prompt", "", ["--system-prompt=", "--system-prompt-snapshot=off"]),
    ("append_system_prompt", "x", ["--append-system-prompt=x", "--system-prompt-snapshot=off"]),
    ("tools", (), ["--tools="]),
    ("tools", ("Bash",), ["--tools=Bash"]),
    ("allowed_tools", (), []),  # R015
    ("allowed_tools", ("Read",), ["--allowedTools=Read"]),
    ("allowed_tools", ("Read", "Edit", "Bash"), ["--allowedTools=Read,Edit,Bash"]),
    ("add_dirs", ("d",), ["--add-dir=d"]),
    ("mcp", {"a": Server(command="x")}, ["--mcp-config=/mcp.json"]),  # C02
    ("json_schema", "{}", ["--json-schema={}"]),
    ("max_turns", 1, ["--max-turns=1"]),
    ("max_budget_usd", 2.5, ["--max-budget-usd=2.5"]),
    ("effort", "low", ["--effort=low"]),
    ("persist", False, ["--no-session-persistence"]),
    ("extra", ("--name=x",), ["--name=x"]),
]


@pytest.mark.covers("R003", "R014", "L19")
@each_row(("field", "value", "arguments"), FIELDS)
@each_row("mode", ["session", "oneshot"])
def test_each_field_reaches_the_arguments_in_both_modes(
    mode: str, field: str, value: Any, arguments: list[str]
) -> None:
    command = launch(wanted(mode=mode, **{field: value}))
    assert added(command, mode=mode) == arguments
    assert command.ignored == ()


@pytest.mark.covers("R019")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sandbox", "read-only"),
        ("host_hooks", (HostHook(name="h", point="PreToolUse"),)),
    ],
)
def test_what_cannot_be_honoured_is_named(field: str, value: Any) -> None:
    command = launch(wanted(mode="oneshot", **{field: value}))
    assert (added(command), command.ignored) == ([], (field,))


@pytest.mark.covers("L19")
def test_no_field_of_a_launch_is_without_a_test() -> None:
    tested = {field for field, _, _ in FIELDS}
    elsewhere = {"executable", "version", "mode", "fork", "disallowed_tools", "user_settings", "retries"}
    elsewhere |= {"project_memory", "memory_above"}
    elsewhere |= {"sandbox", "host_hooks"}  # `ignored`
    elsewhere |= {"host_tools", "starter", "agent"}  # by the greeting; by a file; not shared
    elsewhere |= {"cwd", "scratch", "secret", "env", "attachments"}  # the host's own business
    assert tested | elsewhere == {field.name for field in attrs.fields(Launch)}


TEXTS = [
    name
    for name, value, _ in FIELDS
    if isinstance(value, str) and name not in ("permission_mode",) and value != "manual"
]


@pytest.mark.covers("L24", "R187")
@each_row("field", sorted({*TEXTS, "permission_mode"}))
def test_a_leading_dash_stays_a_value(field: str) -> None:
    (argument, *_) = added(launch(wanted(**{field: "--evil"})))
    assert argument.startswith("--")
    assert argument.endswith("=--evil")


def test_values_of_lists_stay_values() -> None:
    command = launch(
        wanted(tools=("--a",), allowed_tools=("--b", "c"), disallowed_tools=("-d",), add_dirs=("-e",))
    )
    assert not {"--a", "--b", "-d", "-e"} & {*command.argv}


def test_the_tools_that_reach_other_sessions_can_be_opened() -> None:
    assert "--disallowedTools=ListAgents" in launch(wanted(allowed_tools=("SendMessage",))).argv
    opened = launch(wanted(tools=("ListAgents", "SendMessage"))).argv
    assert not any(argument.startswith("--disallowedTools") for argument in opened)


def test_a_denied_tool_is_named_once() -> None:
    assert (
        "--disallowedTools=SendMessage,ListAgents" in launch(wanted(disallowed_tools=("SendMessage",))).argv
    )


@pytest.mark.covers("R018")
def test_the_users_settings_are_read_only_when_asked_for() -> None:
    assert "--setting-sources=" not in launch(wanted(user_settings=True)).argv


MEMORY_ABOVE = {"cwd": "/repo/a", "scratch": "/private", "memory_above": "# /repo/CLAUDE.md"}
LOADED = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"
LEFT_OUT = "CLAUDE_CODE_DISABLE_CLAUDE_MDS"


@pytest.mark.parametrize(
    ("fields", "folders", "variable"),
    [
        ({}, ["/repo/a", "/private/memory"], LOADED),
        ({"memory_above": ""}, ["/repo/a"], LOADED),
        ({"project_memory": False}, [], LEFT_OUT),
        ({"project_memory": False, "user_settings": True}, [], LEFT_OUT),
        ({"user_settings": True}, [], None),
    ],
)
def test_the_memory_of_a_project_comes_without_its_settings(
    fields: dict[str, Any], folders: list[str], variable: str | None
) -> None:
    command = launch(wanted(**{**MEMORY_ABOVE, **fields}))
    assert [a.removeprefix("--add-dir=") for a in command.argv if a.startswith("--add-dir")] == folders
    assert {*command.env} & {LOADED, LEFT_OUT} == {variable} - {None}
    assert ("memory/CLAUDE.md" in command.files) == ("/private/memory" in folders)


@pytest.mark.covers("R019")
@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"fork": True}, ("fork",)),
        ({"resume": "a", "session_id": "b"}, ("session_id",)),
        ({"resume": "a", "session_id": "b", "fork": True}, ()),
    ],
)
def test_what_the_cli_cannot_honour_is_named_and_left_out(
    fields: dict[str, Any], ignored: tuple[str, ...]
) -> None:
    command = launch(wanted(**fields))
    assert command.ignored == ignored
    flags = {"fork": "--fork-session", "session_id": "--session-id=b"}
    assert not any(flags[field] in command.argv for field in ignored)


@pytest.mark.covers("L05")
@pytest.mark.parametrize(
    ("version", "flags"),
    [
        (NEW, ["--system-prompt=x", "--system-prompt-snapshot=off"]),
        (None, ["--replay-user-messages", "--system-prompt=x"]),
        (OLD, ["--replay-user-messages", "--system-prompt=x"]),
    ],
)
def test_a_flag_is_used_where_the_version_is_known_to_have_it(version: Any, flags: list[str]) -> None:
    assert added(launch(wanted(version=version, system_prompt="x"))) == flags


def test_the_environment_adds_what_makes_starts_and_ends_readable() -> None:
    assert launch(wanted()).env == {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
        "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


@pytest.mark.parametrize("retries", [0, 3])
def test_the_retries_of_the_cli_are_bounded_by_its_environment(retries: int) -> None:
    assert launch(wanted(retries=retries)).env["CLAUDE_CODE_MAX_RETRIES"] == str(retries)


@pytest.mark.covers("C06")
def test_a_value_that_no_argument_can_hold_is_refused_by_name() -> None:
    with pytest.raises(ArgumentTooLong) as caught:
        launch(wanted(system_prompt="é" * 70_000))
    assert (caught.value.field, caught.value.size, caught.value.limit) == ("system_prompt", 140_016, 131_071)
    assert "pass it by a file" in str(caught.value)


def test_the_stop_ladder_goes_from_polite_to_certain() -> None:
    assert [(step.action, step.grace) for step in CLAUDE.stop] == [
        ("interrupt", 2.0),
        ("end", 3.0),
        ("close_stdin", 1.0),
        ("terminate", 5.0),
        ("kill", 0.0),
    ]
