"""A request: what is asked of an agent or a run, checked once, when it is made."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from typing import Self

import attrs
import trio

from proctor.actors.plan.option_checks import check_request
from proctor.actors.structured.payloads import Payload, attachments_of
from proctor.actors.structured.structured import StructuredRequest, structured_request_of
from proctor.protocols.attachment import Attachment


@attrs.define(eq=False)
class Request:
    """`text` is the next prompt; `attachments` go with it; `inquiry` is its schema. `timeout` is in seconds from `asked`, and
    `ends` that instant on Trio's clock (infinite: no limit). `ticket` is its id."""

    ticket: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    inquiry: StructuredRequest | None = None
    timeout: float | None = None
    asked: float = attrs.field(factory=trio.current_time)
    ends: float = math.inf

    @classmethod
    def make(
        cls,
        prompt: str,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Self:
        """Check what a caller gave. Raises `BadOption`, and `UnsupportedPayload` for a payload of an unknown type."""
        # a plain text alone needs no table of rules: each prompt passes here
        is_text = isinstance(prompt, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        plain = is_text and prompt.isascii() and "\0" not in prompt and prompt.strip()
        if timeout is not None or payloads or not plain:
            check_request(prompt, timeout=timeout, payloads=payloads)
        request = cls(str(uuid.uuid4()), prompt, timeout=timeout)
        if payloads:
            request.attachments = attachments_of(payloads)
        if schema is not None:
            request.inquiry = structured_request_of(schema)
        if timeout is not None:
            request.ends = request.asked + timeout
        return request
