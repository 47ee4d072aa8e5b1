"""Fixtures for tests of programs that use proctor. Enabled by name, in the `conftest.py` at the top:

    pytest_plugins = ["proctor.testing.fixtures"]

There is no entry point on purpose: it would bring these names, and the time to import Trio, into every test run of every
project that has proctor installed. Async tests need pytest-trio (`trio_mode = true`).

`scripted_agent` starts real processes, which no virtual clock waits for: a test that has both is refused.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Unpack

import attrs
import msgspec
import pytest
from trio.testing import MockClock

from proctor.actors.process.orphans import hosts_folder
from proctor.actors.specs import SpecOptions, scripted
from proctor.runtime.processes import find_marked
from proctor.runtime.spec import ChildSpec
from proctor.testing.leaks import Leaked, no_leaks

__all__ = ["ScriptedAgent", "no_leaks_of_the_test", "private_state", "scripted_agent", "virtual_clock"]


class ScriptedAgent(Protocol):
    """What `scripted_agent` is."""

    def __call__(
        self,
        *steps: Mapping[str, Any] | str,
        id: str = "agent",
        faults: tuple[str, ...] = (),
        speed: float = 0.0,
        **options: Unpack[SpecOptions],
    ) -> ChildSpec:
        """The spec of an agent that plays `steps`: a mapping each, as a line of a script, or text of whole lines.

        Raises `ScriptError` and `BadOption`, as `proctor.scripted` does. Unless told otherwise the agent has a home of
        its own and three seconds to stop in.
        """
        ...


@attrs.frozen
class _Scripts:
    folder: Path
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def __call__(
        self,
        *steps: Mapping[str, Any] | str,
        id: str = "agent",
        faults: tuple[str, ...] = (),
        speed: float = 0.0,
        **options: Unpack[SpecOptions],
    ) -> ChildSpec:
        path = self.folder / f"{id}-{next(self._numbers)}.ndjson"
        path.write_text("".join(f"{_line(step)}\n" for step in steps), encoding="utf-8")
        chosen: SpecOptions = {"home": "private", "shutdown": 3.0, **options}
        return scripted(id, path, faults=faults, speed=speed, **chosen)


def _line(step: Mapping[str, Any] | str) -> str:
    return step if isinstance(step, str) else msgspec.json.encode(dict(step)).decode()


@pytest.fixture
def private_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own: ledgers and recordings go there, and sweeps look there only."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def scripted_agent(request: pytest.FixtureRequest, tmp_path: Path, private_state: Path) -> ScriptedAgent:
    """Makes agents that play a script: `scripted_agent({"reply": "Hello, {prompt}"}, id="a")` is a child spec."""
    clocks = {"virtual_clock", "autojump_clock", "mock_clock"} & set(request.fixturenames)
    if clocks:
        pytest.fail(f"scripted agents are processes, which {min(clocks)} does not wait for", pytrace=False)
    folder = tmp_path / "scripts"
    folder.mkdir()
    return _Scripts(folder)


@pytest.fixture
def virtual_clock() -> MockClock:
    """Trio's clock of this test: time passes only when nobody has anything to do, and then at once."""
    return MockClock(autojump_threshold=0)


@pytest.fixture(name="no_leaks")
def no_leaks_of_the_test(private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Fails a test that leaves a descriptor, a process, a thread or a temporary file behind; gives the test's own
    temporary folder. Processes count that are children of ours, or carry a marker of a host of this test.

    Ask for it first, so that what other fixtures put away is away. Tasks cannot be left when the test's Trio run has
    ended; within it, `proctor.testing.leaks.no_leaks()` counts them too.
    """
    folder = Path(tempfile.mkdtemp(prefix="pt-"))  # short: sockets are made in it
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        with no_leaks(folder):
            yield folder
        left = tuple(str(orphan) for orphan in find_marked(_keys()))
        if left:
            raise Leaked(left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keys() -> set[str]:
    """The keys of the hosts that this test has opened and not closed."""
    return {path.stem for path in hosts_folder().glob("*")}
