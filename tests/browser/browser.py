"""A browser with the page in it, and the fleet that it shows: what a scenario has in its hands.

The browser is driven from the main thread, because playwright's synchronous interface runs an event loop of its own; the
fleet runs on Trio in another thread.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import trio
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from proctor.actors.web_server.listening import Endpoint
from tests.actors.gateways.http.serving import Served
from tests.browser.far_ends import Agent, Storm, fleet
from tests.browser.install import fonts, libraries

T = TypeVar("T")
SECONDS = 20.0
"""For which a scenario waits for what it expects: a machine at work elsewhere is slow."""
OPTIONS = (
    "--no-sandbox", "--headless=shell", "--no-zygote", "--single-process", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--font-render-hinting=none", "--remote-debugging-port=0", "--lang=en-US",
)  # fmt: skip
HARMLESS = re.compile(r"Failed to load resource|net::ERR_")
"""What the console says of a request that failed, as some are meant to."""


class Thread:
    """Trio in a thread of its own."""

    def __enter__(self) -> Self:
        ready = threading.Event()

        async def main() -> None:
            self._token, self._over = trio.lowlevel.current_trio_token(), trio.Event()
            ready.set()
            await self._over.wait()

        self._thread = threading.Thread(target=trio.run, args=(main,))
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self.call(self._over.set)
        self._thread.join()

    def call(self, work: Callable[..., T], *args: Any) -> T:
        """Call a function there."""
        return trio.from_thread.run_sync(work, *args, trio_token=self._token)

    def run(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function there."""
        return trio.from_thread.run(work, *args, trio_token=self._token)

    @contextmanager
    def opened(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """The block of an async context manager that is open there."""
        values, opened, over = list[T](), threading.Event(), trio.Event()

        async def hold() -> None:
            try:
                async with manager as value:
                    values.append(value)
                    opened.set()
                    await over.wait()
            finally:
                opened.set()

        holder = threading.Thread(target=self.run, args=(hold,))
        holder.start()
        opened.wait()
        try:
            yield values[0]
        finally:
            self.call(over.set)
            holder.join()


class World:
    """What one scenario has: tabs of the browser, fleets, and what went over the wire."""

    def __init__(self, context: BrowserContext, thread: Thread) -> None:
        self._context = context
        self.thread = thread
        self.requests: list[Request] = []
        self.complaints: list[str] = []

    @contextmanager
    def fleet(
        self, *names: str, agents: dict[str, Agent] | None = None, **options: Any
    ) -> Generator[tuple[Served, dict[str, Agent]]]:
        """A fleet of agents of these names, served."""
        acting = agents or {name: Agent() for name in names}
        with self.thread.opened(fleet(acting, **options)) as server:
            yield server, acting

    @contextmanager
    def storm(self) -> Generator[tuple[str, Storm]]:
        """A server of 500 agents, and its address."""
        storm = Storm()
        with self.thread.opened(storm.served()) as address:
            yield address, storm

    def post(self, server: Served, path: str, **body: Any) -> Any:
        """Send a request as another client; gives its record."""

        async def send() -> Any:
            response = await server.client.post(path, json=body)
            return response.json()

        return self.thread.run(send)

    def until(self, server: Served, name: str, state: str) -> None:
        """Wait until an agent has this state."""

        async def look() -> None:
            while (await server.client.get(f"/agents/{name}")).json()["state"] != state:  # noqa: ASYNC110
                await trio.sleep(0.02)

        self.thread.run(look)

    @contextmanager
    def tab(
        self,
        where: Served | Endpoint | str,
        path: str = "/",
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
    ) -> Generator[Page]:
        """A tab that shows the page. What it asks for and what its console says is kept."""
        page = self._context.new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("request", lambda request: self.requests.append(request))
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        try:
            page.goto(f"{self.address(where)}{path}")
            yield page
        finally:
            page.close()

    @staticmethod
    def address(where: Served | Endpoint | str) -> str:
        """The address of a server."""
        return where if isinstance(where, str) else f"http://{getattr(where, 'where', where)}"

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not HARMLESS.search(message.text):
            self.complaints.append(message.text)


@contextmanager
def opened(executable: Path, folder: Path) -> Generator[Callable[[], World]]:
    """A browser; each call gives the world of a scenario. `folder` is for what it writes."""
    expect.set_options(timeout=SECONDS * 1000)
    with _chromium(executable, folder) as address, Thread() as thread, sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(address)
        # the one that is there: with --single-process a second one takes the browser with it when it closes
        yield lambda: World(browser.contexts[0], thread)
        browser.close()


def _fonts_file(executable: Path, folder: Path) -> Path:
    """The settings by which fonts are found: those that Chromium brings, and no others.

    The file that it brings names fixed folders instead. Where these are not there it has no font, and no text has a size.
    """
    lines = (
        "<fontconfig>",
        f"<dir>{fonts(executable)}</dir>",
        f"<cachedir>{folder}/fonts</cachedir>",
        "</fontconfig>",
    )
    file = folder / "fonts.conf"
    file.write_text("\n".join(lines))
    return file


@contextmanager
def _chromium(executable: Path, folder: Path) -> Generator[str]:
    command = [str(executable), *OPTIONS, f"--user-data-dir={folder}"]
    paths = [str(libraries(executable)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    own = {
        "HOME": str(folder),
        "LC_ALL": "en_US.UTF-8",
        "LD_LIBRARY_PATH": ":".join(paths),
        "FONTCONFIG_FILE": str(_fonts_file(executable, folder)),
    }
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **own}
    ) as process:
        try:
            assert process.stderr is not None
            lines = list[str]()
            while (found := re.search(r"ws://\S+", line := process.stderr.readline())) is None:
                lines.append(line)
                assert line, f"Chromium did not start: {''.join(lines)}"
            # it must never wait for a reader of its stderr
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[0]
        finally:
            process.kill()
