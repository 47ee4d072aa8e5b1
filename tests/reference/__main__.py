"""`python -m tests.reference`: write the reference page."""

from __future__ import annotations

from pathlib import Path

from tests.reference.page import write

if __name__ == "__main__":
    write(Path(__file__).parents[2])
