from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.process.payload_files import LONGEST
from proctor.actors.structured.payloads import FilePayload
from proctor.actors.transport.memory import Peer, PeerStreams
from tests.actors.spoken import GOOD, saying, spec_of
from tests.protocols.lines import INIT, ended, line, reply

LONG = FilePayload("long notes.txt", "abc " * (LONGEST // 4 + 1))
SHORT = FilePayload("short.txt", "The sum is 4.")
PATH = re.compile(r"/\S+/payloads/\S+")


def words(content: Any) -> str:
    """A prompt as one text."""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def path_in(content: Any) -> Path:
    [path] = PATH.findall(words(content))
    return Path(path)


async def test_a_long_text_goes_as_a_private_file_that_goes_with_its_process(
    autojump_clock: MockClock,
) -> None:
    heard = list[Any]()
    async with proctor.open_supervisor([spec_of(saying(heard=heard, **GOOD))]) as sup:
        await sup.agent("agent").ask("read", payloads=(SHORT, LONG))
        path = path_in(heard[0])
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
        assert (modes, path.read_text()) == ([0o600, 0o700], LONG.content)
    assert not path.exists()
    assert "The sum is 4." in words(heard[0])
    assert "long notes.txt (text/plain)" in words(heard[0])
    assert len(words(heard[0])) < 1000


async def test_texts_that_fit_together_stand_in_the_prompt(autojump_clock: MockClock) -> None:
    heard = list[Any]()
    texts = [FilePayload(f"{n}.txt", "x" * (LONGEST // 4)) for n in range(5)]
    await proctor.ask(spec_of(saying(heard=heard, **GOOD)), "read", payloads=texts[:4])
    await proctor.ask(spec_of(saying(heard=heard, **GOOD)), "read", payloads=texts)
    assert [len(PATH.findall(words(prompt))) for prompt in heard] == [0, 1]


def asking(tool: str, answers: list[Any]) -> Peer:
    """A far end that asks whether it may use a tool on the file that it is told of."""

    async def live(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
            elif frame["type"] == "control_response":
                answers.append(frame["response"]["response"]["behavior"])
                await side.send_all(ended(**GOOD))
            else:
                path = path_in(frame["message"]["content"])
                request = {"subtype": "can_use_tool", "tool_name": tool, "input": {"file_path": str(path)}}
                await side.send_all(INIT)
                await side.send_all(line(type="control_request", request_id="q", request=request))
        return None

    return live


@pytest.mark.parametrize(("tool", "behavior"), [("Read", "allow"), ("Write", "deny"), ("Bash", "deny")])
async def test_reading_such_a_file_is_allowed_whatever_the_policy_and_nothing_else_is(
    tool: str, behavior: str, autojump_clock: MockClock
) -> None:
    answers = list[Any]()
    async with proctor.open_supervisor([spec_of(asking(tool, answers), permission="deny")]) as sup:
        with trio.fail_after(30):
            assert (await sup.agent("agent").ask("read", payloads=(LONG,))).ok
    assert answers == [behavior]
