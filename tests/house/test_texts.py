from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.house.tree import ROOT, listed, name_of, sources

# What was recorded elsewhere says where, and is left as it was.
RECORDED = ("tests/transcripts/", "examples/recorded/")
LOCKS = ("package-lock.json", "package.json", "constraints.txt", ".npmrc", "pyproject.toml")
BINARY = {".png", ".gif", ".gz", ".whl", ".pyc", ".zst", ".sqlite"}

PATTERNS: Mapping[str, str] = {
    "somebody's own folder": r"(?<![\w.$}~/-])/(?:root|work|home/(?!user\b|me\b)\w+|Users/\w+)(?:/\.?\w|\b(?=[\"'\s]))",
    "a reference to a tracker": r"(?i)\b(?:issues?|pull requests?|fixes|closes|tickets?) #?\d+\b|(?<=\s)\(#\d+\)",
    "work that is not done": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "a key": r"sk-ant-(?!test)[\w-]{8,}|ghp_\w{20,}|AKIA[A-Z0-9]{16}",
}
HOSTS = (
    r"https?://(?:[\w.-]+\.)?(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com)|\bregistry\.\w+"
)
PRIVATE = r"(?<![a-zA-Z])(?:[Tt]old|[Ss]aid|[Ww]anted(?!By=)|[Hh]eard|[Oo]wed|[Ww]hoever)(?![a-z])"
"""Words that have a standard one in the field, in prose and as a part of an identifier; `WantedBy=` is systemd's."""


def texts() -> Iterator[tuple[str, str]]:
    """Every text file that is or could be committed: its name and what it says."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()} | {".git"}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in ignored)
        for path in (Path(folder, name) for name in sorted(files) if name not in ignored):
            if path.suffix not in BINARY:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace")


def found(pattern: str, name: str, text: str) -> list[str]:
    return [f"{name}:{text.count(chr(10), 0, m.start()) + 1} {m[0]!r}" for m in re.finditer(pattern, text)]


@pytest.mark.parametrize("what", PATTERNS)
def test_no_text_names(what: str) -> None:
    own = (item for item in texts() if not item[0].startswith((*RECORDED, "tests/house/test_texts.py")))
    places = [place for name, text in own for place in found(PATTERNS[what], name, text)]
    assert places == [], listed(places)


def test_no_lock_or_setting_names_a_registry() -> None:
    own = (item for item in texts() if item[0].rpartition("/")[2] in LOCKS)
    assert [place for name, text in own for place in found(HOSTS, name, text)] == []


def test_every_pin_is_exact() -> None:
    pins = (ROOT / "constraints.txt").read_text().split()
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []


def test_every_requirement_is_pinned() -> None:
    pinned = {
        pin.split("==")[0].lower().replace("_", "-") for pin in (ROOT / "constraints.txt").read_text().split()
    }
    settings = (ROOT / "pyproject.toml").read_text()
    required = {name.lower() for name in re.findall(r"\"([\w-]+)(?:\[\w+\])?>=[\d.]+\"", settings)}
    assert len(required) > 10
    assert required - pinned == set()


def test_the_library_uses_the_standard_words() -> None:
    places = [place for path in sources() for place in found(PRIVATE, name_of(path), path.read_text("utf-8"))]
    assert places == [], listed(places)


@pytest.mark.parametrize(
    ("what", "text", "count"),
    [
        ("somebody's own folder", f"see /home/ann/x and '/{'root'}/.ssh'", 2),
        ("somebody's own folder", f"a/{'root'}/b ~/{'work'}/x $HOME/{'work'} /home/user/x", 0),
        ("a reference to a tracker", "fixes #12, see issue 7", 2),
        ("a reference to a tracker", "R064 and M22; the issue is time", 0),
    ],
)
def test_the_search_finds(what: str, text: str, count: int) -> None:
    assert len(found(PATTERNS[what], "x", text)) == count


def test_a_word_is_seen_in_prose_and_in_an_identifier() -> None:
    text = "def take_owed(self): told = OwedFrames()  # whoever waits; unwanted, hostold, retold"
    assert [each.rpartition(" ")[2] for each in found(PRIVATE, "x", text)] == [
        "'owed'",
        "'told'",
        "'Owed'",
        "'whoever'",
    ]
