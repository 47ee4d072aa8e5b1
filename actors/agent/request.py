"""A request: what is asked of an agent or a run, checked once, when it is made, and how far it has come."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import attrs
import trio

from proctor.actors.delivery import Delivery, Sent, Stage
from proctor.actors.limits.spend_limits import INSIDE_TURN
from proctor.actors.plan.option_checks import check_request
from proctor.actors.plan.options import OnCrash
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.process.ends import delivery_of
from proctor.actors.structured.payloads import Payload, attachments_of
from proctor.protocols.attachment import Attachment
from proctor.protocols.vocabulary import Prompt

if TYPE_CHECKING:
    from proctor.actors.store.journal import Journal
    from proctor.actors.structured.structured import StructuredRequest
    from proctor.actors.tracing.spans import TurnTrace

CONTINUE_PROMPT = "Continue where you stopped."
"""The prompt of a resumed conversation whose turn was cut off."""


@attrs.define(eq=False)
class Request:
    """A request of an agent or a run.

    `ticket` is its id, `text` the next prompt, `attachments` go with it, `inquiry` is its schema. `timeout` is in seconds from
    `asked`, and `ends` that instant on Trio's clock (infinite: no limit).

    `prompt` is the id of its last attempt, None before the first; `sent` says whether that attempt may have reached the
    CLI, `written` whether any attempt has. Once a turn has `started` for it, the prompt is in the session and is continued
    instead of repeated. `admitted`: it has left the queue. `held` is the process of its last attempt. `nested`: a tool of a
    running turn made it. `continues`: its last attempt continued the cut turn instead of repeating the prompt. `journal`: that of
    one with a key. `trace`: its spans, where the program traces.
    """

    ticket: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    inquiry: StructuredRequest | None = None
    timeout: float | None = None
    asked: float = attrs.field(factory=trio.current_time)
    ends: float = math.inf
    prompt: str | None = None
    sent: bool = False
    started: bool = False
    parked: bool = False
    withdrawn: bool = False
    attempts: int = 0
    admitted: bool = False
    held: AgentProcess | None = None
    written: Sent = "no"
    nested: bool = attrs.field(factory=INSIDE_TURN.get)
    continues: bool = False
    journal: Journal | None = None
    trace: TurnTrace | None = None

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
            # loads the JSON schemas, which few requests need
            from proctor.actors.structured.structured import structured_request_of

            request.inquiry = structured_request_of(schema)
        if timeout is not None:
            request.ends = request.asked + timeout
        return request

    @property
    def is_answered(self) -> bool:
        """Whether a valid answer was submitted; nothing that follows matters."""
        return self.inquiry is not None and self.inquiry.met

    def delivery(self, text: str = "", *, clipped: bool = False) -> Delivery:
        """The progress of the request. `text` is the answer as far as it was streamed; `clipped` if that is not all of it."""
        elapsed = trio.current_time() - self.asked
        if self.held is not None:
            found = delivery_of(self.held, sent=self.written, elapsed=elapsed, text=text, clipped=clipped)
            return attrs.evolve(found, stage="parked") if self.parked else found
        waits: Stage = "parked" if self.parked else "starting" if self.admitted else "queued"
        return Delivery(sent=self.written, stage=waits, elapsed=elapsed, text=text)

    def correct(self, text: str) -> None:
        """Ask next for a correction of an answer that does not match the schema; `text` lists the errors."""
        self.text, self.started = text, False
        # the process has the attachments already, unless each attempt has one of its own
        if self.inquiry is None or not self.inquiry.forgets:
            self.attachments = ()

    @property
    def may_go_on(self) -> bool:
        """Whether a store keeps it, and it is gone on with when its agent runs again after it was stopped."""
        return self.journal is not None and self.journal.mark is not None and self.journal.mark.may_go_on

    def survives_exit(self, on_crash: OnCrash) -> bool:
        """Whether it is sent again after the process that had it has ended."""
        return not (self.withdrawn or self.is_answered) and (
            self.parked or not self.sent or on_crash != "fail"
        )

    def next_prompt(self, on_crash: OnCrash) -> Prompt:
        """The prompt to send now, under a new id each time."""
        self.prompt = self.ticket if self.prompt is None else str(uuid.uuid4())
        self.sent = self.parked = False
        self.attempts += 1
        if self.journal is not None and self.journal.mark is not None:
            on_crash = (
                self.journal.mark.on_crash
            )  # as it was sent, also when its agent has another plan by now
        self.continues = self.started and on_crash == "resume"
        schema = None if self.inquiry is None else self.inquiry.turn_schema
        if self.continues:
            return Prompt(self.prompt, CONTINUE_PROMPT, schema=schema)  # the session has the rest already
        return Prompt(self.prompt, self.text, attachments=self.attachments, schema=schema)
