"""`proctor replay`: a recorded run once more, as an agent that answers what it answered then.

Every prompt of the recording is sent again, one after the other, and shown as `proctor run` shows it. The exit status
is the one that `proctor run` has for the first turn that did not end well; a turn that does not end ends the replay.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import MaybeExecuted, NotExecuted
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.plan.plan import Plan
from proctor.actors.replay import read_recording, replay_plan
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.cli.codes import FAILED, OK, STDOUT_GONE
from proctor.cli.commands.run import EXPECTED
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.recordings import make_room
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.renderers import AsJson, AsText, Presentation
from proctor.cli.verdicts import PHRASES, status_of, verdict
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The words of the command line, typed."""

    recording: str
    faults: tuple[str, ...] = ()
    speed: float = 0.0
    json: bool = False
    quiet: bool = False


def replay_command(options: ReplayOptions) -> int:
    """Carry it out and return the exit status; every error that a user can cause is one line on stderr."""
    return trio.run(_main, options)


async def _main(options: ReplayOptions) -> int:
    screen = Output(2)
    return await interruptible(
        partial(_replay, options, screen), told=screen.say, beside=partial(make_room, None)
    )


async def _replay(options: ReplayOptions, screen: Output, interrupts: Interrupts) -> int:
    out = Output(1)
    try:
        with interrupts.scope:
            recorded = read_recording(options.recording)
            plan = replay_plan(recorded, {"home": "private"}, faults=options.faults, speed=options.speed)
            shows = partial(_face, options, out, screen)
            return await _played(plan, recorded.prompts, shows, screen, interrupts)
        return FAILED  # interrupted: the signal has its own status
    except BrokenPipeError:
        return STDOUT_GONE
    except EXPECTED as error:
        await screen.say(" ".join(str(error).split()))
        with suppress(BrokenPipeError, OutputFailed):
            await _face(options, out, screen).failure(error)
        return status_of(error)


def _face(options: ReplayOptions, out: Output, screen: Output) -> Presentation:
    return AsJson(out) if options.json else AsText(out, screen, quiet=options.quiet)


async def _played(
    plan: Plan,
    prompts: tuple[str, ...],
    shows: partial[Presentation],
    screen: Output,
    interrupts: Interrupts,
) -> int:
    spec = agent_spec(plan.name, plan, {"shutdown": plan.shutdown, "restart": "temporary"})
    try:
        async with open_supervisor([spec]) as sup:
            interrupts.kill = sup.ref.kill
            return await _turns(sup.agent(plan.name), prompts, shows, screen)
    except StartError as error:
        reason = error.reason
        raise reason.error if isinstance(reason, Crash) else error from None


async def _turns(agent: Agent, prompts: tuple[str, ...], shows: partial[Presentation], screen: Output) -> int:
    status = OK
    for prompt in prompts:
        answer = await _turn(agent, prompt, shows())
        if not answer.ok:
            await screen.say(verdict(answer, time.time()))
            status = status or status_of(answer.outcome)
        if answer.ending is None:  # its process has gone, and a replay is not repeated
            break
    return status


async def _turn(agent: Agent, prompt: str, show: Presentation) -> Answer:
    try:
        async with agent.stream(prompt) as turn:
            async for event in turn:
                await show.events([event])
            await show.answer(turn.answer, None)
            return turn.answer
    except (MaybeExecuted, NotExecuted) as error:
        ended = error.outcome if isinstance(error, MaybeExecuted) else ""
        known: list[Outcome] = [outcome for outcome in PHRASES if outcome == ended]
        answer = Answer(agent=agent.name, outcome=known[0] if known else "no_answer", error=str(error))
        await show.answer(answer, None)
        return answer
