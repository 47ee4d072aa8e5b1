"""`proctor replay`: replays a recorded run with a scripted agent that gives the recorded answers.

Sends every prompt of the recording again, and shows the turns as `proctor run` does. The exit status is that of the
first turn that fails.
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
from proctor.cli.commands.run import EXPECTED
from proctor.cli.exit_status import FAILED, OK, STDOUT_GONE, status_of
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.recordings import make_room
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.renderers import JsonRenderer, Renderer, TextRenderer
from proctor.cli.ui.verdict import PHRASES, verdict
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """The options of the command."""

    recording: str
    faults: tuple[str, ...] = ()
    speed: float = 0.0
    json: bool = False
    quiet: bool = False


def replay_command(options: ReplayOptions) -> int:
    """Replay the recording and return the exit status. An expected error is one line on stderr."""
    return trio.run(_main, options)


async def _main(options: ReplayOptions) -> int:
    screen = Output(2)
    return await interruptible(
        partial(_replay, options, screen), notify=screen.say, background=partial(make_room, None)
    )


async def _replay(options: ReplayOptions, screen: Output, interrupts: Interrupts) -> int:
    out = Output(1)
    try:
        with interrupts.scope:
            recorded = read_recording(options.recording)
            plan = replay_plan(recorded, {"home": "private"}, faults=options.faults, speed=options.speed)
            shows = partial(_renderer, options, out, screen)
            return await _replay_prompts(plan, recorded.prompts, shows, screen, interrupts)
        return FAILED  # interrupted: the status of the signal counts
    except BrokenPipeError:
        return STDOUT_GONE
    except EXPECTED as error:
        await screen.say(" ".join(str(error).split()))
        with suppress(BrokenPipeError, OutputFailed):
            await _renderer(options, out, screen).failure(error)
        return status_of(error)


def _renderer(options: ReplayOptions, out: Output, screen: Output) -> Renderer:
    return JsonRenderer(out) if options.json else TextRenderer(out, screen, quiet=options.quiet)


async def _replay_prompts(
    plan: Plan,
    prompts: tuple[str, ...],
    shows: partial[Renderer],
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


async def _turns(agent: Agent, prompts: tuple[str, ...], shows: partial[Renderer], screen: Output) -> int:
    status = OK
    for prompt in prompts:
        answer = await _turn(agent, prompt, shows())
        if not answer.ok:
            await screen.say(verdict(answer, time.time()))
            status = status or status_of(answer.outcome)
        if answer.ending is None:  # its process has gone, and a replay is not restarted
            break
    return status


async def _turn(agent: Agent, prompt: str, show: Renderer) -> Answer:
    try:
        async with agent.stream(prompt) as turn:
            async for event in turn:
                await show.events([event])
            await show.answer(turn.answer, None)
            return turn.answer
    except (MaybeExecuted, NotExecuted) as error:
        ended = error.outcome if isinstance(error, MaybeExecuted) else ""
        outcomes: list[Outcome] = [outcome for outcome in PHRASES if outcome == ended]
        answer = Answer(agent=agent.name, outcome=outcomes[0] if outcomes else "no_answer", error=str(error))
        await show.answer(answer, None)
        return answer
