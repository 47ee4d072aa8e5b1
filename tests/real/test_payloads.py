from __future__ import annotations

import base64
import re
from typing import Any

import msgspec
import pytest
import trio

from proctor.actors.plan.options import AgentMode, AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan, codex_plan
from proctor.actors.runs import ask
from proctor.actors.structured.payloads import BinaryPayload, FilePayload
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi, call
from tests.fakes.steps import Held, Text, Tool
from tests.real.conftest import newest_claude
from tests.real.given import ENCODED, NOTE, PICTURE, SAID
from tests.real.homes import until

BOUND = 60.0

PDF = (
    b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n\xff"
)


async def answered(plan: Plan, *payloads: Any) -> None:
    answer = await ask(plan, "look", timeout=BOUND, payloads=payloads)
    assert (answer.outcome, answer.text) == ("ok", "seen")


def everything(body: Any) -> str:
    return msgspec.json.encode(body).decode()


@pytest.mark.covers("R145")
@newest_claude
async def test_claude_shows_its_model_the_picture_the_document_and_the_text(
    claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("seen"))
    await answered(claude_plan("a", claude_options), NOTE, PICTURE, BinaryPayload(PDF, "application/pdf"))
    told = everything(messages_api.scripted[0].body)
    assert ENCODED in told
    assert base64.b64encode(PDF).decode() in told
    assert SAID in told


@pytest.mark.covers("R145")
@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_shows_its_model_the_picture_and_the_text(
    mode: AgentMode, codex_options: AgentOptions, responses_api: ResponsesApi
) -> None:
    responses_api.play(Text("seen"))
    await answered(codex_plan("a", {**codex_options, "mode": mode}), NOTE, PICTURE)
    told = everything(responses_api.requests[0].body)
    assert "data:image/png;base64," in told
    assert SAID in told


LONG = FilePayload("notes.txt", "".join(f"line {n} of the notes\n" for n in range(130_000)))
PATH = re.compile(r"/[^\s\"\\]+/payloads/[^\s\"\\]+")


async def read_by_its_path(plan: Plan, api: MessagesApi | ResponsesApi, requests: Any, tool: Any) -> None:
    """Three megabytes of text: the model is told a path, and the CLI lets it read there; then the file is gone."""
    begin, path = Held(tool("echo begun", None)), ""
    api.play(begin)
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            answer = await ask(plan, "look", timeout=BOUND, payloads=(LONG,))
            assert (answer.outcome, answer.text) == ("ok", "seen")

        nursery.start_soon(look)
        await until(lambda: len(requests()) == 1)
        told = everything(requests()[0].body)
        assert len(told) < 1_000_000
        [path] = set(PATH.findall(told))
        api.play(tool(f"head -n 3 {path}", path), Text("seen"))
        begin.until.set()
    assert "line 2 of the notes" in everything(requests()[-1].body)
    assert not await trio.Path(path).exists()


@newest_claude
@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_claude_reads_a_text_that_is_too_long_for_a_prompt(
    mode: AgentMode, claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    def tool(command: str, path: str | None) -> Tool:
        if path is None:
            return Tool("Glob", {"pattern": "*.none"})
        return Tool("Read", {"file_path": path, "limit": 3})

    plan = claude_plan("a", {**claude_options, "mode": mode})
    await read_by_its_path(plan, messages_api, lambda: messages_api.scripted, tool)


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_reads_a_text_that_is_too_long_for_a_prompt(
    mode: AgentMode, codex_options: AgentOptions, responses_api: ResponsesApi
) -> None:
    open_to_all: AgentOptions = {"sandbox": "danger-full-access", "permission_mode": "never", "mode": mode}
    plan = codex_plan("a", {**codex_options, **open_to_all})

    def tool(command: str, path: str | None) -> Tool:
        return call(command)

    await read_by_its_path(plan, responses_api, lambda: responses_api.requests, tool)
