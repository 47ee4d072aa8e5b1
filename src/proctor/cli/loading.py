"""Loading what a long-running command is made of."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def loading() -> Generator[None]:
    """Look for no garbage meanwhile, nor ever again in what is there at the end: modules and their classes stay.

    The packages of the servers make some hundred thousand objects, which the collector would go through again and again.
    """
    looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if looking:
            gc.enable()
