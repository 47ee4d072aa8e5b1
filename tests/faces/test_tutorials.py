"""The tutorials of the two faces, as a reader follows them."""

from __future__ import annotations

import asyncio
import importlib.util
import types
from typing import Any

import pytest

from proctor import aio
from tests.faces.test_guides import ROOT, blocks, checkout, requested

__all__ = ["checkout"]

SERVICE = "examples/fastapi_service.py"


def service() -> types.ModuleType:
    pytest.importorskip("fastapi")
    spec = importlib.util.spec_from_file_location("fastapi_service", ROOT / SERVICE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_service_of_the_tutorial_is_the_example() -> None:
    assert "\n\n".join(blocks("docs/tutorials/fastapi-service.md")) == (ROOT / SERVICE).read_text()


def test_the_service_asks_streams_and_looks() -> None:
    app = service().app

    async def main() -> tuple[Any, ...]:
        import httpx

        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://a") as client,
        ):
            asked = await client.post("/agents/writer/ask?prompt=hello")
            streamed = await client.post("/agents/reviewer/stream?prompt=hello")
            looked = await client.get("/agents")
            wrong = await client.post("/agents/nobody/ask?prompt=hello")
            await app.state.sup.child("translator").kill()
            late = await client.post("/agents/translator/ask?prompt=again")
        gone = await client_of_a_closed(app)
        return asked.json(), streamed.text, looked.json(), wrong.status_code, late.json()["text"], gone

    async def client_of_a_closed(app: Any) -> int:
        import httpx

        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return (await client.post("/agents/writer/ask?prompt=hello")).status_code

    asked, streamed, looked, wrong, late, gone = asyncio.run(main())
    assert asked == {"text": "Hello! You said: hello", "outcome": "ok", "cost_usd": asked["cost_usd"]}
    assert (streamed, late) == ("Hello! You said: hello", "Hello! You said: again")
    assert set(looked) == {"writer", "reviewer", "translator"}
    assert (wrong, gone) == (404, 500)


def test_every_request_has_an_end_while_agents_are_killed() -> None:
    app, names = service().app, ("writer", "reviewer", "translator")

    async def main() -> list[int]:
        import httpx

        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://a", timeout=60)

        async def kill() -> None:
            for number in range(12):
                await asyncio.sleep(0.05)
                await app.state.sup.child(names[number % 3]).kill()

        async with app.router.lifespan_context(app), client, asyncio.TaskGroup() as group:
            group.create_task(kill())
            paths = [f"/agents/{names[number % 3]}/ask?prompt={number}" for number in range(30)]
            asked = [group.create_task(client.post(path)) for path in paths]
            await asyncio.wait(asked)
        return [reply.result().status_code for reply in asked]

    statuses = asyncio.run(main())
    assert len(statuses) == 30
    assert set(statuses) <= {200, 409, 500, 502, 503, 504}
    assert 200 in statuses


def test_the_notebook_runs_cell_by_cell() -> None:
    shell_module = pytest.importorskip("IPython.core.interactiveshell")
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False
    shell = shell_module.InteractiveShell(config=config)
    cells = blocks("docs/tutorials/notebook.md")
    results = []
    try:
        for cell in cells:
            found = shell.run_cell(cell)
            found.raise_error()
            results.append(found.result)
    finally:
        shell.reset(new_session=False)
        # IPython keeps its loop open for ever: closed here, no other test finds it in the garbage
        pytest.importorskip("IPython.core.async_helpers").get_asyncio_loop().close()
    assert results[0].startswith('Answer 1 to "What is in this folder?"')
    assert results[1][0] == "ok"
    assert results[2][-1] == "TurnEnded"
    assert len(results[3]) == 3
    assert results[4] == 2
    assert aio.TrioThread is not None
    assert requested is not None
