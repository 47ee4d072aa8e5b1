"""How much is searched and where a search begins: `SIMULATE` and `SIMULATE_SEED` in the environment.

`make test` tries a tenth of what the gate tries, and `make simulate` 20 times as much as the gate. A failure names the
seed with which it comes again; without one, each run tries other programs.
"""

from __future__ import annotations

import os

GATE = 10_000
PROGRAMS = int(os.environ.get("SIMULATE", GATE // 10))
SEED = int(os.environ.get("SIMULATE_SEED") or int.from_bytes(os.urandom(4), "big"))


def share(examples: int) -> int:
    """Examples for this run of a search that takes so many in the gate."""
    return max(1, examples * PROGRAMS // GATE)
