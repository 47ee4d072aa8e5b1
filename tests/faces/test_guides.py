"""The examples of the guides to the two faces run as they stand, in the programs that they are for."""

from __future__ import annotations

import asyncio
import re
import types
from pathlib import Path
from typing import Any

import pytest

from proctor import aio, sync

ROOT = Path(__file__).parents[2]
ASYNCIO = "docs/guides/use-with-asyncio.md"
PLAIN = "docs/guides/use-in-scripts.md"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def program(page: str, mark: str) -> types.ModuleType:
    """The block of a page that has this text, run as a module."""
    [code] = [block for block in blocks(page) if mark in block]
    module = types.ModuleType("example")
    exec(compile(code, page, "exec"), vars(module))  # noqa: S102  # the programs of our own page
    return module


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pages name files of the checkout."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_the_asyncio_program(capsys: pytest.CaptureFixture[str]) -> None:
    program(ASYNCIO, "TaskGroup")
    assert capsys.readouterr().out.startswith(
        "Hello! You said: What is in this folder? ok\nHello! You said: Go on."
    )


def test_the_plain_program(capsys: pytest.CaptureFixture[str]) -> None:
    program(PLAIN, "sync.timeout")
    assert capsys.readouterr().out.endswith("\n1\n")


def test_the_tools_of_both_guides() -> None:
    tool = program(ASYNCIO, "aio.tool").stock
    assert (tool.name, tool.declared.description) == ("stock", "How many pieces of an article there are.")
    assert program(PLAIN, "sync.tool").stock.declared == tool.declared


def test_the_worker_threads(capsys: pytest.CaptureFixture[str]) -> None:
    program(PLAIN, "ThreadPoolExecutor")
    said = [f"Hello! You said: Summarize {name}" for name in ("a.txt", "b.txt", "c.txt")]
    assert capsys.readouterr().out == f"{said}\n"


def test_uvloop_needs_nothing() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> str:
        return (await aio.ask(aio.scripted("a", "examples/hello.ndjson"), "hi")).text

    assert uvloop.run(main()) == "Hello! You said: hi"


def test_the_fastapi_service() -> None:
    pytest.importorskip("fastapi")
    app = program(ASYNCIO, "FastAPI").app
    assert asyncio.run(requested(app, "/ask?prompt=hi")) == {"text": "Hello! You said: hi", "outcome": "ok"}


async def requested(app: Any, path: str) -> Any:
    """The reply of an ASGI application, within its lifespan."""
    import httpx

    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://a") as client,
    ):
        return (await client.get(path)).raise_for_status().json()


def test_the_django_views() -> None:
    django = pytest.importorskip("django")
    settings = pytest.importorskip("django.conf").settings
    factory = pytest.importorskip("django.test").RequestFactory()
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
        django.setup()
    views, request = program(ASYNCIO, "django"), factory.get("/", {"prompt": "hi"})
    assert b"You said: hi" in views.ask_plainly(request).content
    assert b"You said: hi" in asyncio.run(views.ask(request)).content


def test_a_plain_view_under_asgi_runs_in_a_thread() -> None:
    asgiref = pytest.importorskip("asgiref.sync")

    def view() -> str:
        return sync.ask(sync.scripted("a", "examples/hello.ndjson"), "hi").text

    assert asyncio.run(asgiref.sync_to_async(view)()) == "Hello! You said: hi"
