"""The start of a command: what a user waits for before anything is done.

    python -m bench.cold [--rounds 7]

Each command is a new interpreter, beside one that does nothing but `import trio`; they take turns. `first byte` is from
the start to the first byte on stdout, `end` to the end of the process, each as a ratio to the whole of `import trio` of
the same round; processor time is that of the process and its children. `run` plays a script, `serve` answers
`initialize`. The modules are compiled before the first round.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE, Popen

import attrs

from bench.contest import ROUNDS, options

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)
REFERENCE = "import trio"


@attrs.frozen
class Start:
    """Seconds: to the first byte, to the end, and of processor time."""

    first: float
    end: float
    cpu: float


def start(words: Sequence[str], sent: bytes, environment: Mapping[str, str]) -> Start:
    """Start an interpreter with these words, send it `sent`, and read it to its end."""
    before, begin = os.times(), time.perf_counter()
    command = [sys.executable, *words]
    with Popen(command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(sent)
        process.stdout.read(1)
        first = time.perf_counter() - begin
        process.stdin.close()
        process.stdout.read()
    end, after = time.perf_counter() - begin, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Start(first, end, used)


def rows(rounds: int) -> Mapping[str, Sequence[Start]]:
    """The starts of each command, round by round."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        script = Path(folder, "script.ndjson")
        script.write_text('{"reply": "Well."}\n')
        environment = {**os.environ, "HOME": folder, "PROCTOR_LOG": "error"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's start finds its modules compiled
        commands = {
            REFERENCE: (["-c", "import trio"], b""),
            "--version": (["-m", "proctor", "--version"], b""),
            "run": (["-m", "proctor", "run", f"scripted:{script}", "Well?", "--no-record"], b""),
            "serve": (["-m", "proctor", "serve", "--agents", f"scripted:{script}"], INITIALIZE),
        }
        for words, sent in commands.values():
            start(words, sent, environment)
        starts: dict[str, list[Start]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, (words, sent) in commands.items():
                starts[name].append(start(words, sent, environment))
    return starts


def table(starts: Mapping[str, Sequence[Start]]) -> str:
    """Markdown."""
    lines = [
        "| command | first byte, ms | end, ms | CPU, ms | first byte ÷ import trio | end ÷ | CPU ÷ |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    reference = starts[REFERENCE]
    for name, own in starts.items():
        times = [f"{median(values) * 1000:.0f}" for values in zip(*map(attrs.astuple, own), strict=True)]
        pairs = [*zip(own, reference, strict=True)]
        ratios = [
            [mine.first / other.end for mine, other in pairs],
            [mine.end / other.end for mine, other in pairs],
            [mine.cpu / other.cpu for mine, other in pairs],
        ]
        shown = [f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in ratios]
        lines.append(f"| {' | '.join([name, *times, *shown])} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    print(table(rows(options("The start of a command", rounds=ROUNDS).rounds)))


if __name__ == "__main__":
    main()
