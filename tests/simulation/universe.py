"""What the parts of one predicted run share: time, names, places, chance, and the story."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from tests.simulation.clockwork import Clockwork, Signal
from tests.simulation.program import Node, Program
from tests.simulation.story import Story, Told

if TYPE_CHECKING:
    from tests.simulation.child import Child

State: TypeAlias = Literal["starting", "running", "restarting", "stopping", "down"]


class Beginning:
    """A start in progress: `over` when its outcome has been dealt with."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.aborting, self.over = Signal(), Signal()

    def abort(self, universe: Universe) -> None:
        """End the wait for it; whether a child that began in this instant is ready before is open (T12)."""
        universe.race |= self.since == universe.clock.now
        universe.clock.happen(self.aborting)


class Place:
    """Where one held spec stands: who is there, and what came before."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state: State = "down"
        self.child: Child | None = None
        self.latest: Child | None = None
        """The last that was ready (S66)."""
        self.count = self.attempt = self.restarts = 0
        self.exit, self.error = "-", ""
        self.starting: Beginning | None = None
        """Its start, while the outcome is open."""
        self.aborted = False
        """Whether its last start was aborted: what follows is for the one who did that."""
        self.owed: object = None
        """The restart to be tried again or later, a new one each time (S28, X1)."""


@attrs.define
class Universe:
    """What the parts of one predicted run share. `random` is what the tree's seed gives (X16)."""

    program: Program
    clock: Clockwork = attrs.field(factory=Clockwork)
    story: Story = attrs.field(factory=Story)
    sights: set[str] = attrs.field(factory=set[str])
    names: dict[str, Child] = attrs.field(factory=dict[str, "Child"])
    places: dict[str, Child] = attrs.field(factory=dict[str, "Child"])
    latest: dict[str, Child] = attrs.field(factory=dict[str, "Child"])
    """Who was last heard to have started at each path."""
    touched: dict[str, tuple[float, str]] = attrs.field(factory=dict[str, tuple[float, str]])
    race: bool = False
    """A supervisor ended in the instant in which it became ready and went on to act, or a
    child that interrupted the program ended in that instant, or two wanted one name: who came first is open (T12)."""

    interrupts: int = 0
    on_interrupt: Callable[[], object] = int
    random: Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.program.seed)

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
