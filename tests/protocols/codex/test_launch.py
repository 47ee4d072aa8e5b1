from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostHook, HostTool, Launch
from proctor.protocols.errors import ArgumentTooLong, Misuse
from tests.tables import each_row

ISOLATED = ("--disable=plugins", "--disable=unbounded_connection_retries", "-c", "analytics.enabled=false")
THREAD = "01a1ffcf-1353-7073-9324-79551515936a"
PROVIDER = ("-c", 'model_provider="fake"')


def wanted(**fields: Any) -> Launch:
    return Launch(executable=("codex",), **fields)


def once(**fields: Any) -> Launch:
    return wanted(mode="oneshot", **fields)


def opened(launch: Launch) -> tuple[str, dict[str, Any]]:
    """The method and the parameters that open the thread."""
    talk = Conversation(CODEX, launch=launch)
    talk.greet()
    talk.receive(b'{"id":1,"result":{"userAgent":"proctor/0.169.0 (x)"}}\n')
    told = [json.loads(line) for line in talk.data_to_send().splitlines()]
    assert told[0] == {"method": "initialized"}
    return told[1]["method"], told[1]["params"]


@pytest.mark.covers("R018", "R016", "L03")
def test_a_session_by_default() -> None:
    assert CODEX.launch(wanted()).argv == ("codex", "app-server", *ISOLATED)
    assert opened(wanted(cwd="/w")) == (
        "thread/start",
        {"cwd": "/w", "sandbox": "read-only", "approvalPolicy": "on-request", "ephemeral": False},
    )


@pytest.mark.covers("R018")
def test_the_users_own_settings_decide_where_they_are_asked_for() -> None:
    method, params = opened(wanted(user_settings=True))
    assert (method, params) == ("thread/start", {"ephemeral": False})


@pytest.mark.covers("L06", "R017", "L19")
def test_the_settings_of_a_thread_travel_in_the_greeting() -> None:
    tool = HostTool(name="weather", description="How it is", schema={"type": "object"})
    launch = wanted(
        model="m",
        sandbox="workspace-write",
        permission_mode="untrusted",
        system_prompt="be",
        append_system_prompt="be kind",
        persist=False,
        host_tools=(tool,),
    )
    _, params = opened(launch)
    assert params == {
        "model": "m",
        "sandbox": "workspace-write",
        "approvalPolicy": "untrusted",
        "baseInstructions": "be",
        "developerInstructions": "be kind",
        "ephemeral": True,
        "dynamicTools": [
            {
                "type": "function",
                "name": "weather",
                "description": "How it is",
                "inputSchema": {"type": "object"},
            }
        ],
    }
    assert "be kind" not in str(CODEX.launch(launch).argv)


@pytest.mark.parametrize(("fork", "method"), [(False, "thread/resume"), (True, "thread/fork")])
def test_a_thread_is_resumed_or_forked_without_its_past(fork: bool, method: str) -> None:
    asked, params = opened(wanted(resume=THREAD, fork=fork))
    assert (asked, params["threadId"], params["excludeTurns"]) == (method, THREAD, True)


def test_deltas_are_not_said_where_nobody_wants_them() -> None:
    def unsaid(**fields: Any) -> list[str]:
        hello = json.loads(Conversation(CODEX, launch=wanted(**fields)).greet())
        found: list[str] = hello["params"]["capabilities"]["optOutNotificationMethods"]
        return found

    assert "item/agentMessage/delta" in unsaid(partial=False)
    assert "item/agentMessage/delta" not in unsaid()


@pytest.mark.covers("L06", "R018")
def test_a_one_shot_run_by_default() -> None:
    argv = CODEX_EXEC.launch(once()).argv
    head = ("codex", "exec", "--json", "--skip-git-repo-check")
    assert argv == (*head, *ISOLATED, "--ignore-user-config", "-")


@pytest.mark.covers("R003", "R014")
def test_a_one_shot_run_with_everything() -> None:
    command = CODEX_EXEC.launch(
        once(
            model="-m",
            sandbox="workspace-write",
            effort="high",
            add_dirs=("/a b",),
            append_system_prompt='be "kind"\n',
            json_schema='{"type": "object"}',
            persist=False,
            user_settings=True,
            scratch="/s",
            resume=THREAD,
            extra=("--color=never",),
        )
    )
    assert command.argv[:3] == ("codex", "exec", "resume")
    assert command.argv[-3:] == ("--color=never", THREAD, "-")
    assert {
        "--model=-m",
        "--ephemeral",
        "--output-schema=/s/schema.json",
        'model_reasoning_effort="high"',
        'sandbox_mode="workspace-write"',
        'developer_instructions="be \\"kind\\"\\n"',
        'sandbox_workspace_write.writable_roots=["/a b"]',
    } <= {*command.argv}
    assert "--ignore-user-config" not in command.argv
    assert command.files == {"schema.json": '{"type": "object"}'}
    assert command.ignored == ()


def test_a_fork_of_a_run_has_its_own_word() -> None:
    assert CODEX_EXEC.launch(once(resume=THREAD, fork=True)).argv[2] == "fork"


@pytest.mark.parametrize("name", ["mine", "--last", "", THREAD + "0"])
def test_a_run_resumes_no_name(name: str) -> None:
    with pytest.raises(Misuse, match="must be a thread's UUID"):
        CODEX_EXEC.launch(once(resume=name))


@pytest.mark.parametrize("dialect", [CODEX, CODEX_EXEC])
def test_a_schema_that_is_not_json_is_refused_before_the_start(dialect: Any) -> None:
    with pytest.raises(Misuse, match="json_schema is not JSON"):
        dialect.launch(wanted(json_schema="{"))


@pytest.mark.parametrize("dialect", [CODEX, CODEX_EXEC])
def test_retries_are_bounded_for_a_provider_that_is_named(dialect: Any) -> None:
    argv = dialect.launch(wanted(retries=2, extra=PROVIDER)).argv
    table = "model_providers.fake"
    bound = ("-c", f"{table}.request_max_retries=0", "-c", f"{table}.stream_max_retries=2")
    at = argv.index(bound[1]) - 1
    assert argv[at : at + 4] == bound
    assert at > argv.index(PROVIDER[1])


def test_retries_of_the_built_in_provider_are_not_to_be_bounded() -> None:
    assert "retries" in CODEX.launch(wanted(retries=2)).ignored
    assert "retries" not in CODEX.launch(wanted(retries=2, extra=PROVIDER)).ignored


@pytest.mark.covers("R019")
@each_row(
    ("fields", "session", "oneshot"),
    [
        ({}, set[str](), set[str]()),
        ({"user_settings": False}, {"user_settings"}, set[str]()),
        ({"max_turns": 3, "max_budget_usd": 1.0}, {"max_turns", "max_budget_usd"}, None),
        (
            {"tools": ("x",), "allowed_tools": ("x",), "disallowed_tools": ("x",)},
            {"tools", "allowed_tools", "disallowed_tools"},
            None,
        ),
        ({"host_hooks": (HostHook(name="h", point="p"),)}, {"host_hooks"}, None),
        ({"session_id": THREAD}, {"session_id"}, None),
        ({"fork": True}, {"fork"}, None),
        ({"persist": False, "resume": THREAD}, {"persist"}, set[str]()),
        ({"system_prompt": "be"}, set[str](), {"system_prompt"}),
        ({"permission_mode": "on-request"}, set[str](), {"permission_mode"}),
        ({"permission_mode": "never"}, set[str](), set[str]()),
    ],
)
def test_what_codex_cannot_honour_is_named(
    fields: dict[str, Any], session: set[str], oneshot: set[str] | None
) -> None:
    assert {*CODEX.launch(wanted(**fields)).ignored} == session
    assert {*CODEX_EXEC.launch(once(**fields)).ignored} == (
        session - {"user_settings"} if oneshot is None else oneshot
    )


@pytest.mark.covers("C06")
def test_a_value_beyond_an_argument_is_refused() -> None:
    with pytest.raises(ArgumentTooLong, match="append_system_prompt"):
        CODEX_EXEC.launch(once(append_system_prompt="x" * 140_000))
    assert CODEX.launch(wanted(append_system_prompt="x" * 140_000)).argv


def test_both_ways_say_what_they_can() -> None:
    assert CODEX.can("steer", None)
    assert not CODEX.can("queue", None)
    assert not CODEX.can("cost", (0, 169, 0))
    assert not CODEX_EXEC.can("interrupt", None)
    assert CODEX_EXEC.can("resume", None)
    assert attrs.asdict(CODEX.stop[-1])["action"] == CODEX_EXEC.stop[-1].action == "kill"
