from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import trio

from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Text, Tool
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import FAKE_KEY, ClaudeHome

Json: TypeAlias = Mapping[str, Any]

PIPES = ("-p", "--output-format", "stream-json", "--verbose", "--setting-sources", "", "--strict-mcp-config")
SESSION = (*PIPES, "--input-format", "stream-json", "--permission-prompt-tool", "stdio")


class Session:
    """A CLI in session mode, line by line."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._unread = bytearray()

    async def send(self, **frame: object) -> None:
        await self._stdin.send_all(json.dumps(frame).encode() + b"\n")

    async def prompt(self, text: str) -> None:
        await self.send(type="user", message={"role": "user", "content": text}, parent_tool_use_id=None)

    async def read_until(self, kind: str) -> Json:
        while (frame := await self._read())["type"] != kind:
            pass
        return frame

    async def _read(self) -> Json:
        while b"\n" not in self._unread:
            received = await self._stdout.receive_some()
            assert received, "stdout ended"
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        frame: Json = json.loads(line)
        return frame


@asynccontextmanager
async def open_session(cli: Cli, home: ClaudeHome) -> AsyncGenerator[Session]:
    process = await trio.lowlevel.open_process(
        [str(cli.path), *SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home.work,
        env=home.environment,
    )
    try:
        with trio.fail_after(60):
            session = Session(process)
            yield session
            await session.send(type="control_request", request_id="end", request={"subtype": "end_session"})
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def one_shot(cli: Cli, home: ClaudeHome, prompt: str) -> list[Json]:
    with trio.fail_after(60):
        done = await trio.run_process(
            [str(cli.path), "-p", prompt, *PIPES[1:]],
            capture_stdout=True,
            cwd=home.work,
            env=home.environment,
        )
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def of_type(frames: Sequence[Json], kind: str) -> list[Json]:
    return [frame for frame in frames if frame["type"] == kind]


async def test_a_one_shot_prompt_is_answered_from_the_script(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("forty two", chunk=3))
    frames = await one_shot(claude_cli, claude_home, "what is the answer?")

    (result,) = of_type(frames, "result")
    assert (result["result"], result["is_error"]) == ("forty two", False)
    assert frames[0]["claude_code_version"] == claude_cli.version
    (request,) = messages_api.scripted
    assert "what is the answer?" in request.last_user_text
    assert (request.api_key, request.session_id) == (FAKE_KEY, result["session_id"])
    assert claude_home.leftovers() == []


@newest_claude
async def test_a_tool_call_runs_once_the_host_allows_it(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    messages_api.play(Tool("Bash", {"command": "touch made && echo done"}), Text("touched"))
    async with open_session(claude_cli, claude_home) as session:
        await session.prompt("make a file")
        asked = await session.read_until("control_request")
        assert asked["request"]["subtype"] == "can_use_tool"
        allowed = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": allowed}
        await session.send(type="control_response", response=response)
        result = await session.read_until("result")

    assert result["result"] == "touched"
    assert (claude_home.work / "made").exists()
    assert [given.text for given in messages_api.scripted[-1].tool_results] == ["done"]
    assert claude_home.leftovers() == []


@newest_claude
async def test_two_turns_of_one_session_share_their_history(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("one"), Text("two"))
    async with open_session(claude_cli, claude_home) as session:
        await session.prompt("first")
        first = await session.read_until("result")
        await session.prompt("second")
        second = await session.read_until("result")

    assert (first["result"], second["result"]) == ("one", "two")
    requests = messages_api.scripted
    assert requests[1].n_messages > requests[0].n_messages
    assert {request.session_id for request in requests} == {first["session_id"]}
