"""The commands with their options and help texts. The work of a command is imported when it is called."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)

from proctor.cli.app_maintenance import health, setup
from proctor.cli.app_serving import serve, web
from proctor.cli.exit_status import FAILED, OK, USAGE
from proctor.cli.usage_errors import complain

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUED = frozenset(
    (
        "--model",
        "--cwd",
        "--timeout",
        "--resume",
        "--permission",
        "--allow",
        "--deny",
        "--env",
        "--home",
        "--record",
        "--executable",
        "--mode",
    )
)
"""Options of `run` whose value may be the next word of the command line."""

HELP = "Run coding-agent command lines as supervised actors."
EPILOGUE = """\
Examples:
  proctor run claude "Review the last commit."
  git diff | proctor run claude - --json
  proctor run scripted:examples/hello.ndjson "hi"
  proctor up examples/demo.toml
  proctor web examples/review.toml
  proctor record -o runs -- claude -p "Hello."
  proctor replay runs --speed 1
  proctor doctor
  proctor setup --dry-run
  proctor serve --agents claude,codex --root ~/projects

Exit status:
    0  answered                          75  parked on a usage limit
    1  failed                           124  deadline passed
    2  usage error or invalid file      130  interrupted
   69  the agent is not installed       141  stdout was closed
"""

_Flag = Parameter(negative="", show_default=False)


def dispatch(argv: Sequence[str]) -> int:
    """Run the command in `argv` and return its exit status. A usage error is one line on stderr."""
    from proctor.actors.errors import RecordingFailed
    from proctor.cli.prompts import separate_prompt

    words = separate_prompt(list(argv), VALUED) if argv[:1] == ["run"] else list(argv) or _default_words()
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    app = build_app()
    try:
        status = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        complain(explain(error, words, [name for name in app if not name.startswith("-")]))
        return USAGE
    except RecordingFailed as error:  # the state folder cannot be made
        complain(str(error))
        return FAILED
    return status if isinstance(status, int) else OK


def _default_words() -> list[str]:
    """The words that an empty command line stands for: `serve` where stdin is no terminal, as MCP clients start it."""
    stdin: TextIO | None = sys.stdin
    return [] if stdin is None or stdin.isatty() else ["serve"]


def explain(error: CycloptsError, words: Sequence[str], commands: Sequence[str]) -> str:
    """Explain a usage error in one line: what is wrong, what may be meant, where to read more."""
    named = words[0] if words and words[0] in commands else ""
    return f"{_reason(error, words, commands, named)} (see {f'proctor help {named}' if named else 'proctor --help'})"


def _reason(error: CycloptsError, words: Sequence[str], commands: Sequence[str], named: str) -> str:
    if not named and words:
        return _unknown(words[0], commands)
    text = " ".join(str(error).split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    match error:
        case UnusedCliTokensError():
            hint = "; put a prompt of several words in quotes" if named == "run" else ""
            return f"too many words: {' '.join(map(repr, error.unused_tokens or ()))}{hint}"
        case MissingArgumentError():
            return re.sub(r'^command "\w+" parameter (.*) requires an argument$', r"\1 needs a value", text)
        case UnknownOptionError():
            return _unknown_option(error, named)
        case _:
            return text


def _unknown(word: str, commands: Sequence[str]) -> str:
    """Explain a first word that is no command. Only `--help` and `--version` stand before a command."""
    from proctor.actors.plan.option_checks import suggest

    known, what = (("--help", "--version"), "option") if word.startswith("-") else (commands, "command")
    return f"unknown {what} {word!r}{suggest(word, known)}; known: {', '.join(known)}"


def _unknown_option(error: UnknownOptionError, named: str) -> str:
    from proctor.actors.plan.option_checks import suggest

    word = error.token.keyword or error.token.value
    known = [
        name for argument in error.argument_collection for name in argument.names if name.startswith("--")
    ]
    if not (meant := suggest(word, known)) and named == "run":
        meant = "; put a prompt that starts with - after --"
    return f"unknown option {word!r}{meant}"


def build_app() -> App:
    """Build the parser of the command line."""
    app = App(name="proctor", help=HELP, help_epilogue=EPILOGUE, help_format="plaintext", version=_version)
    app.command(run)
    app.command(up)
    app.command(web)
    app.command(doctor)
    app.command(record)
    app.command(replay)
    app.command(setup)
    app.command(health)
    app.command(serve)
    return app


def _version() -> str:
    import proctor

    return f"proctor {proctor.__version__}"


def run(
    agent: str,
    prompt: str | None = None,
    /,
    *,
    json: Annotated[bool, _Flag] = False,
    model: str | None = None,
    cwd: str | None = None,
    timeout: str = "300",
    resume: str | None = None,
    permission: Literal["deny", "allow", "ask"] | None = None,
    allow: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    deny: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    env: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    home: Literal["user", "private"] = "user",
    record: Annotated[str | None, Parameter(negative="")] = None,
    no_record: Annotated[bool, _Flag] = False,
    executable: str | None = None,
    mode: Literal["session", "oneshot", "exec", "run"] = "session",
    user_settings: Annotated[bool | None, Parameter(show_default=False)] = None,
    project_memory: bool = True,
    quiet: Annotated[bool, _Flag] = False,
) -> int:
    """Send one prompt to one agent and print its answer.

    Parameters
    ----------
    agent
        claude, codex, opencode, gemini, acp:COMMAND (any agent of the Agent Client Protocol),
        or scripted:FILE (a script or a recorded run).
    prompt
        The prompt; - or nothing reads it from stdin. Put a prompt that starts with - after --.
    json
        Write every event as a line of JSON to stdout, the answer record last.
    model
        The model to use.
    cwd
        The folder the agent works in.
    timeout
        Seconds, or a duration such as 5m; 0 or none for no limit.
    resume
        The id of a session to continue.
    permission
        Policy for tool permission requests. Default: ask at a terminal, else deny.
    allow
        A tool to allow, by name or a glob such as mcp__*. --permission decides about all others. Can be repeated.
    deny
        A tool to deny, also where --allow names it. Can be repeated.
    env
        NAME passes a variable to the agent, NAME=VALUE sets it. Can be repeated.
    home
        private gives the agent an empty home directory, without the user's login.
    record
        The folder for recordings. Default: the user's state folder.
    no_record
        Keep no recording.
    executable
        The agent's program. Default: found on PATH and in the usual places.
    mode
        session keeps the agent's stdin open. oneshot (claude), exec (codex) and run (opencode) end after one prompt.
    user_settings
        Read the user's settings files and the project's, with their hooks and permission rules. Default: read none, and
        name those that are there.
    project_memory
        Read the project's instructions for agents: CLAUDE.md, AGENTS.md.
    quiet
        Write only the answer, or the reason why there is none.
    """
    from proctor.cli.commands.run import RunOptions, run_command

    if record is not None and no_record:
        complain("--record and --no-record exclude each other (see proctor run --help)")
        return USAGE
    return run_command(
        RunOptions(
            agent=agent,
            prompt=prompt,
            json=json,
            model=model,
            cwd=cwd,
            timeout=timeout,
            resume=resume,
            permission=permission,
            allow=allow,
            deny=deny,
            env=env,
            home=home,
            record=record,
            recorded=not no_record,
            executable=executable,
            mode=mode,
            user_settings=user_settings,
            project_memory=project_memory,
            quiet=quiet,
        )
    )


def up(fleet: str, /, *, strict: Annotated[bool, _Flag] = False) -> int:
    """Start the agents of a fleet file, send each its prompt, and show what happens.

    Ends when every prompt is answered; an agent without one runs until Ctrl-C.

    Parameters
    ----------
    fleet
        The fleet file (TOML).
    strict
        Stop when an agent cannot start or is restarted too often. Default: continue with the others.
    """
    from proctor.cli.commands.up import up_command

    return up_command(fleet, strict=strict)


def doctor(
    *,
    prove_cleanup: Annotated[bool, _Flag] = False,
    children: int = 50,
    seconds: float = 5.0,
    output: Annotated[Literal["table", "json"], Parameter(name=("--output", "-o"))] = "table",
) -> int:
    """Check that this machine can run agents; exits with 1 when a check fails.

    Parameters
    ----------
    prove_cleanup
        Start a runtime, kill it without warning, and prove that none of its processes is left.
    children
        How many agents that runtime has; half of them leave processes in sessions of their own.
    seconds
        Seconds after the kill within which all must be gone.
    output
        The output format.
    """
    from proctor.cli.commands.doctor import DoctorOptions, doctor_command

    if children < 1 or not 0 <= seconds < math.inf:
        complain("--children is 1 or more, --seconds 0 or more (see proctor doctor --help)")
        return USAGE
    return doctor_command(
        DoctorOptions(prove=prove_cleanup, children=children, seconds=seconds, json=output == "json")
    )


def record(
    *command: str,
    output: Annotated[str | None, Parameter(name=("--output", "-o"), negative="")] = None,
) -> int:
    """Run a command unchanged and record its input and output; exits with the status of the command.

    Parameters
    ----------
    command
        The program and its arguments, after --.
    output
        The run directory to record into; a new incarnation is added where it exists. Default: a new one in the user's
        state folder.
    """
    from proctor.cli.commands.record import RecordOptions, record_command

    if not command:
        complain("no command: proctor record -- claude -p hello (see proctor record --help)")
        return USAGE
    return record_command(RecordOptions(command=command, directory=output))


def replay(
    recording: str,
    /,
    *,
    fault: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    speed: float = 0.0,
    json: Annotated[bool, _Flag] = False,
    quiet: Annotated[bool, _Flag] = False,
) -> int:
    """Replay a recorded run: send each of its prompts again, shown as run shows it.

    Parameters
    ----------
    recording
        A run directory (its newest incarnation is replayed), or the folder of one incarnation.
    fault
        A fault to inject, such as crash@turn=1. Can be repeated.
    speed
        1 keeps the recorded pauses, 2 halves them, 0 leaves them out.
    json
        Write every event as a line of JSON to stdout, with an answer record after each turn.
    quiet
        Write only the answers, or the reason why there is none.
    """
    from proctor.cli.commands.replay import ReplayOptions, replay_command

    if not 0 <= speed < math.inf:
        complain("--speed is 0 or more (see proctor replay --help)")
        return USAGE
    return replay_command(
        ReplayOptions(recording=recording, faults=fault, speed=speed, json=json, quiet=quiet)
    )
