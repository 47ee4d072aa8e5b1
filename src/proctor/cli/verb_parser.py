"""The parser of the verbs' command lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from proctor.cli.exit_status import USAGE
from proctor.cli.usage_errors import complain
from proctor.cli.verbs import VERBS

EPILOGUE = (
    "Exit status: 0 done; 1 refused, failed, or no such fleet or agent; 2 usage error; 124 no answer in time."
)


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
