"""Imports for long-running commands, without the cost of garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def loading() -> Generator[None]:
    """Turn the garbage collector off while modules are imported, and exclude their objects from later collections.

    The packages of the servers make some hundred thousand objects, which each collection would scan again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
