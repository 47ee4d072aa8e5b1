"""Two commits in turns: the figures of a script side by side, as they are in this tree and in another commit.

    python -m bench.compare [--turns 3] REV [SCRIPT [its options]]

    make bench-compare REV=main BENCH_ARGS="spawn --programs 64 --rounds 3"

SCRIPT is a module of `bench/`; without one it is everything. Each commit runs its own script on its own code, with the
packages of this environment: REV from an archive below `build/compare/`, the other from this tree with its changes. They take
turns, and who is first changes from turn to turn. Every right-aligned column of the tables counts as a figure; the result has
its median and range on both sides, and the quotient of the medians. A row that one of the two lacks is left out.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "compare"
TURNS = 3

Figures = Mapping[str, float]
"""By the words of its row and its column."""

_NUMBER = re.compile(r"-?[\d,]*\.?\d+(?= |$)")
_HEADINGS = ("figure", "before", "range", "now", "range", "now / before")


def parse(output: str) -> Figures:
    """The figures of all tables in `output`."""
    figures: dict[str, float] = {}
    title, headings, rules = "", list[str](), list[str]()
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif not line.startswith("|"):
            headings, rules = [], []
        elif not headings:
            headings = cells
        elif not rules:
            rules = cells
        else:
            figures |= _row(title, headings, rules, cells)
    return figures


def _row(title: str, headings: Sequence[str], rules: Sequence[str], cells: Sequence[str]) -> Figures:
    columns = [*zip(headings, rules, cells, strict=True)]
    words = [cell.strip("*`") for _, rule, cell in columns if not rule.endswith(":")]
    label = ", ".join(filter(None, (title, *words)))
    found = {
        f"{label}: {heading}": _NUMBER.match(cell) for heading, rule, cell in columns if rule.endswith(":")
    }
    # a range has two numbers and is no figure
    return {
        name: float(number[0].replace(",", ""))
        for name, number in found.items()
        if number and " to " not in number.string.partition("(")[0]
    }


def table(before: Sequence[Figures], now: Sequence[Figures]) -> str:
    """Markdown: each figure that every turn of both has."""
    lines = [_line(_HEADINGS), _line(("---", *["---:"] * (len(_HEADINGS) - 1)))]
    for name in now[0]:
        if all(name in figures for figures in (*before, *now)):
            old, new = ([figures[name] for figures in side] for side in (before, now))
            quotient = f"{median(new) / median(old):.2f}" if median(old) else ""
            lines.append(_line((name, *_summary(old), *_summary(new), quotient)))
    return "\n".join(lines)


def _summary(values: Sequence[float]) -> tuple[str, str]:
    return f"{median(values):,.6g}", f"{min(values):,.6g} to {max(values):,.6g}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def in_turn(turn: int) -> Sequence[str]:
    """Who runs first and second: neither is always the one that finds the machine warm."""
    return ("before", "now") if turn % 2 == 0 else ("now", "before")


def machine() -> str:
    """What it ran on."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} of {model}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def load() -> str:
    """Processes that ran or waited to, in the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def resolve(revision: str) -> str:
    """The short name of the commit. Raises SystemExit where there is none."""
    command = ["git", "rev-parse", "--short", "--verify", f"{revision}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"no commit {revision!r} here: {done.stderr.strip()}; name one with REV=")
    return done.stdout.strip()


def check_out(commit: str) -> Path:
    """The tree of a commit; one that is there is used again."""
    tree = BUILD / commit
    if not tree.exists():
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True
        )
        # Under another name until it is whole: an extraction that is cut short is not used later.
        fresh = tree.with_suffix(".new")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(fresh, filter="data")
        # as this tree is: or its first turn would have the compiler in it
        subprocess.run([sys.executable, "-m", "compileall", "-q", fresh], check=True)
        fresh.rename(tree)
    return tree


def run(tree: Path, arguments: Sequence[str]) -> Figures:
    """The figures of a script of this tree."""
    script = "bench"
    if arguments and (tree / "bench" / f"{arguments[0]}.py").exists():
        script, arguments = f"bench.{arguments[0]}", arguments[1:]
    # in front of what is installed, which is this tree's
    env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, "-m", script, *arguments]
    done = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in {tree} ended with {done.returncode}")
    return parse(done.stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Two commits in turns")
    parser.add_argument("rev", help="the commit to compare this tree with")
    parser.add_argument("--turns", type=int, default=TURNS, metavar="N", help=f"default {TURNS}")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="of bench/, with its options; none: all")
    chosen = parser.parse_args()
    arguments = chosen.script
    commit = resolve(chosen.rev)
    trees = {"before": check_out(commit), "now": ROOT}
    found: dict[str, list[Figures]] = {"before": [], "now": []}
    loads = [load()]
    for turn in range(max(1, chosen.turns)):
        for side in in_turn(turn):
            found[side].append(run(trees[side], arguments))
        loads.append(load())
    print(table(found["before"], found["now"]))
    print(
        f"\nbefore is {commit}, now this tree; {max(1, chosen.turns)} turns; load {', '.join(loads)}; {machine()}"
    )


if __name__ == "__main__":
    main()
