"""The preparation of a start: the command of a plan, its environment, and the notices about them; and the error of one that failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from proctor.actors.errors import AgentError, BadOption, StartKilled, StartRefused
from proctor.actors.outcomes import with_stderr
from proctor.actors.plan.discovery import CLAUDE_CODE
from proctor.actors.plan.environment import Environment, build_environment
from proctor.actors.plan.plan import Plan
from proctor.actors.plan.project_memory import settings_left_out
from proctor.actors.recording.recording import Recording, RunDirectory, write_private
from proctor.actors.transport.transport import Start, Transport
from proctor.protocols.dialect import Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp import secrets
from proctor.protocols.vocabulary import HOST, Notice
from proctor.runtime.exits import SIGNAL_NAMES, Crash, ExitReason, ExitStatus
from proctor.runtime.processes import Command, make_directory


@attrs.frozen(kw_only=True)
class PreparedLaunch:
    """A process that is ready to start: connecting `transport` starts `program`. `notices` name options and variables that are not
    passed; `files` were written for this process alone."""

    transport: Transport
    program: str
    notices: tuple[Notice, ...]
    files: tuple[Path, ...] = ()

    def clear(self) -> None:
        """Remove the files, which may hold secrets."""
        for path in self.files:
            path.unlink(missing_ok=True)


def prepare_launch(
    plan: Plan,
    directory: RunDirectory,
    recording: Recording,
    feed_stderr: Callable[[bytes], object],
    *,
    number: int,
    request: Launch,
) -> PreparedLaunch:
    """Prepare incarnation `number` of a plan, recorded in its agent's `directory`. Nothing is started yet. `request` is
    the result of `Plan.opening`, which the conversation was made with, too. `feed_stderr` gets stderr where its dialect
    reads the log that is there.

    Raises `NotInstalled`, `NotExecutable`, `BadOption`.
    """
    place = plan.workplace
    launch = attrs.evolve(request, executable=plan.locate(), scratch=str(directory.scratch))
    try:
        command = plan.dialect.launch(launch)
    except Misuse as error:
        raise BadOption(str(error)) from error
    files = {directory.scratch / name: content for name, content in command.files.items()}
    for path, content in files.items():
        make_directory(path.parent, exist_ok=True)
        write_private(path, content)
    named = {**place.env, **command.joined}
    environment = build_environment(named, home=place.home, private=directory.scratch, extra=command.env)
    names = sorted(environment.variables)
    # Before the first line is recorded.
    recording.hide(secrets(launch.mcp))
    recording.begin(cli=plan.dialect.name, argv=command.argv, environment=names, incarnation=number)
    cwd = None if place.cwd is None else str(place.cwd)

    def on_stderr(data: bytes) -> None:
        recording.stderr(data)
        feed_stderr(data)

    start = Start(
        command=Command(command.argv, environment.variables, cwd),
        on_stderr=recording.stderr if plan.dialect.read_log is None else on_stderr,
        marker=f"{directory.path.name}/{number}",
    )
    notices = _notices(plan, command.ignored, environment)
    if number == 1:
        notices = (*notices, *_settings_left_out(plan, launch, environment))
    return PreparedLaunch(
        transport=plan.reach(start), program=command.argv[0], notices=notices, files=tuple(files)
    )


def _notices(plan: Plan, ignored: tuple[str, ...], environment: Environment) -> tuple[Notice, ...]:
    cannot = [
        Notice(HOST, None, "option_ignored", f"{plan.dialect.name} does not support the option {n}")
        for n in ignored
        if n in plan.given
    ]
    names = environment.withheld if plan.product is not None else ()
    kept = [
        Notice(
            HOST,
            None,
            "not_passed",
            f"{name} is set here but not passed on; add it to env to pass it",
            {"name": name},
        )
        for name in names
    ]
    return (*cannot, *kept)


def _settings_left_out(plan: Plan, launch: Launch, environment: Environment) -> tuple[Notice, ...]:
    """One notice of the settings files that are there and are not read, unless the owner has decided about them."""
    if plan.product is not CLAUDE_CODE or launch.user_settings is not None:
        return ()
    files = settings_left_out(Path(launch.cwd), environment.variables)
    if not files:
        return ()
    names = ", ".join(map(str, files))
    text = f"not read: {names}; user_settings=True reads settings files, user_settings=False leaves them out without this notice"
    return (Notice(HOST, None, "settings_left_out", text, {"files": list(map(str, files))}),)


# -- a process that never became ready


KILLS = frozenset(("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"))
"""Signals that come from outside: of any other a program dies by its own doing."""
EXIT_WAIT = 1.0
"""Seconds that a process has to end by itself once it says no more."""


async def killed_start(agent: str, transport: Transport) -> StartKilled | None:
    """The error for a process that says no more because somebody killed it, None for any other."""
    # The end of the output comes before the exit status can be read.
    with trio.move_on_after(EXIT_WAIT):
        exit = await transport.wait()
        name = SIGNAL_NAMES.get(exit.signal or 0, "") if isinstance(exit, ExitStatus) else ""
        if name in KILLS:
            return StartKilled(agent, name, transport.stderr.decode("utf-8", "replace"))
    return None


def start_failure(
    agent: str, reason: str | None, exit: ExitReason | None, stderr: str, resumed: str | None
) -> AgentError:
    """The error for a process that was not killed. `reason` is the one it gave on its protocol, if any: what
    it wrote on stderr is shown as evidence, and may be about something else."""
    if isinstance(exit, Crash) and isinstance(exit.error, AgentError):
        return exit.error  # the connection broke: the CLI has refused nothing
    silent_exit = f"its process ended before it was ready ({with_stderr(exit, stderr)})"
    return StartRefused(agent, reason or silent_exit, resumed=resumed, stderr=stderr)
