"""The prompt of `proctor run`: a word of the command line, or all of stdin, as UTF-8."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import trio

from proctor.actors.errors import BadOption

STDIN = "-"


def separate_prompt(argv: list[str], valued: frozenset[str]) -> list[str]:
    """Move words that look like options but cannot be one after `--`, where the parser leaves them alone.

    These are `-` alone, and a word that starts with a dash and contains a blank. `valued` names the options whose value
    is the next word.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    kept, moved = list[str](), list[str]()
    # a value that begins with a dash belongs to the option before it and stays there
    for before, word in zip(["", *argv], argv[:end], strict=False):
        is_value = before in valued
        (moved if not is_value and _is_no_option(word) else kept).append(word)
    behind = [*moved, *argv[end + 1 :]]
    return [*kept, "--", *behind] if behind else kept


def _is_no_option(word: str) -> bool:
    name = word.partition("=")[0]
    return word == STDIN or (word.startswith("-") and any(c.isspace() for c in name))


async def prompt_of(word: str | None) -> str:
    """The prompt that `word` stands for. Raises `BadOption`."""
    if word is not None and word != STDIN:
        return text_of(os.fsencode(word), "the prompt")
    if word is None and _is_terminal():
        raise BadOption("no prompt: give one after the agent, or - to type it here and end it with Ctrl-D")
    # abandoned at Ctrl-C: nothing can wake a thread that reads a terminal
    return text_of(await trio.to_thread.run_sync(_read_stdin, abandon_on_cancel=True), "the prompt on stdin")


def check_word(word: str | None) -> None:
    """Check a prompt on the command line before anything is read. Raises `BadOption`."""
    if word is not None and word != STDIN:
        # back to the bytes of the command line: Python decoded bad UTF-8 into surrogates, which no agent
        # accepts
        text_of(os.fsencode(word), "the prompt")


def text_of(data: bytes, what: str) -> str:
    """Decode UTF-8. Raises `BadOption` for an empty text, or with the position of the first bad byte."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = f"byte {error.start} is {data[error.start]:#04x}"
        raise BadOption(f"{what} is not UTF-8: {bad}, counted from 0") from None
    if not text.strip():
        raise BadOption(f"{what} is empty")
    return text


def _is_terminal() -> bool:
    stdin: object = sys.stdin
    return stdin is not None and os.isatty(0)


def _read_stdin() -> bytes:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed at the start: None
        raise BadOption("stdin is closed: there is no prompt to read")
    return _all_of(lambda: os.read(0, 1 << 20))


def _all_of(read: Callable[[], bytes]) -> bytes:
    parts = list[bytes]()
    try:
        while part := read():
            parts.append(part)
    except OSError as error:
        raise BadOption(f"stdin cannot be read: {error.strerror or error}") from None
    return b"".join(parts)
