from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.acp import GEMINI, GENERIC, acp_dialect
from proctor.protocols.acp import OPENCODE as OPENCODE_PROFILE
from proctor.protocols.claude import CLAUDE
from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp import Server, secrets
from proctor.protocols.opencode import OPENCODE, OPENCODE_RUN
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from proctor.protocols.vocabulary import EndSession, Notice, ToolCall, ToolResult
from tests.protocols import lines
from tests.protocols.acp.lines import INITIALIZED, reply, sent, session, update
from tests.protocols.opencode import server as served
from tests.tables import each_row

SECRETS = ("env-secret", "header-secret")
LOCAL = Server(command="/bin/tiny", args=("-x", "a b"), env={"TOKEN": "env-secret"})
FAR = Server(url="http://127.0.0.1:9/mcp", headers={"X-Key": "header-secret"}, approved=True, timeout=90)
SERVERS = {"tiny": LOCAL, "far-away": FAR}
START = ("/py", "/starter.py")


def wanted(**fields: Any) -> Launch:
    given: dict[str, Any] = {"mcp": SERVERS, "cwd": "/w", "scratch": "/s", "starter": START, "agent": "a"}
    return Launch(executable=("/cli",), **{**given, **fields})


def once(**fields: Any) -> Launch:
    return wanted(mode="oneshot", **fields)


DIALECTS: list[tuple[Dialect, Launch]] = [
    (CLAUDE, wanted()),
    (CLAUDE, once()),
    (CODEX, wanted()),
    (CODEX_EXEC, once()),
    (OPENCODE, wanted()),
    (OPENCODE_RUN, once()),
    (OPENCODE_SERVE, wanted()),
    (acp_dialect(GEMINI), wanted()),
]


@pytest.mark.covers("R186")
@each_row(("dialect", "launch"), DIALECTS)
def test_no_secret_of_a_server_is_an_argument_or_shown_and_nothing_is_ignored(
    dialect: Dialect, launch: Launch
) -> None:
    command = dialect.launch(launch)
    assert [word for word in command.argv if any(secret in word for secret in SECRETS)] == []
    assert {"mcp", "host_tools"} & {*command.ignored} == set()
    assert [secret for secret in SECRETS if secret in repr(launch)] == []
    assert set(secrets(SERVERS)) == {*SECRETS}


@pytest.mark.covers("R161", "C02", "L03", "L07")
@pytest.mark.parametrize("mode", ["session", "oneshot"])
def test_claude_code_takes_its_servers_by_a_private_file(mode: Any) -> None:
    command = CLAUDE.launch(wanted(mode=mode))
    assert "--mcp-config=/s/mcp.json" in command.argv
    assert "--strict-mcp-config" in command.argv
    assert not [word for word in command.argv if word.startswith("--config-file")]
    assert "--allowedTools=mcp__far-away" in command.argv
    assert json.loads(command.files["mcp.json"]) == {
        "mcpServers": {
            "tiny": {
                "type": "stdio",
                "command": "/bin/tiny",
                "args": ["-x", "a b"],
                "env": {"TOKEN": "env-secret"},
            },
            "far-away": {
                "type": "http",
                "url": "http://127.0.0.1:9/mcp",
                "headers": {"X-Key": "header-secret"},
            },
        }
    }
    assert CLAUDE.launch(wanted(mcp={})).files == {}


@pytest.mark.covers("R161", "L07")
def test_a_codex_thread_is_told_of_its_servers_in_the_greeting() -> None:
    talk = Conversation(CODEX, launch=wanted())
    talk.greet()
    talk.receive(b'{"id":1,"result":{"userAgent":"proctor/0.169.0 (x)"}}\n')
    params = json.loads(talk.data_to_send().splitlines()[1])["params"]
    assert params["config"] == {
        "mcp_servers": {
            "tiny": {"command": "/bin/tiny", "args": ["-x", "a b"], "env": {"TOKEN": "env-secret"}},
            "far-away": {
                "url": "http://127.0.0.1:9/mcp",
                "default_tools_approval_mode": "approve",
                "tool_timeout_sec": 90,
                "http_headers": {"X-Key": "header-secret"},
            },
        }
    }


@pytest.mark.covers("R161", "L07")
def test_a_codex_run_is_told_of_its_servers_by_overrides_and_of_secrets_elsewhere() -> None:
    command = CODEX_EXEC.launch(once())
    told = [value for flag, value in zip(command.argv, command.argv[1:], strict=False) if flag == "-c"]
    assert [value for value in told if value.startswith("mcp_servers")] == [
        'mcp_servers.tiny.command="/py"',
        'mcp_servers.tiny.args=["/starter.py","/s/mcp-0.json"]',
        'mcp_servers.far-away.url="http://127.0.0.1:9/mcp"',
        'mcp_servers.far-away.default_tools_approval_mode="approve"',
        "mcp_servers.far-away.tool_timeout_sec=90",
        'mcp_servers.far-away.env_http_headers={"X-Key" = "PROCTOR_MCP_1_X_KEY"}',
    ]
    assert command.env == {"PROCTOR_MCP_1_X_KEY": "header-secret"}
    assert json.loads(command.files["mcp-0.json"]) == {
        "command": ["/bin/tiny", "-x", "a b"],
        "env": {"TOKEN": "env-secret"},
    }
    plain = CODEX_EXEC.launch(once(mcp={"bare": Server(command="/b")}, starter=()))
    assert ('mcp_servers.bare.command="/b"' in plain.argv, plain.files) == (True, {})
    with pytest.raises(Misuse, match="needs a program that starts it"):
        CODEX_EXEC.launch(once(starter=()))


@pytest.mark.covers("R161", "L07")
@pytest.mark.parametrize(("dialect", "launch"), [(OPENCODE, wanted()), (OPENCODE_RUN, once())])
def test_opencode_takes_its_servers_in_its_configuration(dialect: Dialect, launch: Launch) -> None:
    config = json.loads(dialect.launch(launch).joined["OPENCODE_CONFIG_CONTENT"])
    assert config["mcp"] == {
        "tiny": {
            "type": "local",
            "command": ["/bin/tiny", "-x", "a b"],
            "environment": {"TOKEN": "env-secret"},
        },
        "far-away": {
            "type": "remote",
            "url": "http://127.0.0.1:9/mcp",
            "headers": {"X-Key": "header-secret"},
            "oauth": False,
            "timeout": 90000,
        },
    }
    assert config["permission"]["far-away_*"] == "allow"
    assert "tiny_*" not in config["permission"]


def opened(dialect: Dialect, by_http: bool, **fields: Any) -> tuple[dict[str, Any], list[Any]]:
    """The request that opens the session, and what was said of the launch."""
    talk = Conversation(dialect, launch=wanted(**fields))
    talk.greet()
    can = {**INITIALIZED["agentCapabilities"], "mcpCapabilities": {"http": by_http}}
    events = talk.receive(reply(1, **{**INITIALIZED, "agentCapabilities": can}))
    [asked] = sent(talk.data_to_send())
    return asked, events


@pytest.mark.covers("R161")
@pytest.mark.parametrize(("fields", "method"), [({}, "session/new"), ({"resume": "s"}, "session/resume")])
def test_an_acp_agent_is_told_of_its_servers_when_its_session_opens(
    fields: dict[str, Any], method: str
) -> None:
    asked, events = opened(acp_dialect(GENERIC), True, **fields)
    assert (asked["method"], events) == (method, [])
    assert asked["params"]["mcpServers"] == [
        {
            "name": "tiny",
            "command": "/bin/tiny",
            "args": ["-x", "a b"],
            "env": [{"name": "TOKEN", "value": "env-secret"}],
        },
        {
            "type": "http",
            "name": "far-away",
            "url": "http://127.0.0.1:9/mcp",
            "headers": [{"name": "X-Key", "value": "header-secret"}],
        },
    ]


@pytest.mark.covers("R161")
def test_an_acp_agent_that_takes_none_by_http_is_told_of_the_others_and_the_host_of_it() -> None:
    asked, events = opened(acp_dialect(GENERIC), False)
    assert [server["name"] for server in asked["params"]["mcpServers"]] == ["tiny"]
    assert events == [
        Notice(
            0, None, "option_ignored", "this agent takes no MCP server by HTTP: far-away", {"option": "mcp"}
        )
    ]


def test_a_profile_whose_servers_belong_to_its_launch_never_drops_them_in_silence() -> None:
    plain = acp_dialect(OPENCODE_PROFILE)
    assert "mcp" in plain.launch(wanted()).ignored
    assert "mcp" not in OPENCODE.launch(wanted()).ignored
    assert opened(OPENCODE, True)[0]["params"]["mcpServers"] == []


MARK = "proctor-ca9781-"
"""What the names of the agent `a` begin with."""


@pytest.mark.covers("R161")
def test_servers_on_a_shared_server_are_its_agents_alone() -> None:
    talk = Conversation(OPENCODE_SERVE, launch=wanted(allowed_tools=("tiny_ping", "bash")))
    tiny, far, session = served.asked(talk.greet())
    assert [(one["verb"], one["path"]) for one in (tiny, far, session)] == [
        ("POST", "/mcp"),
        ("POST", "/mcp"),
        ("POST", "/session"),
    ]
    assert (tiny["body"]["name"], far["body"]["name"]) == (f"{MARK}tiny", f"{MARK}far-away")
    assert tiny["body"]["config"]["environment"] == {"TOKEN": "env-secret"}
    assert [(rule["permission"], rule["action"]) for rule in session["body"]["permission"]] == [
        ("proctor-*", "deny"),
        (f"{MARK}tiny_*", "ask"),
        (f"{MARK}far-away_*", "allow"),
        (f"{MARK}tiny_ping", "allow"),
        ("bash", "allow"),
    ]


def test_a_server_that_failed_is_told_and_its_tools_have_the_names_they_were_given() -> None:
    talk = Conversation(OPENCODE_SERVE, launch=wanted())
    tiny, _, session = served.asked(talk.greet())
    state: dict[str, Any] = {
        f"{MARK}tiny": {"status": "failed", "error": "no such file"},
        "other": {"status": "failed"},
    }
    [told] = talk.receive(served.reply(tiny["key"], body=state))
    assert told == Notice(0, None, "mcp_server", "no such file", {"server": "tiny"})
    talk.receive(served.reply(session["key"], body={"id": served.SESSION, "directory": "/w"}))
    state = {"status": "running", "input": {}}
    part: dict[str, Any] = {"messageID": "m", "sessionID": served.SESSION, "id": "p", "type": "tool"}
    part |= {"callID": "c", "tool": f"{MARK}tiny_ping", "state": state}
    info = {"id": "m", "role": "assistant"}
    said = talk.receive(
        served.BUSY
        + served.event("message.updated", info=info)
        + served.event("message.part.updated", part=part)
    )
    assert [event.name for event in said if isinstance(event, ToolCall)] == ["tiny_ping"]


@pytest.mark.covers("R163")
def test_servers_are_taken_from_a_shared_server_when_their_agent_leaves() -> None:
    talk = Conversation(OPENCODE_SERVE, launch=wanted())
    talk.greet()
    paths = [one["path"] for one in served.asked(talk.send(EndSession("e")))]
    assert paths == [f"/mcp/{MARK}tiny/disconnect", f"/mcp/{MARK}far-away/disconnect"]


MARKED = {"structuredContent": {"seen": 2}, "_meta": {"row": 7}}


def results(events: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(event.text, event.metadata) for event in events if isinstance(event, ToolResult)]


@pytest.mark.covers("R165")
@each_row(
    ("told", "metadata"),
    [
        ({"content": "2", **MARKED}, MARKED),
        (
            {"content": "2", "structuredContent": {"seen": 2}, "_meta": None},
            {"structuredContent": {"seen": 2}},
        ),
        ({"stdout": "structuredContent"}, {}),
        ([{"type": "text", "text": "_meta"}], {}),
        ("a text about _meta", {}),
        (None, {}),
    ],
)
def test_a_marker_in_a_result_is_visible_with_claude_code_Q08(told: Any, metadata: dict[str, Any]) -> None:
    talk = Conversation(CLAUDE, launch=once(mcp={}))
    talk.greet()
    talk.receive(lines.INIT)
    block = {"type": "tool_result", "tool_use_id": "t", "content": "2"}
    beside = {} if told is None else {"tool_use_result": told}
    message = {"role": "user", "content": [block]}
    events = talk.receive(lines.line(type="user", message=message, session_id="s", **beside))
    assert results(events) == [("2", metadata)]


@pytest.mark.covers("R165")
def test_a_marker_in_a_result_is_visible_with_codex_Q08() -> None:
    content = [{"type": "text", "text": "2"}]
    called: dict[str, Any] = {"server": "tiny", "tool": "look", "arguments": {}, "status": "completed"}
    once_told: dict[str, Any] = {"id": "i", "type": "mcp_tool_call", **called}
    exec_result = {"content": content, "structured_content": {"seen": 2}}
    exec_line = lines.line(type="item.completed", item={**once_told, "result": exec_result})
    talk = Conversation(CODEX_EXEC, launch=once(mcp={}))
    talk.greet()
    assert results(talk.receive(lines.line(type="turn.started") + exec_line)) == [
        ("2", {"structuredContent": {"seen": 2}})
    ]
    item = {"id": "i", "type": "mcpToolCall", **called, "result": {"content": content, **MARKED}}
    thread = Conversation(CODEX, launch=wanted(mcp={}))
    thread.greet()
    thread.receive(lines.line(id=1, result={}) + lines.line(id=2, result={"thread": {"id": "t"}}))
    params = {"threadId": "t", "turnId": "u", "item": item}
    assert results(thread.receive(lines.line(method="item/completed", params=params))) == [("2", MARKED)]


@pytest.mark.covers("R165")
def test_a_marker_in_a_result_is_visible_with_an_acp_agent_that_passes_it_on_Q08() -> None:
    for raw, metadata in (
        ({"output": "2", **MARKED}, MARKED),
        ({"output": "2", "metadata": {"truncated": False}}, {}),  # OpenCode passes nothing on
    ):
        talk = session(GENERIC, "p")
        ended = update("tool_call_update", toolCallId="c", status="completed", title="look", rawOutput=raw)
        assert results(talk.receive(ended)) == [("2", metadata)]


def test_an_agent_that_trusts_no_folder_says_so_where_it_matters() -> None:
    gemini, variable = acp_dialect(GEMINI), "GEMINI_CLI_TRUST_WORKSPACE"
    [told] = opened(gemini, True)[1]
    assert (told.code, told.data) == ("mcp_needs_trust", {"name": variable})
    assert opened(gemini, True, env={variable: "true"})[1] == []
    assert opened(gemini, True, mcp={})[1] == []
