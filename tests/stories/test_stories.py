from __future__ import annotations

import pytest

from proctor.actors.scripted.launch import SCRIPTED_WIRES
from tests.stories.rows import ROWS, expected, tells
from tests.stories.stories import STORIES, Story
from tests.stories.telling import Telling, told
from tests.stories.tokens import tokens
from tests.tables import each_row

CUTS = 40
"""Places spread over a stream, beside those around each newline; the byte by byte reading cuts everywhere at once."""

APART = 4
"""Places from one cut of a reading to the next."""

BY_NAME = {story.name: story for story in STORIES}


def places(telling: Telling) -> list[int]:
    """Where a stream is cut in two: around the ends of its lines, and evenly between."""
    around = {place + more for place in telling.newlines() for more in (-1, 0, 1, 2)}
    even = range(1, telling.size, max(1, telling.size // CUTS))
    return sorted(place for place in {*around, *even} if 0 < place < telling.size)


def test_every_dialect_that_is_spoken_has_a_row_and_tells_stories() -> None:
    assert set(ROWS) >= set(SCRIPTED_WIRES)
    assert all(any(tells(name, story) for story in STORIES) for name in SCRIPTED_WIRES)


def test_every_story_is_told_by_someone_and_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(STORIES)


@pytest.mark.covers("R007")
@pytest.mark.parametrize("dialect", SCRIPTED_WIRES)
@each_row("story", STORIES, ids=lambda story: story.name)
def test_a_story_has_the_same_events_in_every_dialect_however_its_bytes_are_cut(
    dialect: str, story: Story
) -> None:
    if not tells(dialect, story):
        return
    first = told(dialect, story)
    assert tokens(first.events) == expected(dialect, story)
    assert first.again([]) == (first.events, first.owed)
    assert first.again(None) == (first.events, first.owed)
    found = places(first)
    for start in range(min(APART, len(found))):  # each place is a cut once, with none of its neighbours
        cuts = found[start::APART]
        assert first.again(cuts) == (first.events, first.owed), cuts
