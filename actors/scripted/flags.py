"""The command line of the scripted agent: the flags of the real CLI that change what it does, and its own three.

A flag that is not known is accepted, with the word after it, and ignored; what the real CLI refuses with exit 1 is
refused with the same line.
"""

from __future__ import annotations

import os

from proctor.actors.scripted.script import ScriptError, is_uuid, read_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BARE = frozenset(
    """
    p print verbose include-partial-messages strict-mcp-config fork-session replay-user-messages continue c bare
    no-session-persistence dangerously-skip-permissions disable-slash-commands include-hook-events restricted
    forward-subagent-text debug version v session-mirror
    """.split()  # noqa: SIM905
)
"""Flags that take no value: the word after one of them is not theirs."""

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

    def __init__(self, argv: list[str]) -> None:
        self.values: dict[str, list[str]] = {}
        self.words: list[str] = []
        rest = list(argv)
        while rest:
            self.take(rest.pop(0), rest)
        self.script = self.one("script")
        specs = [*self.values.get("fault", []), *separate(os.environ.get("PROCTOR_FAULT", ""))]
        self.faults = [read_fault(spec) for spec in specs]
        self.speed = self.number("speed")
        self.session = self.one("input-format") == "stream-json"
        self.output = self.one("output-format", "text")
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
        elif name not in BARE and rest and not rest[0].startswith("-"):
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

    def check(self) -> None:
        """Raise UsageError where the real CLI would leave with exit 1."""
        wanted = self.one("session-id")
        if self.session and self.output != "stream-json":
            raise UsageError("Error: --input-format=stream-json requires output-format=stream-json.")
        if self.output == "stream-json" and not self.has("verbose"):
            raise UsageError("Error: When using --print, --output-format=stream-json requires --verbose")
        if wanted and not is_uuid(wanted):
            raise UsageError("Error: Invalid session ID. Must be a valid UUID.")
        if wanted and self.resume is not None and not self.has("fork-session"):
            raise UsageError("Error: --session-id with --continue or --resume also needs --fork-session.")


def separate(text: str) -> list[str]:
    """The words of a list, between commas or blanks."""
    return text.replace(",", " ").split()
