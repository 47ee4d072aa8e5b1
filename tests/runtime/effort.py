"""How much work a piece of Python does, counted in instructions: the same on every machine and at every load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions(fn: Callable[[], object]) -> int:
    """The bytecode instructions that `fn()` executes, itself and in all that it calls; what C code does is not seen."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        fn()
    finally:
        sys.settrace(before)
    return count
