"""A request for a structured answer: its attempts, the check of each, and the whole answer.

An accepted answer has no violations of the declared schema, whichever way it came, also where the CLI has
checked it. Once a valid answer was submitted the request is answered, whatever happens to its turn or its process. All
errors of an attempt go back to the agent in the next. A turn that ended for another reason (a limit, an error, an
interrupt) is not repeated. Cost, tokens, model turns and time are counted over all attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from proctor.actors.errors import BadOption
from proctor.actors.expense import Expense
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.structured.schemas import Schema, Violation, schema_of
from proctor.actors.structured.strategies import Case, Route, kept, launched_for, route_of
from proctor.actors.structured.submit import format_violations, submission_tools
from proctor.protocols.lenient import Refusal
from proctor.protocols.vocabulary import TurnEnded

ATTEMPTS = 3

_JUDGED = ("completed", "schema_unmet")
"""Endings of a turn that was an attempt."""

_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_QUOTED = 4000
"""Characters of the previous answer that are quoted to an agent without a memory."""


def _count(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadOption(f"attempts must be a whole number of at least 1, got {value!r}")


def _dollars(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise BadOption(f"max_cost_usd must be a number of US dollars above 0, got {value!r}")


@attrs.frozen
class Expected:
    """A declared answer with bounds: at most `attempts` turns (3), and no further one once they have cost `max_cost_usd`
    (US dollars; None: no bound). Where the CLI reports no cost only the attempts are bounded.

    `declared` is a msgspec Struct, an attrs class, a TypedDict or a mapping that is a JSON schema. Raises `BadOption`.
    """

    declared: object
    attempts: int = attrs.field(default=ATTEMPTS, validator=_count, kw_only=True)
    max_cost_usd: float | None = attrs.field(default=None, validator=_dollars, kw_only=True)


@attrs.frozen
class _Accepted:
    data: Any
    value: Any


class StructuredRequest:
    """One request for a structured answer. `attempts` counts those made so far, `route` is the strategy in use. `forgets`:
    the agent does not remember an attempt when it is asked for the next.

    It is a `Submission`: what an agent submits during its turn is checked at once.
    """

    def __init__(self, expected: Expected) -> None:
        self.schema: Schema = schema_of(expected.declared)
        self.route: Route = "text"
        self.attempts = 0
        self.violations: tuple[Violation, ...] = ()
        self._max_attempts = expected.attempts
        self._max_cost = expected.max_cost_usd
        self._expense = Expense()
        self._accepted: _Accepted | None = None
        self._has_tried = False
        self._form: dict[str, Any] | None = None
        self.forgets = False
        self._prompt = ""

    @property
    def met(self) -> bool:
        """Whether a valid answer was submitted."""
        return self._accepted is not None

    # -- the strategy

    def choose(self, plan: Plan, *, fresh: bool) -> None:
        """Choose the strategy for an agent of this plan; `fresh`: its process is started for this request."""
        case = Case(plan, self.schema, fresh)
        self.route = route_of(case)
        self._form = dict(case.form or {}) if self.route == "turn" else None
        # a process for each prompt knows the last attempt only if it can resume the session
        remembers = plan.launch.persist is not False and case.can("resume")
        self.forgets = plan.launch.mode == "oneshot" and not remembers

    def suits(self, plan: Plan) -> bool:
        """Whether a running process of this plan has the same strategy as one that is started for this request."""
        now, fresh = (route_of(Case(plan, self.schema, fresh)) for fresh in (False, True))
        return now == fresh

    def launched(self, plan: Plan) -> Plan:
        """The plan of a process that is started for this request; chooses the strategy.

        Raises `BadOption` when a tool of the plan's own has a name of one of ours."""
        self.choose(plan, fresh=True)
        return kept(launched_for(Case(plan, self.schema, fresh=True), self.route, submission_tools(self)))

    @property
    def turn_schema(self) -> dict[str, Any] | None:
        """The schema to send with the prompt; None for none."""
        return self._form

    def worded(self, prompt: str) -> str:
        """The first prompt, with instructions about the schema."""
        self._prompt = prompt
        return "\n\n".join(part for part in (prompt, self._wording()) if part)

    def _wording(self) -> str:
        match self.route:
            case "tools":
                return _SUBMIT
            case "standing_tools":
                return f"{_SUBMIT} The answer must match this JSON schema:\n{self.schema.text}"
            case "text":
                return f"{_WRITE}\n```json\n{self.schema.text}\n```"
            case _:
                return ""

    # -- attempts

    def submit(self, data: Any) -> Sequence[Violation]:
        """Check an answer that the agent submits during its turn. Each submission is an attempt. The violations."""
        wrong = self._judge(data)
        self._tried(wrong)
        return wrong

    def judge(self, end: TurnEnded) -> str | None:
        """The next prompt after a turn of this request has ended; None when the request is over."""
        self._expense.add(end)
        # a submission during the turn was counted as an attempt already: its end is not one more
        was_tried, self._has_tried = self._has_tried, False
        if self.met or end.ending not in _JUDGED:
            return None
        wrong = self._read(end)
        if self.met or not was_tried:
            self._tried(wrong)
        self._has_tried = False
        if self.met or self.attempts >= self._max_attempts or self._is_spent:
            return None
        wording = self._wording() or f"It must match this JSON schema:\n{self.schema.text}"
        again = f"{format_violations(self.violations)}\n\n{_AGAIN} {wording}"
        if not self.forgets:
            return again
        # without a memory the next attempt needs the whole: the prompt, the last answer and what was wrong
        # with it
        return f"{self._prompt}\n\n{_PREVIOUS}\n{(end.text or '')[:_QUOTED]}\n\n{again}"

    @property
    def _is_spent(self) -> bool:
        return self._max_cost is not None and (self._expense.cost_usd or 0.0) >= self._max_cost

    def _read(self, end: TurnEnded) -> tuple[Violation, ...]:
        """Judge what the turn ended with: the CLI's own structured answer, else JSON in the text."""
        output = end.structured_output
        first: tuple[Violation, ...] | None = None
        for candidate in _values(end.text or "") if output is None else (output,):
            if not (wrong := self._judge(candidate)):
                return ()
            # the errors of the first candidate are shown: they fit the text that the model believes it gave
            first = first or wrong
        return first or (Violation("", end.error or _MISSING[self.route]),)

    def _judge(self, data: Any) -> tuple[Violation, ...]:
        wrong = self.schema.violations(data)
        if not wrong:
            self._accepted = _Accepted(data, self.schema.value(data))
        return wrong

    def _tried(self, wrong: tuple[Violation, ...]) -> None:
        # an agent may submit any number of times in one turn; the number shown never exceeds what was allowed
        self.attempts = min(self.attempts + 1, self._max_attempts)
        self.violations = wrong
        self._has_tried = True

    # -- the end

    def settled(self, answer: Answer) -> Answer:
        """The answer to the whole request, made of the answer of its last turn."""
        whole = attrs.evolve(self._expense.applied_to(answer), attempts=max(1, self.attempts))
        if self._accepted is not None:
            return self._met(whole, self._accepted)
        if answer.ending in _JUDGED:
            return attrs.evolve(
                whole, outcome="failed", ending="schema_unmet", error=self._why(), structured_output=None
            )
        return whole

    def _met(self, answer: Answer, accepted: _Accepted) -> Answer:
        late = (
            f"a valid answer was submitted; then: {answer.outcome}{answer.error and ': '}{answer.error or ''}"
        )
        return attrs.evolve(
            answer,
            # a valid answer counts even if its turn broke off afterwards; `late` keeps how that ended
            outcome="ok",
            error=None,
            value=accepted.value,
            structured_output=accepted.data,
            notes=answer.notes if answer.ok else (*answer.notes, late),
        )

    def _why(self) -> str:
        spent = f", ${self._expense.cost_usd:.4g} spent" if self._is_spent else ""
        return f"no answer that matches {self.schema.name} in {self.attempts} of {self._max_attempts} attempts{spent}. {format_violations(self.violations)}"


def structured_request_of(schema: object) -> StructuredRequest | None:
    """The request for a keyword `schema`: None for none, a declared type, a JSON schema, or an `Expected`.

    Raises `BadOption`.
    """
    if schema is None:
        return None
    return StructuredRequest(schema if isinstance(schema, Expected) else Expected(schema))


def _values(text: str) -> Iterator[Any]:
    """The JSON values in a text: the whole text, or its fenced blocks, the last one first."""
    # a draft stands before the answer, so the last block is tried first
    for candidate in (text, *reversed(_FENCED.findall(text))):
        try:
            yield msgspec.json.decode(candidate.strip())
        except Refusal:
            continue


_SUBMIT = (
    "Submit your answer by calling the tool `submit` (your tool list may show its name with a prefix). "
    "`validate` checks an answer without submitting it, `example` shows a sample. "
    "An answer that is only written as text does not count."
)
_WRITE = (
    "Answer with one JSON value and nothing else: no text before it and none after it. "
    "It must match this JSON schema:"
)
_AGAIN = "Your answer does not match the schema. Fix every error and send the complete answer again."
_PREVIOUS = "This was your previous answer to the same request:"
_MISSING: Mapping[Route, str] = {
    "turn": "the answer is not JSON",
    "launch": "the answer is not JSON",
    "tools": "no answer was submitted with `submit`",
    "standing_tools": "no answer was submitted with `submit`",
    "text": "the answer is not JSON",
}
