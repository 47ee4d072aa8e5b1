from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from proctor.actors.payloads import BinaryPayload, FilePayload
from proctor.actors.plan import AgentOptions, Plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import run
from tests.clis.not_run import NOT_RUN
from tests.fakes.messages_api import MessagesApi
from tests.fakes.model_api import COMPLETIONS, ModelApi, open_model_api
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.fakes.steps import Text
from tests.real.agents import opencode_home
from tests.real.conftest import Cli
from tests.real.homes import MINIMAL_PATH, ClaudeHome, make_home

BOUND = 60.0


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)
PICTURE = BinaryPayload(PNG, "image/png", "red.png")
NOTE = FilePayload("note.txt", "The sum is 4.")
ENCODED = base64.b64encode(PNG).decode()
PDF = (
    b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n\xff"
)


async def answered(plan: Plan, *payloads: Any) -> None:
    answer = await run(plan, "look", timeout=BOUND, payloads=payloads)
    assert (answer.outcome, answer.text) == ("ok", "seen")


def everything(body: Any) -> str:
    return msgspec.json.encode(body).decode()


async def test_claude_shows_its_model_the_picture_the_document_and_the_text_R145(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("seen"))
    options: AgentOptions = {
        "executable": claude_cli.path,
        "cwd": claude_home.work,
        "env": claude_home.environment,
    }
    await answered(claude_plan("a", options), NOTE, PICTURE, BinaryPayload(PDF, "application/pdf"))
    told = everything(messages_api.scripted[0].body)
    assert ENCODED in told
    assert base64.b64encode(PDF).decode() in told
    assert "The sum is 4." in told


@pytest.fixture
async def responses() -> AsyncGenerator[ResponsesApi]:
    async with open_responses_api() as api:
        yield api


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_shows_its_model_the_picture_and_the_text_R145(
    mode: str, tmp_path: Path, installed_clis: Mapping[str, Path], responses: ResponsesApi
) -> None:
    responses.play(Text("seen"))
    home = make_home(tmp_path, responses.url)
    provider = f'{{name="fake",base_url="{responses.url}",wire_api="responses",env_key="FAKE_KEY"}}'
    options: AgentOptions = {
        "executable": installed_clis["codex-0.169.0"],
        "cwd": home.work,
        "env": {"HOME": str(home.home), "PATH": MINIMAL_PATH, "FAKE_KEY": "sk-x", "NO_PROXY": "127.0.0.1"},
        "model": "gpt-5.5",
        "mode": "exec" if mode == "exec" else "session",
        "extra": ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}"),
    }
    await answered(codex_plan("a", options), NOTE, PICTURE)
    told = everything(responses.requests[0].body)
    assert "data:image/png;base64," in told
    assert "The sum is 4." in told
    home.sweep()


@pytest.fixture
async def completions() -> AsyncGenerator[ModelApi]:
    async with open_model_api(COMPLETIONS) as api:
        yield api


@pytest.fixture
def seeing(tmp_path: Path, completions: ModelApi) -> Generator[ClaudeHome]:
    """A home whose model takes pictures."""
    made = opencode_home(tmp_path, completions)
    config = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])
    model = config["provider"]["fake"]["models"]["m1"]
    model |= {"attachment": True, "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
    named = {**made.environment, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    yield attrs.evolve(made, environment=named)
    made.sweep()


async def test_opencode_shows_its_model_the_picture_and_the_text_R145(
    installed_clis: Mapping[str, Path], seeing: ClaudeHome, completions: ModelApi
) -> None:
    if "opencode-1.18.33" not in installed_clis:
        pytest.skip(f"{NOT_RUN}OpenCode is only pinned for Linux on x86-64")
    completions.play(Text("seen"))
    options: AgentOptions = {
        "executable": installed_clis["opencode-1.18.33"],
        "cwd": seeing.work,
        "env": seeing.environment,
        "model": "fake/m1",
        "mode": "run",
    }
    await answered(opencode_plan("a", options), NOTE, PICTURE)
    told = completions.scripted[0].text
    assert ENCODED in told
    assert "The sum is 4." in told
