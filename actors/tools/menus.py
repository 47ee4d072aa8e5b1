"""Questions of an agent to its user, as menus.

All CLIs have one shape here: the input of the tool has `questions`, each with a text, a short header and options. The
answers go back in the input as `answers`, by the text of the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import attrs

from proctor.protocols.vocabulary import ApprovalRequested

QUESTION_TOOLS = frozenset({"AskUserQuestion", "request_user_input", "question"})
"""Tools with which agents ask their user a question."""


@attrs.frozen
class MenuQuestion:
    """One question. `options` are labels with descriptions; with `several`, more than one may be chosen."""

    question: str
    header: str = ""
    options: tuple[tuple[str, str], ...] = ()
    several: bool = False

    def format(self) -> str:
        """Format the menu and its prompt."""
        head = f"{self.header}: {self.question}" if self.header else self.question
        lines = [
            f"  {number}. {label}{f': {description}' if description else ''}"
            for number, (label, description) in enumerate(self.options, 1)
        ]
        how = "numbers with commas" if self.several else "a number"
        asked = f"{how}, or an answer of your own: " if self.options else "your answer: "
        return "\n".join((head, *lines, asked))

    def answer(self, typed: str) -> str:
        """The labels of the typed numbers, or the typed text itself."""
        numbers = [part.strip() for part in typed.split(",")] if self.several else [typed]
        labels = [label for label, _ in self.options]
        if all(
            # isascii because isdigit also accepts superscripts, which int() refuses
            number.isascii() and number.isdigit() and 0 < int(number) <= len(labels)
            for number in numbers
        ):
            return ", ".join(labels[int(number) - 1] for number in numbers)
        return typed


def questions_of(question: ApprovalRequested) -> list[MenuQuestion]:
    """The questions in an approval; empty for any other tool."""
    if question.tool not in QUESTION_TOOLS:
        return []
    return [_item(one) for one in _tables(question.input.get("questions"))]


def _item(one: Mapping[str, Any]) -> MenuQuestion:
    options = tuple(
        (_text(option, "label"), _text(option, "description")) for option in _tables(one.get("options"))
    )
    several = one.get("multiSelect") is True or one.get("multiple") is True
    return MenuQuestion(_text(one, "question"), _text(one, "header"), options, several)


def _tables(value: object) -> list[Mapping[str, Any]]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", one) for one in listed if isinstance(one, Mapping)]


def _text(table: Mapping[str, Any], key: str) -> str:
    return value if isinstance(value := table.get(key), str) else ""
