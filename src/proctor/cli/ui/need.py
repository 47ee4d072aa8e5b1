"""The order in which agents need somebody, for every list of them, and the words for their states."""

from __future__ import annotations

from collections.abc import Mapping

NEED = (
    "blocked", "stalled", "failed", "backoff", "parked", "working", "starting", "stopping", "idle", "done", "stopped",
)  # fmt: skip
"""The states in the order in which they need somebody."""
AT_REST = ("idle", "done", "failed", "stopped")
"""The states of an agent that has nothing to do."""
STYLES: Mapping[str, str] = {
    "blocked": "yellow",
    "stalled": "red",
    "failed": "red",
    "backoff": "yellow",
    "parked": "yellow",
    "working": "green",
    "idle": "green",
}
"""The colours of the states; the others are dim."""
_WORDS: Mapping[str, str] = {"blocked": "needs you", "backoff": "restarting"}


def shown_state(state: str, approvals: int = 0) -> str:
    """The state that counts for a person: one with open approvals is blocked, also while another of its turns works."""
    return "blocked" if approvals else state


def need(state: str, approvals: int = 0) -> int:
    """The place of a state in the order of need; one that is unknown here comes first."""
    shown = shown_state(state, approvals)
    return NEED.index(shown) if shown in NEED else 0


def word_of(state: str) -> str:
    """The state in words for a person."""
    return _WORDS.get(state, state)


def style_of(state: str) -> str:
    """The colour of a state."""
    return STYLES.get(state, "dim")
