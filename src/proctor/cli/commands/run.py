"""`proctor run`: sends one prompt to one agent and writes its answer to stdout; notes go to stderr.

A task of its own reads the agent into the log of the run, and a thread writes from the log in bounded batches. So a
reader that is slow costs disk, not memory, and loses nothing. A reader that has gone stops the agent.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import trio

from proctor.actors.durations import limit
from proctor.actors.errors import AgentError, BadOption, OptionFault, RecordingFailed
from proctor.actors.plan.environment import parse_env
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.plan.options import OPTIONS, AgentOptions
from proctor.actors.plan.permissions import Policy, Rule
from proctor.actors.plan.plan import Plan
from proctor.actors.process.orphans import track_processes
from proctor.actors.runs import Run, stream
from proctor.actors.scripted import ScriptError
from proctor.cli.agent_kinds import checked_plan
from proctor.cli.exit_status import FAILED, STDOUT_GONE, status_of
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.parameters import RunOptions
from proctor.cli.prompts import check_word, prompt_of
from proctor.cli.recordings import keep_room, record_folder
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.renderers import Renderer, renderer
from proctor.cli.ui.terminal import TerminalApprovals, can_ask
from proctor.cli.ui.text import printable
from proctor.cli.ui.verdict import verdict
from proctor.runtime.processes import ProcessError

EXPECTED = (AgentError, OutputFailed, ProcessError, ScriptError)
"""Expected errors, shown as one line each."""
_SECONDS_TO_SHOW = 1.0


def run_command(agent: str, prompt: str | None, options: RunOptions) -> int:
    """Run the prompt and return the exit status. An expected error is one line on stderr."""
    return trio.run(_main, agent, prompt, options)


async def _main(agent: str, prompt: str | None, options: RunOptions) -> int:
    screen = Output(2)
    work = partial(_run, agent, prompt, options, screen)
    background = partial(keep_room, record_folder(options))
    return await interruptible(work, notify=screen.say, background=background)


async def _run(
    agent: str, prompt: str | None, options: RunOptions, screen: Output, interrupts: Interrupts
) -> int:
    show = renderer(Output(1), screen, as_json=options.json, quiet=options.quiet)

    async def work() -> int:
        async with track_processes(screen.say):
            # checked before stdin is read: a user should not type a prompt for a command that then refuses it
            plan, deadline = _validated(agent, prompt, options, screen)
            # likewise before the prompt is read
            plan.locate()
            live = await _converse(plan, await prompt_of(prompt), deadline, show, interrupts)
            if not live.answer.ok:
                await screen.say(f"{verdict(live.answer, time.time())}{_where(live, plan)}")
            return status_of(live.answer.outcome)

    return await rendered(work, show, screen, interrupts)


async def rendered(
    work: Callable[[], Awaitable[int]], show: Renderer, screen: Output, interrupts: Interrupts
) -> int:
    """Run `work` and return the exit status. An expected error is shown on `screen`, and by `show`."""
    try:
        with interrupts.scope:
            return await work()
        return FAILED  # interrupted: the status of the signal counts
    except BrokenPipeError:
        return STDOUT_GONE
    except EXPECTED as error:
        for line in _error_lines(error):
            await screen.say(line)
        with suppress(BrokenPipeError, OutputFailed):
            await show.failure(error)
        return status_of(error)


def _validated(
    agent: str, prompt: str | None, options: RunOptions, screen: Output
) -> tuple[Plan, float | None]:
    """The plan and the deadline. Raises `BadOption` with every fault of the options."""
    faults = list[OptionFault]()
    deadline = collect_faults(faults, partial(_deadline, options.timeout), None)
    chosen = agent_options(options, screen, faults)
    plan = collect_faults(faults, partial(checked_plan, agent, chosen), None)
    collect_faults(faults, partial(check_word, prompt), None)
    if plan is None or faults:
        raise BadOption("\n".join(map(_format_fault, faults)), faults)
    return plan, deadline


def _format_fault(fault: OptionFault) -> str:
    """Format the fault of an option by its flag, as `--max-turns`."""
    is_flag = fault.option in attrs.fields_dict(RunOptions)
    return f"--{fault.option.replace('_', '-')} {fault.text}" if is_flag else str(fault)


async def _converse(
    plan: Plan, prompt: str, deadline: float | None, show: Renderer, interrupts: Interrupts
) -> Run:
    begun = list[Run]()
    try:
        async with stream(plan, prompt, timeout=deadline) as live:
            # kept outside, because an interrupt leaves the block before it returns
            begun.append(live)
            interrupts.kill = live.kill
            # in batches: written one by one, a slow reader would cost a thread switch for each event
            while events := await live.batch():
                await show.events(events)
            await show.answer(live.answer, recording_of(live, plan))
    finally:
        # in the finally: the cancellation of the first signal goes through here, and nothing behind the block
        # runs
        if interrupts.first is not None:
            await _show_interrupted_answer(begun, plan, show)
    return begun[0]


async def _show_interrupted_answer(begun: list[Run], plan: Plan, show: Renderer) -> None:
    """Show the answer of an interrupted run, if its reader is still there."""
    # shielded because this runs under the cancelled scope; bounded because the reader may have stopped
    # reading
    with trio.move_on_after(_SECONDS_TO_SHOW, shield=True), suppress(BrokenPipeError, *EXPECTED):
        for live in begun:
            await show.answer(live.answer, recording_of(live, plan))


def agent_options(options: RunOptions, screen: Output, faults: list[OptionFault]) -> AgentOptions:
    """The options of the plan; appends each fault to `faults`."""
    written = {name: value for name in OPTIONS if (value := getattr(options, name, None)) is not None}
    own: AgentOptions = {
        "env": collect_faults(faults, lambda: parse_env(options.env, os.environ), {}),
        "record": options.record if options.record is not None else record_folder(options),
        "persist": True,  # a later run may name this session with `--resume`
        "permission": collect_faults(faults, lambda: _policy(options, screen), "deny"),
    }
    return cast("AgentOptions", {**written, **own})


def _policy(options: RunOptions, screen: Output) -> Policy:
    """The permission policy: rules that deny, rules that allow, then `--permission` for all other tools."""
    rules = (
        *(_rule("deny", name) for name in options.deny),
        *(_rule("allow", name) for name in options.allow),
    )
    rest = options.permission
    if rest == "deny" or rest == "allow":
        return (*rules, Rule("*", rest == "allow")) if rules else rest
    if can_ask(screen):
        return TerminalApprovals(screen, rules, None if options.cwd is None else Path(options.cwd))
    if rest == "ask":
        text = "'ask': there is no terminal to ask at; accepted: deny, allow"
        raise BadOption(f"permission {text}", [OptionFault("permission", text)])
    return rules or "deny"


def _rule(option: str, name: str) -> Rule:
    try:
        return Rule(name, option == "allow")
    except BadOption:
        text = f"must be the name of a tool, or a glob such as 'mcp__*', got {name!r}"
        raise BadOption(f"{option} {text}", [OptionFault(option, text)]) from None


def _deadline(text: str) -> float | None:
    try:
        seconds = limit(text)
    except ValueError as error:
        raise BadOption(
            f"timeout: {error}", [OptionFault("timeout", str(error).replace("expected", "must be", 1))]
        ) from None
    return None if math.isinf(seconds) else seconds


def recording_of(live: Run, plan: Plan) -> Path | None:
    """The folder of the recording, None when it is not kept."""
    return None if plan.workplace.record is None else live.directory


def _where(live: Run, plan: Plan) -> str:
    folder = recording_of(live, plan)
    return "" if folder is None else f" (recording: {folder})"


def _error_lines(error: Exception) -> list[str]:
    if isinstance(error, BadOption):
        return [printable(line) for line in str(error).splitlines()]
    is_answer = (
        isinstance(error, RecordingFailed) and error.path is not None
    )  # else there is no place for anything
    hint = "; --no-record runs without a recording" if is_answer else ""
    return [f"{' '.join(str(error).split())}{hint}"]
