"""`python -m tests.mutants [MODULE ...]`: break each decision on purpose; exit status 1 if a break goes unnoticed.

A break that is listed as equivalent must still be possible and must still go unnoticed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.breaks import Break, breaks
from tests.mutants.targets import EQUIVALENT, TARGETS, gone
from tests.mutants.trial import ROOT, Copy, Target, check


def main(*modules: str) -> int:
    """Try every break of the targets, or of those named."""
    targets = [target for target in TARGETS if not modules or target.module in modules]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder, str(n))) for n in range(os.cpu_count() or 1)]
        complaints = [line for target in targets for line in _complaints(target, copies)]
    sys.stdout.writelines(f"{line}\n" for line in complaints)
    return int(bool(complaints) or not targets)


def _complaints(target: Target, copies: Sequence[Copy]) -> Iterator[str]:
    check(copies[0], target)
    found = breaks((ROOT / target.module).read_text(encoding="utf-8"))
    noticed = _tried(target, found, copies)
    for broken, was_noticed in zip(found, noticed, strict=True):
        if was_noticed == ((target.module, *broken.place) in EQUIVALENT):
            yield _described(
                target, broken, "listed as equivalent, but noticed" if was_noticed else "unnoticed"
            )
    yield from (
        f"{target.module}: no break any more, but listed as equivalent: {place}" for place in gone(target)
    )
    sys.stdout.write(f"{target.module}: {len(found)} breaks, {sum(noticed)} noticed\n")


def _tried(target: Target, found: Sequence[Break], copies: Sequence[Copy]) -> list[bool]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def trial(broken: Break) -> bool:
        copy = free.get()
        try:
            return copy.notices(target, broken.source)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(trial, found))


def _described(target: Target, broken: Break, what: str) -> str:
    before = "\n".join(f"- {line}" for line in broken.before.splitlines())
    after = "\n".join(f"+ {line}" for line in broken.after.splitlines())
    return f"{target.module}, {broken.where}: {what}\n{before}\n{after}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
