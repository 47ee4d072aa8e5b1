"""What the dialects differ by, as data: the words a dialect has, and the endings that its wire has no word for.

A new dialect is one row here, beside its one in `SCRIPTED_WIRES`. Capabilities that the dialect itself declares are words too.

Words: `session` (more than one turn), `whole blocks` (text is told when its block ends), `text at the end` (it is told
when something else begins), `tool first` or `tool late` (a call is told before the question about it, or after),
`free tools` (a tool runs unasked), `tool input` (a call tells what the tool is given), `goes on when refused`, `refusal shown`, `abort shown`, `thinking`, `retries`,
`limits`, `answer is text` (a structured answer is the last text), `unasked turns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from proctor.actors.scripted.launch import SCRIPTED_WIRES
from tests.stories.stories import Story

SESSION = frozenset({"session", "interrupt", "approvals", "deltas", "free tools", "resume"})


@attrs.frozen(kw_only=True)
class Row:
    """One dialect. `endings`: what an ending comes out as where the wire cannot tell it; `tokens`: whole stories that
    this CLI tells in its own way, by name."""

    words: frozenset[str]
    endings: Mapping[str, str] = attrs.field(factory=dict[str, str])
    tokens: Mapping[str, Sequence[str]] = attrs.field(factory=dict[str, Sequence[str]])


JOINED: Mapping[str, Sequence[str]] = {
    text: ("begin", f"delta {text}fine", f"text {text}fine", f"end completed: {text}fine")
    for text in ("one two three", "begun")
}
"""Where messages have no names, two that follow each other are one."""

BY_STATUS: Mapping[str, str] = {"prompt_too_long": "invalid_request"}
"""Where an API's status says it all: a prompt that is too long is a request that is wrong."""

ROWS: Mapping[str, Row] = {
    "claude": Row(
        words=SESSION
        | {"whole blocks", "tool first", "goes on when refused", "refusal shown", "abort shown"}
        | {"tool input", "thinking", "retries", "limits", "structured_output", "unasked turns"},
    ),
    "claude-oneshot": Row(
        words=frozenset(
            {"deltas", "free tools", "tool input", "whole blocks", "thinking", "retries", "limits"}
        )
        | {"structured_output", "unasked turns"},
    ),
    "codex": Row(
        words=SESSION
        | {"whole blocks", "tool first", "goes on when refused", "refusal shown", "answer is text"}
        | {"tool input", "thinking", "retries", "limits", "unasked turns"},
    ),
    "codex-exec": Row(
        words=frozenset({"free tools", "tool input", "whole blocks", "thinking", "retries", "limits"})
        | {"answer is text"},
        endings={"model_refused": "error"},
    ),
    "opencode": Row(
        words=SESSION | {"text at the end", "tool first", "tool input", "thinking", "abort shown"},
    ),
    "opencode-run": Row(
        words=frozenset({"free tools", "tool input", "whole blocks", "thinking"}),
        endings={**BY_STATUS, "model_refused": "api_error"},
    ),
    "gemini": Row(
        words=SESSION
        | {"text at the end", "tool first", "goes on when refused", "refusal shown", "abort shown"}
        | {"thinking"},
        endings=BY_STATUS,
        tokens={
            "a text in pieces": JOINED["one two three"],
            "lines that are no frames": (
                "begin",
                "delta begun",
                "odd",
                "odd",
                "delta fine",
                *JOINED["begun"][2:],
            ),
            "a line that is too long": ("begin", "delta begun", "odd", "delta fine", *JOINED["begun"][2:]),
        },
    ),
    "acp": Row(
        words=SESSION
        | {"text at the end", "tool first", "goes on when refused", "refusal shown", "abort shown"}
        | {"tool input", "thinking"},
    ),
}


def words_of(name: str) -> frozenset[str]:
    """Everything that a dialect can, by its row and, in a session, by its own account. Tools of the host's are told where
    they are on the wire: where an MCP server brings them, a voice starts none."""
    wire = SCRIPTED_WIRES[name]
    declared = wire.dialect.capabilities.keys() if wire.mode == "session" else ()
    elsewhere = {"host_tools"} if wire.mode in wire.dialect.relayed else set[str]()
    return ROWS[name].words | frozenset(declared) - elsewhere


def tells(name: str, story: Story) -> bool:
    """Whether this dialect can tell the story at all."""
    return story.needs <= words_of(name)


def expected(name: str, story: Story) -> list[str]:
    """The tokens of a story as this dialect is to tell them."""
    row, words = ROWS[name], words_of(name)
    if story.name in row.tokens:
        return list(row.tokens[story.name])
    kept = [rest for token in story.tokens if (rest := token_for(words, token)) is not None]
    given = kept if "tool input" in words else [token.removesuffix(" ls") for token in kept]
    return [ending(row, token) for token in given]


def token_for(words: frozenset[str], token: str) -> str | None:
    while token.startswith("["):
        word, _, token = token.removeprefix("[").partition("] ")
        if word not in words:
            return None
    return token


def ending(row: Row, token: str) -> str:
    kind, _, rest = token.partition(" ")
    return f"end {row.endings.get(rest, rest)}" if kind == "end" else token
