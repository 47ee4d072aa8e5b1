from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proctor.actors.errors import BadOption
from proctor.actors.plan.mcp import McpServer, servers_of
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import acp_plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import stream
from proctor.actors.tools.toolsocket import EXEC_FILE
from proctor.actors.transport.memory import MemoryTransport, PeerStreams, in_memory
from proctor.actors.transport.transport import Start
from proctor.protocols.mcp import HOST, Server, is_approved
from tests.actors.spoken import speaks
from tests.tables import each_row

LOCAL = McpServer(command="/bin/tiny", args=["-x"], env={"TOKEN": "s3cret"})
FAR = McpServer(url="http://127.0.0.1:9/mcp", headers={"X-Key": "s3cret"})


@each_row(
    ("fields", "why"),
    [
        ({}, "either a command or a url, got None and None"),
        ({"command": "a", "url": "http://b"}, "either a command or a url"),
        ({"command": ""}, "either a command or a url"),
        ({"url": "ftp://a"}, "one of http or https, got 'ftp://a'"),
        ({"url": "http://a", "args": ["x"]}, "takes headers, and neither args nor env"),
        ({"url": "http://a", "env": {"A": "b"}}, "takes headers, and neither args nor env"),
        ({"command": "a", "headers": {"A": "b"}}, "takes args and env, and no headers"),
        ({"command": "a", "args": "-x"}, "args of an MCP server is a list of texts"),
        ({"command": "a", "args": [1]}, "must be texts without a zero byte"),
        ({"command": "a\0"}, "must be texts without a zero byte"),
        ({"command": "a", "env": {"A=B": "secret"}}, "cannot be passed: 'A=B'"),
        ({"command": "a", "env": {"A": 3}}, "maps names to texts; 'A' does not"),
        ({"command": "a", "env": ["A"]}, "maps names to texts"),
        ({"url": "http://a", "headers": {"A B": "secret"}}, "header 'A B' of an MCP server is not valid"),
        ({"url": "http://a", "headers": {"A": "x\r\nB: secret"}}, "header 'A' of an MCP server is not valid"),
        ({"command": "a", "timeout": 0}, "a number of seconds above 0, got 0"),
    ],
)
def test_a_server_that_nothing_can_be_made_of_is_refused_where_it_is_made(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadOption, match=why) as caught:
        McpServer(**fields)
    assert "secret" not in str(caught.value)  # R186


@pytest.mark.covers("R186")
def test_a_server_shows_no_secret() -> None:
    assert "s3cret" not in f"{LOCAL!r} {FAR!r} {claude_plan('a', {'mcp': {'tiny': LOCAL, 'far': FAR}})!r}"


@each_row("name", ["", "a b", "a__b", "_a", "a.b", "ä", "host", "host_x", "a\n"])
def test_a_name_that_would_make_a_tool_of_another_server_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="MCP server"):
        claude_plan("a", {"mcp": {name: LOCAL}})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mcp": {"a": {"command": "x"}}}, "maps names to records of McpServer"),
        ({"context": {"Project": "x"}}, "context 'Project': a name is lower-case"),
        ({"context": {"project": "a\nb"}}, "context 'project': a value is a text of visible ASCII"),
        ({"context": {"project": 3}}, "context 'project'"),
        ({"context": "project"}, "context must be a mapping of names to texts"),
    ],
)
def test_options_that_cannot_be_kept_are_refused_before_anything_starts(
    options: AgentOptions, why: str
) -> None:
    with pytest.raises(BadOption, match=why):
        claude_plan("a", options)


@pytest.mark.covers("R164")
def test_context_crosses_by_the_environment_or_the_headers_of_each_server() -> None:
    context = {"project": "p1", "thread_id": "t 9"}
    given: AgentOptions = {"mcp": {"tiny": LOCAL, "far": FAR}, "context": context}
    plans = [
        claude_plan("a", given),
        codex_plan("a", {**given, "mode": "exec"}),
        opencode_plan("a", given),
        acp_plan("a", ["x"], given),
    ]
    for plan in plans:
        assert plan.launch.mcp["tiny"].env == {
            "PROCTOR_CONTEXT_PROJECT": "p1",
            "PROCTOR_CONTEXT_THREAD_ID": "t 9",
            "TOKEN": "s3cret",
        }
        assert plan.launch.mcp["far"].headers == {
            "Proctor-Context-Project": "p1",
            "Proctor-Context-Thread-Id": "t 9",
            "X-Key": "s3cret",
        }
        assert plan.conduct.context == context


CONFIG = {
    "mcpServers": {
        "tiny": {"type": "stdio", "command": "/bin/tiny", "args": ["-x"], "env": {"TOKEN": "s3cret"}},
        "far": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "s3cret"}},
    }
}


@pytest.mark.parametrize("by_path", [True, False])
def test_servers_of_a_configuration_are_the_same_records(by_path: bool, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(CONFIG))
    config = path if by_path else json.dumps(CONFIG)
    assert servers_of(None, config, {}) == servers_of({"tiny": LOCAL, "far": FAR}, None, {})
    other = McpServer(command="/other")
    assert servers_of({"tiny": other}, config, {})["tiny"] == Server(command="/other")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("/nowhere/mcp.json", "'/nowhere/mcp.json' cannot be read"),
        ("{", "given as text is not JSON"),
        ("{}", "is not JSON with an object mcpServers"),
        ('{"mcpServers": [1]}', "is not JSON with an object mcpServers"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://s3cret"}}}', "a.type 'sse' is not a choice"),
        ('{"mcpServers": {"a": {"command": "x", "cwd": "/s3cret"}}}', "a has 'cwd'; known: type, command"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": 3}}}}', "a: env of an MCP server maps"),
        ('{"mcpServers": {"a": {"command": 3}}}', "a: command, args and url of an MCP server"),
    ],
)
def test_a_configuration_with_a_fault_is_refused_with_its_place(config: str, why: str) -> None:
    with pytest.raises(BadOption, match=why) as caught:
        claude_plan("a", {"mcp_config": config})
    assert "s3cret" not in str(caught.value)


ASKING = {HOST: Server(command="r", approved=True), "a": Server(command="x", approved=True)}
ASKING["a_b"] = Server(command="y")


@each_row(
    ("tool", "approved"),
    [
        ("mcp_host_add", True),
        ("mcp__host__add", True),
        ("mcp_a_look", True),
        ("mcp__a__b_look", True),
        ("mcp_a_b_look", False),  # may be a tool of the server a_b
        ("mcp__a_b__look", False),
        ("mcp_other_add", False),
        ("host_add", False),
        ("mcp_host_", False),
        ("mcp_host_add; rm -rf /", False),
        ("run mcp_host_add", False),
    ],
)
def test_only_a_tool_that_is_surely_an_approved_servers_is_approved(tool: str, approved: bool) -> None:
    assert is_approved(ASKING, tool) is approved


@pytest.mark.covers("R163")
@pytest.mark.parametrize("end", ["success", "error", "timeout", "cancel"])
async def test_a_file_of_servers_is_private_and_gone_on_every_path(end: str) -> None:
    found: list[tuple[Path, int]] = []
    prompt = {"success": "hello", "error": "crash"}.get(end, "hang")

    def reach(start: Start) -> MemoryTransport:
        [flag] = [word for word in start.command.argv if word.startswith("--mcp-config=")]
        path = Path(flag.partition("=")[2])
        assert json.loads(path.read_text())["mcpServers"]["tiny"]["env"]["TOKEN"] == "s3cret"
        found.append((path, stat.S_IMODE(path.stat().st_mode)))
        return in_memory(speaking, name="speaker")(start)  # type: ignore[return-value]

    begun = trio.Event()

    async def speaking(side: PeerStreams) -> int | None:
        begun.set()
        return await speaks(side)

    options: AgentOptions = {"executable": sys.executable, "home": "private", "mcp": {"tiny": LOCAL}}
    plan = attrs.evolve(claude_plan("a", options, shutdown=1), reach=reach)

    async def run() -> None:
        async with stream(plan, prompt, timeout=0.3 if end == "timeout" else 20) as live:
            _ = [event async for event in live]
            assert not found[0][0].exists()  # gone with its process, not only with the folder around it
            assert live.directory.exists()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await begun.wait()
        if end == "cancel":
            nursery.cancel_scope.cancel()
    [(path, mode)] = found
    assert (mode, await trio.Path(path).exists(), await trio.Path(path.parent).exists()) == (
        0o600,
        False,
        False,
    )


def test_the_starter_becomes_the_server_that_a_file_describes(tmp_path: Path) -> None:
    told = tmp_path / "mcp-0.json"
    show = "import os, sys; print(os.environ['TOKEN'], os.environ['KEPT'], *sys.argv[1:])"
    told.write_text(json.dumps({"command": [sys.executable, "-c", show, "a b"], "env": {"TOKEN": "s3cret"}}))
    words = [*EXEC_FILE, str(told)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={"KEPT": "kept"})
    assert (done.returncode, done.stdout) == (0, "s3cret kept a b\n")
    told.write_text(json.dumps({"command": ["/nowhere/at/all"], "env": {"TOKEN": "s3cret"}}))
    failed = subprocess.run(words, capture_output=True, text=True, check=False, env={})
    assert (failed.returncode, failed.stderr) == (
        127,
        "proctor exec_file: /nowhere/at/all: No such file or directory\n",
    )
