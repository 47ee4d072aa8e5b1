"""How long each slow test takes, by tests/durations.txt: who begins first, and what `make quick` leaves out.

`python -m tests.durations REPORT` writes the file from a JUnit report of a whole run (`make durations`: of the gate's
last one). A test that is not in it is fast.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".txt")
SLOW = 0.1
"""Seconds of its longest case from which a test is slow."""

TOGETHER = {
    "tests/house/": "the syntax of the sources",
    "tests/browser/": "the browser",
    "tests/simulation/test_model.py": "what the model foretells",
    "tests/runtime/test_ledger.py": "the key of a made-up host",
    "tests/proctor/test_leftovers.py": "the key of a made-up host",
    "tests/actors/test_host.py": "the key of a made-up host",
}
"""Modules, and folders, whose tests go to one worker → what they share: a cache that another worker would fill once more,
or what all workers have from the collection and a test sweeps by."""

FAST = 0.02
"""Seconds that a fast test takes, about."""

GROUP = 2.0
"""Seconds that a worker is given at once: the last of them waits so long for no other, and shares a module's fixtures."""


@cache
def durations() -> Mapping[str, float]:
    """The seconds of the longest case of each slow test, by its node id without parameters."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def seconds_of(item: pytest.Item) -> float:
    """What a test took, 0 for a fast one."""
    return durations().get(item.nodeid.partition("[")[0], 0.0)


def is_slow(item: pytest.Item) -> bool:
    """Whether `--quick` leaves it out."""
    return item.nodeid.partition("[")[0] in durations()


def groups(
    items: Sequence[pytest.Item], seconds: Callable[[pytest.Item], float] = seconds_of
) -> list[list[int]]:
    """The numbers of the tests in groups for one worker after the other: parts of a module, what takes longest first."""
    places: dict[str, list[tuple[int, float]]] = {}
    for number, item in enumerate(items):
        places.setdefault(_place(item), []).append((number, max(seconds(item), FAST)))
    found: list[tuple[float, list[int]]] = []
    for place, tests in places.items():
        if place in TOGETHER.values():
            found.append((sum(each for _, each in tests), [number for number, _ in tests]))
        else:
            found += _parts(tests)
    return [numbers for _, numbers in sorted(found, key=lambda part: part[0], reverse=True)]


def _place(item: pytest.Item) -> str:
    """The module of a test, or what it shares with others."""
    path = item.nodeid.partition("::")[0]
    return next((shared for place, shared in TOGETHER.items() if path.startswith(place)), path)


def _parts(tests: Iterable[tuple[int, float]]) -> Iterator[tuple[float, list[int]]]:
    """The tests of a module in parts of about `GROUP` seconds, each with what it takes."""
    part: list[int] = []
    total = 0.0
    for number, seconds in tests:
        if part and total + seconds > GROUP:
            yield total, part
            part, total = [], 0.0
        part.append(number)
        total += seconds
    yield total, part


def read(report: Path) -> dict[str, float]:
    """The slow tests of a report."""
    found: dict[str, float] = {}
    for case in ET.parse(report).iter("testcase"):
        name, seconds = _node_id(case), float(case.get("time", "0"))
        found[name] = max(found.get(name, 0.0), seconds)
    return {name: seconds for name, seconds in found.items() if seconds >= SLOW}


def _node_id(case: ET.Element) -> str:
    """`tests/a/test_b.py::TestC::test_d` for the class name `tests.a.test_b.TestC` and the name `test_d[1]`."""
    path, _, inside = case.get("classname", "").partition(".Test")
    classes = [f"Test{inside}"] if inside else []
    return "::".join((path.replace(".", "/") + ".py", *classes, case.get("name", "").partition("[")[0]))


def main(report: str) -> None:
    """Write the file."""
    found = read(Path(report))
    FILE.write_text("".join(f"{found[name]:.1f} {name}\n" for name in sorted(found)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
