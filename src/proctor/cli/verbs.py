"""The verbs: commands about fleets that run, as a table. They parse and start without what the other commands load."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from proctor.cli.exit_status import USAGE
from proctor.cli.usage_errors import complain


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


FLEET = _word("fleet", nargs="?", help="The fleet's name. Default: the one that runs.")
OUTPUT = _word(
    "-o", "--output", choices=("table", "json", "jsonl"), default="table", help="The output format."
)

VERBS: Mapping[str, Verb] = {
    "ls": Verb("List the fleets that run on this machine.", (OUTPUT,)),
    "ps": Verb("List the agents of a fleet; those that need somebody come first.", (FLEET, OUTPUT)),
}
"""All verbs."""

EPILOGUE = "Exit status: 0 done, 1 refused or failed, 2 usage error, 124 no answer in time."


class _Ended(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Parser(argparse.ArgumentParser):
    """The parser of one verb. A usage error is one line on stderr."""

    def error(self, message: str) -> NoReturn:
        """Report a usage error and exit."""
        complain(f"{message} (see {self.prog} --help)")
        raise _Ended(USAGE)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the parsing, after `--help`."""
        raise _Ended(status)


def parser_of(name: str) -> Parser:
    """The parser of a verb."""
    parser = Parser(f"proctor {name}", description=VERBS[name].summary, epilog=EPILOGUE, allow_abbrev=False)
    for word in VERBS[name].words:
        parser.add_argument(*word.names, **word.options)
    return parser


def run_verb(words: Sequence[str]) -> int:
    """Run a verb and return its exit status."""
    from proctor.cli.commands.control import control_command

    try:
        options = parser_of(words[0]).parse_args(list(words[1:]))
    except _Ended as ended:
        return ended.status
    return control_command(words[0], options)
