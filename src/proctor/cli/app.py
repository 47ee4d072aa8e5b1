"""The commands with their options and help texts. The work of a command is imported when it is called."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import attrs
from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)

from proctor.cli import version_line
from proctor.cli.exit_status import FAILED, OK, USAGE
from proctor.cli.loading import loading
from proctor.cli.parameters import (
    BenchOptions,
    DoctorOptions,
    Flag,
    OutputFormat,
    ReplayOptions,
    RunForm,
    RunOptions,
    RunsOptions,
    SelectionOptions,
    ServeOptions,
    SetupOptions,
    WebOptions,
)
from proctor.cli.usage_errors import complain, missing_of
from proctor.cli.verbs import VERBS, run_verb

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUED = frozenset(
    f"--{field.name.replace('_', '-')}"
    for field in attrs.fields(RunOptions)
    if not isinstance(field.default, bool) and field.name != "user_settings"
)
"""Options of `run` whose value may be the next word of the command line."""

HELP = "Run coding-agent command lines as supervised actors."
EPILOGUE = """\
Examples:
  proctor run claude "Review the last commit."
  git diff | proctor run claude - --json
  proctor run scripted:examples/hello.ndjson "hi"
  proctor up examples/demo.toml
  proctor ps
  proctor web examples/review.toml
  proctor record -o runs -- claude -p "Hello."
  proctor replay runs --speed 1
  proctor runs
  proctor bench tasks.jsonl --agents claude,codex
  proctor doctor
  proctor setup --dry-run
  proctor serve --agents claude,codex --root ~/projects

Exit status:
    0  answered                          75  parked on a usage limit
    1  failed                           124  deadline passed
    2  usage error or invalid file      130  interrupted
   69  the agent is not installed       141  stdout was closed
"""


def dispatch(argv: Sequence[str]) -> int:
    """Run the command in `argv` and return its exit status. A usage error is one line on stderr."""
    from proctor.actors.errors import RecordingFailed
    from proctor.cli.prompts import separate_prompt

    words = separate_prompt(list(argv), VALUED) if argv[:1] == ["run"] else list(argv) or _default_words()
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in VERBS:
        return run_verb(words)
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
    app = App(
        name="proctor", help=HELP, help_epilogue=EPILOGUE, help_format="plaintext", version=version_line
    )
    for command in (
        run,
        up,
        web,
        config,
        doctor,
        record,
        replay,
        runs,
        show,
        cost,
        bench,
        resume,
        service,
        setup,
        health,
        serve,
    ):
        app.command(command)
    for name, verb in VERBS.items():  # named in the help; `dispatch` runs them
        app.command(App(name=name, help=verb.summary))
    return app


def run(agent: str, prompt: str | None = None, /, *, options: RunOptions = RunOptions()) -> int:
    """Send one prompt to one agent and print its answer.

    Parameters
    ----------
    agent
        claude, codex, opencode, gemini, acp:COMMAND (any agent of the Agent Client Protocol) or scripted:FILE (a script or a recorded run).
    prompt
        The prompt; - or nothing reads it from stdin. Put a prompt that starts with - after --.
    """
    with loading():
        from proctor.cli.commands.run import run_command

    if options.record is not None and options.no_record:
        complain("--record and --no-record exclude each other (see proctor run --help)")
        return USAGE
    return run_command(agent, prompt, options)


def fleet_file(fleet: str | None) -> str | None:
    """The fleet file that is meant: the one of this name, else `fleet.toml` here or in a folder above. None, with a line on stderr, for none."""
    if fleet is not None:
        return fleet
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (found := folder / "fleet.toml").is_file():
            return str(found)
    complain(f"no fleet.toml in {here} or above: name a fleet file, or make one")
    return None


def up(
    fleet: str | None = None,
    /,
    *,
    strict: Flag = False,
    fresh: Flag = False,
    json: Flag = False,
    detach: Annotated[Flag, Parameter(name=("--detach", "-d"))] = False,
) -> int:
    """Start the agents of a fleet file, send each its prompt, and show what happens.

    Ends when every prompt is answered, and what was sent to the fleet by then; an agent without a prompt runs until Ctrl-C. A run that was
    cut short by a kill, a crash or SIGTERM is continued: what was answered is not asked again, and agents go on in their conversations.

    Parameters
    ----------
    fleet
        The fleet file (TOML). Default: fleet.toml here or in a folder above.
    strict
        Stop when an agent cannot start or is restarted too often. Default: continue with the others.
    fresh
        Begin anew also where a run was cut short.
    json
        Write every event as a line of JSON to stdout, and a record of each agent's result last.
    detach
        Run in the background, and return when the fleet can be reached (proctor ps).
    """
    if (file := fleet_file(fleet)) is None:
        return USAGE
    if detach:
        with loading():
            from proctor.cli.commands.detach import detach_command

        flags = {"--strict": strict, "--fresh": fresh, "--json": json}
        return detach_command(file, [flag for flag, is_set in flags.items() if is_set])
    with loading():
        from proctor.cli.commands.up import up_command

    return up_command(file, strict=strict, fresh=fresh, json=json)


def web(fleet: str | None = None, /, *, options: WebOptions = WebOptions()) -> int:
    """Run a fleet of agents and serve it over HTTP until it is interrupted.

    Parameters
    ----------
    fleet
        The fleet file (TOML). Default: fleet.toml here or in a folder above.
    """
    if missing := missing_of("http"):
        complain(missing)
        return USAGE
    if (file := fleet_file(fleet)) is None:
        return USAGE
    with loading():
        from proctor.cli.commands.web import web_command

    return web_command(file, options)


def serve(*, options: ServeOptions = ServeOptions()) -> int:
    """Serve agents as MCP tools until stdin closes or a signal arrives.

    proctor without a command does the same when its stdin is not a terminal.
    """
    if missing := missing_of("mcp", *(("http",) if options.http or options.probes else ())):
        complain(missing)
        return USAGE
    with loading():
        from proctor.cli.commands.serve import serve_command

    return serve_command(options)


def config(fleet: str | None = None, /) -> int:
    """Check a fleet file and print it as JSON, with its variables, defaults, prompt files and replicas filled in.

    Parameters
    ----------
    fleet
        The fleet file (TOML). Default: fleet.toml here or in a folder above.
    """
    if (file := fleet_file(fleet)) is None:
        return USAGE
    with loading():
        from proctor.cli.commands.config import config_command

    return config_command(file)


def service(
    action: Literal["install", "remove"], fleet: str | None = None, /, *, dry_run: Flag = False
) -> int:
    """Make a fleet a service of your systemd, which starts it with the machine and restarts it when it dies.

    Writes or removes a unit of the user and says what to run then. The service runs proctor up.

    Parameters
    ----------
    action
        Write the unit, or remove it.
    fleet
        The fleet file (TOML). Default: fleet.toml here or in a folder above.
    dry_run
        Print the unit, and write nothing.
    """
    if (file := fleet_file(fleet)) is None:
        return USAGE
    with loading():
        from proctor.cli.commands.service import install_command, remove_command

    if action == "remove":
        return remove_command(file)
    return install_command(file, dry_run=dry_run)


def setup(*, options: SetupOptions = SetupOptions()) -> int:
    """Register `proctor serve` as an MCP server with Claude Code, Codex, OpenCode and Gemini CLI, in each one's own file."""
    with loading():
        from proctor.cli.commands.setup import setup_command

    return setup_command(options)


def doctor(*, options: DoctorOptions = DoctorOptions()) -> int:
    """Check that this machine can run agents; exits with 1 when a check fails."""
    with loading():
        from proctor.cli.commands.doctor import doctor_command

    if options.children < 1 or not 0 <= options.seconds < math.inf:
        complain("--children is 1 or more, --seconds 0 or more (see proctor doctor --help)")
        return USAGE
    return doctor_command(options)


def health(*adapter: Literal["claude", "codex", "opencode", "gemini"], output: OutputFormat = "table") -> int:
    """Check which command lines are installed and work; exits with 1 when one does not.

    Parameters
    ----------
    adapter
        The command lines to check. Default: all.
    output
        The output format.
    """
    with loading():
        from proctor.cli.commands.health import health_command

    return health_command(adapter, json=output == "json")


def record(
    *command: str,
    output: Annotated[str | None, Parameter(name=("--output", "-o"))] = None,
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
    with loading():
        from proctor.cli.commands.record import record_command

    if not command:
        complain("no command: proctor record -- claude -p hello (see proctor record --help)")
        return USAGE
    return record_command(command, output)


def runs(*, options: RunsOptions = RunsOptions()) -> int:
    """List recorded runs, the newest first: the agent, how its last turn ended, what it cost."""
    with loading():
        from proctor.cli.commands.runs import runs_command

    if options.number < 0:
        complain("--number is 0 or more (see proctor runs --help)")
        return USAGE
    return runs_command(options)


def show(
    run: str,
    /,
    *,
    output: Annotated[RunForm, Parameter(name=("--output", "-o"))] = "text",
    json: Flag = False,
) -> int:
    """Show what a recorded run did, from its first event to its last; exits with 1 when its last turn failed.

    Parameters
    ----------
    run
        The id of a run, its folder, or the name of an agent for its last run.
    output
        text for people; json writes every event as a line of JSON, atif the run as a trajectory, md as Markdown.
    json
        The same as -o json.
    """
    with loading():
        from proctor.cli.commands.runs import show_command

    return show_command(run, "json" if json else output)


def cost(
    *, by: Literal["agent", "model", "day", "run"] = "agent", options: SelectionOptions = SelectionOptions()
) -> int:
    """Add up what recorded runs have cost, as their command lines report it.

    Parameters
    ----------
    by
        What the costs are added up by. A day is that on which the prompt was sent.
    """
    with loading():
        from proctor.cli.commands.runs import cost_command

    return cost_command(by, options)


def bench(tasks: str, /, *results: str, options: BenchOptions = BenchOptions()) -> int:
    """Give tasks to agents, score their work, and print a table; bench compare A.jsonl B.jsonl compares two files of results.

    A benchmark that was cut short goes on with the same command: what is in the file of results is not run again.

    Parameters
    ----------
    tasks
        The file of tasks (JSON Lines), or the word compare.
    results
        After compare: two files of results, or one to compare its agents.
    """
    with loading():
        from proctor.cli.commands.bench import bench_command, compare_command

    if tasks == "compare":
        if len(results) not in (1, 2):
            complain("compare takes one file of results or two (see proctor bench --help)")
            return USAGE
        return compare_command(results, json=options.json)
    if results:
        complain(f"too many words: {' '.join(map(repr, results))} (see proctor bench --help)")
        return USAGE
    return bench_command(tasks, options)


def resume(run: str, prompt: str | None = None, /, *, options: RunOptions = RunOptions()) -> int:
    """Send a prompt in the conversation of a recorded run, to a new agent of its kind in its folder.

    Parameters
    ----------
    run
        The id of a run, its folder, or the name of an agent for its last run.
    prompt
        The prompt; - or nothing reads it from stdin. Put a prompt that starts with - after --.
    """
    with loading():
        from proctor.cli.commands.runs import resume_command

    return resume_command(run, prompt, options)


def replay(recording: str, /, *, options: ReplayOptions = ReplayOptions()) -> int:
    """Replay a recorded run: send each of its prompts again, shown as run shows it.

    Parameters
    ----------
    recording
        A run directory (its newest incarnation is replayed), or the folder of one incarnation.
    """
    with loading():
        from proctor.cli.commands.replay import replay_command

    if not 0 <= options.speed < math.inf:
        complain("--speed is 0 or more (see proctor replay --help)")
        return USAGE
    return replay_command(recording, options)
