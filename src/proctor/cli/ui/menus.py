"""Questions of an agent to its user as menus: items with options, and what was typed as an answer.

All CLIs come here in one shape: the tool's input has `questions`, each with its text, a short header and options; the
answers go back in the tool's input as `answers`, by the question's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import attrs

from proctor.protocols.vocabulary import ApprovalRequested

ASKING = frozenset({"AskUserQuestion", "request_user_input", "question"})
"""The tools by which agents ask their user."""


@attrs.frozen
class Item:
    """One question. `options` are labels with what they mean; `several` may be chosen together."""

    question: str
    header: str = ""
    options: tuple[tuple[str, str], ...] = ()
    several: bool = False

    def shown(self) -> str:
        """The menu, with what to type."""
        head = f"{self.header}: {self.question}" if self.header else self.question
        lines = [
            f"  {number}. {label}{f': {meaning}' if meaning else ''}"
            for number, (label, meaning) in enumerate(self.options, 1)
        ]
        how = "numbers with commas" if self.several else "a number"
        asked = f"{how}, or an answer of your own: " if self.options else "your answer: "
        return "\n".join((head, *lines, asked))

    def chosen(self, typed: str) -> str:
        """The labels of the numbers that were typed, else the text itself."""
        numbers = [part.strip() for part in typed.split(",")] if self.several else [typed]
        labels = [label for label, _ in self.options]
        if all(
            number.isascii() and number.isdigit() and 0 < int(number) <= len(labels) for number in numbers
        ):
            return ", ".join(labels[int(number) - 1] for number in numbers)
        return typed


def items_of(question: ApprovalRequested) -> list[Item]:
    """The questions in an approval, empty for a tool that asks nothing."""
    if question.tool not in ASKING:
        return []
    return [_item(one) for one in _tables(question.input.get("questions"))]


def _item(one: Mapping[str, Any]) -> Item:
    options = tuple(
        (_text(option, "label"), _text(option, "description")) for option in _tables(one.get("options"))
    )
    several = one.get("multiSelect") is True or one.get("multiple") is True
    return Item(_text(one, "question"), _text(one, "header"), options, several)


def _tables(value: object) -> list[Mapping[str, Any]]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", one) for one in listed if isinstance(one, Mapping)]


def _text(table: Mapping[str, Any], key: str) -> str:
    return value if isinstance(value := table.get(key), str) else ""
