from __future__ import annotations

import pytest

from bench import compare

OUTPUT = """## Starts

| work     |      | contender        | per second | ratio (CPU) |        range |
| -------- | ---- | ---------------- | ---------: | ----------: | -----------: |
| start, 1 | ours | **open_process** | 1,234 | 1.00 (wall) | 0.80 to 1.20 |
| start, 1 | peer | asyncio | not installed | | |

and a second

| fleet | CPU µs per event | p50, ms |
| --- | --: | --: |
| bare epoll | 18 | -0.23 |
"""


def test_the_figures_of_a_table_are_its_right_aligned_numbers() -> None:
    assert compare.parse(OUTPUT) == {
        "Starts, start, 1, ours, open_process: per second": 1234.0,
        "Starts, start, 1, ours, open_process: ratio (CPU)": 1.0,
        "Starts, bare epoll: CPU µs per event": 18.0,
        "Starts, bare epoll: p50, ms": -0.23,
    }


def test_text_without_a_table_has_no_figures() -> None:
    assert compare.parse("load 3.5\n\n| a | b |\n") == {}


def test_both_sides_stand_beside_each_other_with_their_medians_and_ranges() -> None:
    before = [{"a": 10.0, "gone": 1.0}, {"a": 30.0, "gone": 1.0}, {"a": 20.0}]
    now = [{"a": 5.0, "new": 2.0}, {"a": 10.0, "new": 2.0}, {"a": 40.0, "new": 2.0}]
    assert compare.table(before, now).splitlines()[2:] == ["| a | 20 | 10 to 30 | 10 | 5 to 40 | 0.50 |"]


def test_a_figure_that_was_zero_has_no_quotient() -> None:
    assert compare.table([{"a": 0.0}], [{"a": 1.0}]).splitlines()[2:] == [
        "| a | 0 | 0 to 0 | 1 | 1 to 1 |  |"
    ]


def test_each_side_is_first_every_second_turn() -> None:
    assert [compare.in_turn(turn)[0] for turn in range(4)] == ["before", "now", "before", "now"]


def test_a_commit_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no commit 'no-such-commit' here: .*; name one with REV="):
        compare.resolve("no-such-commit")
