"""`proctor replay`: replays a recorded run with a scripted agent that gives the recorded answers.

Sends every prompt of the recording again, and shows the turns as `proctor run` does. The exit status is that of the
first turn that fails.
"""

from __future__ import annotations

import time
from functools import partial

import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import MaybeExecuted, NotExecuted
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.plan.plan import Plan
from proctor.actors.replay import read_recording, replay_plan
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.cli.commands.run import rendered
from proctor.cli.exit_status import OK, status_of
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.parameters import ReplayOptions
from proctor.cli.recordings import make_room
from proctor.cli.ui.output import Output
from proctor.cli.ui.renderers import Renderer, renderer
from proctor.cli.ui.verdict import PHRASES, verdict
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash


def replay_command(recording: str, options: ReplayOptions) -> int:
    """Replay the recording and return the exit status. An expected error is one line on stderr."""
    return trio.run(_main, recording, options)


async def _main(recording: str, options: ReplayOptions) -> int:
    screen = Output(2)
    return await interruptible(
        partial(_replay, recording, options, screen), notify=screen.say, background=partial(make_room, None)
    )


async def _replay(recording: str, options: ReplayOptions, screen: Output, interrupts: Interrupts) -> int:
    shows = partial(renderer, Output(1), screen, as_json=options.json, quiet=options.quiet)

    async def work() -> int:
        recorded = read_recording(recording)
        plan = replay_plan(recorded, {"home": "private"}, faults=options.fault, speed=options.speed)
        return await _replay_prompts(plan, recorded.prompts, shows, screen, interrupts)

    return await rendered(work, shows(), screen, interrupts)


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
        # the supervisor's own words would hide what the user can act on: a missing file, a bad script
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
