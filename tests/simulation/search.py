"""How many programs are tried and where they begin: `SIMULATE` and `SIMULATE_SEED` in the environment.

A failure names the seed with which it comes again; without one, each run tries other programs.
"""

from __future__ import annotations

import os

PROGRAMS = int(os.environ.get("SIMULATE", "10000"))
SEED = int(os.environ.get("SIMULATE_SEED") or int.from_bytes(os.urandom(4), "big"))
