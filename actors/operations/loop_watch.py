"""Names what holds the event loop: passes longer than a bound, with the task that ran, and where in its code.

A pass is what the loop does between two waits for input. Until it ends, no other task runs and nothing is read. A thread looks at
the loop twice within the bound and takes the Python stack of a pass that is already half as old as the bound; when the pass
ends, the task that was seen most is named. A pass that began and ended between two looks, or that was in one call into C all
the time, is reported without a stack.

The cost is 3 µs for each pass and two looks within each bound, 0.2 % of a core at a bound of 0.1 s.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from inspect import CO_COROUTINE
from pathlib import Path
from types import FrameType

import attrs
import trio

_current_frames = sys._current_frames  # pyright: ignore[reportPrivateUsage]  it is documented

FRAMES = 6
"""Frames of a stack that are shown, the innermost."""


@attrs.frozen
class Hold:
    """One pass that took `seconds`: `computed` of them on a processor, `collected` of them on garbage. `task` ran, at `stack`."""

    seconds: float
    computed: float
    collected: float
    task: str
    stack: str

    def __str__(self) -> str:
        of_that = f"{self.computed:.3f} s computing, {self.collected:.3f} s collecting garbage"
        return f"the event loop was held for {self.seconds:.3f} s ({of_that}) by {self.task or 'an unknown task'}: {self.stack}"


@attrs.frozen
class Look:
    """What ran in the pass that began at `began`: the frame of its task, if it was one, and the stack at that moment."""

    began: float
    task: FrameType | None
    stack: str


class LoopWatch(trio.abc.Instrument):
    """Calls `on_hold`, in the loop, at the end of each pass of more than `bound` seconds. Made by `watch_loop`."""

    def __init__(self, bound: float, on_hold: Callable[[Hold], object]) -> None:
        self._bound = bound
        self._on_hold = on_hold
        self._loop = threading.get_ident()
        self._over = threading.Event()
        self._began: float | None = None
        self._computed = self._collected = self._collecting = 0.0
        self.looks: list[Look] = []
        """What was seen in the present pass."""

    @contextmanager
    def installed(self) -> Generator[None]:
        """Watch the loop of this thread."""
        thread = threading.Thread(target=self._look_until_over, name="the watch on the loop", daemon=True)
        thread.start()
        trio.lowlevel.add_instrument(self)
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)
            trio.lowlevel.remove_instrument(self)
            self._over.set()
            thread.join()

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins."""
        del timeout
        self._collected = 0.0
        self._computed = time.thread_time()
        self._began = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """The pass has ended."""
        del timeout
        began, self._began = self._began, None
        if began is not None and (seconds := time.perf_counter() - began) > self._bound:
            computed = time.thread_time() - self._computed
            self._on_hold(Hold(seconds, computed, self._collected, *self._culprit(began)))
        if self.looks:
            self.looks.clear()

    def _culprit(self, began: float) -> tuple[str, str]:
        # a look that was begun in the pass before may have come late
        looks = [look for look in self.looks if look.began == began]
        if not looks:
            return "", "it was not seen"
        [(most, _)] = Counter(look.task for look in looks).most_common(1)
        return _name(most), next(look.stack for look in reversed(looks) if look.task is most)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        del info
        if threading.get_ident() != self._loop:
            return
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._collected += time.perf_counter() - self._collecting

    def _look_until_over(self) -> None:
        """The thread."""
        while not self._over.wait(self._bound / 2):
            began = self._began
            if began is not None and time.perf_counter() - began > self._bound / 2:
                self.looks.append(_look(began, _current_frames().get(self._loop)))


def _look(began: float, innermost: FrameType | None) -> Look:
    frames = [(frame, line) for frame, line in traceback.walk_stack(innermost)]
    tasks = [place for place, (frame, _) in enumerate(frames) if frame.f_code.co_flags & CO_COROUTINE]
    shown = reversed(frames[: min(FRAMES, *[place + 1 for place in tasks[-1:]], len(frames))])
    places = (f"{Path(f.f_code.co_filename).name}:{line} {f.f_code.co_qualname}" for f, line in shown)
    return Look(began, frames[tasks[-1]][0] if tasks else None, " > ".join(places))


def _name(frame: FrameType | None) -> str:
    """The name of the task with this frame; one that has ended has that of its function."""
    if frame is None:
        return "the loop itself"
    root = trio.lowlevel.current_root_task()
    found = (task.name for task in _tasks(root) if getattr(task.coro, "cr_frame", None) is frame)
    return next(found, frame.f_code.co_qualname)


def _tasks(task: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    waiting = [] if task is None else [task]
    while waiting:
        yield (task := waiting.pop())
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


@contextmanager
def watch_loop(bound: float, on_hold: Callable[[Hold], object]) -> Generator[LoopWatch]:
    """Call `on_hold`, in the loop, at the end of each pass of this Trio run that takes more than `bound` seconds."""
    watch = LoopWatch(bound, on_hold)
    with watch.installed():
        yield watch
