"""The names that docs/reference/metrics.md promises."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def names_promised() -> set[str]:
    """Of all metrics on the page."""
    return {*re.findall(r"^\| `(proctor_\w+)` \|", PAGE.read_text(), re.MULTILINE)}
