"""The part of OpenCode's log that its protocol leaves out: a call to the model broke, and is repeated.

Over the protocol the pieces of a call that broke, which are void, and those of the next are chunks of one message with
nothing between them (1.18.33). Its log, on stderr, has a line `process` when a step of a turn begins, with the id of
its message, and a line `stream` before each call of the model for that step. So a second `stream` is another attempt,
and voids the pieces of the message before. Calls for a title are of no step.

A log of another form tells nothing, and costs nothing but this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from proctor.protocols.acp import begin, void
from proctor.protocols.dialect import Memo, Out
from proctor.protocols.vocabulary import HOST, Notice, Retrying

ARGUMENTS: Mapping[str, tuple[str, ...]] = {"--print-logs": (), "--log-level": ("INFO",)}
"""Flag → its value: what has this log written."""

_PAIR = re.compile(rb'([\w.]+)=("(?:[^"\\]|\\.)*+"|[^"\s]*+)')
_SESSION = "session.id"
_ERRORS = ("error.error.message", "error.error")


@attrs.define
class Step:
    """A step of a session's turn: the id of its message, the calls made for it, why the last of them broke."""

    message: str
    calls: int = 0
    error: str | None = None


def arguments(named: tuple[str, ...]) -> tuple[str, ...]:
    """The flags behind the command that turn the log on, without those `named` already."""
    flags = {part.partition("=")[0] for part in named}
    return tuple(part for flag, value in ARGUMENTS.items() if flag not in flags for part in (flag, *value))


def read_log(memo: Memo, line: bytes) -> Out:
    """The events of a line of the log; most give none."""
    fields = _pairs(line) if line.startswith(b"timestamp=") else {}
    session, steps = fields.get(_SESSION), _steps(memo)
    # `small` is the model for titles: its calls belong to no step.
    if session is None or fields.get("small") == "true":
        return ()
    step = steps.get(session)
    match fields.get("message"):
        case "process" if fields.get("level") == "INFO":
            # A new step: calls before it must not be taken for attempts of this one.
            steps[session] = Step(fields.get("messageID", ""))
        case "exiting loop":
            steps.pop(session, None)
        case "stream error" if step is not None:
            return _broken(memo, session, step, fields)
        case "stream" if step is not None:
            step.calls += 1
            return _again(memo, session, step) if step.calls > 1 else ()
        case _:
            pass
    return ()


def _broken(memo: Memo, session: str, step: Step, fields: Mapping[str, str]) -> Out:
    step.error = next((fields[name] for name in _ERRORS if name in fields), None)
    data = {"parent": _parent(memo, session)}
    return (Notice(HOST, memo.turn, "model_call_failed", step.error or "a call of the model failed", data),)


def _again(memo: Memo, session: str, step: Step) -> Out:
    parent = _parent(memo, session)
    # The log may be ahead of the protocol: the turn begins before its first retry is reported.
    begun = begin(memo) if parent is None else []
    voided = void(memo, step.message, parent)
    error, step.error = step.error, None
    if parent is not None:
        return tuple(voided)
    return (*begun, *voided, Retrying(HOST, memo.turn, step.calls - 1, error=error))


def _parent(memo: Memo, session: str) -> str | None:
    return None if session == memo.session_id else session


def _steps(memo: Memo) -> dict[str, Step]:
    steps: dict[str, Step] = memo.own.setdefault("log", {})
    return steps


def _pairs(line: bytes) -> dict[str, str]:
    return {key.decode(): _text(value) for key, value in _PAIR.findall(line)}


def _text(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    if not text.startswith('"'):
        return text
    try:
        read: Any = json.loads(text, strict=False)
    except ValueError:
        return text
    return str(read)
