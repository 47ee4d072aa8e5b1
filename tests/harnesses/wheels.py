"""Wheels of the programs whose formats and interfaces the tests check against, as `pins.txt` has them.

They are fetched by pip from the index that it is set up for, without what they depend on, into `build/harnesses`, once. A wheel is imported as it
is, so one for a newer Python can be read in parts by an older one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "build" / "harnesses"
SECONDS = 300


class NoWheel(Exception):
    """A wheel cannot be had on this machine; the text says why."""


def pins() -> dict[str, str]:
    """The version of each program."""
    lines = (HERE / "pins.txt").read_text().split()
    return dict(line.split("==") for line in lines)


def wheel(name: str) -> Path:
    """The wheel of a pinned program, fetched first where it is not there. Raises `NoWheel`."""
    version = pins()[name]
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not (there := [*FOLDER.glob(pattern)]):
        _fetch(f"{name}=={version}")
        there = [*FOLDER.glob(pattern)]
    if not there:
        raise NoWheel(f"pip has brought no {pattern}")
    return there[0]


def _fetch(requirement: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # of a Python that is new enough for all of them, whichever runs the tests
    FOLDER.mkdir(parents=True, exist_ok=True)
    # elsewhere, then renamed: of several workers of pytest none finds half a wheel
    with tempfile.TemporaryDirectory(dir=FOLDER) as part:
        options = ["--only-binary=:all:", "--python-version=3.13", f"--dest={part}", requirement]
        try:
            done = subprocess.run(
                [*pip, *options], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoWheel(f"pip has not brought {requirement} within {SECONDS} s") from None
        if done.returncode != 0:
            raise NoWheel(f"pip cannot bring {requirement}: {done.stderr.strip().splitlines()[-1:]}")
        for fetched in Path(part).iterdir():
            fetched.replace(FOLDER / fetched.name)
