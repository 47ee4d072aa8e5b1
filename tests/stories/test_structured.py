from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import proctor
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.protocols import vocabulary as v
from tests.actors.far_end import Step
from tests.stories.agents import LIMIT, RUNS, SESSIONS, child
from tests.stories.rows import words_of


class Sum(msgspec.Struct):
    total: int


WRONG_TWICE: Sequence[Step] = (
    {"turn": "1"},
    {"reply": "seven", "cost": 0.25},
    {"turn": "2"},
    {"reply": '{"total": "seven"}', "cost": 0.25},
    {"turn": "3"},
    {"reply": '{"total": 7}', "cost": 0.5},
)
HANDED_IN: Sequence[Step] = (
    {"host": "submit", "input": {"value": {"total": "seven"}}},
    {"host": "submit", "input": {"value": {"total": 7}}},
)
OFFERING = [
    name for name in SESSIONS if "host_tools" in words_of(name) and "turn_schema" not in words_of(name)
]


def assert_summed(answer: proctor.Answer, dialect: str) -> None:
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", Sum(7), 3)
    untold = [] if "cost" in SCRIPTED_WIRES[dialect].dialect.capabilities else [None]
    assert answer.cost_usd in (pytest.approx(1.0), *untold)


@pytest.mark.covers("L11")
@pytest.mark.parametrize("dialect", SESSIONS)
async def test_an_agent_is_wrong_twice_then_right_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    async with proctor.open_supervisor(child(tmp_path, dialect, WRONG_TWICE)) as sup:
        answer = await sup.agent("a").ask("How much?", schema=Sum, timeout=LIMIT)
        status = await sup.agent("a").status()
    assert_summed(answer, dialect)
    assert (status.incarnation, status.turns) == (1, 3)


@pytest.mark.covers("L11")
@pytest.mark.parametrize("dialect", RUNS)
async def test_a_run_is_wrong_twice_then_right_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    [spec] = child(tmp_path, dialect, WRONG_TWICE)
    async with proctor.stream(spec, "How much?", schema=Sum, timeout=LIMIT) as live:
        events = [event async for event in live]
    assert_summed(live.answer, dialect)
    assert len({event.session_id for event in events if isinstance(event, v.Started)}) == 1
    assert sum(isinstance(event, v.Exited) for event in events) == 3


AFTER: Sequence[tuple[Step, str]] = [
    ({"fault": "crash"}, "killed_by_system"),
    ({"end": "limit", "resets": 3600}, "limited"),
]


@pytest.mark.covers("R152")
@pytest.mark.parametrize(("after", "noted"), AFTER)
@pytest.mark.parametrize("dialect", OFFERING)
async def test_what_was_handed_in_stays_when_the_process_is_killed_or_at_its_limit(
    tmp_path: Path, dialect: str, after: Step, noted: str
) -> None:
    children = child(tmp_path, dialect, [*HANDED_IN, after], schemas=True)
    async with proctor.open_supervisor(children) as sup:
        answer = await sup.agent("a").ask("How much?", schema=Sum, timeout=LIMIT)
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", Sum(7), 2)
    assert noted in answer.notes[-1]
