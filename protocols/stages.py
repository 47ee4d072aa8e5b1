"""The stages of decoding after the parser: the shape of a frame, and its validation.

    parse     bytes to a JSON object                     Garbled, any reason but `refused`
    shape     a JSON object to a frame of the protocol   Unrecognized, with an `error` or of the kind `untyped`
    meaning   content, checked by validators             Garbled, with the reason `refused`

A line fails at the first stage that it does not pass (`stage`). An unknown kind of frame passes: another version may have
more. Validators see only content (`CONTENT`). A refused end of a turn stays an end: the turn has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from proctor.protocols.vocabulary import (
    AnyEvent,
    Garbled,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    Unrecognized,
)

Validator = Callable[[AnyEvent], str | None]
"""Says why an event is refused, None when it is accepted. It must not wait, and not raise."""

CONTENT = (TextDelta, Text, Thinking, ToolCall, ToolResult, TurnEnded)
"""The events that validators are asked about."""


def is_misshapen(events: Sequence[object]) -> bool:
    """Whether a line gave nothing but what does not fit its protocol; a kind of frame that is not known is no such line."""
    return all(map(_is_unrecognized, events)) and any(map(_does_not_fit, events))


def _is_unrecognized(event: object) -> bool:
    return isinstance(event, Unrecognized)


def _does_not_fit(event: object) -> bool:
    return isinstance(event, Unrecognized) and (event.error is not None or event.kind == "untyped")


def refusal(event: object, validators: Sequence[Validator]) -> str | None:
    """Why the first of the validators refuses an event, None when all accept it."""
    if not isinstance(event, CONTENT):
        return None
    return next((why for validate in validators if (why := validate(event)) is not None), None)


def refused(event: AnyEvent, why: str) -> Iterator[AnyEvent]:
    """The events in the place of one that was refused."""
    yield Garbled(event.frame, event.turn, "refused", str(event.__struct_config__.tag), error=why)
    if isinstance(event, TurnEnded):
        error = f"a validator refused it: {why}"
        yield msgspec.structs.replace(event, ending="error", text=None, structured_output=None, error=error)
