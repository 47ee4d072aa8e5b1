"""What is for Trio says in one line what to use, when an asyncio program awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

import proctor
from tests.tables import each_row

AGENT = proctor.scripted("a", Path(__file__).parents[2] / "examples" / "hello.ndjson")
REQUEST = proctor.CompletionRequest(prompt="hi")
MODEL = proctor.CompletionModel.make(AGENT)
PROVIDER = proctor.Provider(name="a", make=lambda context: AGENT)


async def entered(block: AbstractAsyncContextManager[object]) -> None:
    async with block:
        pass


async def asked(timeout: float | None = None) -> proctor.Answer:
    return await proctor.ask(AGENT, "hi")


@each_row(
    ("name", "begin"),
    [
        ("proctor.ask", asked),
        ("proctor.ask", lambda: proctor.ask(AGENT, "hi", timeout=None)),
        ("proctor.ask", lambda: entered(proctor.stream(AGENT, "hi"))),
        ("proctor.attempted", lambda: proctor.attempted(asked)),
        ("proctor.open_supervisor", lambda: entered(proctor.open_supervisor([AGENT]))),
        ("proctor.open_supervisor", lambda: entered(proctor.open_dynamic_supervisor())),
        ("open_supervisor", lambda: entered(proctor.runtime.open_supervisor())),
        ("proctor.connect", lambda: entered(proctor.connect())),
        ("proctor.Pool", lambda: proctor.Pool("p").run(AGENT, "hi")),
        ("proctor.Pool", lambda: entered(proctor.Pool("p").slot())),
        ("proctor.Pool", lambda: proctor.Pool("p").serve()),
        ("proctor.Pools", lambda: proctor.Pools().serve()),
        ("proctor.Sessions", lambda: entered(proctor.Sessions("sessions"))),
        ("proctor.CompletionModel", lambda: MODEL.completion(REQUEST)),
        ("proctor.Provider", lambda: PROVIDER.completion(REQUEST)),
        ("proctor.Provider", lambda: proctor.converse(PROVIDER, REQUEST)),
        ("proctor.Store", lambda: proctor.Store("store").open()),
        ("proctor.MemoryStore", lambda: proctor.MemoryStore().open()),
    ],
)
def test_an_asyncio_program_reads_which_face_it_needs(
    name: str, begin: Callable[[], Awaitable[object]]
) -> None:
    async def main() -> None:
        await begin()

    with pytest.raises(RuntimeError) as caught:
        asyncio.run(main())
    use = "in an asyncio program use proctor.aio, in plain code proctor.sync, or run it by proctor.run"
    assert str(caught.value) == f"{name} is for Trio: {use}"
