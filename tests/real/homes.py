"""The surroundings of a real CLI under test: nothing of the user's, and no far end but loopback.

A `ClaudeHome` is a private home, temporary folder, configuration and working folder with the environment that points
the CLI at them and at the fake API. Its key is no key. Every process started in it, and what those start, has this
HOME in its environment, by which `leftovers` finds what a test did not clean up (Linux: read from /proc).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import trio

FAKE_KEY = "sk-ant-test-not-a-real-key"
MINIMAL_PATH = "/usr/local/bin:/usr/bin:/bin"


class NotLoopback(ValueError):
    """A real CLI was about to be pointed at something that is not on this machine."""


@attrs.frozen
class Leftover:
    """A process that outlived what should have stopped it."""

    pid: int
    argv: tuple[str, ...]


@attrs.frozen
class ClaudeHome:
    """Folders of one test and the whole environment of its CLIs."""

    home: Path
    tmp: Path
    work: Path
    environment: Mapping[str, str]

    def leftovers(self) -> list[Leftover]:
        """Processes of this home that still live; zombies have no environment and do not count."""
        mark = f"HOME={self.home}".encode()
        return [Leftover(pid, _argv(pid)) for pid in _pids() if mark in _read(pid, "environ").split(b"\0")]

    def sweep(self) -> None:
        """Kill what `leftovers` finds."""
        for left in self.leftovers():
            with suppress(ProcessLookupError):
                os.kill(left.pid, signal.SIGKILL)


def make_home(root: Path, base_url: str) -> ClaudeHome:
    """A fresh home below `root` for CLIs that talk to `base_url`; raises `NotLoopback` unless that is loopback."""
    check_loopback(base_url)
    home, tmp, work = (root / name for name in ("home", "tmp", "work"))
    for folder in (home, tmp, work):
        folder.mkdir(mode=0o700, parents=True)
    return ClaudeHome(home, tmp, work, scrubbed_environment(home, tmp, base_url))


def scrubbed_environment(home: Path, tmp: Path, base_url: str) -> dict[str, str]:
    """All a CLI may see; nothing is taken from the environment of the tests."""
    return {
        "PATH": MINIMAL_PATH,
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "CLAUDE_CODE_TMPDIR": str(tmp),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": FAKE_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def check_loopback(base_url: str) -> None:
    """Raise `NotLoopback` unless the URL's host is a loopback address; a name would have to be looked up first."""
    host = urlsplit(base_url).hostname or ""
    try:
        if ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise NotLoopback(f"expected a loopback address as the API of a CLI under test, got {base_url!r}")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid())


def _argv(pid: int) -> tuple[str, ...]:
    return tuple(word.decode(errors="replace") for word in _read(pid, "cmdline").split(b"\0") if word)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:  # it ended meanwhile, or is not ours
        return b""


async def until(condition: Callable[[], bool], *, within: float = 60.0) -> None:
    """Wait for a fact about processes, which nothing announces; raises trio.TooSlowError after `within` seconds."""
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.05)
