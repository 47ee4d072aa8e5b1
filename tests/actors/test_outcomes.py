from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from proctor.actors.outcomes import (
    ENDINGS,
    EXITS,
    OUTCOMES,
    Answer,
    ExitClass,
    Outcome,
    Stopper,
    exit_class,
    label,
)
from proctor.protocols.vocabulary import Ending
from proctor.runtime.exits import Crash, ExitReason, ExitStatus, Killed, Normal, Shutdown
from tests.tables import each_row


def test_every_ending_has_a_label_and_every_label_a_reaction() -> None:
    assert set(ENDINGS) == set(get_args(Ending))
    assert set(EXITS) == set(product(get_args(Stopper), get_args(ExitClass)))
    assert {*ENDINGS.values(), *EXITS.values()} == set(OUTCOMES) == set(get_args(Outcome))


@pytest.mark.covers("L31", "L32", "L10", "R071", "R073")
@each_row(
    ("ending", "exit", "by", "expected"),
    [
        # the CLI's own word wins over its exit, in both directions (L31)
        ("completed", ExitStatus(1), "nobody", "ok"),
        ("api_error", Normal(), "nobody", "failed"),
        ("authentication", ExitStatus(1), "nobody", "authentication"),
        ("limit", None, "nobody", "limited"),
        ("max_turns", Normal(), "owner", "exhausted"),
        # four causes, four labels (L32)
        (None, Shutdown(), "owner", "stopped"),
        (None, Killed(), "kill", "killed"),
        (None, ExitStatus(signal=9), "nobody", "killed_by_system"),
        (None, ExitStatus(signal=11), "nobody", "crashed"),
        (None, ExitStatus(3), "nobody", "crashed"),
        # no word and no fault: the prompt was lost (L10)
        (None, Normal(), "nobody", "no_answer"),
        (None, ExitStatus(signal=9), "stall", "stalled"),
        (None, ExitStatus(143), "deadline", "deadline"),
        (None, Shutdown(), "garbled", "garbled"),
    ],
)
def test_the_label(ending: Ending | None, exit: ExitReason | None, by: Stopper, expected: Outcome) -> None:
    assert label(ending, exit, by) == expected


@pytest.mark.covers("L36", "L38")
@each_row(
    ("outcome", "reaction"),
    [
        ("crashed", "restart"),
        ("killed_by_system", "restart"),
        ("stalled", "restart"),
        ("garbled", "restart"),
        ("authentication", "fail"),
        ("configuration", "fail"),
        ("limited", "park"),
        ("exhausted", "go_on"),
        ("ok", "go_on"),
    ],
)
def test_what_a_restart_would_not_heal_is_not_restarted(outcome: Outcome, reaction: str) -> None:  # L36-L38
    assert OUTCOMES[outcome].reaction == reaction


@each_row(
    ("reason", "expected"),
    [
        (Normal(), "clean"),
        (Shutdown("x"), "clean"),
        (Killed(), "sigkill"),
        (ExitStatus(signal=9), "sigkill"),
        (ExitStatus(signal=15), "signal"),
        (ExitStatus(1), "status"),
        (Crash(ValueError()), "status"),
        (None, "status"),
    ],
)
def test_exits_fall_into_four_classes(reason: ExitReason | None, expected: ExitClass) -> None:
    assert exit_class(reason) == expected


def test_an_answer_is_ok_only_by_its_label() -> None:
    assert Answer(agent="a", outcome="ok").ok
    assert not Answer(agent="a", outcome="failed", text="looks fine").ok
