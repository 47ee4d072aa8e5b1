"""Every fault in the arguments of a command that serves, and in the files they name, reported at once."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from proctor.actors.durations import limit
from proctor.actors.errors import BadOption, FleetFaults, OptionFault
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.cli.parameters import ServerOptions
from proctor.cli.recordings import state_directory


def all_of(faults: Sequence[OptionFault]) -> BadOption:
    """The error that has them all, each line once."""
    return BadOption("\n".join(dict.fromkeys(map(str, faults))), faults)


def read_fleet(path: str) -> Fleet:
    """The fleet of this file. Raises `BadOption` with a fault for each of the file."""
    try:
        return load_fleet(Path(path))
    except FleetFaults as error:
        raise BadOption(str(error), [OptionFault("", line) for line in str(error).splitlines()]) from error


def seconds_of(
    option: str, text: str, faults: list[OptionFault], read: Callable[[str], float] = limit
) -> float:
    """The seconds in a word of the command line, by default of a time limit, infinite for none; `faults` gets what is wrong with it."""
    try:
        return read(text)
    except ValueError as error:
        faults.append(OptionFault("", f"{option}: {error}"))
        return math.inf


def pools_of(words: Sequence[str], faults: list[OptionFault]) -> Pools:
    """The pools of these sizes, `N` for every kind or `KIND=N`; `faults` gets what is wrong with them."""
    most: int | None = None
    by_kind = dict[str, int]()
    for word in words:
        kind, equals, number = word.rpartition("=")
        if not (number.isascii() and number.isdigit()) or (equals and not kind):
            faults.append(OptionFault("", f"--limit: expected a number, or KIND=NUMBER, got {word!r}"))
        elif equals:
            by_kind[kind] = int(number)
        elif int(number) < 1:
            faults.append(OptionFault("", f"--limit must be 1 or more, got {number}"))
        else:
            most = int(number)
    return collect_faults(faults, partial(Pools, limit=most, limits=by_kind), None) or Pools()


def sessions_of(options: ServerOptions, faults: list[OptionFault]) -> Sessions:
    """The sessions of a server: kept in the folder that its flags name, else below the state folder and for this server alone."""
    ttl = None if options.session_ttl is None else seconds_of("--session-ttl", options.session_ttl, faults)
    folder = options.sessions or state_directory().parent / "sessions"
    return Sessions(folder, ttl=ttl, keep=options.sessions is not None)


def name_prefix(options: ServerOptions) -> str:
    """A prefix for the names of sessions, which must not meet those of another server; none where they are kept."""
    return "" if options.sessions is not None else f"{secrets.token_hex(8)}/"


async def enter_sessions(stack: AsyncExitStack, sessions: Sessions | None, log: logging.Logger) -> None:
    """Open the sessions of a server until `stack` is closed. A request that names one is refused where their folder cannot be used."""
    if sessions is None:
        return
    try:
        await stack.enter_async_context(sessions)
    except OSError as error:
        log.warning("the folder of sessions cannot be used: %s", error)
