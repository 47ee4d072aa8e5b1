"""Imports without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def loading() -> Generator[None]:
    """Turn the garbage collector off while modules are imported, and exclude their objects from later collections.

    A command imports hundreds of modules, a server some hundred thousand objects, which each collection would scan again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # the imported modules live to the end: frozen, no later collection looks at them
        gc.freeze()
        if enabled:
            gc.enable()
