"""How much is searched and where a search begins: `SIMULATE` and `SIMULATE_SEED` in the environment.

`make test` tries 1,000 random programs on random trees, the gate 10,000 and `make simulate` 200,000. The other searches
take a tenth of their examples beside the other tests, in the gate too, and more of them in `make simulate` alone. A
failure names the seed with which it comes again; without one, each run tries other programs.
"""

from __future__ import annotations

import os

GATE = 10_000
PROGRAMS = int(os.environ.get("SIMULATE", GATE // 10))
SEED = int(os.environ.get("SIMULATE_SEED") or int.from_bytes(os.urandom(4), "big"))


ALONE = PROGRAMS > GATE
"""Whether the searches run at length, and not beside the other tests."""


def share(examples: int) -> int:
    """Examples for this run of a search that would take so many beside 10,000 programs."""
    return max(1, examples * (PROGRAMS if ALONE else GATE // 10) // GATE)
