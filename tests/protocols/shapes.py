"""Anything that JSON can hold: what a frame may be, or have in it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def shapes(leaves: int) -> st.SearchStrategy[Any]:
    """Values of at most so many leaves."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=leaves,
    )
