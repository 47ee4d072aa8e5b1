"""The command line of the scripted agent: its own four flags, and those of the real CLI behind them.

A flag that is not known is accepted, with the word after it, and ignored; which flags take no word is the wire's to
say.
"""

from __future__ import annotations

import os

from proctor.actors.scripted.script import ScriptError, read_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

OTHER_NAMES: Mapping[str, str] = {
    "r": "resume",
    "allowedTools": "allowed-tools",
    "disallowedTools": "disallowed-tools",
}
MANY = frozenset(("allowed-tools", "disallowed-tools", "mcp-config", "add-dir", "tools"))


class UsageError(Exception):
    """An argument that the real CLI refuses too: exit 1, one line on stderr."""


class Flags:
    """The command line. A flag that is not known is accepted, with the word after it, and ignored."""

    def __init__(self, argv: list[str], bare: frozenset[str]) -> None:
        self.bare = bare
        self.values: dict[str, list[str]] = {}
        self.words: list[str] = []
        rest = list(argv)
        while rest:
            self.take(rest.pop(0), rest)
        self.script = self.one("script")
        specs = [*self.values.get("fault", []), *separate(os.environ.get("PROCTOR_FAULT", ""))]
        self.faults = [read_fault(spec) for spec in specs]
        self.speed = self.number("speed")
        self.resume = self.one("resume") if "resume" in self.values else None
        self.allowed = {name for text in self.values.get("allowed-tools", []) for name in separate(text)}

    def take(self, word: str, rest: list[str]) -> None:
        if not word.startswith("-") or word == "-":
            self.words.append(word)
            return
        name, equals, value = word.lstrip("-").partition("=")
        name = OTHER_NAMES.get(name, name)
        if not name.replace("-", "").isalnum():
            raise UsageError(f"error: unknown option '{word}'")
        values = self.values.setdefault(name, [])
        if equals:
            values.append(value)
        elif name not in self.bare and rest and not rest[0].startswith("-"):
            values.append(rest.pop(0))
            while name in MANY and rest and not rest[0].startswith("-"):
                values.append(rest.pop(0))

    def one(self, name: str, default: str = "") -> str:
        return (self.values.get(name) or [default])[-1]

    def number(self, name: str) -> float:
        try:
            return float(self.one(name, "0"))
        except ValueError as error:
            raise ScriptError(f"--{name}", 0, str(error)) from None

    def has(self, name: str) -> bool:
        return name in self.values


def chosen_dialect(argv: list[str]) -> str:
    """The wire that the arguments ask for: needed before they are read, for it says which flags take no word."""
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == "--dialect":
            return value if equals else "".join(argv[place + 1 : place + 2])
    return "claude"


def separate(text: str) -> list[str]:
    """The words of a list, between commas or blanks."""
    return text.replace(",", " ").split()
