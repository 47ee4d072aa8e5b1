"""The verbs: commands about fleets that run, as a table. They parse and start without what the other commands load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A word of a command line: its names as `argparse` takes them, and its options."""

    names: tuple[str, ...]
    options: Mapping[str, Any]


class Verb(NamedTuple):
    """A verb: what it does, and its words."""

    summary: str
    words: tuple[Word, ...] = ()


def _word(*names: str, **options: Any) -> Word:
    return Word(names, options)


def _dollars(text: str) -> float | str:
    if text == "none":
        return text
    # argparse makes a usage error of a ValueError, but without its text
    if not 0 < (usd := float(text)) < 1e12:
        raise ValueError(text)
    return usd


_dollars.__name__ = "amount"  # as the usage error calls it


FLEET = _word("fleet", nargs="?", help="The fleet's name. Default: the one that runs.")
AGENTS = _word("agent", help="NAME, the beginning of one, a pattern such as 'review-*', or FLEET/NAME.")
AGENT = _word("agent", help="NAME, the beginning of one, or FLEET/NAME.")
PROMPT = _word("prompt", help="The prompt; - reads it from stdin.")
APPROVAL = _word("id", nargs="?", help="The approval's id. Default: the only open one.")
OUTPUT = _word(
    "-o", "--output", choices=("table", "json", "jsonl"), default="table", help="The output format."
)
TIMEOUT = _word("--timeout", default="10s", help="How long to wait for the host. Default: 10s.")
STOPPING = _word(
    "--timeout", dest="limit", default="1m", help="How long to wait for its end. Default: 1m, and the grace."
)
LIMIT = _word("--timeout", dest="limit", default="none", help="Time limit, such as 5m. Default: none.")

VERBS: Mapping[str, Verb] = {
    "ls": Verb("List the fleets that run on this machine.", (OUTPUT, TIMEOUT)),
    "ps": Verb("List the agents of a fleet; those that need somebody come first.", (FLEET, OUTPUT, TIMEOUT)),
    "top": Verb("Watch a fleet in the terminal, and answer its agents.", (FLEET, TIMEOUT)),
    "completion": Verb(
        "Print a script that completes the command line, or the names that run.",
        (
            _word(
                "kind",
                choices=("bash", "zsh", "fish", "agents", "fleets"),
                help="The shell; agents and fleets print their names, for the script.",
            ),
            TIMEOUT,
        ),
    ),
    "tree": Verb("Show the supervisors and agents of a fleet as a tree.", (FLEET, TIMEOUT)),
    "describe": Verb("Show all that is known of an agent.", (AGENT, OUTPUT, TIMEOUT)),
    "logs": Verb(
        "Show the events of an agent, as up does.",
        (
            AGENT,
            _word("-f", "--follow", action="store_true", help="Wait for more events."),
            _word("--raw", action="store_true", help="Write each event as a line of JSON."),
            TIMEOUT,
        ),
    ),
    "attach": Verb(
        "Follow an agent in the terminal, answer it, and send it what is typed.", (AGENT, TIMEOUT)
    ),
    "ask": Verb(
        "Send a prompt to an agent, wait for its turn, and print the answer.", (AGENT, PROMPT, LIMIT)
    ),
    "send": Verb("Queue a prompt for an agent, and print the receipt.", (AGENTS, PROMPT, TIMEOUT)),
    "steer": Verb(
        "Send text to the running turn of an agent.", (AGENTS, _word("text", help="The text."), TIMEOUT)
    ),
    "interrupt": Verb("End the running turn of an agent; its session continues.", (AGENTS, TIMEOUT)),
    "stop": Verb("Stop an agent; it stays down until it is started.", (AGENTS, TIMEOUT)),
    "start": Verb("Start an agent that is down.", (AGENTS, TIMEOUT)),
    "restart": Verb("Stop an agent and start it again, in its session.", (AGENTS, TIMEOUT)),
    "park": Verb(
        "Hold an agent back: its running turn goes on, no other one begins.",
        (
            AGENTS,
            _word("-m", "--message", dest="reason", default="", help="The reason, which ps shows."),
            _word(
                "--for", dest="limit", default="none", help="For how long, such as 2h. Default: until unpark."
            ),
            TIMEOUT,
        ),
    ),
    "unpark": Verb("Let an agent go that was parked.", (AGENTS, TIMEOUT)),
    "kill": Verb("Kill an agent with its processes; its supervisor restarts it.", (AGENTS, TIMEOUT)),
    "reset-failed": Verb(
        "Start an agent again that has failed or was given up, and forget its restarts.", (AGENTS, TIMEOUT)
    ),
    "requests": Verb(
        "List what the agents of a fleet were asked, the newest first, with what came of it.",
        (
            FLEET,
            _word("--agent", help="Only those of this agent: NAME, the beginning of one, or FLEET/NAME."),
            _word("--state", choices=("waiting", "running", "ended"), help="Only those in this state."),
            _word("--limit", dest="most", type=int, default=100, help="At most so many. Default: 100."),
            OUTPUT,
            TIMEOUT,
        ),
    ),
    "approvals": Verb("List the open approvals of a fleet.", (FLEET, OUTPUT, TIMEOUT)),
    "approve": Verb(
        "Let the tool run that an agent asks for.",
        (
            AGENT,
            APPROVAL,
            _word(
                "--always", action="store_true", help="Do not ask again for the like of it in this session."
            ),
            TIMEOUT,
        ),
    ),
    "deny": Verb(
        "Deny the tool that an agent asks for.",
        (AGENT, APPROVAL, _word("-m", "--message", default="", help="The reason, for the model."), TIMEOUT),
    ),
    "answer": Verb(
        "Answer what an agent asks you.",
        (
            AGENT,
            _word(
                "answers",
                nargs="+",
                metavar="answer",
                help="An answer for each question, in order: an option, its number, or a text of your own.",
            ),
            _word("--id", help="The approval's id. Default: the only open question."),
            TIMEOUT,
        ),
    ),
    "extend": Verb(
        "Put off the deadline of an approval.",
        (AGENT, _word("time", help="How long it is given from now on, such as 30m."), APPROVAL, TIMEOUT),
    ),
    "reload": Verb(
        "Read the fleet file of a running fleet again: start what is new, stop what is gone.",
        (
            FLEET,
            _word("--dry-run", action="store_true", help="Show what is different, and change nothing."),
            _word("--restart", action="store_true", help="Restart the changed agents that are idle."),
            TIMEOUT,
        ),
    ),
    "budget": Verb(
        "Show or change the budget of a fleet or an agent.",
        (
            _word(
                "agent",
                nargs="?",
                help="NAME, the beginning of one, or FLEET/NAME. Default: the whole fleet.",
            ),
            _word("--fleet", help="The fleet's name, without an agent. Default: the one that runs."),
            _word(
                "--usd",
                type=_dollars,
                help="Dollars that may be spent in that time; none removes the budget.",
            ),
            _word("--per", help="The time, such as 1d. Default: as it is, else a day."),
            OUTPUT,
            TIMEOUT,
        ),
    ),
    "wait": Verb(
        "Wait until a fleet is idle, or has ended.",
        (
            FLEET,
            _word(
                "--for",
                dest="state",
                choices=("idle", "done"),
                default="done",
                help="idle: no agent works or has work waiting; done: the host has ended. Default: done.",
            ),
            LIMIT,
        ),
    ),
    "down": Verb(
        "Stop a fleet in order, and wait until its host has ended.",
        (
            FLEET,
            _word("--grace", default="0s", help="How long running turns may go on. Default: 0s."),
            STOPPING,
        ),
    ),
}
"""All verbs."""


def run_verb(words: Sequence[str]) -> int:
    """Run a verb and return its exit status."""
    from proctor.cli import verb_parser  # every command loads this table, and its parser costs 4 ms

    return verb_parser.run_verb(words)
