"""Several processes for one run: `--workers N` forks the process that has collected the tests, so that is done once.

The process that collected runs no test. It hands out groups of tests, what takes longest first, and gives each report to
its own plugins (terminal, JUnit, conformance) as if the test had run here. A worker keeps what a session's fixtures made
from group to group and has a temporary folder of its own; a module's fixtures end with the group. A worker that dies
fails the test that it was at, and another takes its place.

Not handled: coverage, whose data is of one process, and fixtures of folders, which a group sets up anew.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

import attrs
import pytest
from _pytest.capture import FDCapture

from tests.durations import groups

Message = tuple[str, Any]
LOOK = 10.0
"""Seconds between two looks for a dead worker whose end of the pipe a process that it left behind holds open."""

SHARED = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """To be had by a conftest at the top."""
    parser.addoption(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="run the tests in N forks of this process; 0: here",
    )


def shared_folder(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """A temporary folder that is the same in all workers of a run."""
    return config.stash.get(SHARED, factory.getbasetemp())


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, if that is asked for and there is something to run."""
    count, option = session.config.getoption("workers"), session.config.option
    if not count or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    with closing(_Run(session, groups(session.items))) as run:
        run.to_its_end(count)
    return True


@attrs.define(eq=False)
class _Worker:
    process: ForkProcess
    connection: Connection[Any, Any]
    left: deque[int] = attrs.field(factory=deque[int])
    """The tests that it was given and has not reported."""


class _Run:
    def __init__(self, session: pytest.Session, waiting: Sequence[Sequence[int]]) -> None:
        self._session, self._hook = session, session.config.hook
        self._waiting = deque(waiting)
        self._workers: dict[Connection[Any, Any], _Worker] = {}
        self._started = 0
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        session.config.stash[SHARED] = factory.getbasetemp()  # before the forks, which make theirs in it

    def to_its_end(self, count: int) -> None:
        """Run every group in so many workers. Raises what pytest's own loop does where it stops before."""
        for _ in range(min(count, len(self._waiting))):
            self._start()
        while self._workers:
            ready = wait([*self._workers], LOOK)
            for connection in cast("list[Connection[Any, Any]]", ready):
                self._hear(self._workers[connection])
            if not ready:
                for worker in [each for each in self._workers.values() if not each.process.is_alive()]:
                    self._bury(worker)

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def close(self) -> None:
        """Let those that still work end with the test that they are at."""
        for worker in self._workers.values():
            worker.connection.close()
        for worker in self._workers.values():
            worker.process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, its = context.Pipe()
        others = [ours, *self._workers]
        process = context.Process(target=_work, args=(self._session, its, self._started, others))
        process.start()
        its.close()  # a read of ours then ends with the worker
        self._started += 1
        worker = self._workers[ours] = _Worker(process, ours)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        group = self._waiting.popleft() if self._waiting else ()
        worker.left.extend(group)
        worker.connection.send(group)

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, data = cast("Message", worker.connection.recv())
        except (EOFError, OSError):
            self._bury(worker)
            return
        if kind == "reports":
            worker.left.popleft()
            self._report(data)
            self._stop_if_asked()
        elif kind == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=_warning(*data))
        else:
            self._give(worker)

    def _report(self, reports: Sequence[Mapping[str, Any]]) -> None:
        for data in reports:
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
            self._hook.pytest_runtest_logreport(report=report)

    def _bury(self, worker: _Worker) -> None:
        del self._workers[worker.connection]
        worker.connection.close()
        worker.process.join()
        status = worker.process.exitcode
        if worker.left:
            item = self._session.items[worker.left.popleft()]
            self._hook.pytest_runtest_logreport(report=_death(item, status))
            if worker.left:
                self._waiting.appendleft([*worker.left])
            if self._waiting:
                self._start()
        elif status:
            self._session.shouldfail = f"a worker ended with status {status}; its error stands above"
        self._stop_if_asked()


def _death(item: pytest.Item, status: int | None) -> pytest.TestReport:
    text = f"the worker ended with status {status} in this test"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")


def _warning(text: str, file: str, line: int, when: Any, nodeid: str, location: Any) -> dict[str, Any]:
    warning = warnings.WarningMessage(pytest.PytestWarning(text), pytest.PytestWarning, file, line)
    return {"warning_message": warning, "when": when, "nodeid": nodeid, "location": location}


class _Sender:
    """A worker's plugin: what its own terminal would show goes to the process that collected."""

    def __init__(self, config: pytest.Config, connection: Connection[Any, Any]) -> None:
        self._config, self._connection = config, connection
        self._reports: list[Mapping[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def pytest_runtest_logfinish(self) -> None:
        self._connection.send(("reports", self._reports))
        self._reports = []

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        place = (warning_message.filename, warning_message.lineno)
        self._connection.send(("warning", (text, *place, when, nodeid, location)))


def _work(
    session: pytest.Session,
    connection: Connection[Any, Any],
    number: int,
    others: Sequence[Connection[Any, Any]],
) -> None:
    """Run the groups that come, up to an empty one, and end as pytest does."""
    for other in others:
        other.close()  # a read of ours then ends with the process that collected
    config = session.config
    with _own_process(config, number):
        config.pluginmanager.register(_Sender(config, connection))
        try:
            while group := cast("Sequence[int]", connection.recv()):
                _run(session, [session.items[index] for index in group])
                connection.send(("done", None))
        except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the run has ended before
            return
        finally:
            session._setupstate.teardown_exact(None)


@contextmanager
def _own_process(config: pytest.Config, number: int) -> Iterator[None]:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    folder = config.stash[SHARED] / f"worker-{number}"
    folder.mkdir(mode=0o700)
    factory._basetemp = folder
    if config.pluginmanager.has_plugin("terminalreporter"):
        config.pluginmanager.unregister(name="terminalreporter")
    _own_captured_output(config)
    try:
        yield
    finally:
        config._ensure_unconfigure()  # raises an error that the garbage of the last tests comes to


def _own_captured_output(config: pytest.Config) -> None:
    """Put other files in the place of those that hold captured output, whose offsets all forks share.

    They stay open: a module that was imported while output was captured may have kept them as `sys.stderr`.
    """
    capturing = config.pluginmanager.get_plugin("capturemanager")
    streams = getattr(capturing, "_global_capturing", None)
    for capture in (getattr(streams, "out", None), getattr(streams, "err", None)):
        if isinstance(capture, FDCapture):
            with TemporaryFile(buffering=0) as own:
                os.dup2(own.fileno(), capture.tmpfile.fileno(), inheritable=False)


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    # After the last nothing but the session stays set up, since nobody knows which test is the next.
    following = [*items[1:], cast("pytest.Item", session)]
    for item, after in zip(items, following, strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
