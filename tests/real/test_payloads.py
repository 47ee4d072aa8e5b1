from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from proctor.actors.payloads import BinaryPayload
from proctor.actors.plan import AgentMode, AgentOptions, Plan, claude_plan, codex_plan
from proctor.actors.runs import run
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi
from tests.fakes.steps import Text
from tests.real.conftest import newest_claude
from tests.real.given import ENCODED, NOTE, PICTURE, SAID

BOUND = 60.0

PDF = (
    b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n\xff"
)


async def answered(plan: Plan, *payloads: Any) -> None:
    answer = await run(plan, "look", timeout=BOUND, payloads=payloads)
    assert (answer.outcome, answer.text) == ("ok", "seen")


def everything(body: Any) -> str:
    return msgspec.json.encode(body).decode()


@newest_claude
async def test_claude_shows_its_model_the_picture_the_document_and_the_text_R145(
    claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("seen"))
    await answered(claude_plan("a", claude_options), NOTE, PICTURE, BinaryPayload(PDF, "application/pdf"))
    told = everything(messages_api.scripted[0].body)
    assert ENCODED in told
    assert base64.b64encode(PDF).decode() in told
    assert SAID in told


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_shows_its_model_the_picture_and_the_text_R145(
    mode: AgentMode, codex_options: AgentOptions, responses_api: ResponsesApi
) -> None:
    responses_api.play(Text("seen"))
    await answered(codex_plan("a", {**codex_options, "mode": mode}), NOTE, PICTURE)
    told = everything(responses_api.requests[0].body)
    assert "data:image/png;base64," in told
    assert SAID in told
