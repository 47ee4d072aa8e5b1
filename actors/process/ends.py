"""The end of a request on one process: the answer of a run, and the delivery record of what failed."""

from __future__ import annotations

from typing import cast

import attrs

from proctor.actors.delivery import Delivery, Part, Sent
from proctor.actors.outcomes import Answer, Outcome, answer_of, exit_class, label, with_stderr
from proctor.actors.process.agent_process import STDERR_CHARS, AgentProcess
from proctor.protocols.vocabulary import TurnEnded


def final_answer(process: AgentProcess, ended: TurnEnded | None, *, late: bool) -> Answer:
    """The answer to a request whose turn `ended` so, None without one; `late`: the deadline cut it short."""
    if ended is None or process.ended_by_stop(ended):
        outcome: Outcome = "deadline" if late else label(None, process.exit, process.stopper)
        evidence = process.fault.evidence if process.fault is not None else process.protocol_failure
        how = "it was never started" if process.exit is None else with_stderr(process.exit, process.stderr)
        return Answer(
            agent=process.plan.name,
            outcome=outcome,
            error=evidence or f"no answer before its process ended ({how})",
            session_id=process.session_id,
            total_cost_usd=process.conversation.memo.total_cost_usd,
            exit=process.exit,
            stderr=process.stderr,
        )
    answer = answer_of(process.plan.name, ended, process.liveness.resets_at)
    if process.stopper == "deadline":  # the CLI's word about the turn is its reply to our interrupt
        answer = attrs.evolve(answer, outcome="deadline")
    return attrs.evolve(
        answer, exit=process.exit, stderr=process.stderr, notes=_disagreement(answer, process)
    )


def _disagreement(answer: Answer, process: AgentProcess) -> tuple[str, ...]:
    bad_exit = process.stopper == "nobody" and exit_class(process.exit) != "clean"
    return (
        (f"the CLI reported {answer.ending}, its process ended with {process.exit}",)
        if answer.ok and bad_exit
        else ()
    )


def delivery_of(
    live: AgentProcess, *, sent: Sent, elapsed: float, text: str = "", clipped: bool = False
) -> Delivery:
    """The progress of the request of this process. `sent` says whether any attempt has reached a CLI. `text` is the answer as
    far as it was streamed, `clipped` when that is not all; `elapsed` counts from when it was asked (seconds)."""
    ended_by_stop: dict[Part, bool] = {
        "text": clipped,
        "stderr": len(live.stderr_end(STDERR_CHARS + 1)) > STDERR_CHARS,
    }
    return Delivery(
        sent=sent,
        stage=live.liveness.stage,
        elapsed=elapsed,
        pid=live.program_pid,
        exit=live.exit,
        text=text,
        stderr=live.stderr_end(),
        recording=live.recording_path,
        session_id=live.session_id,
        truncated=tuple(part for part, is_cut in ended_by_stop.items() if is_cut),
    )


def first_cause(error: BaseException) -> BaseException:
    """The first error in a group of groups; an error that is none of those is its own."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
