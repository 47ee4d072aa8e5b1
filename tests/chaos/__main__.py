"""`python -m tests.chaos [--seconds 300] [--agents 50] [--gap 0.1] [--seed 1] [--hold 0.05]`: a storm, and what came of it."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path

import trio

from tests.chaos.storm import Storm, Weather


def main(arguments: list[str] | None = None) -> int:
    """Run the storm that the arguments describe. Exit status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--gap", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--hold", type=float, default=0.05, help="seconds that a pass of the loop may compute"
    )
    parser.add_argument("--dialects", default="claude", help="names between commas")
    given = parser.parse_args(arguments)
    weather = Weather(
        agents=given.agents,
        seconds=given.seconds,
        gap=given.gap,
        seed=given.seed,
        dialects=tuple(given.dialects.split(",")),
        hold=given.hold,
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # the ledger of hosts is the storm's own
        gc.freeze()  # as the command line does when it has loaded: no collection looks through the modules again
        report = trio.run(Storm(weather, Path(folder)).run)
    sys.stdout.writelines(f"{line}\n" for line in report.lines())
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main())
