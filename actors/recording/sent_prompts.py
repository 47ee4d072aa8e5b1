"""The texts that a host has sent to a command line, read back from the recorded input (`stdin.ndjson`).

Frames of Claude Code carry the id of their request. The other wires number their messages on their own, so their texts are matched
by order: the first request of a process has the first text that was sent to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Sort = Literal["prompt", "steer"]


class _Block(msgspec.Struct, frozen=True, gc=False):
    text: str = ""


class _Message(msgspec.Struct, frozen=True, gc=False):
    content: str | list[_Block] = ""


class _Params(msgspec.Struct, frozen=True, gc=False):
    prompt: list[_Block] = []
    input: list[_Block] = []


class _Body(msgspec.Struct, frozen=True, gc=False):
    parts: list[_Block] = []


class _Sent(msgspec.Struct, frozen=True, gc=False):
    """A line of a host, as far as it may be a prompt: of Claude's wire, of ACP, of Codex, of an OpenCode server."""

    type: str = ""
    uuid: str = ""
    method: str = ""
    path: str = ""
    message: _Message = _Message()
    params: _Params = _Params()
    body: _Body = _Body()


class SentText(msgspec.Struct, frozen=True, gc=False):
    """A text that was sent. `id` is that of its request, empty where the wire does not carry it."""

    sort: Sort
    id: str
    text: str


def sent_text(line: bytes) -> SentText | None:
    """The text in a line of the input; None where it has none."""
    try:
        sent = msgspec.json.decode(line, type=_Sent)
    except msgspec.DecodeError:
        return None
    blocks: str | list[_Block] = ""
    if sent.type == "user":
        blocks = sent.message.content
    elif sent.method == "session/prompt":
        blocks = sent.params.prompt
    elif sent.method in ("turn/start", "turn/steer"):
        blocks = sent.params.input
    elif sent.path.endswith("/prompt_async"):
        blocks = sent.body.parts
    text = blocks if isinstance(blocks, str) else "\n".join(block.text for block in blocks if block.text)
    return SentText("steer" if sent.method == "turn/steer" else "prompt", sent.uuid, text) if text else None


def plain_prompt(stdin: bytes, argv: Sequence[str]) -> str | None:
    """The prompt of a run that got it as plain text: on stdin, or behind `-p` among its arguments."""
    text = stdin.decode("utf-8", "replace")
    if text.strip():
        return text
    pairs = itertools.pairwise(argv)
    return next((text for flag, text in pairs if flag in ("-p", "--print") and text[:1] != "-"), None)


class SentPrompts:
    """The texts of one process, by the id of their request or by their order."""

    def __init__(self, texts: Iterable[SentText]) -> None:
        self._by_id: dict[str, str] = {}
        self._in_order: dict[Sort, list[str]] = {"prompt": [], "steer": []}
        for sent in texts:
            if sent.id:
                self._by_id[sent.id] = sent.text
            else:
                self._in_order[sent.sort].append(sent.text)

    @classmethod
    def read(cls, stdin: bytes, argv: Sequence[str] = ()) -> SentPrompts:
        """Read them from the input of a process; `argv` is its command line, which may hold the prompt of a single run."""
        lines = [line for line in stdin.split(b"\n") if line.strip()]
        texts = [sent for line in lines if (sent := sent_text(line)) is not None]
        if not texts and (plain := plain_prompt(b"" if _has_frames(lines) else stdin, argv)) is not None:
            texts = [SentText("prompt", "", plain)]
        return cls(texts)

    def take(self, request: str, sort: Sort = "prompt") -> str | None:
        """The text of this request; without its id on the wire, the next one. None where there is none left."""
        if (text := self._by_id.get(request)) is not None:
            return text
        left = self._in_order[sort]
        return left.pop(0) if left else None


class _Frame(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    method: str = ""
    verb: str = ""


def _has_frames(lines: Sequence[bytes]) -> bool:
    """Whether the input is that of a protocol: a prompt that is sent as plain text may be JSON, too."""
    try:
        first = msgspec.json.decode(lines[0], type=_Frame) if lines else _Frame()
    except msgspec.DecodeError:
        return False
    return bool(first.type or first.method or first.verb)
