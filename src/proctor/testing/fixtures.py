"""Fixtures for tests of programs that use proctor. Enable them in the top `conftest.py`:

    pytest_plugins = ["proctor.testing.fixtures"]

There is no entry point, because it would import Trio in every test run of every project with proctor installed. Async
tests need pytest-trio (`trio_mode = true`).
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import attrs
import msgspec
import pytest
from trio.testing import MockClock

from proctor.actors.plan.options import SpecOptions
from proctor.actors.process.orphans import hosts_folder
from proctor.actors.specs import scripted
from proctor.runtime.processes import find_marked
from proctor.runtime.spec import ChildSpec
from proctor.testing.leaks import Leaked, no_leaks

__all__ = ["ScriptedAgent", "no_leaks_of_the_test", "private_state", "scripted_agent", "virtual_clock"]


@attrs.frozen
class ScriptedAgent:
    """Makes specs of scripted agents; the type of the fixture `scripted_agent`."""

    _folder: Path
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def __call__(
        self,
        *steps: Mapping[str, Any] | str,
        id: str = "agent",
        faults: tuple[str, ...] = (),
        speed: float = 0.0,
        **options: Unpack[SpecOptions],
    ) -> ChildSpec:
        """Make the spec of an agent that plays `steps`: a mapping for each line of a script, or text of whole lines.

        By default the agent has a private home and three seconds to stop. Raises `ScriptError` and `BadOption`, as
        `proctor.scripted` does.
        """
        path = self._folder / f"{id}-{next(self._numbers)}.ndjson"
        path.write_text("".join(f"{_line(step)}\n" for step in steps), encoding="utf-8")
        chosen: SpecOptions = {"home": "private", "shutdown": 3.0, **options}
        return scripted(id, path, faults=faults, speed=speed, **chosen)


def _line(step: Mapping[str, Any] | str) -> str:
    return step if isinstance(step, str) else msgspec.json.encode(dict(step)).decode()


@pytest.fixture
def private_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private state folder for the test: ledgers and recordings are kept there, and sweeps read only that."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def scripted_agent(request: pytest.FixtureRequest, tmp_path: Path, private_state: Path) -> ScriptedAgent:
    """A factory of scripted agents: `scripted_agent({"reply": "Hello, {prompt}"}, id="a")` makes a child spec."""
    clocks = {"virtual_clock", "autojump_clock", "mock_clock"} & set(request.fixturenames)
    if clocks:
        pytest.fail(
            f"scripted agents are real processes, and {min(clocks)} does not wait for those", pytrace=False
        )
    folder = tmp_path / "scripts"
    folder.mkdir()
    return ScriptedAgent(folder)


@pytest.fixture
def virtual_clock() -> MockClock:
    """Trio's virtual clock for the test: time passes only when no task can run, and then at once."""
    return MockClock(autojump_threshold=0)


@pytest.fixture(name="no_leaks")
def no_leaks_of_the_test(private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Fails a test that leaves a descriptor, process, thread or temporary file behind; returns the temporary folder.

    Counts processes that are our children or carry a marker of this test's hosts. Request it before other fixtures, so
    that it runs after their clean-up. `proctor.testing.leaks.no_leaks()` also counts tasks.
    """
    folder = Path(tempfile.mkdtemp(prefix="pt-"))  # short: sockets are made in it
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        with no_leaks(folder):
            yield folder
        # by marker too: what left its parent is no child of ours any more
        left = tuple(str(orphan) for orphan in find_marked(_keys()))
        if left:
            raise Leaked(left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keys() -> set[str]:
    """The keys of hosts that this test has not closed."""
    return {path.stem for path in hosts_folder().glob("*")}
