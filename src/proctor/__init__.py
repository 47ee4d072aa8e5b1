"""Coding-agent command lines as supervised actors."""

from pathlib import Path

if not (Path(__file__).parent / "runtime").is_dir():  # a checkout that lost its links
    __path__.append(str(Path(__file__).parents[2]))
