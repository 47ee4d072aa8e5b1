"""`proctor serve` as clients start it: a process with pipes, spoken to by the SDK's own client."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager, chdir
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from prometheus_client.parser import text_string_to_metric_families

from proctor.actors.errors import BadOption, FleetFaults
from proctor.cli.commands.serve import Service
from proctor.cli.parameters import ServeOptions
from tests.fakes.mcp_client import INITIALIZE, READY, written
from tests.proctor.command import (
    Running,
    Terminal,
    environment,
    once,
    processes_with,
    proctor,
    proctor_process,
    running,
)
from tests.proctor.metrics_page import names_promised
from tests.tables import each_row

ASKED = written(INITIALIZE, READY, {"id": 1, "method": "tools/list"})
HANGS = ('{"turn": "hangs", "when": "hang"}', '{"say": "I begin."}', '{"sleep": 600}', '{"reply": "never"}')
TALKS = ('{"turn": "talks"}', '{"say": "a b c d", "deltas": 4, "delay": 0.3}', '{"reply": "done: {prompt}"}')


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three agents that answer, and hang at the word."""
    (tmp_path / "talks.ndjson").write_text("".join(f"{line}\n" for line in (*HANGS, *TALKS)))
    tables = [
        f'[[agents]]\nkind = "scripted"\nname = "{name}"\nscript = "talks.ndjson"\nrecord = "runs"\n'
        for name in ("one", "two", "three")
    ]
    path = tmp_path / "fleet.toml"
    path.write_text("".join(tables))
    return path


def text_of(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("name", ["serve", "web"])
def test_a_time_to_live_that_is_none_is_one_line(name: str, home: Path, fleet: Path) -> None:
    words = ("web", str(fleet)) if name == "web" else ("serve",)
    done = proctor(*words, "--session-ttl", "soon", home=home)
    assert done.status == 2
    assert done.complaint.startswith("proctor: --session-ttl: expected a duration such as 90, '30s'")


def served(*words: str, home: Path, **env: str) -> tuple[list[dict[str, Any]], str]:
    """What the command answers to a greeting and a look at its tools: every line of its stdout, and its stderr."""
    with chdir(home):
        done = proctor_process(*words, home=home, env=env, stdin=ASKED)
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()], done.err


@pytest.fixture
def one_installed(tmp_path: Path) -> dict[str, str]:
    """A machine where Codex is the one command line there is."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


@pytest.mark.covers("R159", "R160", "R176", "R177", "R178")
def test_no_word_answers_and_offers_what_is_installed_and_the_log_tells_in_which_order(
    home: Path, one_installed: dict[str, str]
) -> None:
    (greeting, listed), log = served(home=home, PROCTOR_LOG="info", **one_installed)
    assert (greeting["id"], listed["id"]) == (0, 1)
    assert greeting["result"]["serverInfo"]["name"] == "proctor"
    assert "tools" in greeting["result"]["capabilities"]
    assert [each["name"] for each in listed["result"]["tools"]] == ["codex"]
    assert "Not available: claude: Claude Code is not installed" in greeting["result"]["instructions"]
    told = [line.partition("proctor.serve: ")[2] for line in log.splitlines()]
    order = ("looking for claude", "codex found", "offers codex", "serves stdin", "stopped")
    places = [next(n for n, line in enumerate(told) if line.startswith(start)) for start in order]
    assert places == sorted(places)


@pytest.mark.covers("R176", "R178")
def test_serve_does_the_same_and_the_environment_says_how_much_is_logged(
    home: Path, one_installed: dict[str, str]
) -> None:
    answers, log = served("serve", home=home, PROCTOR_LOG="error", **one_installed)
    assert ([answer["id"] for answer in answers], log) == ([0, 1], "")  # three are missing


@pytest.mark.covers("R176")
def test_no_word_at_a_terminal_is_answered_with_help(home: Path) -> None:
    with Terminal([], home) as terminal:
        terminal.until("Exit status:")
        assert terminal.end() == 0


@each_row(
    ("options", "complaint"),
    [
        ({"http": "0.0.0.0:0", "no_token": True}, "needs a token"),
        ({"metrics": True}, "--metrics needs an address"),
        ({"http": "example.org:80"}, "not a host name"),
        ({"agents": ("cloud",)}, "unknown agent 'cloud'"),
        ({"root": ("/nowhere",)}, "root '/nowhere' cannot be used"),
        ({"token_env": "NO_SUCH"}, "--token-env NO_SUCH: this variable is not set"),
        ({"fleet": "/nowhere.toml"}, "cannot be read"),
        ({"limit": ("0",)}, "--limit must be"),
    ],
)
def test_what_cannot_be_served_is_told_before_anything_starts(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((BadOption, FleetFaults), match=complaint):
        Service(ServeOptions(**options))


def test_wrong_words_end_the_command_and_nothing_is_served(home: Path) -> None:
    done = proctor_process("serve", "--agents", "cloud", home=home, stdin=ASKED)
    assert (done.status, done.out) == (2, "")
    assert "unknown agent 'cloud'" in done.err


# -- with the client


@asynccontextmanager
async def over_stdio(fleet: Path, home: Path) -> AsyncGenerator[Client]:
    words = ["-m", "proctor", "serve", "--fleet", str(fleet)]
    parameters = StdioServerParameters(command=sys.executable, args=words, env=environment(home))
    async with Client(parameters) as client:
        yield client


def started(*words: str, home: Path, **env: str) -> AbstractContextManager[Running]:
    """The command with pipes; killed behind the block where it still runs."""
    return running("serve", *words, home=home, env=env, asked=True)


def told(command: Running, pattern: str) -> str:
    """What a line of its log says where `pattern` has a group."""
    while line := command.err.readline().decode():
        if found := re.search(pattern, line):
            return found[1]
    pytest.fail(f"it ended without {pattern!r}")


@asynccontextmanager
async def over_http(fleet: Path, home: Path) -> AsyncGenerator[Client]:
    with started("--fleet", str(fleet), "--http", "127.0.0.1:0", "--no-token", home=home) as command:
        address = await trio.to_thread.run_sync(told, command, r"serves (http://\S+)")
        async with Client(address) as client:
            yield client
        command.signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(command.end, 10) == 0


# the SDK's client leaves the body of an answer to the garbage collector
@pytest.mark.covers("R113", "R153", "R157", "R159", "L01", "L02", "L18")
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
@pytest.mark.parametrize("connected", [over_stdio, over_http], ids=["stdio", "http"])
async def test_three_agents_work_at_once_one_is_cancelled_and_another_is_heard_meanwhile(
    connected: Any, fleet: Path, home: Path
) -> None:
    said, answers = list[str](), dict[str, str]()
    async with connected(fleet, home) as client:
        names = [each.name for each in (await client.list_tools()).tools]
        assert names == ["ask_one", "ask_two", "ask_three"]

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            said.append(message or "")

        async def ask(name: str, prompt: str, **more: Any) -> None:
            answers[name] = text_of(await client.call_tool(name, {"prompt": prompt}, **more))

        async with trio.open_nursery() as hanging:
            hanging.start_soon(ask, "ask_one", "hang")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(ask, "ask_two", "hi", progress_callback=heard))
                nursery.start_soon(ask, "ask_three", "ho")
            hanging.cancel_scope.cancel()
        assert answers == {"ask_two": "done: hi", "ask_three": "done: ho"}
        assert len(said) >= 2
        assert text_of(await client.call_tool("ask_one", {"prompt": "again"})) == "done: again"
        for name, arguments, text in (
            ("ask_four", {"prompt": "x"}, "there is no tool 'ask_four'"),
            ("ask_one", {}, "'prompt'"),
            ("ask_one", {"prompt": "x", "cwd": "/"}, "'cwd' was unexpected"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert text.replace("'", "") in text_of(result).replace("'", "").replace('"', "")
    assert processes_with(str(fleet.parent / "talks.ndjson")) == []


# R158 R181 R184
@pytest.mark.covers("R158", "R181", "R184")
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
async def test_over_http_it_says_how_it_is_and_what_it_counts_to_whoever_has_the_token(
    fleet: Path, home: Path
) -> None:
    token, script = "0123456789abcdef", fleet.parent / "talks.ndjson"
    (home / "token").write_text(f"{token}\n")
    (home / "token").chmod(0o600)
    words = ("--fleet", str(fleet), "--agents", f"scripted:{script}", "--root", str(home), "--limit", "3")
    kept = ("--http", "127.0.0.1:0", "--token-env", "TOKEN", "--metrics")
    with started(*words, *kept, home=home, TOKEN=f"@{home / 'token'}") as command:
        address = await trio.to_thread.run_sync(told, command, r"serves (http://\S+)")
        base = address.removesuffix("/mcp")
        async with httpx2.AsyncClient(base_url=base, timeout=30, verify=False) as http:
            names = ("healthz", "readyz", "metrics", "mcp")
            strange = [(await http.get(f"/{name}")).status_code for name in names]
            http.headers["authorization"] = f"Bearer {token}"
            foreign = await http.get("/metrics", headers={"host": "evil.example"})
            async with Client(streamable_http_client(address, http_client=http)) as client:
                for name in ("ask_one", "scripted"):
                    answer = await client.call_tool(name, {"prompt": "hi"})
                    assert text_of(answer) == "done: hi"
            ready, scrape = [await http.get(f"/{name}") for name in ("readyz", "metrics")]
        command.signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(command.end, 10) == 0
    assert (strange, foreign.status_code) == ([200, 401, 401, 401], 421)
    assert (ready.status_code, ready.json()["grade"]) == (200, "ok")
    families = [*text_string_to_metric_families(scrape.text)]
    found = {(sample.name, *sample.labels.values()): sample.value for f in families for sample in f.samples}
    assert found["proctor_turns_total", "fleet/one", "scripted", "ok"] == 1
    assert found["proctor_mcp_calls_total", "ok", "scripted"] == 1
    assert found["proctor_pool_slots", "scripted"] == 3
    shown = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    assert shown == names_promised()


@pytest.mark.covers("R158")
def test_a_signal_answers_what_runs_and_leaves_nothing_within_four_seconds(
    home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "stubborn.ndjson"
    deaf = ('{"fault": "ignore_term"}', '{"fault": "ignore_eof"}', '{"say": "I begin."}', '{"fault": "hang"}')
    path.write_text("".join(f"{line}\n" for line in deaf))
    call = {"name": "scripted", "arguments": {"prompt": "x"}, "_meta": {"progressToken": "t"}}
    frame = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
    with started("--agents", f"scripted:{path}", "--root", str(home), home=home) as command:
        command.stdin.write(ASKED + frame.encode() + b"\n")
        command.stdin.flush()
        while b"I begin" not in (line := command.out.readline()):
            assert line
        command.signal(signal.SIGTERM)
        assert command.end(4) == 0
        answer = json.loads(command.out.read().splitlines()[-1])
    assert (answer["id"], answer["result"]["isError"]) == (7, True)
    assert processes_with(str(path)) == []


def test_a_fleet_that_is_read_again_offers_its_new_agents_and_notifies_as_its_file_says(
    home: Path, fleet: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    hook = f'[notify]\ncommand = ["sh", "-c", "cat >> {told}"]\non = ["parked"]\n'
    fleet.write_text(hook + fleet.read_text())
    with running("serve", "--fleet", str(fleet), "--agents", "", home=home, asked=True) as serving:
        serving.stdin.write(written(INITIALIZE, READY))
        serving.stdin.flush()
        greeting = json.loads(serving.out.readline())
        assert greeting["result"]["capabilities"]["tools"] == {"listChanged": True}
        assert proctor("park", "one", home=home).status == 0
        once(lambda: told.exists() and '"occasion":"parked"' in told.read_text())
        fleet.write_text(fleet.read_text().replace('name = "two"', 'name = "four"'))
        assert "removed two" in proctor("reload", home=home).out
        assert json.loads(serving.out.readline())["method"] == "notifications/tools/list_changed"
        serving.stdin.write(written({"id": 1, "method": "tools/list"}))
        serving.stdin.write(
            written(
                {
                    "id": 2,
                    "method": "tools/call",
                    "params": {"name": "ask_four", "arguments": {"prompt": "x"}},
                }
            )
        )
        serving.stdin.flush()
        listed, called = (json.loads(serving.out.readline()) for _ in range(2))
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["ask_one", "ask_four", "ask_three"]
        assert called["result"]["content"][0]["text"] == "done: x"
        serving.stdin.close()
        assert serving.end() == 0
