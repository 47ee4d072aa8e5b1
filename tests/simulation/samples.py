"""Programs drawn once, for tests that walk through some instead of searching for one."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.simulation.program import Program
from tests.simulation.programs import FOCUSES, programs


def sample(number: int, size: int, ties: bool = False) -> list[Program]:
    """`size` programs of each focus, taken in turn; the same for the same `number`."""
    each = [_drawn(number, size, focus, ties) for focus in FOCUSES]
    return [program for several in zip(*each, strict=False) for program in several]


def _drawn(number: int, size: int, focus: str, ties: bool) -> list[Program]:
    drawn: list[Program] = []

    @seed(number)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
        verbosity=Verbosity.quiet,
    )
    @given(programs(focus, ties))
    def draw(program: Program) -> None:
        drawn.append(program)

    draw()
    return drawn
