"""A text that a regular expression matches, as far as one can be made by reading it.

What is read: letters, classes, groups, alternatives, repetitions and anchors, as JSON schemas write them. What looks
around or back is not: then there is no text. The first alternative and the fewest repetitions are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

_ESCAPES: Mapping[str, str] = {
    "d": "1", "D": "a", "w": "a", "W": "-", "s": " ", "S": "a", "b": "", "A": "", "Z": "", "z": "",
    "n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v",
}  # fmt: skip
_REPEATED = re.compile(r"\{(\d+)(?:,\d*)?\}[?+]?")
_PLAIN = re.compile(r"\?(:|P?<\w+>)")
"""What a group may begin with that neither looks around nor back."""

_ANYTHING = "aA1 -_.:/b2Zz~!"
_LONGEST = 1000


class _NotReadError(Exception):
    pass


@attrs.define
class _Reader:
    pattern: str
    most: int
    at: int = 0

    @property
    def next(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        if not (taken := self.next):
            raise _NotReadError
        self.at += 1
        return taken

    def alternatives(self) -> str:
        first = self.sequence()
        while self.next == "|":
            self.at += 1
            self.sequence()
        return first

    def sequence(self) -> str:
        made = ""
        while self.next not in ("", "|", ")"):
            made += self.repeated(self.piece())
        return made

    def repeated(self, piece: str) -> str:
        if (counted := _REPEATED.match(self.pattern, self.at)) is not None:
            self.at = counted.end()
            times = int(counted[1])
        elif self.next and self.next in "*?+":
            times = max(int(self.take() == "+"), self.most)
            self.at += self.next in ("?", "+") and bool(self.next)
        else:
            return piece
        if times * len(piece) > _LONGEST:
            raise _NotReadError
        return piece * times

    def piece(self) -> str:
        match self.take():
            case "(":
                return self.group()
            case "[":
                return self.choice()
            case "\\":
                return self.escaped(self.take())
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case letter:
                return letter

    def group(self) -> str:
        if self.next == "?":
            if (opened := _PLAIN.match(self.pattern, self.at)) is None:
                raise _NotReadError
            self.at = opened.end()
        inner = self.alternatives()
        if self.take() != ")":
            raise _NotReadError
        return inner

    def escaped(self, letter: str) -> str:
        if letter.isdigit() or letter in "BkpPuxc":
            raise _NotReadError
        return _ESCAPES.get(letter, letter)

    def choice(self) -> str:
        start = self.at - 1
        self.at += self.next == "^"
        self.at += self.next == "]"
        while (letter := self.take()) != "]":
            self.at += letter == "\\"
        return _one_of(self.pattern[start : self.at])


def _one_of(choice: str) -> str:
    inside = re.compile(choice)
    for candidate in (*filter(str.isalnum, choice), *_ANYTHING, *choice[1:-1]):
        if inside.fullmatch(candidate):
            return str(candidate)
    raise _NotReadError


def matching(pattern: str, least: int = 0) -> str | None:
    """A text that the pattern is found in, of at least `least` characters where repetitions allow it; None for none."""
    for most in dict.fromkeys((0, 1, least)):
        try:
            text = _Reader(pattern, most).alternatives()
            if len(text) >= least and _is_found(pattern, text):
                return text
        except (_NotReadError, re.error, RecursionError):
            continue
    return None


def _is_found(pattern: str, text: str) -> bool:
    """Asked of the checker of schemas, which gives up on a pattern without an end; `re` would go on for ever."""
    from jsonschema_rs import validator_for

    try:
        return validator_for({"pattern": pattern}).is_valid(text)
    except ValueError:
        return False
