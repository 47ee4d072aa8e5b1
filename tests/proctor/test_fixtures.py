from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from proctor.testing.leaks import Leaked, no_leaks

ROOT = Path(__file__).parents[2]
HEAD = "import os, socket, subprocess, tempfile, threading, pytest, trio, proctor\n"
INI = '[pytest]\ntrio_mode = true\naddopts = "-p" "no:cacheprovider" "-p" "pytest_trio.plugin"\n'

Told = Callable[..., tuple[dict[str, int], str]]


@pytest.fixture
def told(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs pytest on a project whose conftest enables the fixtures: what became of its tests, and what was said."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what else is installed takes a second to load
    pytester.makeconftest('pytest_plugins = ["proctor.testing.fixtures"]\n')
    pytester.makefile(".ini", pytest=INI)

    def run(source: str) -> tuple[dict[str, int], str]:
        pytester.makepyfile(HEAD + textwrap.dedent(source))
        done = pytester.runpytest_subprocess("-q")
        return done.parseoutcomes(), done.stdout.str()

    return run


def test_an_agent_is_made_of_steps_or_of_text(told: Told) -> None:
    outcomes, said = told(
        """
        async def test_values(no_leaks, scripted_agent):
            spec = scripted_agent({"reply": "You said {prompt}"}, id="a")
            async with proctor.open_supervisor([spec]) as sup:
                assert (await sup.agent("a").ask("hi")).text == "You said hi"

        async def test_text(no_leaks, scripted_agent):
            agent = scripted_agent('# a comment\\n{"say": "one"}\\n{"reply": "two"}')
            assert (await proctor.ask(agent, "hi")).text == "two"

        async def test_faults_and_options(no_leaks, scripted_agent):
            agent = scripted_agent({"reply": "never"}, faults=("crash",), on_crash="fail")
            assert (await proctor.ask(agent, "hi")).outcome == "killed_by_system"

        def test_a_mistake(scripted_agent):
            with pytest.raises(Exception, match="agent-0.ndjson:1: expected one of"):
                scripted_agent({"replly": "x"})
        """
    )
    assert outcomes == {"passed": 4}, said


def test_time_passes_at_once_on_the_virtual_clock(told: Told) -> None:
    outcomes, said = told(
        """
        async def test_a_year(virtual_clock):
            await trio.sleep(365 * 86400)
            assert virtual_clock.current_time() >= 365 * 86400
        """
    )
    assert outcomes == {"passed": 1}, said


def test_an_agent_on_a_virtual_clock_is_refused(told: Told) -> None:
    outcomes, said = told("async def test_both(virtual_clock, scripted_agent): ...\n")
    assert outcomes == {"errors": 1}
    assert "scripted agents are real processes, and virtual_clock does not wait for those" in said


@pytest.mark.covers("P07", "R191")
def test_what_a_test_leaves_behind_fails_it(told: Told) -> None:
    outcomes, said = told(
        """
        def test_a_descriptor(no_leaks):
            pytest.kept = os.open("/dev/null", os.O_RDONLY)

        def test_a_process(no_leaks):
            pytest.started = subprocess.Popen(["sleep", "30"])

        def test_a_thread(no_leaks):
            pytest.may_end = threading.Event()
            threading.Thread(target=pytest.may_end.wait, name="mine").start()

        def test_a_file(no_leaks):
            tempfile.mkdtemp()

        def test_that_lets_the_thread_end():
            pytest.may_end.set()
        """
    )
    assert outcomes == {"passed": 5, "errors": 4}
    lines = [line for line in said.splitlines() if line.startswith("E ") and "left behind:" in line]
    things = ("(/dev/null)", "(sleep)", "thread mine", "file ")
    assert [thing in line for thing, line in zip(things, lines, strict=True)] == [True] * 4, lines


def test_the_fixtures_are_not_there_unless_they_are_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a(scripted_agent): ...\n")
    assert pytester.runpytest_subprocess().parseoutcomes() == {"errors": 1}


def leave(folder: Path, things: list[socket.socket]) -> None:
    with no_leaks(folder):
        (folder / "x").touch()
        things.append(socket.socket())


def fail(folder: Path) -> None:
    with no_leaks(folder):
        (folder / "y").touch()
        raise ValueError("own")


def start_two(nursery: trio.Nursery) -> None:
    with no_leaks():
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)


async def test_within_a_run_tasks_count_too() -> None:
    async with trio.open_nursery() as nursery:
        with pytest.raises(Leaked, match="left behind: 2 tasks"):
            start_two(nursery)
        nursery.cancel_scope.cancel()


def test_what_goes_in_time_is_no_leak() -> None:
    with no_leaks():
        process = subprocess.Popen([sys.executable, "-c", ""])
        threading.Timer(0.2, process.wait).start()


def test_all_that_is_left_is_named_and_an_error_of_the_block_comes_first(tmp_path: Path) -> None:
    kept: list[socket.socket] = []
    with pytest.raises(Leaked) as caught:
        leave(tmp_path, kept)
    kept[0].close()
    assert [thing.partition(" ")[0] for thing in caught.value.things] == ["descriptor", "file"]
    with pytest.raises(ValueError, match="own"):
        fail(tmp_path)
