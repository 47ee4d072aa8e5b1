"""How much is searched and where a search begins: `SIMULATE` and `SIMULATE_SEED` in the environment.

`make test` tries 400 random programs on random trees, and `make simulate` 200,000. The other searches take a
twenty-fifth of their examples beside the other tests, and more of them in `make simulate` alone.
That each of them finds what is broken on purpose is a test of its own, with programs that are always the same. A failure
names the seed with which it comes again; without one, each run tries other programs.
"""

from __future__ import annotations

import os

ALL = 10_000
BESIDE = 400
"""Programs of a run beside the other tests."""

PROGRAMS = int(os.environ.get("SIMULATE", BESIDE))
SEED = int(os.environ.get("SIMULATE_SEED") or int.from_bytes(os.urandom(4), "big"))


ALONE = PROGRAMS > ALL
"""Whether the searches run at length, and not beside the other tests."""


def share(examples: int) -> int:
    """Examples for this run of a search that would take so many beside 10,000 programs."""
    return max(1, examples * (PROGRAMS if ALONE else BESIDE) // ALL)
