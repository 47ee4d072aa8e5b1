from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TypeVar

import pytest

from proctor.actors import errors
from proctor.runtime.exits import ExitStatus
from proctor.runtime.processes import process_errors
from proctor.runtime.processes.process_errors import ProcessError, ProcessGone, SpawnFailed
from tests.tables import each_row

E = TypeVar("E", bound=Exception)

FAILURES: Mapping[str, type[Exception]] = {
    "cannot be started": process_errors.SpawnFailed,
    "no such program": process_errors.NotFound,
    "not a program": process_errors.NotExecutable,
    "no such directory": process_errors.CwdMissing,
    "no stdin": process_errors.NoStdin,
    "no stdout": process_errors.NoStdout,
    "no stderr": process_errors.NoStderr,
    "its pipe has closed": process_errors.StdinClosed,
    "the system refuses its pipe": process_errors.PipeFailed,
    "it has ended": process_errors.ProcessGone,
    "its port is taken": process_errors.PortTaken,
    "not installed": errors.NotInstalled,
    "installed and cannot be run": errors.NotExecutable,
    "no version": errors.VersionCheckFailed,
    "refused to start": errors.StartRefused,
    "killed while it started": errors.StartKilled,
    "another has its session": errors.SessionOwned,
    "no answer to the greeting": errors.GreetingTimeout,
    "no sign of life": errors.Unresponsive,
    "no answer in time": errors.AskTimeout,
    "no answer in time, and never sent": errors.AskNotSent,
    "no answer in time, and interrupted": errors.AskInterrupted,
    "never asked": errors.NotExecuted,
    "too many wait": errors.PoolFull,
    "no slot in time": errors.PoolTimeout,
    "a pool that is closed": errors.PoolClosed,
    "a session in use": errors.SessionBusy,
    "no turn of the session in time": errors.SessionTimeout,
    "too many sessions": errors.SessionsFull,
    "sessions that are closed": errors.SessionsClosed,
    "asked and died": errors.MaybeExecuted,
    "a wrong option": errors.BadOption,
    "a wrong file of a fleet": errors.FleetFaults,
    "a budget is spent": errors.BudgetExceeded,
    "a server is lost": errors.ServerLost,
    "a disk that refuses": errors.RecordingFailed,
    "a transport used wrongly": errors.TransportMisuse,
}
"""Each way to fail, and its type. What a command line says or how it exits is no error but a value: an event, or an exit
reason in an answer."""

ROOTS = (ProcessError, errors.AgentError)


def all_of(module: object, root: type[E]) -> set[type[E]]:
    kinds = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
    return {kind for kind in kinds if issubclass(kind, root) and kind is not root}


@pytest.mark.covers("R107")
def test_each_failure_has_a_type_of_its_own_and_no_type_is_for_the_rest() -> None:
    assert len({*FAILURES.values()}) == len(FAILURES)
    known = all_of(process_errors, ProcessError) | all_of(errors, errors.AgentError)
    assert known >= {*FAILURES.values()}
    rest = re.compile("other|unknown|generic|general|misc|unexpected", re.IGNORECASE)
    assert [kind.__name__ for kind in known if rest.search(kind.__name__)] == []


@pytest.mark.covers("R025")
def test_launching_fails_in_four_ways_that_are_told_apart() -> None:
    ways = (errors.NotInstalled, errors.NotExecutable, errors.VersionCheckFailed, errors.StartRefused)
    assert [one for one in ways for other in ways if one is not other and issubclass(one, other)] == []


def made(kind: type[ProcessError]) -> ProcessError:
    if kind is process_errors.PortTaken:
        return process_errors.PortTaken("localhost", 80, argv0="prog")
    if kind is ProcessGone:
        reason = ExitStatus(code=3)
        return ProcessGone(
            "gone", stage="stdin", argv0="prog", pid=77, elapsed=1.5, reason=reason, stderr=b"boom"
        )
    return kind("it failed", stage="stdin", argv0="prog", pid=77, elapsed=1.5)


@pytest.mark.covers("R106", "R108")
@each_row("kind", sorted(all_of(process_errors, ProcessError), key=str))
def test_a_process_error_has_its_facts_and_says_them(kind: type[ProcessError]) -> None:
    error = made(kind)
    assert (error.argv0, error.stage in error.args[0]) == ("prog", True)
    assert "'prog'" in str(error)
    if error.pid is None:
        assert (error.stage, error.elapsed) == ("ready", 0.0)
    else:
        assert (error.pid, error.elapsed) == (77, 1.5)
        assert "pid 77, after 1.50 s" in str(error)


@pytest.mark.covers("R106")
def test_a_start_that_failed_keeps_its_cause() -> None:
    cause = OSError(24, "Too many open files")
    error = SpawnFailed("did not start", stage="pipes", argv0="prog", cause=cause)
    assert (error.cause, error.pid, error.elapsed) == (cause, None, 0.0)
