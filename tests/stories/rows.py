"""What the dialects differ by, as data: the words a dialect has, and the endings that its wire has no word for.

A new dialect is one row here, beside its one in `SPOKEN`. Capabilities that the dialect itself declares are words too.

Words: `session` (more than one turn), `whole blocks` (text is told when its block ends), `text at the end` (it is told
when something else begins), `tool first` or `tool late` (a call is told before the question about it, or after),
`free tools` (a tool runs unasked), `goes on when refused`, `refusal shown`, `abort shown`, `thinking`, `retries`,
`limits`, `answer is text` (a structured answer is the last text), `unasked turns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from proctor.actors.scripted.launch import SPOKEN
from tests.stories.stories import Story

SESSION = frozenset({"session", "interrupt", "approvals", "deltas", "free tools", "resume"})


@attrs.frozen(kw_only=True)
class Row:
    """One dialect. `endings`: what an ending comes out as where the wire cannot tell it; `tokens`: whole stories that
    this CLI tells in its own way, by name."""

    words: frozenset[str]
    endings: Mapping[str, str] = attrs.field(factory=dict[str, str])
    tokens: Mapping[str, Sequence[str]] = attrs.field(factory=dict[str, Sequence[str]])


BY_TEXT: Mapping[str, str] = {}

ROWS: Mapping[str, Row] = {
    "claude": Row(
        words=SESSION
        | {"whole blocks", "tool first", "goes on when refused", "refusal shown", "abort shown"}
        | {"thinking", "retries", "limits", "structured_output", "unasked turns"}
    ),
    "codex": Row(
        words=SESSION
        | {"whole blocks", "tool first", "goes on when refused", "refusal shown", "answer is text"}
        | {"thinking", "retries", "limits", "unasked turns"}
    ),
    "codex-exec": Row(
        words=frozenset({"free tools", "whole blocks", "thinking", "retries", "limits", "answer is text"}),
        endings={"model_refused": "error"},
    ),
    "opencode": Row(
        words=SESSION | {"text at the end", "tool first", "thinking", "abort shown"},
        endings=BY_TEXT,
    ),
    "gemini": Row(
        words=SESSION | {"text at the end", "tool first", "goes on when refused", "thinking"},
        endings=BY_TEXT,
    ),
    "acp": Row(
        words=SESSION
        | {
            "text at the end",
            "tool first",
            "goes on when refused",
            "refusal shown",
            "thinking",
            "abort shown",
        },
        endings=BY_TEXT,
    ),
    "opencode-run": Row(words=frozenset({"free tools", "whole blocks", "thinking"}), endings=BY_TEXT),
}


def words_of(name: str) -> frozenset[str]:
    """Everything that a dialect can, by its row and by its own account."""
    return ROWS[name].words | SPOKEN[name].dialect.capabilities.keys()


def tells(name: str, story: Story) -> bool:
    """Whether this dialect can tell the story at all."""
    return story.needs <= words_of(name)


def expected(name: str, story: Story) -> list[str]:
    """The tokens of a story as this dialect is to tell them."""
    row, words = ROWS[name], words_of(name)
    if story.name in row.tokens:
        return list(row.tokens[story.name])
    kept = [rest for token in story.tokens if (rest := token_for(words, token)) is not None]
    return [ending(row, token) for token in kept]


def token_for(words: frozenset[str], token: str) -> str | None:
    while token.startswith("["):
        word, _, token = token.removeprefix("[").partition("] ")
        if word not in words:
            return None
    return token


def ending(row: Row, token: str) -> str:
    kind, _, rest = token.partition(" ")
    return f"end {row.endings.get(rest, rest)}" if kind == "end" else token
