from __future__ import annotations

import pytest

from proctor.runtime.exits import (
    Crash,
    Exit,
    ExitReason,
    ExitStatus,
    Killed,
    NoProc,
    Normal,
    Shutdown,
    is_clean,
    normalised,
)
from tests.tables import each_row

CRASH = Crash(ValueError("x"))


@each_row(
    ("reason", "text", "clean"),
    [
        (Normal(), "normal", True),
        (Shutdown(), "shutdown", True),
        (Shutdown("max_restarts"), "shutdown (max_restarts)", True),
        (Killed(), "killed", False),
        (CRASH, "crash: ValueError('x')", False),
        (ExitStatus(1), "exit status 1", False),
        (ExitStatus(signal=9), "killed by SIGKILL", False),
        (ExitStatus(signal=40), "killed by signal 40", False),
        (NoProc(), "no such actor", False),
        (NoProc("a"), "no such actor: a", False),
    ],
)
def test_a_reason_prints_and_is_clean_or_not(reason: ExitReason, text: str, clean: bool) -> None:
    assert (str(reason), is_clean(reason)) == (text, clean)


@pytest.mark.covers("T19")
def test_exit_status_0_is_normal() -> None:
    assert normalised(ExitStatus(0)) == Normal()
    assert normalised(ExitStatus(1)) == ExitStatus(1)
    assert normalised(ExitStatus(0, signal=15)) == ExitStatus(0, signal=15)


def test_a_body_cannot_end_as_nobody() -> None:
    reason = NoProc()
    assert normalised(reason) == Crash(reason)


def test_reasons_compare_by_value() -> None:
    assert Shutdown("a") == Shutdown("a") != Shutdown("b")
    assert NoProc("a") == NoProc("b")
    assert len({NoProc("a"), NoProc("b")}) == 1


def test_an_exit_carries_its_reason() -> None:
    assert Exit(Shutdown("done")).reason == Shutdown("done")
