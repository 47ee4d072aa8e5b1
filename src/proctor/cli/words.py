"""Every fault in the arguments of a command that serves, and in the files they name, reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from proctor.actors.errors import BadOption, FleetFaults, OptionFault
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.plan.option_checks import collect_faults
from proctor.actors.serving.pool import Pools


def all_of(faults: Sequence[OptionFault]) -> BadOption:
    """The error that has them all, each line once."""
    return BadOption("\n".join(dict.fromkeys(map(str, faults))), faults)


def read_fleet(path: str) -> Fleet:
    """The fleet of this file. Raises `BadOption` with a fault for each of the file."""
    try:
        return load_fleet(Path(path))
    except FleetFaults as error:
        raise BadOption(str(error), [OptionFault("", line) for line in str(error).splitlines()]) from error


def pools_of(limit: int | None, limits: Mapping[str, int], faults: list[OptionFault]) -> Pools:
    """The pools of these sizes; `faults` gets what is wrong with them."""
    if limit is not None and limit < 1:
        faults.append(OptionFault("", f"--limit must be 1 or more, got {limit}"))
        limit = None
    return collect_faults(faults, partial(Pools, limit=limit, limits=limits), None) or Pools()
