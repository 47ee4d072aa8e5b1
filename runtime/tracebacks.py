"""Tracebacks without the locals of their frames.

An exception holds, by its traceback, each frame that it passed and all that the frame held. So a crash that a supervisor
remembers, or an event carries, would keep the dead child: its messages, its buffers, its open handles.

Frames are replaced, not cleared: an exception that was an answer, or was kept and raised again, leads through frames
of others, which may be suspended, and clearing one of those ends its coroutine.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType, FunctionType, TracebackType
from typing import cast


def drop_locals(error: BaseException) -> None:
    """Replace the tracebacks of `error`, of its causes and of its parts by ones that print the same and hold nothing."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        # causes and contexts may form a circle
        seen.add(id(one))
        one.__traceback__ = _without_locals(one.__traceback__)
        left += [one.__cause__, one.__context__, *_parts(one)]


def _parts(error: object) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def _without_locals(trace: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    bare: TracebackType | None = None
    for entry in reversed(entries):
        # -1: no instruction, so the line is printed without marks below it
        bare = TracebackType(bare, _empty_frame(entry.tb_frame), -1, entry.tb_lineno)
    return bare


def _generator() -> Iterator[None]:
    yield


def _empty_frame(frame: FrameType) -> FrameType:
    """A frame of the same name, file and module. That of a generator, because it leads to no caller's."""
    code = frame.f_code
    twin = _generator.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
    )
    module = {name: frame.f_globals.get(name) for name in ("__name__", "__file__", "__loader__")}
    # never started, so it holds no locals; its globals have what a traceback needs to find the source line
    empty: FrameType = FunctionType(twin, module)().gi_frame
    return empty
