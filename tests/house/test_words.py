"""Words of our own for what has a standard word: each may occur in the library as often as words.toml says, and no more.

Who lowers a count lowers its bound in the same commit.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

from tests.house.tree import sources

BOUNDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words(text: str) -> Counter[str]:
    """Every word of prose and every part of an identifier: `take_owed` and `OwedFrames` both have `owed`."""
    return Counter(part.lower() for part in PARTS.findall(text))


def test_no_private_word_is_used_more_often_than_before() -> None:
    found = Counter[str]()
    for path in sources():
        found += words(path.read_text(encoding="utf-8"))
    more = {word: f"{found[word]} > {bound}" for word, bound in BOUNDS.items() if found[word] > bound}
    assert more == {}, "use the standard word"


def test_the_count_sees_the_parts_of_identifiers() -> None:
    text = "def take_owed(self): told = OwedFrames()  # whoever waits; unwanted, hostold"
    assert {word: words(text)[word] for word in ("owed", "told", "whoever", "wanted")} == {
        "owed": 2,
        "told": 1,
        "whoever": 1,
        "wanted": 0,
    }
