"""What the statements say about the requests that a supervisor answers (S47-S55)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tests.simulation.clockwork import Steps
from tests.simulation.model import Doing, Guide
from tests.simulation.program import Node, Op, Pool, Worker
from tests.simulation.story import Answer, Result
from tests.simulation.universe import Place

LATER = object()
"""In place of an answer that comes when a start beside the supervisor is over."""


class Request:
    """One request of the script, done by a supervisor in its turn."""

    def __init__(self, number: int, op: Op, guide: Guide) -> None:
        self._number, self._op, self._guide = number, op, guide
        self._meant = guide.universe.latest.get(f"{guide.path}/{op.id}")

    def make(self) -> None:
        """Ask; nobody is there to be asked, or the answer comes later (S54)."""
        if self._guide.dead:
            self.answered("NoProc")
            return
        if self._guide.forgets and self._op.do in ("restart", "delete"):
            self.answered("no such request")  # S66
            return
        self._guide.unanswered.append(self)
        self._guide.ask(self._do)

    def answered(self, result: Result) -> None:
        """The first answer counts."""
        universe = self._guide.universe
        universe.story.answers.setdefault(self._number, Answer(universe.clock.now, result))

    def _do(self) -> Steps:
        steps: dict[str, Callable[[], Doing[Result]]] = {
            "start": self._start,
            "terminate": self._terminate,
            "restart": self._restart,
            "delete": self._delete,
            "which": self._which,
            "count": self._count,
        }
        result = yield from steps[self._op.do]()
        if result is not LATER:
            self._conclude(result)

    def _conclude(self, result: Result) -> None:
        if result is None:
            self._guide.see("request cut short by a stop")
        else:
            if self._guide.forgets and isinstance(result, str):
                self._guide.see(f"{self._op.do} in a pool: {result.partition(' ')[0]}")
            self.answered(result)

    def _place(self) -> Place | None:
        return self._guide.places.get(self._op.id)

    def _outcome(self, started: bool, place: Place) -> Result:
        """A start that its supervisor's own stop ended is never answered: the supervisor's end is (D5, S54)."""
        if started:
            return "ok"
        return None if self._guide.ending else place.error

    def _start(self) -> Doing[Result]:
        guide, node = self._guide, self._op.child
        assert node is not None
        if node.significant and guide.tree.auto_shutdown == "never":
            return "InvalidSpec"
        held = guide.places.get(node.id)
        if isinstance(guide.tree, Pool):
            if guide.tree.max_children is not None and len(guide.places) >= guide.tree.max_children:
                return "MaxChildren"
            node = self._placed(node)
        elif held is not None:
            guide.see("start_child of a held id")
            return f"AlreadyPresent {node.id}" if held.child is None else f"AlreadyStarted {node.id} crash"
        guide.places[node.id] = place = Place(node)
        return (yield from self._start_in(place))

    def _start_in(self, place: Place) -> Doing[Result]:
        """The answer to a start, or `LATER` where the supervisor does not wait for it."""
        guide = self._guide
        if not guide.begin(place):
            return self._started(False, place)
        if not guide.starts_beside(place.node):
            return self._started((yield from guide.finish(place)), place)
        guide.see("asked to start beside what it does")
        guide.universe.clock.start(self._answer_later(place))
        return LATER

    def _answer_later(self, place: Place) -> Steps:
        starting = place.starting
        assert starting is not None
        self._conclude(self._started((yield from self._guide.finish(place)), place))
        self._guide.universe.clock.happen(starting.over)

    def _started(self, started: bool, place: Place) -> Result:
        what, guide = "start_child" if self._op.do == "start" else "restart_child", self._guide
        if not started:
            guide.see(f"{what} failed")
            if self._op.do == "start" and guide.places.get(place.node.id) is place:
                del guide.places[place.node.id]
        elif self._op.do == "restart":
            guide.see(what)
        return self._outcome(started, place)

    def _placed(self, node: Node) -> Node:
        """A pool's child has a place of its own, whatever its id (S63)."""
        id, guide = node.id, self._guide
        while id in guide.places:
            guide.see("one id twice in a pool")
            id = f"{node.id}-{next(guide.numbers)}"
        return attrs.evolve(node, id=id)

    def _terminate(self) -> Doing[Result]:
        place = self._place()
        if place is None:
            return "NotFound"
        if self._guide.forgets and (place.latest is None or place.latest is not self._meant):
            self._guide.see("an earlier incarnation is not found")
            return "NotFound"
        self._guide.see(f"terminate_child of one {place.state}")
        yield from self._guide.end(place)
        if self._guide.places.get(place.node.id) is place:
            self._guide.rest(place)
        return "ok"

    def _restart(self) -> Doing[Result]:
        refusal, place = self._refusal(), self._place()
        if refusal or place is None:
            return refusal
        return (yield from self._start_in(place))

    def _delete(self) -> Doing[Result]:
        refusal = self._refusal()
        if not refusal:
            self._guide.see("delete_child")
            del self._guide.places[self._op.id]
        yield from ()
        return refusal or "ok"

    def _refusal(self) -> str:
        place = self._place()
        if place is None:
            return "NotFound"
        if place.state == "restarting":
            self._guide.see("refused because restarting")
            return "Restarting"
        return "" if place.child is None else "Running"

    def _which(self) -> Doing[Result]:
        yield from ()
        return tuple((id, _who(place), _type(place)) for id, place in self._guide.places.items())

    def _count(self) -> Doing[Result]:
        yield from ()
        places = list(self._guide.places.values())
        active = sum(place.child is not None for place in places)
        supervisors = sum(not isinstance(place.node, Worker) for place in places)
        return (len(places), active, supervisors, len(places) - supervisors)


def _who(place: Place) -> Result:
    if place.state == "restarting":
        return "restarting"
    return None if place.child is None else place.count


def _type(place: Place) -> str:
    return "worker" if isinstance(place.node, Worker) else "supervisor"
