"""The story of a program by the model: the root, its `async with`, and what is done from outside."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tests.simulation.clockwork import Signal, Steps, Wait
from tests.simulation.model import Guide
from tests.simulation.program import Op, Program
from tests.simulation.requests import Request
from tests.simulation.story import Answer, Result, Story
from tests.simulation.universe import Place, Universe


class Prediction:
    """One program, told by the statements."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._universe = Universe(program)
        self._root = Guide(program.root, "root", self._universe, lambda: None)
        self._over, self._gave_up, self._cancelled = Signal(), Signal(), Signal()
        self._interrupted = Signal()
        self._how = ""
        self._universe.on_interrupt = self._interrupt

    def tell(self) -> Story:
        """The story."""
        clock = self._universe.clock
        clock.start(self._run_root())
        clock.start(self._run_with())
        for number, op in enumerate(self._program.script()):
            clock.start(self._perform(number, op))
        clock.run()
        return self._universe.story

    @property
    def sights(self) -> AbstractSet[str]:
        """The situations that the story reached."""
        return self._universe.sights

    @property
    def is_certain(self) -> bool:
        """Whether the statements leave no choice: nothing raced with something else at one instant."""
        return not self._universe.race

    def _run_root(self) -> Steps:
        root = self._root
        yield from root.run()
        root.close("killed" if root.killed else root.reason or "")
        if root.failed:
            self._universe.clock.happen(self._gave_up)

    def _run_with(self) -> Steps:
        root, clock = self._root, self._universe.clock
        cut = (self._cancelled, self._gave_up, self._interrupted)
        yield Wait((root.settled,))
        if root.served:
            yield Wait(cut, clock.now + self._program.moment(0, "settling"))
            yield Wait((*cut, self._over))
        raised = root.served and self._how == "raise" and not self._cancelled.happened
        self._see_end()
        root.stop()
        yield Wait((root.ended,))
        self._universe.story.outcome = Answer(clock.now, self._outcome(raised))

    def _interrupt(self) -> None:
        """The first stops the tree in order, the second kills it (T5)."""
        if self._universe.interrupts == 1:
            self._root.see("interrupted")
            self._root.stop()
        else:
            self._root.see("interrupted twice")
            self._root.kill()
        self._universe.clock.happen(self._interrupted)

    def _see_end(self) -> None:
        if not self._root.served:
            self._root.see("ended before it was ready")
        elif not self._root.dead and not self._root.ending:
            self._root.see(self._how)

    def _outcome(self, raised: bool) -> str:
        if self._universe.interrupts:
            return "interrupted"
        if self._root.failed:
            return self._root.failed
        if raised:
            return "raised"
        if self._cancelled.happened:
            return "cancelled"
        if not self._root.served:
            return f"StartError root {'killed' if self._root.killed else self._root.reason}"
        return "clean"

    def _perform(self, number: int, op: Op) -> Steps:
        yield Wait((), self._program.moment(op.at, "op", number))
        if op.do in ("start", "terminate", "restart", "delete", "which", "count"):
            self._request(number, op)
        else:
            result = self._act(op)
            self._universe.story.answers[number] = Answer(self._universe.clock.now, result)

    def _act(self, op: Op) -> Result:
        if op.do == "look":
            return self._picture()
        if op.do in ("exit", "kill"):
            self._end(op)
        elif op.do == "cancel":
            self._cancel()
        else:
            self._how = self._how or op.do
            self._universe.clock.happen(self._over)
        return "ok"

    def _cancel(self) -> None:
        if self._universe.story.outcome is None:
            if self._root.served and not self._root.ending:
                self._root.see("cancelled")
            self._universe.clock.happen(self._cancelled)
            self._root.stop()

    def _end(self, op: Op) -> None:
        target = self._universe.places.get(f"root/{op.path}") if op.path else self._root
        if target is None or (target is self._root and self._root.dead):
            return
        self._root.see(
            f"{op.do} of a {'supervisor' if isinstance(target, Guide) or target.guide else 'worker'}"
        )
        if op.do == "kill":
            target.kill()
        else:
            target.stop()

    def _request(self, number: int, op: Op) -> None:
        guide = self._find(op.supervisor)
        if guide is None:
            self._universe.story.answers[number] = Answer(self._universe.clock.now, "NoProc")
        else:
            Request(number, op, guide).make()

    def _find(self, path: str) -> Guide | None:
        guide: Guide | None = self._root
        for id in path.split("/") if path else ():
            place = None if guide is None else guide.places.get(id)
            guide = None if place is None or place.child is None else place.child.guide
        return guide

    def _picture(self) -> Result:
        return ("down" if self._root.dead else "running", _below(self._root))


def _below(guide: Guide | None) -> Result:
    return () if guide is None or guide.dead else tuple(map(_node, guide.places.values()))


def _node(place: Place) -> Result:
    below = _below(None if place.child is None else place.child.guide)
    child = place.child
    ends = child is not None and (child.ends or (child.guide is not None and child.guide.ending))
    ends_itself = place.state == "running" and ends
    return (
        place.node.id,
        "stopping" if ends_itself else place.state,
        place.count,
        place.restarts,
        place.exit,
        below,
    )
