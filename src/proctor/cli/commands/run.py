"""`proctor run`: one prompt to one agent, its answer on stdout, and nothing left behind.

The agent is drained by its own task into the run's log whatever our reader does; what is shown is read from the log
in bounded batches and written by a thread, so a reader that sleeps costs disk, not memory, and no byte (R053). A
reader that has gone stops the agent. An interrupt stops it by its ladder; a second one kills it.

stdout holds the answer alone (with `--json` the events and the answer record); all else is on stderr.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from proctor.actors.durations import limit
from proctor.actors.errors import AgentError, BadOption, OptionFault, RecordingFailed
from proctor.actors.plan.environment import Home, parse_env
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.plan.permissions import Policy, Rule
from proctor.actors.plan.plan import AgentMode, AgentOptions, Plan
from proctor.actors.process.orphans import track_processes
from proctor.actors.runs import Run, stream
from proctor.actors.scripted import ScriptError
from proctor.cli.agent_kinds import plan_of
from proctor.cli.codes import FAILED, STDOUT_GONE
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.prompts import check_word, prompt_of
from proctor.cli.recordings import keep_room, state_directory
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.renderers import AsJson, AsText, Presentation
from proctor.cli.ui.terminal import Questions, can_ask
from proctor.cli.ui.text import printable
from proctor.cli.verdicts import status_of, verdict
from proctor.runtime.processes import ProcessError

Permission = Literal["deny", "allow", "ask"]
EXPECTED = (AgentError, OutputFailed, ProcessError, ScriptError)
"""What goes wrong without being our fault: told in one line."""
_LAST_WORDS = 1.0


@attrs.frozen(kw_only=True)
class RunOptions:
    """The words of the command line, typed. `record` None with `recorded`: in the user's state directory."""

    agent: str
    prompt: str | None = None
    json: bool = False
    model: str | None = None
    cwd: str | None = None
    timeout: str = "300"
    resume: str | None = None
    permission: Permission | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    home: Home = "user"
    record: str | None = None
    recorded: bool = True
    executable: str | None = None
    mode: AgentMode = "session"
    user_settings: bool | None = None
    project_memory: bool = True
    quiet: bool = False


def run_command(options: RunOptions) -> int:
    """Carry it out and return the exit status; every error that a user can cause is one line on stderr."""
    return trio.run(_main, options)


async def _main(options: RunOptions) -> int:
    screen = Output(2)
    beside = partial(keep_room, _record(options))
    return await interruptible(partial(_run, options, screen), told=screen.say, beside=beside)


async def _run(options: RunOptions, screen: Output, interrupts: Interrupts) -> int:
    out = Output(1)
    show = AsJson(out) if options.json else AsText(out, screen, quiet=options.quiet)
    try:
        with interrupts.scope:
            async with track_processes(screen.say):
                return await _prepared(options, screen, show, interrupts)
        return FAILED  # interrupted: the signal has its own status
    except BrokenPipeError:
        return STDOUT_GONE
    except EXPECTED as error:
        for line in _told(error):
            await screen.say(line)
        with suppress(BrokenPipeError, OutputFailed):
            await show.failure(error)
        return status_of(error)


async def _prepared(options: RunOptions, screen: Output, show: Presentation, interrupts: Interrupts) -> int:
    plan, deadline = _settled(options, screen)
    plan.locate()
    prompt = await prompt_of(options.prompt)
    live = await _converse(plan, prompt, deadline, show, interrupts)
    if not live.answer.ok:
        await screen.say(f"{verdict(live.answer, time.time())}{_where(live, plan)}")
    return status_of(live.answer.outcome)


def _settled(options: RunOptions, screen: Output) -> tuple[Plan, float | None]:
    """The plan and the deadline. Raises `BadOption` with everything that is wrong with the words."""
    faults = list[OptionFault]()
    deadline = collect_faults(faults, partial(_deadline, options.timeout), None)
    chosen = agent_options(options, screen, faults)
    plan = collect_faults(faults, partial(_plan, options.agent, chosen), None)
    collect_faults(faults, partial(check_word, options.prompt), None)
    if plan is None or faults:
        raise BadOption("\n".join(map(_spelled, faults)), faults)
    return plan, deadline


def _plan(agent: str, chosen: AgentOptions) -> Plan:
    try:
        return plan_of(agent, chosen)
    except ScriptError as error:
        raise BadOption(str(error)) from error


def _spelled(fault: OptionFault) -> str:
    """The fault of an option as it is written here: `--max-turns`."""
    known = fault.option in attrs.fields_dict(RunOptions)
    return f"--{fault.option.replace('_', '-')} {fault.text}" if known else str(fault)


async def _converse(
    plan: Plan, prompt: str, deadline: float | None, show: Presentation, interrupts: Interrupts
) -> Run:
    begun = list[Run]()
    try:
        async with stream(plan, prompt, timeout=deadline) as live:
            begun.append(live)
            interrupts.kill = live.kill
            while events := await live.batch():
                await show.events(events)
            await show.answer(live.answer, kept(live, plan))
    finally:
        if interrupts.first is not None:
            await _last_words(begun, plan, show)
    return begun[0]


async def _last_words(begun: list[Run], plan: Plan, show: Presentation) -> None:
    """An interrupted run ends as others do, if its reader is there."""
    with trio.move_on_after(_LAST_WORDS, shield=True), suppress(BrokenPipeError, *EXPECTED):
        for live in begun:
            await show.answer(live.answer, kept(live, plan))


def agent_options(options: RunOptions, screen: Output, faults: list[OptionFault]) -> AgentOptions:
    """The options of the plan; `faults` gets what is wrong with them already."""
    chosen: AgentOptions = {
        "cwd": options.cwd,
        "env": collect_faults(faults, lambda: parse_env(options.env, os.environ), {}),
        "home": options.home,
        "record": options.record if options.recorded and options.record is not None else _record(options),
        "model": options.model,
        "mode": options.mode,
        "resume": options.resume,
        "persist": True,  # `--resume` of a later run names this one's session
        "permission": collect_faults(faults, lambda: _policy(options, screen), "deny"),
        "user_settings": options.user_settings,
        "project_memory": options.project_memory,
    }
    if options.executable is not None:
        chosen["executable"] = options.executable
    return chosen


def _policy(options: RunOptions, screen: Output) -> Policy:
    """The rules first, those that deny before those that allow; then what `--permission` says of the rest."""
    rules = (
        *(_rule("deny", name) for name in options.deny),
        *(_rule("allow", name) for name in options.allow),
    )
    rest = options.permission
    if rest == "deny" or rest == "allow":
        return (*rules, Rule("*", rest == "allow")) if rules else rest
    if can_ask(screen):
        return Questions(screen, rules, None if options.cwd is None else Path(options.cwd))
    if rest == "ask":
        text = "'ask': there is no terminal to ask at; accepted here: deny, allow"
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


def _record(options: RunOptions) -> Path | None:
    if not options.recorded:
        return None
    return state_directory() if options.record is None else Path(options.record)


def kept(live: Run, plan: Plan) -> Path | None:
    """Where the recording stays, None when it goes with the run."""
    return None if plan.workplace.record is None else live.directory


def _where(live: Run, plan: Plan) -> str:
    where = kept(live, plan)
    return "" if where is None else f" (recording: {where})"


def _told(error: Exception) -> list[str]:
    if isinstance(error, BadOption):
        return [printable(line) for line in str(error).splitlines()]
    hint = "; --no-record does without" if isinstance(error, RecordingFailed) else ""
    return [f"{' '.join(str(error).split())}{hint}"]
