from __future__ import annotations

from typing import get_args

import pytest

from proctor.actors.agent.states import TRANSITIONS, State, Trigger
from tests.tables import each_row

STORIES: list[tuple[list[Trigger], State]] = [
    (["ready"], "idle"),
    (["ready", "prompt"], "working"),
    (["ready", "prompt", "turn_ended"], "idle"),
    (["ready", "prompt", "question"], "blocked"),
    (["ready", "prompt", "question", "answered"], "working"),
    (["ready", "prompt", "question", "turn_ended"], "idle"),
    (["ready", "prompt", "limit"], "parked"),
    (["ready", "prompt", "limit", "woke", "turn_ended"], "idle"),
    (["ready", "prompt", "refused"], "failed"),
    (["ready", "prompt", "refused", "prompt", "turn_ended"], "idle"),
    (["ready", "prompt", "lost"], "backoff"),
    (["ready", "prompt", "lost", "started", "ready", "prompt"], "working"),
    (["ready", "prompt", "stalled", "lost"], "backoff"),
    (["ready", "prompt", "stop", "left"], "stopped"),
    (["ready", "stop", "gone"], "stopped"),
    (["ready", "left"], "done"),
    (["ready", "prompt", "limit", "lost", "started", "ready"], "idle"),
    (["ready", "prompt", "started", "ready"], "idle"),  # killed: nobody said that it ended
    (["ready", "turn_started", "question", "turn_ended"], "idle"),
    (["ready", "limit", "woke", "turn_ended"], "idle"),
    (["ready", "prompt", "refused", "limit", "woke"], "working"),
    (["ready", "prompt", "ready", "turn_ended"], "idle"),  # a process for each request
]


@each_row(("happenings", "state"), STORIES, ids=[f"{n}-{state}" for n, (_, state) in enumerate(STORIES)])
def test_a_story_ends_where_the_table_says(happenings: list[Trigger], state: State) -> None:
    now: State = "starting"
    for happening in happenings:
        now = TRANSITIONS[now, happening]
    assert now == state


def test_every_state_is_reached_and_every_happening_means_something() -> None:
    assert {*TRANSITIONS.values(), "starting"} == set(get_args(State))
    assert {happening for _, happening in TRANSITIONS} == set(get_args(Trigger))


@pytest.mark.parametrize(
    ("state", "happening"), [("starting", "prompt"), ("stopped", "prompt"), ("idle", "woke")]
)
def test_a_pair_that_cannot_be_has_no_entry(state: State, happening: Trigger) -> None:
    assert (state, happening) not in TRANSITIONS
