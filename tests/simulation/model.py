"""What the statements say about one program: a supervisor and its children without tasks, cancellation or messages.

Written from the statements. A supervisor is one process of the `clockwork`, a child another; a stop, a kill and an
exit are signals between them. Nothing here knows how the runtime does it, so that where the two differ, one of them
has the statements against it.

`sights` notes which situations a program reached, for the test that asks whether programs are interesting.

Not here: what a single worker does (`child`), requests (`requests`), what else is done from outside (`prediction`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import attrs

from tests.simulation.child import Child
from tests.simulation.clockwork import Clockwork, Signal, Steps, Wait
from tests.simulation.program import Node, Program, Tree, Worker
from tests.simulation.story import Story, Told

if TYPE_CHECKING:
    from tests.simulation.requests import Request

PATIENCE = 5.0
WORKER_GRACE = 5.0

State: TypeAlias = Literal["starting", "running", "restarting", "stopping", "down"]
T = TypeVar("T")
Doing: TypeAlias = Generator[Wait, None, T]


class Place:
    """Where one held spec stands: who is there, and what came before."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state: State = "down"
        self.child: Child | None = None
        self.count = self.attempt = self.restarts = 0
        self.exit, self.error = "-", ""
        self.owed: object = None
        """The restart to be tried again, a new one each time (S28)."""


@attrs.define
class Universe:
    """What the parts of one predicted run share."""

    program: Program
    clock: Clockwork = attrs.field(factory=Clockwork)
    story: Story = attrs.field(factory=Story)
    sights: set[str] = attrs.field(factory=set[str])
    names: dict[str, Child] = attrs.field(factory=dict[str, Child])
    places: dict[str, Child] = attrs.field(factory=dict[str, Child])
    touched: dict[str, tuple[float, str]] = attrs.field(factory=dict[str, tuple[float, str]])
    race: bool = False
    """A supervisor ended in the instant in which it became ready and went on to act, or a
    child that interrupted the program ended in that instant, or two wanted one name: who came first is open (T12)."""

    interrupts: int = 0
    on_interrupt: Callable[[], object] = int

    def interrupt(self) -> None:
        """The program is asked to end from within a child (T5)."""
        self.interrupts += 1
        self.on_interrupt()

    def touch(self, name: str, by: str) -> None:
        """A name is taken or given back; by two supervisors in one instant, it is a race."""
        instant, other = self.touched.get(name, (-1.0, by))
        self.race |= instant == self.clock.now and other != by
        self.touched[name] = (self.clock.now, by)

    def tell(self, kind: str, path: str, detail: str = "") -> None:
        """An event, now."""
        self.story.events.append(Told(self.clock.now, kind, path, detail))


class Guide:
    """One incarnation of a supervisor."""

    def __init__(self, tree: Tree, path: str, universe: Universe, ready: Callable[[], None]) -> None:
        self.tree, self.path, self.universe, self._ready = tree, path, universe, ready
        self.acts_at = -1.0
        self.places: dict[str, Place] = {}
        self.reason: str | None = None
        self.failed = ""
        self.served = self.killed = self.dead = False
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
        self.universe.tell(kind, f"{self.path}/{place.node.id}", detail)

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
        yield from self._stop_all(list(self.places.values()))
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
        for node in self.tree.children:
            if not self.may_start:
                return False
            self.places[node.id] = place = Place(node)
            if not (yield from self.start(place)) and not self.ending:
                self.failed, self.reason = place.error, "shutdown"
                self.see("initial start failed")
        return True

    def _serve(self) -> Steps:
        while not self.ending:
            if self.exits:
                yield from self._exited(self.exits.popleft())
            elif self.requests and self.may_start:
                yield from self.requests.popleft()()
            else:
                self._news = Signal()
                yield Wait((self._news,))

    def start(self, place: Place) -> Doing[bool]:
        """Start a child and see what becomes of it (S8-S12, X4): False if it failed. It is down then."""
        place.count, place.owed = place.count + 1, None
        child = place.child = Child(place.node, f"{self.path}/{place.node.id}", place.count, self)
        if not child.take_names():
            self.see("name taken")
            return self._not_started(place, "crash", "AlreadyStarted")
        place.state = "starting"
        self.universe.clock.start(child.live())
        late = yield from self._wait_started(child)
        if late:
            return self._not_started(place, late)
        if child.ready:
            place.state, place.attempt = "running", 0
            self._tell("child_started", place, str(place.count))
            return True
        if child.ignored:
            self._ignored(place)
            return True
        return self._not_started(place, child.reason)

    def _ignored(self, place: Place) -> None:
        self.see("ignored")
        place.child, place.exit = None, "-"
        self.rest(place)

    def rest(self, place: Place) -> None:
        """It is down and no restart is owed: a temporary one goes (S9, S49)."""
        place.state, place.owed = "down", None
        if place.node.restart == "temporary":
            del self.places[place.node.id]

    def _not_started(self, place: Place, reason: str, error: str = "StartError") -> bool:
        place.child, place.state, place.exit = None, "down", reason
        place.error = f"{error} {place.node.id} {reason}"
        self._tell("start_error", place, reason)
        return False

    def _wait_started(self, child: Child) -> Doing[str]:
        limit = child.node.start_timeout
        patience = math.inf if limit is None else self.universe.program.moment(limit, child.path, "timeout")
        yield Wait((child.settled, self.stopping), self.universe.clock.now + patience)
        if child.settled.happened:
            return ""
        late = "killed" if self.stopping.happened else "crash"
        self.see("start aborted" if self.stopping.happened else "start timed out")
        child.given_up = True
        child.kill()
        yield from self._death_of(child)
        if child.ready:
            self.see("ready too late")
        return late

    def _death_of(self, child: Child) -> Steps:
        yield Wait((child.ended,), self.universe.clock.now + PATIENCE)
        if not child.ended.happened:
            self.see("unresponsive")
            self.universe.tell("child_unresponsive", child.path)
            yield Wait((child.ended,))

    def _stop_all(self, places: Sequence[Place]) -> Steps:
        for place in reversed(places):
            yield from self.end(place)

    def end(self, place: Place) -> Steps:
        """Stop a child, and wait until it is dead (S36-S39, S44); an owed restart is not made any more (S49)."""
        child, place.owed = place.child, None
        if child is None:
            place.state = "down"
            return
        if child.ended.happened:
            self.see("death consumed by a stop phase")
        place.state = "stopping"
        grace = self._grace(child)
        if grace != "brutal_kill" and not self.killed:
            child.stop()
            if grace:  # none at all: asked and killed in one breath (S38)
                yield Wait((child.ended, self.dying), self.universe.clock.now + grace)
        if not child.ended.happened:
            self.see(
                "brutal kill"
                if grace == "brutal_kill"
                else "killed with its supervisor"
                if self.killed
                else "killed after its grace"
            )
            child.kill()
        yield from self._death_of(child)
        self._stopped(place, child)

    def _grace(self, child: Child) -> float | Literal["brutal_kill"]:
        given = child.node.shutdown
        if isinstance(given, str):
            return given
        if given is not None:
            return self.universe.program.delay(given, child.path, "grace")
        return WORKER_GRACE if isinstance(child.node, Worker) else math.inf

    def _stopped(self, place: Place, child: Child) -> None:
        reason = child.reason
        place.child, place.state, place.exit = None, "down", reason
        self._tell("child_exited", place, reason)
        asked = "killed" if place.node.shutdown == "brutal_kill" else "shutdown"
        expected = {asked} if place.node.restart == "permanent" else {asked, "shutdown", "normal"}
        if reason not in expected and not self.killed:
            self.see("shutdown error")
            self._tell("shutdown_error", place, reason)

    def _exited(self, child: Child) -> Steps:
        place = self.places.get(child.node.id)
        if place is None or place.child is not child:
            return  # a late report (S17)
        back = comes_back(child)
        place.child, place.exit = None, child.reason
        place.state = "restarting" if back else "down"
        if child.node.restart == "temporary":
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
        if not self._has_budget():
            self._give_up(place, cause)
            return
        place.restarts, place.attempt = place.restarts + 1, place.attempt + 1
        self._tell("child_restarting", place, f"{place.attempt} {cause}")
        self.see("restart" if place.attempt == 1 else "retry")
        if isinstance(place.node, Tree):
            self.see("restart of a supervisor")
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
            if not (yield from self.start(place)):
                self._owe_only(place, group[at:])
                return

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
            if place.owed is owed and self.places.get(place.node.id) is place and place.state == "restarting":
                yield from self._restart(place, place.exit)

        self.see("failed restart")
        self.requests.append(retry)

    def _has_budget(self) -> bool:
        now = self.universe.clock.now
        period = self.universe.program.moment(self.tree.period, self.path, "period")
        self._times = [*(then for then in self._times if now - then <= period), now]
        return len(self._times) <= self.tree.intensity

    def _give_up(self, place: Place, cause: str) -> None:
        self.see("root gives up" if self.path == "root" else "nested gives up")
        place.state = "down"
        self.failed, self.reason = f"gave up {len(self._times)}", "shutdown"
        self.universe.tell("max_restarts", self.path, f"{place.node.id} {cause}")


def comes_back(child: Child) -> bool:
    """Whether an exit by itself is followed by a restart (S14-S16)."""
    if child.node.restart == "transient":
        return child.reason not in ("normal", "shutdown")
    return child.node.restart == "permanent"
