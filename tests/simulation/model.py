"""What the statements say about one program: a supervisor and its children without tasks, cancellation or messages.

Written from the statements. A supervisor is one process of the `clockwork`, a child another; a stop, a kill and an
exit are signals between them. Nothing here knows how the runtime does it, so that where the two differ, one of them
has the statements against it.

`sights` notes which situations a program reached, for the test that asks whether programs are interesting.

Not here: what a single worker does (`child`), how long restarts are put off (`rows`), requests (`requests`), what
else is done from outside (`prediction`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from tests.simulation import rows
from tests.simulation.child import Child
from tests.simulation.clockwork import Signal, Steps, Wait
from tests.simulation.program import Node, Pool, Tree, Worker
from tests.simulation.universe import Beginning, Place, Universe

if TYPE_CHECKING:
    from tests.simulation.requests import Request

WORKER_GRACE = 5.0

T = TypeVar("T")
Doing: TypeAlias = Generator[Wait, None, T]


class Guide:
    """One incarnation of a supervisor. It `forgets` children that rest if it is a pool (S66, S67)."""

    def __init__(self, tree: Tree | Pool, path: str, universe: Universe, ready: Callable[[], None]) -> None:
        self.tree, self.path, self.universe, self._ready = tree, path, universe, ready
        self.acts_at = -1.0
        self.begin_end: Callable[[], None] = lambda: None
        self.forgets, self.numbers = isinstance(tree, Pool), count(2)
        self.places: dict[str, Place] = {}
        self.reason: str | None = None
        self.failed = ""
        self.served = self.killed = self.dead = self.restarted = False
        self._failed_beside = -1.0
        """The instant of the last start beside it that failed in the instant in which it began."""
        self.stopping, self.dying, self.settled, self.ended = Signal(), Signal(), Signal(), Signal()
        self.exits: deque[Child] = deque()
        self.requests: deque[Callable[[], Steps]] = deque()
        self.unanswered: list[Request] = []
        self._news = Signal()
        self._times: list[float] = []

    @property
    def ending(self) -> bool:
        return self.reason is not None

    @property
    def may_start(self) -> bool:
        """Not while it ends (S41), nor once the program was interrupted (T5)."""
        return not self.ending and not self.universe.interrupts

    def stop(self, reason: str = "shutdown") -> None:
        """End in order (S36); a start under way is aborted (D5)."""
        self.reason = self.reason or reason
        self._happen(self.stopping, self._news)

    def kill(self) -> None:
        """End by force, with all below (S45)."""
        self.killed = True
        self._happen(self.dying)
        self.stop("killed")
        for place in self.places.values():
            if place.child is not None:
                place.child.kill()

    def hear(self, child: Child) -> None:
        """An exit is put into the inbox (T13)."""
        self.exits.append(child)
        self._happen(self._news)

    def ask(self, request: Callable[[], Steps]) -> None:
        """A request is put into the inbox, behind the others."""
        self.requests.append(request)
        self._happen(self._news)

    def _happen(self, *signals: Signal) -> None:
        for signal in signals:
            self.universe.clock.happen(signal)

    def _tell(self, kind: str, place: Place, detail: str = "") -> None:
        self.universe.tell(kind, self._path_of(place), detail)

    def _path_of(self, place: Place) -> str:
        return f"{self.path}/{place.node.id}"

    def see(self, sight: str) -> None:
        """Note a situation that was reached."""
        self.universe.sights.add(sight)

    def run(self) -> Steps:
        """Start the children, serve, stop the children (S7, S55, S36)."""
        complete = yield from self._start_all()
        if complete and not self.ending:
            self.served, self.acts_at = True, self.universe.clock.now if self.exits or self.requests else -1.0
            self._happen(self.settled)
            self._ready()
            self.universe.tell("supervisor_started", self.path)
        yield from self._serve()
        self.begin_end()
        yield from self._end_starts()
        yield from self._stop_children()
        self.places.clear()
        self.dead = True

    def close(self, reason: str) -> None:
        """Everybody hears of its end at once; what was asked and not answered never is (S54)."""
        self.dead = True
        for request in self.unanswered:
            request.answered(f"ActorExited {reason}")
        if self.served:
            self.universe.tell("supervisor_stopped", self.path, reason)
        self._happen(self.ended, self.settled)

    def _start_all(self) -> Doing[bool]:
        for nodes in self._first_groups():
            if not self.may_start:
                return False
            if len(nodes) > 1:
                self.see("started together")
                yield from self._start_together(nodes)
                continue
            self.places[nodes[0].id] = place = Place(nodes[0])
            if not (yield from self.start(place)) and not self.ending:
                self.failed, self.reason = place.error, "shutdown"
                self.see("initial start failed")
        return True

    def starts_beside(self, node: Node) -> bool:
        """Whether it starts while its supervisor goes on: where children do not depend on each other."""
        return node.parallel and self.tree.strategy == "one_for_one"

    def _first_groups(self) -> list[list[Node]]:
        """Neighbours that are parallel start together, others alone."""
        groups: list[list[Node]] = []
        for node in self.tree.children:
            if groups and self.starts_beside(node) and self.starts_beside(groups[-1][-1]):
                groups[-1].append(node)
            else:
                groups.append([node])
        return groups

    def _start_together(self, nodes: Sequence[Node]) -> Steps:
        """The first failure aborts the other starts (S10); of several in one instant the first in the list is raised."""
        failed: list[Place] = []
        begun = self._begin_together(nodes, failed)
        for place in begun:
            self.universe.clock.start(self._finish_together(place, failed))
        for over in [place.starting.over for place in begun if place.starting is not None]:
            yield Wait((over,))
        if failed:
            order = [node.id for node in nodes]
            self.failed = min(failed, key=lambda place: order.index(place.node.id)).error

    def _begin_together(self, nodes: Sequence[Node], failed: list[Place]) -> list[Place]:
        begun: list[Place] = []
        for node in nodes:
            self.places[node.id] = place = Place(node)
            if not self.begin(place):
                self._fail_together(place, failed)
                for other in begun:
                    assert other.child is not None
                    assert other.starting is not None
                    self._happen(other.starting.aborting)
                    other.child.kill()
                break
            begun.append(place)
        return begun

    def _finish_together(self, place: Place, failed: list[Place]) -> Steps:
        starting = place.starting
        assert starting is not None
        started = yield from self.finish(place)
        if not started and not place.aborted:
            self._fail_together(place, failed)
            self._abort_starts()
        self._happen(starting.over)

    def _fail_together(self, place: Place, failed: list[Place]) -> None:
        if failed or not self.ending:
            failed.append(place)
        self.reason = self.reason or "shutdown"
        self.begin_end()
        self.see("initial start failed together")

    def _abort_starts(self) -> list[Signal]:
        found = [place.starting for place in self.places.values() if place.starting is not None]
        for starting in found:
            starting.abort(self.universe)
        return [starting.over for starting in found]

    def _end_starts(self) -> Steps:
        """A supervisor that ends aborts all starts together, before it stops the first child."""
        for over in self._abort_starts():
            self.see("starts aborted at the end")
            yield Wait((over,))

    def _serve(self) -> Steps:
        while not self.ending:
            if self.requests and self.may_start and (self.restarted or not self.exits):
                self.restarted = False
                # whether it meets that start in progress or failed is open (T12)
                self.universe.race |= self._failed_beside == self.universe.clock.now
                yield from self.requests.popleft()()
            elif self.exits:
                yield from self._exited(self.exits.popleft())
            else:
                self._news = Signal()
                yield Wait((self._news,))

    def start(self, place: Place) -> Doing[bool]:
        """Start a child and see what becomes of it (S8-S12, X4): False if it failed. It is down then."""
        return self.begin(place) and (yield from self.finish(place))

    def begin(self, place: Place) -> bool:
        """Start a child; False if its name is taken."""
        place.count, place.owed, place.aborted = place.count + 1, None, False
        if self.starts_beside(place.node):
            self.universe.story.unordered.add(self.path)
        child = place.child = Child(place.node, self._path_of(place), place.count, self)
        if not child.take_names():
            self.see("name taken")
            return self._not_started(place, "crash", "AlreadyStarted")
        place.state, place.starting = "starting", Beginning(self.universe.clock.now)
        self.universe.clock.start(child.live())
        return True

    def finish(self, place: Place) -> Doing[bool]:
        """See what becomes of a start."""
        child, starting = place.child, place.starting
        assert child is not None
        assert starting is not None
        late = yield from self._wait_started(child, starting.aborting)
        place.starting = None
        place.aborted = starting.aborting.happened or (late != "" and self.stopping.happened)
        if late:
            return self._not_started(place, late)
        if child.ready:
            place.state, place.latest = "running", child
            self.universe.latest[child.path] = child
            self._tell("child_started", place, str(place.count))
            return True
        if child.ignored:
            self._ignored(place)
            return True
        if self.starts_beside(place.node) and starting.since == self.universe.clock.now:
            self._failed_beside = starting.since
        return self._not_started(place, child.reason)

    def _ignored(self, place: Place) -> None:
        self.see("ignored")
        place.child, place.exit = None, "-"
        self.rest(place)

    def rest(self, place: Place) -> None:
        """It is down and no restart is owed: a temporary one goes (S9, S49), and any goes from a pool (S67)."""
        place.state, place.owed = "down", None
        if self.forgets or place.node.restart == "temporary":
            del self.places[place.node.id]

    def _not_started(self, place: Place, reason: str, error: str = "StartError") -> bool:
        place.child, place.state, place.exit = None, "down", reason
        place.error = f"{error} {place.node.id} {reason}"
        self._tell("start_error", place, reason)
        return False

    def _wait_started(self, child: Child, aborting: Signal) -> Doing[str]:
        limit = child.node.start_timeout
        patience = math.inf if limit is None else self._specified(limit, child, "timeout")
        yield Wait((child.settled, self.stopping, aborting), self.universe.clock.now + patience)
        if child.settled.happened:
            return ""
        aborted = self.stopping.happened or aborting.happened
        late = "killed" if aborted else "crash"
        self.see("start aborted" if aborted else "start timed out")
        child.given_up = True
        if child.guide is not None:
            self.see("start of a supervisor given up")
            yield from self._ask(child)
        child.kill()
        yield Wait((child.ended,))
        if child.ready:
            self.see("ready too late")
        return late if late == "crash" else child.reason

    def _specified(self, ticks: int, child: Child, what: str) -> float:
        return self.universe.program.specified(ticks, child.path, what)

    def _stop_children(self) -> Steps:
        """In reverse order (S36), a pool's all together (S65)."""
        places = list(self.places.values())
        if any(place.owed is not None for place in places):
            self.see("stop while a restart is owed")
        if not self.forgets:
            yield from self._stop_all(places)
            return
        if len(places) > 1:
            self.see("stopped together")
        self.universe.story.unordered.add(self.path)
        ends = [(place, Signal()) for place in places]
        for place, end in ends:
            self.universe.clock.start(self._end_beside(place, end))
        for _, end in ends:
            yield Wait((end,))

    def _end_beside(self, place: Place, end: Signal) -> Steps:
        yield from self.end(place)
        self._happen(end)

    def _stop_all(self, places: Sequence[Place]) -> Steps:
        for place in reversed(places):
            yield from self.end(place)

    def end(self, place: Place) -> Steps:
        """Stop a child, and wait until it is dead (S36-S39, S44); an owed restart is not made any more (S49)."""
        if place.starting is not None:
            over = place.starting.over
            self.see("stopped while it starts")
            place.starting.abort(self.universe)
            yield Wait((over,))
        child, place.owed = place.child, None
        if child is None:
            place.state = "down"
            return
        if child.ended.happened:
            self.see("death consumed by a stop phase")
        place.state = "stopping"
        yield from self._ask(child)
        self._stopped(place, child)

    def own_grace(self, child: Child) -> float:
        """The time for an end that its supervisor has not begun: the spec's, or the default where that gives none."""
        grace = self._grace(child)
        if grace == "brutal_kill" or grace == 0:
            return WORKER_GRACE if isinstance(child.node, Worker) else math.inf
        return grace

    def _ask(self, child: Child) -> Steps:
        grace = self._grace(child)
        if grace != "brutal_kill" and not self.killed:
            child.stop()
        if grace in ("brutal_kill", 0) or self.killed:  # none at all: asked and killed in one breath (S38)
            if not child.ended.happened:
                self.see("killed with its supervisor" if self.killed else "brutal kill")
            child.kill()
        yield Wait((child.ended,))

    def _grace(self, child: Child) -> float | Literal["brutal_kill"]:
        given = child.node.shutdown
        if isinstance(given, str):
            return given
        if given is not None:
            return self._specified(given, child, "grace") if given else 0.0
        return WORKER_GRACE if isinstance(child.node, Worker) else math.inf

    def _stopped(self, place: Place, child: Child) -> None:
        reason = child.reason
        rows.end(place, child.path, self.universe)
        place.child, place.state, place.exit = None, "down", reason
        self._tell("child_exited", place, reason)
        asked = "killed" if place.node.shutdown == "brutal_kill" else "shutdown"
        expected = {asked} if place.node.restart == "permanent" else {asked, "shutdown", "normal"}
        if reason not in expected and not self.killed:
            self.see("shutdown error")
            self._tell("shutdown_error", place, reason)

    def _exited(self, child: Child) -> Steps:
        place = self.places.get(child.node.id)
        if place is not None and place.child is child and place.starting is not None:
            yield Wait((place.starting.over,))
        if place is None or place.child is not child:
            return  # a late report (S17)
        back = rows.comes_back(child)
        rows.end(place, child.path, self.universe)
        place.child, place.exit = None, child.reason
        place.state = "restarting" if back else "down"
        if not back and (self.forgets or child.node.restart == "temporary"):
            del self.places[child.node.id]
        self._tell("child_exited", place, child.reason)
        if child.node.restart == "permanent" or child.reason not in ("normal", "shutdown"):
            self._tell("child_terminated", place, child.reason)
        if back:
            yield from self._restart(place, child.reason)
        elif self._is_last_straw(child):
            self.see("significant end")
            self.reason = "shutdown"

    def _is_last_straw(self, child: Child) -> bool:
        if not child.node.significant:
            return False
        active = any(place.node.significant and place.state != "down" for place in self.places.values())
        return self.tree.auto_shutdown == "any_significant" or not active

    def _restart(self, place: Place, cause: str) -> Steps:
        if not self.may_start:
            place.state = "down"
            self.see("no restart after an interrupt")
            return
        if not self._has_budget() or rows.is_full(place):
            self._give_up(place, cause)
            return
        place.restarts, place.attempt = place.restarts + 1, place.attempt + 1
        put_off = rows.delay(place, self._path_of(place), self.universe)
        self._tell("child_restarting", place, f"{place.attempt} {put_off:.6f} {cause}")
        self.see("restart" if place.attempt == 1 else "retry")
        if not isinstance(place.node, Worker):
            self.see("restart of a supervisor")
        if place.node.backoff is None:
            self.restarted = True
            yield from self._carry_out(place)
        else:
            place.owed = object()
            self.universe.clock.start(self._put_off(place, place.owed, put_off))

    def _put_off(self, place: Place, owed: object, seconds: float) -> Steps:
        def resume() -> Steps:
            if self._owes(place, owed):
                yield from self._carry_out(place)

        self.see("put off")
        yield Wait((), self.universe.clock.now + seconds)
        if not self._owes(place, owed):
            self.see("stopped or started while put off")
            return  # it takes no turn among the requests
        self.ask(resume)

    def _owes(self, place: Place, owed: object) -> bool:
        held = self.places.get(place.node.id) is place and place.state == "restarting"
        return held and place.owed is owed and not self.ending

    def _carry_out(self, place: Place) -> Steps:
        group = self._group(place)
        yield from self._stop_all(
            [other for other in group if other is not place and other.child is not None]
        )
        started = [other for other in group if other is place or other.node.restart != "temporary"]
        for other in group:
            if other not in started:
                self.see("temporary bystander")
                del self.places[other.node.id]
        if len(started) > 1:
            self.see("group restart")
        yield from self._start_again(started)

    def _group(self, place: Place) -> list[Place]:
        held = list(self.places.values())
        at = held.index(place)
        groups = {"one_for_one": [place], "one_for_all": held, "rest_for_one": held[at:]}
        return groups[self.tree.strategy]

    def _start_again(self, group: Sequence[Place]) -> Steps:
        for at, place in enumerate(group, 1):
            if not self.may_start:
                self.see("stop during a restart")
                return
            if self.starts_beside(place.node):
                self._restart_beside(place)
            elif not (yield from self.start(place)) and not place.aborted:
                self._owe_only(place, group[at:])
                return

    def _restart_beside(self, place: Place) -> None:
        """Its outcome is waited for while the supervisor goes on."""
        if not self.begin(place):
            self._owe_only(place, ())
            return
        if any(other.starting for other in self.places.values() if other is not place):
            self.see("restarted beside another start")
        self.universe.clock.start(self._finish_restart(place))

    def _finish_restart(self, place: Place) -> Steps:
        starting = place.starting
        assert starting is not None
        if not (yield from self.finish(place)) and not place.aborted:
            self.see("failed restart beside others")
            self._owe_only(place, ())
        self._happen(starting.over, self._news)

    def _owe_only(self, place: Place, others: Sequence[Place]) -> None:
        """One restart is owed, that of the child that failed: those after it wait for it (S28)."""
        for other in others:
            if other.owed is not None:
                self.see("owed restart superseded")
            other.state, other.owed = "down", None
        place.state, place.owed = "restarting", object()
        self._try_later(place, place.owed)

    def _try_later(self, place: Place, owed: object) -> None:
        def retry() -> Steps:
            if self._owes(place, owed):
                yield from self._restart(place, place.exit)

        self.see("failed restart")
        self.requests.append(retry)

    def _has_budget(self) -> bool:
        now = self.universe.clock.now
        period = self.universe.program.specified(self.tree.period, self.path, "period")
        self._times = [*(then for then in self._times if now - then <= period), now]
        return len(self._times) <= self.tree.intensity

    def _give_up(self, place: Place, cause: str) -> None:
        if len(self._times) <= self.tree.intensity:
            self.see("too many in a row")
        self.see("root gives up" if self.path == "root" else "nested gives up")
        place.state = "down"
        self.failed, self.reason = f"gave up {len(self._times)}", "shutdown"
        self.universe.tell("max_restarts", self.path, f"{place.node.id} {cause}")
