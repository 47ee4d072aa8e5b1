from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything of them is imported: what tests share shows the values of an assertion that fails, as tests do.
pytest.register_assert_rewrite(
    *(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir())
)

from tests.clis import not_run
from tests.conformance import outcomes
from tests.conformance.outcomes import Outcomes
from tests.durations import is_slow
from tests.runtime.belongings import children

pytest_plugins = ["pytester", "tests.workers"]

# how long an example takes says how busy the machine is, and nothing of the product
settings.register_profile("proctor", deadline=None)
settings.load_profile("proctor")

gc.disable()  # all that collecting the tests makes stays: looking through it for garbage is a fifth of that time

TESTS = Path(__file__).parent
PAUSES = (0.02, 0.1, 0.3, 0.6, 1.0, 1.5)
"""Seconds between two looks at processes that are on their way out."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes(config.rootpath), "conformance")
    config.pluginmanager.register(not_run, "not run")
    # a shell lets what it starts in the background ignore Ctrl-C, and the programs that tests start would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    outcomes.pytest_addoption(parser)
    parser.addoption(
        "--quick", action="store_true", help="only the tests that tests/durations.txt knows as fast"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the fast tests if asked to."""
    if config.getoption("quick"):
        slow = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """What was collected stays to the end: a collection of garbage need not look through it each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ledgers and recordings never go to, nor sweeps look into, the state folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


KEPT = ("multiprocessing.resource_tracker", "tests.proctor.fork_server")
"""What stays to the end once a test needed it: Python's helper of `multiprocessing`, and the tests' own fork server."""


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Every test ends with this: what it started is dead and waited for (P07, R036, R191)."""
    before = children()
    yield
    for pause in PAUSES:
        if not children() - before:
            return
        threading.Event().wait(pause)
    left = {pid: _command(pid) for pid in children() - before}
    left = {pid: command for pid, command in left.items() if not any(kept in command for kept in KEPT)}
    assert left == {}, f"left behind: {left}"


def _command(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        command = ""
    return command.replace("\0", " ") or "a zombie"
