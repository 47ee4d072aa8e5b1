from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from proctor.actors.agent.receipts import REQUIREMENTS, Fate, Receipt, ReceiptTracker, refusal_reason
from proctor.actors.agent.states import Status
from proctor.protocols import vocabulary as v
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Dialect, Version
from tests.tables import each_row

STEER = v.Steer("s", "also this")
INTERRUPT = v.Interrupt("s")
MODEL = v.SetModel("s", "m")
EXITED = v.Exited(v.HOST, None, "killed_by_system")
ENDED = v.TurnEnded(9, "t1", "completed", prompts=("p",))
CUT = v.TurnEnded(9, "t1", "interrupted", prompts=("p",))
TAKEN = v.TurnEnded(9, "t1", "completed", prompts=("p", "s"))
NO = v.Answered(3, "t1", "s", "no such thing")
YES = v.Answered(3, "t1", "s")
OTHER = (v.Answered(3, "t1", "x", "bad"), v.Text(4, "t1", "hm"), v.Steered(4, "t1", "x"))


@pytest.mark.covers("L40")
@each_row(
    ("request_", "keeps", "events", "fate", "turn", "why"),
    [
        (STEER, False, [*OTHER, v.Steered(5, "t1", "s")], "delivered", "t1", ""),
        (STEER, False, [YES, TAKEN], "delivered", "t1", ""),
        (STEER, False, [NO], "refused", None, "no such thing"),
        (STEER, False, [YES, ENDED], "expired", "t1", "the turn ended first (completed)"),
        (STEER, True, [ENDED], "queued", None, "the turn ended first; the CLI keeps it for its next one"),
        (STEER, True, [v.TurnStarted(9, "t2", True, ("s",))], "queued", "t2", "it began a turn of its own"),
        (STEER, True, [CUT], "queued", None, "the turn ended first; the CLI keeps it for its next one"),
        (
            STEER,
            True,
            [v.Notice(9, "t1", "prompt_cancelled", "", {"prompt": "s"})],
            "refused",
            None,
            "the CLI dropped it",
        ),
        (
            STEER,
            True,
            [v.TurnEnded(9, "t0", "completed"), EXITED],
            "expired",
            None,
            "its process ended first",
        ),
        (INTERRUPT, False, [*OTHER, YES], "delivered", "t1", ""),
        (INTERRUPT, False, [NO], "refused", None, "no such thing"),
        (INTERRUPT, False, [CUT], "delivered", "t1", ""),
        (INTERRUPT, True, [ENDED], "expired", "t1", "the turn ended first (completed)"),
        (INTERRUPT, True, [EXITED], "expired", None, "its process ended first (killed_by_system)"),
        (MODEL, False, [ENDED, YES], "delivered", "t1", ""),
        (MODEL, False, [CUT, NO], "refused", None, "no such thing"),
        (MODEL, False, [EXITED], "expired", None, "its process ended first (killed_by_system)"),
    ],
)
def test_the_first_event_that_speaks_of_it_tells_its_fate(
    request_: v.AnyRequest, keeps: bool, events: Sequence[v.AnyEvent], fate: Fate, turn: str | None, why: str
) -> None:
    watch = ReceiptTracker(request_, "t1", keeps=keeps)
    *before, last = (watch.read(event) for event in events)
    assert before == [None] * len(before)
    assert last is not None
    assert (last.fate, last.turn) == (fate, turn)
    assert last.why.startswith(why)


def test_what_is_written_before_the_turn_has_begun_belongs_to_the_next_one_that_begins() -> None:
    watch = ReceiptTracker(STEER, None, keeps=False)
    assert watch.read(v.TurnStarted(1, "t1", True, ("p",))) is None
    assert watch.read(v.TurnEnded(1, "t0", "completed")) is None
    assert watch.read(ENDED) == Receipt(
        request="s", fate="expired", why="the turn ended first (completed)", turn="t1"
    )
    merged = ReceiptTracker(STEER, None, keeps=True).read(v.TurnStarted(1, "t1", True, ("p", "s")))
    assert merged is not None
    assert (merged.fate, merged.turn) == ("delivered", "t1")


def test_a_receipt_is_true_when_it_was_taken_or_will_be() -> None:
    fates: dict[Fate, bool] = {"delivered": True, "queued": True, "refused": False, "expired": False}
    assert {fate: bool(Receipt(request="r", fate=fate)) for fate in fates} == fates


def test_time_that_runs_out_is_a_fate_too() -> None:
    steered, interrupted = (ReceiptTracker(r, "t1", keeps=False).timed_out(2.0) for r in (STEER, INTERRUPT))
    assert (steered.fate, interrupted.fate) == ("queued", "expired")
    assert steered.why == "the CLI did not reply within 2 s"
    assert ReceiptTracker(STEER, "t1", keeps=True).log_ended().fate == "expired"


async def test_a_receipt_without_a_turn_of_ours_has_no_answer() -> None:
    with pytest.raises(RuntimeError, match="a request that was delivered has no turn to wait for"):
        await Receipt(request="r", fate="delivered").answer()


EVERYTHING = attrs.evolve(CLAUDE, capabilities={need.capability: (0, 0, 0) for need in REQUIREMENTS.values()})
LATER = attrs.evolve(CLAUDE, capabilities={need.capability: (9, 0, 0) for need in REQUIREMENTS.values()})
UNNAMED = attrs.evolve(CLAUDE, capabilities={})
REQUESTS: tuple[v.AnyRequest, ...] = (
    STEER,
    INTERRUPT,
    MODEL,
    v.SetPermissionMode("s", "plan"),
    v.StopTask("s", "t"),
)


@each_row("request_", REQUESTS, ids=[type(r).__name__ for r in REQUESTS])
@each_row(
    ("dialect", "version", "running", "refused"),
    [
        (EVERYTHING, (2, 1, 330), True, None),
        (EVERYTHING, None, True, None),
        (UNNAMED, None, True, None),  # left to its `write`
        (LATER, (2, 1, 330), True, "claude 2.1.330 does not support"),
        (LATER, None, True, "claude this version does not support"),
    ],
)
def test_every_request_is_looked_up_in_the_capabilities(
    request_: v.AnyRequest, dialect: Dialect, version: Version | None, running: bool, refused: str | None
) -> None:
    found = refusal_reason(request_, dialect, version, Status(name="a", state="working"), running=running)
    assert (found or "").startswith(refused or "")
    assert (found is None) == (refused is None)


@pytest.mark.parametrize("request_", REQUESTS, ids=[type(r).__name__ for r in REQUESTS])
def test_what_needs_a_turn_is_refused_without_one(request_: v.AnyRequest) -> None:
    status = Status(name="a", state="parked", evidence="usage limit")
    found = refusal_reason(request_, EVERYTHING, None, status, running=False)
    assert (found == "no turn is running: parked (usage limit)") == REQUIREMENTS[type(request_)].turn
