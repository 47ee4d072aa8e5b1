"""What the statements say about one child's restarts: whether there is one, how long it is put off, what ends a row."""

from __future__ import annotations

from tests.simulation.child import Child
from tests.simulation.universe import Place, Universe


def delay(place: Place, path: str, universe: Universe) -> float:
    """Seconds before the restart that is now decided (X1). Takes a number by chance if there is any back-off."""
    backoff, program = place.node.backoff, universe.program
    if backoff is None:
        return 0.0
    least, most = (program.specified(ticks, path, "delay") for ticks in (backoff.least, backoff.most))
    grown = min(most, least * float(backoff.factor) ** (place.attempt - 1))
    return grown * (1 - backoff.jitter * universe.random.random())


def is_full(place: Place) -> bool:
    """Whether one more restart would be one too many in a row (X3)."""
    limit = None if place.node.backoff is None else place.node.backoff.max_in_row
    return limit is not None and place.attempt >= limit


def end(place: Place, path: str, universe: Universe) -> None:
    """The child ended: a row is over if it was ready for long enough, without back-off however shortly (X2)."""
    child, backoff = place.child, place.node.backoff
    if child is None or child is not place.latest or not place.attempt:
        return
    if backoff is None:
        place.attempt = 0
        return
    given = (backoff.most, "delay") if backoff.reset_after is None else (backoff.reset_after, "reset")
    over = child.ended_at - child.ready_at >= universe.program.specified(given[0], path, given[1])
    universe.sights.add("row ended" if over else "row goes on")
    place.attempt = 0 if over else place.attempt


def comes_back(child: Child) -> bool:
    """Whether an exit by itself is followed by a restart (S14-S16)."""
    if child.node.restart == "transient":
        return child.reason not in ("normal", "shutdown")
    return child.node.restart == "permanent"
