"""The end of a run: its answer, made of what was said last and of how the process went, or what kept it from starting."""

from __future__ import annotations

from typing import cast

import attrs

from proctor.actors.outcomes import Answer, Outcome, answer_of, exit_class, label, with_stderr
from proctor.actors.process.agent_process import Incarnation
from proctor.protocols.vocabulary import TurnEnded


def answer_at_end(live: Incarnation, ended: TurnEnded | None, *, late: bool) -> Answer:
    """The answer to a request whose turn `ended` so, None when no end was told; `late`: the deadline cut it short."""
    if ended is None or live.cut(ended):
        outcome: Outcome = "deadline" if late else label(None, live.exit, live.stopper)
        evidence = live.fault.evidence if live.fault is not None else live.garbage
        how = "it was never started" if live.exit is None else with_stderr(live.exit, live.stderr)
        return Answer(
            agent=live.plan.name,
            outcome=outcome,
            error=evidence or f"no answer before its process ended ({how})",
            session_id=live.session_id,
            total_cost_usd=live.conversation.memo.total_cost_usd,
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


def cause_of(error: BaseException) -> BaseException:
    """The first error in a group of groups; an error that is none of those is its own."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
