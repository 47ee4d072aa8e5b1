"""The end of a run: its answer, made of what was said last and of how the process went, or what kept it from starting."""

from __future__ import annotations

import attrs

from proctor.actors.errors import AgentError
from proctor.actors.incarnation import Incarnation
from proctor.actors.outcomes import Answer, Outcome, answer_of, exit_class, label
from proctor.protocols.vocabulary import TurnEnded
from proctor.runtime.process_errors import ProcessError


def answer_at_end(live: Incarnation, ended: TurnEnded | None, *, late: bool) -> Answer:
    """The answer to a request whose turn `ended` so, None when no end was told; `late`: the deadline cut it short."""
    if ended is None or live.cut(ended):
        outcome: Outcome = "deadline" if late else label(None, live.exit, live.stopper)
        said = live.fault.evidence if live.fault is not None else live.stderr.strip()[-500:]
        return Answer(
            agent=live.plan.name,
            outcome=outcome,
            error=said or f"no answer before its process ended ({live.exit or 'never started'})",
            session_id=live.session_id,
            exit=live.exit,
            stderr=live.stderr,
        )
    answer = answer_of(live.plan.name, ended, live.resets_at)
    if live.stopper == "deadline":  # the CLI's word about the turn is its reply to our interrupt
        answer = attrs.evolve(answer, outcome="deadline")
    return attrs.evolve(answer, exit=live.exit, stderr=live.stderr, notes=_disagreement(answer, live))


def _disagreement(answer: Answer, live: Incarnation) -> tuple[str, ...]:
    bad_exit = live.stopper == "nobody" and exit_class(live.exit) != "clean"
    return (
        (f"the CLI said {answer.ending}, its process ended with {live.exit}",)
        if answer.ok and bad_exit
        else ()
    )


def cause_of(group: ExceptionGroup[AgentError | ProcessError]) -> Exception:
    """The first error in a group of groups."""
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
